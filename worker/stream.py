"""What goes to the drive while a task runs: its log, its GPU samples, and the node's events.

One writer per file, appends only, at offsets it knows: a repeated append is harmless, so nothing is
lost or doubled when the drive goes away in between. Owns `logs/`, `gpu/` and `events/` of every job
for this node.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from ludwig import codec, errors, layout
from ludwig.drive import Drive
from ludwig.model import Event
from ludwig.worker.held import Held, OpenJob

__all__ = ["Events", "Streamer"]


class Events:
    """The event files of this node: one per job and per life of the agent."""

    def __init__(self, drive: Drive, *, host: str, boot: str, clock: Callable[[], str]) -> None:
        self._drive = drive
        self._host, self._boot, self._clock = host, boot, clock
        self._lock = threading.Lock()
        self._shipping = threading.Lock()
        self._waiting: dict[tuple[str, int], list[bytes]] = {}
        self._offsets: dict[tuple[str, int], int] = {}

    def note(self, open_job: OpenJob, event: Event) -> None:
        """Take down an event. It reaches the drive with the next `ship`."""
        key = (open_job.job.project, open_job.job.job)
        line = codec.encode(_at(event, self._clock()))
        with self._lock:
            self._waiting.setdefault(key, []).append(line)

    def ship(self, open_job: OpenJob | None = None) -> None:
        """Append what is waiting (of one job). What fails stays for the next time."""
        with self._shipping:
            with self._lock:
                keys = list(self._waiting)
            for key in keys:
                if open_job is None or key == (open_job.job.project, open_job.job.job):
                    self._ship_one(key)

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


def _at(event: Event, when: str) -> Event:
    return Event(
        what=event.what,
        at=when,
        task=event.task,
        attempt=event.attempt,
        why=event.why,
        done=event.done,
    )


class Streamer:
    """Appends the new part of logs and GPU samples. Called about twice a second, and at the end."""

    def __init__(self, drive: Drive) -> None:
        self._drive = drive

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
        path = held.folder / "gpu.csv"
        with suppress(FileNotFoundError), path.open("rb") as file:
            file.seek(held.gpu_sent)
            data = file.read()
            data = data[: data.rfind(b"\n") + 1]
            if data:
                target = files.gpu_of(held.task.task, held.attempt)
                self._drive.append(target, data, at=held.gpu_sent)
                held.gpu_sent += len(data)


def quietly(action: Callable[[], None]) -> bool:
    """Do something on the drive that can wait. False when it has to be tried again."""
    try:
        action()
    except errors.DriveError:
        return False
    return True
