"""Sources made ready before they are needed, so that the first task of a job need not wait for it.

A source is unpacked when it arrives, while its sender is still writing the job, and of the sources
used last a copy is kept to spare: an attempt takes it by renaming. On a file system where making
two hundred files takes long, that is most of what stands between a ticket and its first process.
Nothing depends on it: what is not here is unpacked and copied when it is needed.

Owns `work/spares/`, which belongs to the agent alone as long as nobody has taken a copy, and is
emptied at its start: a copy that a power cut left behind may lack its end.
"""

from __future__ import annotations

import contextlib
import logging
import queue as fifo
import secrets
import threading
import time
from collections import defaultdict
from pathlib import Path

from ludwig import errors
from ludwig.worker import workspace
from ludwig.worker.account import Account
from ludwig.worker.journal import note
from ludwig.worker.threads import Threaded

__all__ = ["Stockroom"]

log = logging.getLogger(__name__)

SPARES = 4
"""So many sources have a copy to spare, for an hour after they were last used."""
KEEP_S = 3600.0
WAIT_S = 10.0
"""For a copy that is being made. Whoever does not get it makes one, which takes as long."""


class Stockroom(Threaded):
    """`unpack`, `take`, `arrived` and `used` are for every thread."""

    def __init__(self, work: Path, account: Account, *, disk_max_percent: float) -> None:
        self._work, self._account = work, account
        self._disk_max_percent = disk_max_percent
        self._sources, self._folder = work / "sources", work / "spares"
        workspace.remove(self._folder)
        self._folder.mkdir(mode=0o700, parents=True)
        self._unpacking: dict[str, threading.Lock] = defaultdict(threading.Lock)
        self._changed = threading.Condition()
        self._ready: dict[str, tuple[Path, float]] = {}
        """By source, the one made last at the end, and when that was."""
        self._making = ""
        self._orders: fifo.SimpleQueue[tuple[Path | None, str] | None] = fifo.SimpleQueue()
        super().__init__("stockroom")

    # --- for whoever needs a source ----------------------------------------------------------

    def unpack(self, archive: Path, sha256: str) -> Path:
        """As `workspace.unpack`; waits for one who is at it already."""
        with self._unpacking[sha256]:
            return workspace.unpack(archive, sha256, self._sources)

    def take(self, source: Path, target: Path) -> bool:
        """Put a copy of a source that is the account's own at `target`. False: there is none."""
        with self._changed:
            self._changed.wait_for(lambda: self._making != source.name, WAIT_S)
            spare, _ = self._ready.pop(source.name, (None, 0.0))
        if spare is None:
            return False
        try:
            spare.rename(target)
        except OSError as error:
            note(log, "spare-lost", level=logging.WARNING, source=source.name[:12], why=error)
            workspace.remove(spare)
            return False
        return True

    # --- what is to be made ready ------------------------------------------------------------

    def arrived(self, archive: Path, sha256: str) -> None:
        """A source lies in the inbox; its ticket may follow."""
        self._orders.put((archive, sha256))

    def used(self, source: Path) -> None:
        """A job with this source is over: perhaps it is submitted again."""
        self._orders.put((None, source.name))

    def tidy(self) -> None:
        """Give up what has waited in vain, and everything if the disk is full."""
        oldest = time.monotonic() - KEEP_S
        full = self._disk_is_full()
        with self._changed:
            late = [name for name, (_, made) in self._ready.items() if full or made < oldest]
            gone = [self._ready.pop(name)[0] for name in late]
        for spare in gone:
            workspace.remove(spare)

    # --- its thread --------------------------------------------------------------------------

    def stop(self) -> None:
        """Stop after what is at hand."""
        self._orders.put(None)
        self._join(5)

    def _run(self) -> None:
        while (order := self._orders.get()) is not None:
            archive, sha256 = order
            try:
                self.make_ready(archive, sha256)
            except (OSError, errors.LudwigError) as error:  # whoever needs it will hear why
                note(log, "not-ready", level=logging.DEBUG, source=sha256[:12], why=error)
            except Exception:
                log.exception("the stockroom stumbled")

    def make_ready(self, archive: Path | None, sha256: str) -> None:
        """Unpack a source that is not, and see to it that there is a copy to spare."""
        if self._disk_is_full():
            return
        with self._changed:
            if sha256 in self._ready:
                self._ready[sha256] = (self._ready.pop(sha256)[0], time.monotonic())
                return
            self._making = sha256
        temporary = self._folder / f".new-{secrets.token_hex(8)}"
        try:
            if archive is not None:
                self.unpack(archive, sha256)
            workspace.copy_tree(self._sources / sha256, temporary, account=self._account)
            spare = temporary.rename(temporary.with_name(secrets.token_hex(8)))
        except BaseException:
            workspace.remove(temporary)
            raise
        else:
            self._put(sha256, spare)
        finally:
            with self._changed:
                self._making = ""
                self._changed.notify_all()

    def _put(self, sha256: str, spare: Path) -> None:
        with self._changed:
            self._ready[sha256] = (spare, time.monotonic())
            self._making = ""
            self._changed.notify_all()
            surplus = [self._ready.pop(name)[0] for name in list(self._ready)[:-SPARES]]
        for path in surplus:
            workspace.remove(path)

    def _disk_is_full(self) -> bool:
        with contextlib.suppress(OSError):
            return workspace.used_percent(self._work) > self._disk_max_percent
        return True
