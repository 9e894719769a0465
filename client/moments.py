"""Watching one job until it is over: how it was at each look, and whether the drive was away.

The one loop behind `Job.wait`, `Job.follow`, `ludwig submit --follow` and `ludwig status --watch`.
Looks when tasks end beside the first that has not (`drive.watch`), and every few seconds anyway.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from ludwig import errors, layout
from ludwig.client.lookout import Lookout
from ludwig.client.status import JobStatus
from ludwig.drive import Drive, Watch

__all__ = ["Bell", "Moment", "moments"]

GAP_S = 0.2
"""At least this long between two looks, however fast tasks end."""


class Moment(NamedTuple):
    """`status` is the latest there is: an old one, or None, while the drive is away."""

    status: JobStatus | None
    away: errors.DriveAway | None = None
    away_s: float = 0.0
    late: bool = False
    """The time that was given is over, and the job is not."""

    @property
    def note(self) -> str:
        """What to tell the user while the drive is away."""
        if self.away is None:
            return ""
        return (
            f"The drive has been away for {self.away_s:.0f} s ({self.away.reason.rstrip('.')}). "
            "The job goes on; trying again."
        )


class Bell:
    """Waits until a task may have ended, in the bucket of one that has not; a plain sleep where it
    cannot watch."""

    def __init__(self, drive: Drive, files: layout.JobFiles) -> None:
        self._drive, self._files = drive, files
        self._folder = ""
        self._watch: Watch | None = None

    def wait(self, seconds: float, task: int) -> None:
        started = time.monotonic()
        folder = self._files.done_in(layout.bucket_of(task))
        if folder != self._folder:
            self.close()
            self._folder = folder
        if self._watch is None:
            with suppress(errors.DriveError):
                self._watch = self._drive.watch(self._folder)
        if self._watch is not None:
            self._watch.wait(seconds)
        else:
            time.sleep(seconds)
        time.sleep(max(0.0, min(seconds, GAP_S) - (time.monotonic() - started)))

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None


def moments(
    lookout: Lookout,
    drive: Drive,
    project: str,
    number: int,
    *,
    timeout: float | None = None,
    poll_s: float = 2.0,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Moment]:
    """The job at every look. The last one is of a finished job, or `late`.

    A drive that is away is waited for, without end but for `timeout`. Other errors are raised.
    """
    bell = Bell(drive, layout.job_files(project, number))
    deadline = None if timeout is None else clock() + timeout
    latest: JobStatus | None = None
    away_since: float | None = None
    try:
        while True:
            away: errors.DriveAway | None = None
            try:
                latest = lookout.job(project, number)
                away_since = None
            except errors.DriveAway as error:
                away, away_since = error, away_since if away_since is not None else clock()
            away_s = clock() - away_since if away_since is not None else 0.0
            finished = latest is not None and latest.finished and away is None
            left = None if deadline is None else deadline - clock()
            late = not finished and left is not None and left <= 0
            yield Moment(latest, away, away_s, late)
            if finished or late:
                return
            task = latest.first_open if latest is not None else 0
            bell.wait(poll_s if left is None else max(0.0, min(poll_s, left)), task)
    finally:
        bell.close()
