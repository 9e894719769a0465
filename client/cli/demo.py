"""`ludwig demo`: see Ludwig at work without a lab."""

from __future__ import annotations

import shutil
import signal
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from ludwig import errors
from ludwig.client.cli.options import console
from ludwig.client.cli.show_nodes import nodes_page
from ludwig.client.demo.run import HOSTS, Story, run_demo
from ludwig.client.embedded import EmbeddedLab
from ludwig.client.status import NodeStatus

if TYPE_CHECKING:
    import pandas

__all__ = ["demo"]

SILENT_S = 4.0
Folder = Annotated[
    Path | None,
    typer.Option(
        "--folder",
        metavar="PATH",
        help="Where everything goes; must not exist.",
        show_default=False,
    ),
]


def demo(folder: Folder = None) -> None:
    """See it work: a lab on this machine, a sweep, a node that dies, a table and a plot.

    No root, no server. Everything lies in one folder, and no process is left behind.
    """
    place = _make_folder(folder)
    # So that `kill` and a closed terminal clean up as Ctrl-C does.
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), _interrupt)
    out = console()
    out.print(f"Setting up a lab in {place}: a folder as the drive, two agents.", soft_wrap=True)
    lab = EmbeddedLab(place, HOSTS, slots=1, node_silent_s=SILENT_S)
    try:
        picture = run_demo(place, lab, _Told())
    except KeyboardInterrupt:
        shutil.rmtree(place, ignore_errors=True)
        out.print(f"Stopped. No process is left, and {place} is removed.", soft_wrap=True)
        raise typer.Exit(130) from None
    out.print()
    out.print(f"The learning curves are in {picture}", soft_wrap=True)
    out.print(f"The runs are in {lab.drive_folder / 'spirals' / 'runs'}", soft_wrap=True)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _make_folder(folder: Path | None) -> Path:
    if folder is None:
        return Path(tempfile.mkdtemp(prefix="ludwig-demo-"))
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        with suppress(OSError):
            if not any(folder.iterdir()):
                return folder.absolute()
        raise errors.UsageError(f"{folder} is there already: name another folder.") from None
    return folder.absolute()


class _Told(Story):
    """Tells the story on the terminal."""

    def __init__(self) -> None:
        self._out = console()

    def say(self, text: str) -> None:
        self._out.print()
        self._out.print(Text(text, style="bold"))

    def nodes(self, rows: list[NodeStatus]) -> None:
        self._out.print(nodes_page(rows))

    def results(self, frame: pandas.DataFrame) -> None:
        from ludwig.client.export import last_values_table

        self._out.print(last_values_table(frame))
