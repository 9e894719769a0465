"""Finished jobs never change: their summaries are kept on this machine.

So `ludwig status` over hundreds of old jobs costs one listing. A summary counts as long as the
job's folder still has the time the server gave it; a file that cannot be read or written is no
matter, it is only a cache.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from contextlib import suppress
from pathlib import Path

import msgspec

from ludwig.client.status import JobSummary
from ludwig.model import TaskState

__all__ = ["Summaries"]


class _Kept(msgspec.Struct, frozen=True):
    """A summary and the time of the job's folder it belongs to."""

    folder_time: float
    state: TaskState
    counts: dict[TaskState, int]
    user: str
    when: str


class Summaries:
    """The kept summaries of one project on one drive."""

    def __init__(self, where: str, project: str, *, folder: Path | None = None) -> None:
        if folder is None:
            from platformdirs import user_cache_path

            folder = user_cache_path("ludwig", appauthor=False)
        key = hashlib.sha256(f"{where}\n{project}".encode()).hexdigest()[:24]
        self._project = project
        self._file = folder / "jobs" / f"{key}.json"
        self._kept: dict[int, _Kept] = {}
        with suppress(OSError, msgspec.MsgspecError, ValueError):
            self._kept = msgspec.json.decode(self._file.read_bytes(), type=dict[int, _Kept])
        self._changed = False

    def get(self, job: int, folder_time: float) -> JobSummary | None:
        kept = self._kept.get(job)
        if kept is None or kept.folder_time != folder_time:
            return None
        return JobSummary(
            project=self._project,
            job=job,
            state=kept.state,
            counts=kept.counts,
            user=kept.user,
            when=kept.when,
            finished=True,
        )

    def put(self, summary: JobSummary, folder_time: float) -> None:
        """Keep a summary, if it is that of a finished job."""
        if summary.finished:
            self._kept[summary.job] = _Kept(
                folder_time, summary.state, dict(summary.counts), summary.user, summary.when
            )
            self._changed = True

    def save(self) -> None:
        """Write what is new. Several commands may do so at once: the last one's file stays."""
        if not self._changed:
            return
        temporary = self._file.with_name(f".{self._file.name}.{os.getpid()}.{secrets.token_hex(4)}")
        with suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            try:
                temporary.write_bytes(msgspec.json.encode(self._kept))
                temporary.replace(self._file)
            finally:
                temporary.unlink(missing_ok=True)
        self._changed = False
