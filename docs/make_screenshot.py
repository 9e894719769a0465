"""Makes the README's picture from a real run of `ludwig demo` in a real terminal (tmux).

    .venv/bin/python docs/make_screenshot.py

Writes `docs/pictures/demo.svg` and `docs/pictures/learning_curves.png`. The picture names no font
to download and no folder of the machine it was made on.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

PICTURES = Path(__file__).with_name("pictures")
COLUMNS, ROWS = 92, 40
PATIENCE_S = 180
THEME = TerminalTheme(
    (24, 27, 33),
    (220, 223, 228),
    [(40, 44, 52), (224, 108, 117), (152, 195, 121), (229, 192, 123),
     (97, 175, 239), (198, 120, 221), (86, 182, 194), (220, 223, 228)],
    [(92, 99, 112), (224, 108, 117), (152, 195, 121), (229, 192, 123),
     (97, 175, 239), (198, 120, 221), (86, 182, 194), (255, 255, 255)],
)  # fmt: skip
SVG = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg"
 xml:space="preserve">
<style>
.{unique_id}-matrix {{
    font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
    font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width;
}}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""As rich has it, without its links to fonts."""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="ludwig-picture-") as name:
        folder = Path(name)
        screen = run_demo(folder)
        PICTURES.mkdir(exist_ok=True)
        shutil.copyfile(
            folder / "ludwig-demo" / "learning_curves.png", PICTURES / "learning_curves.png"
        )
    screen = screen.replace(str(folder.resolve()), "/home/ana")
    (PICTURES / "demo.svg").write_text(draw(screen), encoding="utf-8")


def run_demo(folder: Path) -> str:
    """The terminal's last screen, with its colours, after the demo has ended in it."""
    ludwig = Path(sys.executable).with_name("ludwig")
    tmux = ["tmux", "-S", str(folder / "socket"), "-f", "/dev/null"]
    shell = f"cd {folder} && PS1='$ ' exec sh"
    subprocess.run(
        [*tmux, "new-session", "-d", "-x", str(COLUMNS), "-y", str(ROWS), shell],
        check=True,
        env=os.environ | {"PATH": f"{ludwig.parent}:{os.environ['PATH']}"},
    )
    try:
        time.sleep(1)
        subprocess.run([*tmux, "send-keys", "ludwig demo", "Enter"], check=True)
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            screen = capture(tmux)
            if "Look around" in screen and screen.rstrip().endswith("$"):
                return screen.rstrip().removesuffix("$").rstrip()
            time.sleep(0.5)
        raise SystemExit(f"the demo did not end within {PATIENCE_S} s; the screen:\n{screen}")
    finally:
        subprocess.run([*tmux, "kill-server"], check=True)


def capture(tmux: list[str]) -> str:
    command = [*tmux, "capture-pane", "-p", "-e"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def draw(screen: str) -> str:
    console = Console(
        record=True,
        width=COLUMNS,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
    )
    console.print(Text.from_ansi(screen))
    svg = console.export_svg(title="ludwig demo", theme=THEME, code_format=SVG, unique_id="demo")
    return re.sub(r"[ \t]+\n", "\n", svg)


if __name__ == "__main__":
    main()
