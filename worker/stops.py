"""Noticing that a job, or a task of it, is cancelled.

While a job has something on the bench its folder is watched, one thread per job; a slow look at the
whole job stays (see `claims.py`), since watching is only a hint. Marks attempts and wakes the loop;
ends nothing itself.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from ludwig import errors, layout
from ludwig.drive import Drive
from ludwig.worker.bench import Bench
from ludwig.worker.held import OpenJob

__all__ = ["Stops"]

LINGER = 5
"""Seconds for which a job without an attempt on the bench is still watched."""


class Stops:
    """`watch` and `mark` are for the foreman's thread."""

    def __init__(self, drive: Drive, bench: Bench, *, on_stop: Callable[[], None]) -> None:
        self._drive, self._bench, self._on_stop = drive, bench, on_stop
        self._stopping = threading.Event()
        self._watchers: dict[str, threading.Thread] = {}

    def close(self) -> None:
        self._stopping.set()

    def look(self, opened: OpenJob) -> None:
        """Look at a job's stop files now."""
        opened.view.look_at_stops()
        self.mark(opened)

    def mark(self, opened: OpenJob) -> None:
        """Mark what is cancelled, as far as the job's view knows."""
        hit = False
        for held in self._bench.of_job(opened):
            if not held.stop_wanted and (opened.gone or opened.view.stopped(held.task.task)):
                held.stop_wanted = hit = True
        if hit:
            self._on_stop()

    def watch(self) -> None:
        """Watch the jobs that have something on the bench, and only those."""
        for key, thread in list(self._watchers.items()):
            if not thread.is_alive():
                del self._watchers[key]
        for opened in {held.open_job for held in self._bench.all()}:
            if opened.key not in self._watchers:
                thread = threading.Thread(
                    target=self._watch, args=(opened,), name=f"stops {opened.key}", daemon=True
                )
                self._watchers[opened.key] = thread
                thread.start()

    def _watch(self, opened: OpenJob) -> None:
        folder = layout.job_files(opened.job.project, opened.job.job).folder
        idle = 0
        # Without a watch, or when it breaks, the foreman starts another in its next round.
        with contextlib.suppress(errors.DriveError), self._drive.watch(folder) as watch:
            self.look(opened)  # what came before the watch
            while not self._stopping.is_set() and idle < LINGER:
                if watch.wait(1.0):
                    self.look(opened)
                idle = 0 if self._bench.of_job(opened) else idle + 1
