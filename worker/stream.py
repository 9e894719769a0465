"""What goes to the drive while a task runs: its log, its GPU samples, and the node's events.

One writer per file, appends only, at offsets it knows: a repeated append is harmless, so nothing is
lost or doubled when the drive goes away in between, or when the next agent begins anew. Owns
`logs/`, `gpu/` and `events/` of every job for this node.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress

import msgspec

from ludwig import codec, errors, layout
from ludwig.drive import Drive
from ludwig.model import Event
from ludwig.worker.bench import Bench
from ludwig.worker.held import Held, OpenJob
from ludwig.worker.threads import Threaded

__all__ = ["Events", "Streamer"]

log = logging.getLogger(__name__)

STREAM_S = 0.5
AWAY_S = 2.0


class Events:
    """The event files of this node: one per job and per life of the agent."""

    def __init__(
        self,
        drive: Drive,
        *,
        host: str,
        boot: str,
        clock: Callable[[], str],
        on_note: Callable[[], None] = lambda: None,
    ) -> None:
        self._drive = drive
        self._host, self._boot, self._clock = host, boot, clock
        self._on_note = on_note
        self._lock = threading.Lock()
        self._shipping = threading.Lock()
        self._waiting: dict[tuple[str, int], list[bytes]] = {}
        self._offsets: dict[tuple[str, int], int] = {}

    def note(self, open_job: OpenJob, event: Event) -> None:
        """Take down an event. It reaches the drive with the next `ship`."""
        line = codec.encode(msgspec.structs.replace(event, at=self._clock()))
        with self._lock:
            self._waiting.setdefault(_key(open_job), []).append(line)
        self._on_note()

    def ship(self, open_job: OpenJob | None = None) -> None:
        """Append what is waiting (of one job). What fails stays for the next time."""
        with self._shipping:
            keys = list(self._waiting) if open_job is None else [_key(open_job)]
            for key in keys:
                try:
                    self._ship_one(key)
                except (errors.NotFound, errors.WrongKind, errors.NoPermission):
                    # That job's folder is gone or spoilt: the others' events still matter.
                    with self._lock:
                        self._waiting.pop(key, None)

    def _ship_one(self, key: tuple[str, int]) -> None:
        with self._lock:
            lines = list(self._waiting.get(key, ()))
        if not lines:
            return
        offset = self._offsets.get(key, 0)
        data = b"".join(lines)
        path = layout.job_files(*key).events_of(self._host, self._boot)
        self._drive.append(path, data, at=offset)
        with self._lock:
            self._offsets[key] = offset + len(data)
            del self._waiting[key][: len(lines)]
            if not self._waiting[key]:
                del self._waiting[key]

    def waiting(self) -> bool:
        return bool(self._waiting)


def _key(open_job: OpenJob) -> tuple[str, int]:
    return open_job.job.project, open_job.job.job


class Streamer(Threaded):
    """Appends the new part of logs and GPU samples twice a second while something runs."""

    def __init__(self, drive: Drive, bench: Bench, events: Events) -> None:
        self._drive, self._bench, self._events = drive, bench, events
        self._wake = threading.Event()
        self._stopping = threading.Event()
        super().__init__("streamer")

    def stop(self) -> None:
        """Stop after what is on its way; the next agent goes on."""
        self._stopping.set()
        self._wake.set()
        self._join(20)

    def wake(self) -> None:
        """There is something to stream."""
        self._wake.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            pause = STREAM_S
            try:
                self.round()
            except errors.DriveError:
                pause = AWAY_S
            except Exception:
                log.exception("streamer stumbled")
                pause = AWAY_S
            self._stopping.wait(pause)
            if not self._bench.running() and not self._events.waiting():
                self._wake.wait()
            self._wake.clear()

    def round(self) -> None:
        """Bring the drive up to date."""
        for held in self._bench.running():
            with suppress(errors.NotFound, errors.WrongKind, errors.NoPermission):
                self.ship(held)
        self._events.ship()

    def ship(self, held: Held, *, final: bool = False) -> None:
        """Bring the drive up to date about one attempt. Raises `DriveError`; may be repeated."""
        files = layout.job_files(held.open_job.job.project, held.open_job.job.job)
        with held.shipping:
            self._log(held, files, final=final)
            self._gpu(held, files)

    def _log(self, held: Held, files: layout.JobFiles, *, final: bool) -> None:
        if held.tail is None:
            return
        path = files.log_of(held.task.task, held.attempt)
        while part := held.tail.next_bytes():
            self._drive.append(path, part.data, at=part.at)
            held.tail.sent_to(part)
        if final and (part := held.tail.final_bytes()):
            self._drive.append(path, part.data, at=part.at)
            held.tail.sent_to(part)

    def _gpu(self, held: Held, files: layout.JobFiles) -> None:
        if held.recorder is None:
            return
        with suppress(FileNotFoundError), (held.folder / "gpu.csv").open("rb") as file:
            file.seek(held.gpu_sent)
            data = file.read()
            data = data[: data.rfind(b"\n") + 1]
            if data:
                target = files.gpu_of(held.task.task, held.attempt)
                self._drive.append(target, data, at=held.gpu_sent)
                held.gpu_sent += len(data)
