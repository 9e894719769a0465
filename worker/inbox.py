"""The inbox: where tickets and sources arrive over SFTP, and the only place orders come from.

Owns finding tickets (inotify as a hint, a scan as the truth) and knowing who wrote them. Reads
nothing else of what is in there, follows no link, and trusts a name only after `layout` checked it.
An inbox is a folder with `tickets/` and `sources/`, or a folder of such folders, one per user.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver

from ludwig import codec, errors, layout
from ludwig.model import Ticket
from ludwig.worker.journal import note

__all__ = ["Inbox", "Letter"]

log = logging.getLogger(__name__)

RESCAN_S = 30.0
_TICKET_BYTES = 1 << 20


@dataclass(frozen=True)
class Letter:
    """A ticket as it lies in the inbox."""

    path: Path
    data: bytes
    user: str
    """The owner of the file: whoever held the key."""
    root: Path
    stamp: str = ""
    """Tells this file from another with the same name and bytes: a ticket may be sent again."""

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def identity(self) -> str:
        return codec.sha256(self.data + f"{self.root}/{self.stamp}".encode())

    def ticket(self) -> Ticket:
        """What it orders. `Malformed` or `NameNotAllowed` if it is not a ticket."""
        ticket = codec.decode(Ticket, self.data, self.name)
        expected = Path(layout.inbox.ticket(ticket.project, ticket.job)).name
        if self.name != expected:
            raise errors.Malformed(self.name, f"it is the ticket {expected}")
        return ticket

    def names(self) -> tuple[str, int] | None:
        """The job it seems to be about, by its name alone: to tell its user what is wrong."""
        project, _, number = self.name.removesuffix(".json").rpartition("-")
        try:
            expected = Path(layout.inbox.ticket(project, int(number))).name
        except (ValueError, errors.NameNotAllowed):
            return None
        return (project, int(number)) if self.name == expected else None

    def source(self, sha256: str) -> Path:
        return self.root / layout.inbox.source(sha256)


class Inbox:
    """Watches one inbox and calls `on_change` (from another thread) when there may be news."""

    def __init__(self, folder: Path, on_change: Callable[[], None]) -> None:
        self._folder = folder
        self._on_change = on_change
        self._observer: BaseObserver | None = None
        self._changed = threading.Event()
        self._changed.set()
        self._scanned = 0.0
        self._arrived: set[Path] = set()
        """Sources that were heard to come in, as a hint only."""

    def start(self, *also: Path) -> None:
        """Begin to watch. Raises nothing: without inotify the slow rescan still finds everything.

        `also`: folders of our own whose files matter to the agent too.
        """
        handler = _Handler(self._note)
        try:
            observer = Observer()
            for folder in (self._folder, *also):
                with contextlib.suppress(OSError):
                    observer.schedule(handler, str(folder), recursive=folder == self._folder)
            observer.start()
        except OSError as error:
            note(log, "inbox-unwatched", level=logging.WARNING, rescan_s=RESCAN_S, why=error)
        else:
            self._observer = observer

    def stop(self) -> None:
        if self._observer is not None:
            self._observer.stop()
            self._observer.join(timeout=5)

    def _note(self, path: Path) -> None:
        if path.parent.name == layout.SOURCES and layout.parse_source(path.name):
            self._arrived.add(path)
        self._changed.set()
        self._on_change()

    def has_news(self) -> bool:
        """Whether a scan may find something: after a change, and now and then anyway."""
        return self._changed.is_set() or time.monotonic() - self._scanned >= RESCAN_S

    def letters(self) -> list[Letter]:
        """The tickets that lie there now, oldest first."""
        self._changed.clear()
        self._scanned = time.monotonic()
        found: list[tuple[float, Letter]] = []
        for root in self._roots():
            folder = root / layout.TICKETS
            with contextlib.suppress(OSError):
                for path in sorted(folder.iterdir()):
                    if path.suffix == ".json" and not path.name.startswith("."):
                        with contextlib.suppress(OSError):
                            found.append(_read(path, root))
        return [letter for _, letter in sorted(found, key=lambda pair: pair[0])]

    def arrivals(self) -> list[tuple[Path, str, str]]:
        """Sources that came in since the last call: where, their SHA-256, and who sent them."""
        found = []
        while self._arrived:
            path = self._arrived.pop()
            sha256 = layout.parse_source(path.name)
            root = path.parent.parent
            if sha256 and self._folder in (root, root.parent):
                with contextlib.suppress(OSError):
                    user = _user_name(path.stat(follow_symlinks=False).st_uid)
                    found.append((path, sha256, user))
        return found

    def _roots(self) -> list[Path]:
        roots = [self._folder]
        with contextlib.suppress(OSError):
            roots += sorted(
                Path(entry.path)
                for entry in os.scandir(self._folder)
                if entry.is_dir(follow_symlinks=False)
                and entry.name not in (layout.TICKETS, layout.SOURCES)
            )
        return roots

    def discard(self, letter: Letter) -> None:
        """Remove a ticket that has been dealt with, where the agent may."""
        with contextlib.suppress(OSError):
            letter.path.unlink()


def _read(path: Path, root: Path) -> tuple[float, Letter]:
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    descriptor = os.open(path, flags)
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise OSError("not a file")
        data = file.read(_TICKET_BYTES)
    stamp = f"{facts.st_ino}-{facts.st_mtime_ns}"
    return facts.st_mtime, Letter(path, data, _user_name(facts.st_uid), root, stamp)


def _user_name(uid: int) -> str:
    if sys.platform == "win32":
        return str(uid)
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


class _Handler(FileSystemEventHandler):
    def __init__(self, on_change: Callable[[Path], None]) -> None:
        self._on_change = on_change

    def on_any_event(self, event: FileSystemEvent) -> None:
        # Reading a ticket must not wake the one who reads it; half-sent sources are no news.
        if event.event_type not in ("opened", "closed_no_write", "modified"):
            # A file that was renamed has arrived under its new name.
            self._on_change(Path(os.fsdecode(event.dest_path or event.src_path)))
