"""A terminal of a known size to type into and to look at: tmux, with a server of its own."""

from __future__ import annotations

import os
import secrets
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

from ludwig.closing import Closing
from tests.processes import wait_until
from tests.tools import program


class Terminal(Closing):
    """Runs one command. A context manager; the command ends with it."""

    def __init__(
        self,
        command: list[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        width: int = 80,
        height: int = 24,
    ) -> None:
        self._socket = f"ludwig-{os.getpid()}-{secrets.token_hex(4)}"
        # The shell survives Ctrl-C; `cat` keeps the terminal open when the command has ended.
        after = "status=$?; echo; echo exit status $status; exec cat"
        script = f"trap : INT; {shlex.join(command)}; {after}"
        own = ("TMUX", "COLUMNS", "LINES")  # pytest's workers have the size of another terminal
        kept = {name: text for name, text in env.items() if not name.startswith(own)}
        size = ["-x", str(width), "-y", str(height), "-c", str(cwd)]
        self._tmux(
            *["-f", os.devnull, "new-session", "-d", *size, "sh", "-c", script],
            env={**kept, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"},
        )

    def _tmux(self, *arguments: str, env: Mapping[str, str] | None = None) -> str:
        command = [program("tmux"), "-L", self._socket, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env=env)
        if done.returncode != 0:
            raise OSError(f"tmux {arguments[0]}: {done.stderr.strip()}")
        return done.stdout

    def screen(self) -> str:
        """What a person sees, with the lines that have scrolled away."""
        return self._tmux("capture-pane", "-p", "-S", "-200").rstrip()

    def press(self, *keys: str) -> None:
        """Keys by their tmux names: `"C-c"`, `"Enter"`, or text."""
        self._tmux("send-keys", *keys)

    def wait_for(self, *words: str, timeout: float = 20.0) -> str:
        """The screen once it shows all of these."""

        def shown() -> str:
            screen = self.screen()
            missing = [word for word in words if word not in screen]
            assert not missing, f"{missing} not on the screen:\n{screen}"
            return screen

        return wait_until(shown, timeout=timeout, what=" and ".join(words), interval=0.05)

    def close(self) -> None:
        subprocess.run(
            [program("tmux"), "-L", self._socket, "kill-server"], capture_output=True, check=False
        )
