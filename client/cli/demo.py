"""`ludwig demo`: see Ludwig at work without a lab."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from ludwig import errors
from ludwig.client.cli.options import console, flag
from ludwig.client.cli.results import show_best
from ludwig.client.cli.show_nodes import nodes_page
from ludwig.client.demo.run import HOSTS, PROJECT, Story, run_demo
from ludwig.client.embedded import EmbeddedLab, remove_folder
from ludwig.client.status import NodeStatus

if TYPE_CHECKING:
    import pandas

__all__ = ["demo"]

SILENT_S = 4.0
SIGNALS = [signal.SIGINT, signal.SIGTERM]
if hasattr(signal, "SIGHUP"):  # a closed terminal, where there is such a thing
    SIGNALS.append(signal.SIGHUP)
CACHES = "caches"
NOT_KEPT = (CACHES, "nodes", "servers", "home")
"""Nobody needs the workspaces of agents and the keys of servers that are gone."""
Folder = Annotated[
    Path | None,
    typer.Option(
        "--folder",
        metavar="PATH",
        help="Where everything goes: a new folder. Default: ludwig-demo, here.",
        show_default=False,
    ),
]
Smb = Annotated[bool, flag("--smb", help="Over a real smbd and sshd, if they are installed.")]


def demo(folder: Folder = None, smb: Smb = False) -> None:
    """See it work: a lab on this machine, a sweep, a node that dies, a table and a plot.

    No root, no server, half a minute. Everything lies in one folder, and no process is left behind;
    Ctrl-C removes the folder, too.
    """
    began = time.monotonic()
    for number in SIGNALS:  # all of them clean up as Ctrl-C does
        signal.signal(number, _interrupt)
    place: Path | None = None
    lab: EmbeddedLab | None = None
    try:
        place = _make_folder(folder)
        _keep_inside(place)
        lab = _make_lab(place, smb=smb)
        story = _Told()
        story.opening(place, smb=smb)
        picture = run_demo(place, lab, story)
        lab.close()
        for name in NOT_KEPT:
            remove_folder(place / name)
        story.ending(place, picture, time.monotonic() - began, smb=smb)
    except BaseException as error:
        _undisturbed()
        if lab is not None:
            lab.kill()
        if place is not None and not isinstance(error, errors.LudwigError):
            remove_folder(place)
        if isinstance(error, KeyboardInterrupt):
            console().print(f"\nStopped. No process is left, and {place} is removed.")
            raise typer.Exit(130) from None
        raise


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _undisturbed() -> None:
    """Cleaning up is quick: nothing interrupts it, and nobody hears of what was cut short."""
    warnings.simplefilter("ignore")
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _make_lab(place: Path, *, smb: bool) -> EmbeddedLab:
    if not smb:
        return EmbeddedLab(place, HOSTS, node_silent_s=SILENT_S, project=PROJECT)
    from ludwig.client.demo.servers import ServedLab

    try:
        return ServedLab(place, HOSTS, node_silent_s=SILENT_S, project=PROJECT)
    except errors.UsageError:
        remove_folder(place)
        raise


def _make_folder(folder: Path | None) -> Path:
    """A new folder: the one that is named, else `ludwig-demo`, `ludwig-demo-2` … here."""
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            taken = any(folder.iterdir())
        except OSError as error:
            raise errors.UsageError(f"{folder} cannot be made: {error.strerror}.") from error
        if taken:
            raise errors.UsageError(f"{folder} is not empty: name another folder.")
        return folder.absolute()
    for number in range(1, 1000):
        place = Path.cwd() / ("ludwig-demo" if number == 1 else f"ludwig-demo-{number}")
        try:
            place.mkdir()
        except FileExistsError:
            continue
        except OSError:
            break
        return place
    return Path(tempfile.mkdtemp(prefix="ludwig-demo-"))  # a folder one may not write to


def _keep_inside(place: Path) -> None:
    """Whatever libraries leave on the way, they leave it in our folder."""
    caches = place / CACHES
    (caches / "tmp").mkdir(parents=True)
    os.environ |= {
        "LUDWIG_CACHE": str(caches / "results"),
        "MPLCONFIGDIR": str(caches / "matplotlib"),
        "TMPDIR": str(caches / "tmp"),
        "GIT_CEILING_DIRECTORIES": str(place),  # no snapshot in a repository that we are in
    }
    tempfile.tempdir = None


class _Told(Story):
    """Tells the story on the terminal."""

    def __init__(self) -> None:
        self._out = console()

    def opening(self, place: Path, *, smb: bool) -> None:
        drive = "a real SMB share as its drive" if smb else "a folder as its drive"
        inboxes = ", each behind its own sshd" if smb else ""
        self._say(f"A lab in {place}")
        names = " and ".join(HOSTS)
        self._say(f"with {drive}, and two agents as its nodes: {names}{inboxes}.")
        self._out.print(Text("Ctrl-C ends it all and removes the folder.", style="dim"))

    def say(self, text: str) -> None:
        self._out.print()
        self._say(text)

    def typed(self, command: str) -> None:
        self._out.print()
        line = Text.assemble(("$ ", "dim"), (command, "bold"))
        self._out.print(line, soft_wrap=True)

    def nodes(self, rows: list[NodeStatus]) -> None:
        self._out.print(nodes_page(rows))

    def results(self, frame: pandas.DataFrame) -> None:
        show_best(frame)

    def ending(self, place: Path, picture: Path, seconds: float, *, smb: bool) -> None:
        self._out.print()
        self._say(f"That took {seconds:.0f} s. The learning curves: {_near(picture)}")
        if smb:
            self._say(f"The runs, as they lie on the drive: {_near(place / 'drive')}")
            return
        self._say(f"Look around: cd {_near(place)}, then ludwig status 1, or ludwig logs 1 3.")

    def _say(self, text: str) -> None:
        self._out.print(Text(text), soft_wrap=not self._out.is_terminal)


def _near(path: Path) -> Path:
    """As short as it can be said from here."""
    with contextlib.suppress(ValueError, OSError):
        return path.relative_to(Path.cwd())
    return path
