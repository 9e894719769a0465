"""The bytes of tasks from a chunk on the drive, read together with those of their neighbours.

A node works through a chunk in order, so the next tasks are most likely beside the last one. What
is remembered is believed no more than what is read: every slice is checked against its hash.
"""

from __future__ import annotations

from ludwig import codec, job_records, layout
from ludwig.drive import Drive
from ludwig.model import Job, Task

__all__ = ["Slices"]

NEAR = 32 << 10
"""So many bytes on either side are read too: whoever helps comes from the back."""


class Slices:
    """Remembers one stretch of one chunk. For one thread."""

    def __init__(self, drive: Drive) -> None:
        self._drive = drive
        self._path, self._start, self._data = "", 0, b""

    def read(self, job: Job, home: str, task: Task) -> bytes:
        """As `job_records.read_task`: exactly what `job.json` vouches for, or `Malformed`."""
        if task.length > NEAR:
            return job_records.read_task(self._drive, job, home, task)
        path = layout.job_files(job.project, job.job).chunk_of(home)
        if (known := self._known(path, task)) is not None:
            return known
        start = max(0, task.offset - NEAR)
        data = self._drive.read(path, offset=start, limit=2 * NEAR)
        self._path, self._start, self._data = path, start, data
        if (known := self._known(path, task)) is not None:
            return known
        return job_records.read_task(self._drive, job, home, task)

    def _known(self, path: str, task: Task) -> bytes | None:
        at = task.offset - self._start
        if path != self._path or at < 0:
            return None
        data = self._data[at : at + task.length]
        return data if codec.sha256(data) == task.sha256 else None
