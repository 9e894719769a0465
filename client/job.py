"""A submitted job, as a user holds it: how it is, its logs, its results, and how to end it.

Never prints but for the optional progress bar. Everything is read from the drive, so a `Job` may be
made on any machine of the lab, at any time, by anybody.
"""

from __future__ import annotations

import secrets
import socket
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ludwig import errors, layout, model, queue
from ludwig.client.lab import Lab, this_user
from ludwig.client.logs import Follower, LogLine, list_attempts, read_log
from ludwig.client.lookout import Lookout
from ludwig.client.moments import Bell, Moment, moments
from ludwig.client.progress import Display, make_display
from ludwig.client.status import JobStatus
from ludwig.states import counts

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from ludwig.client.submission import Submitted

__all__ = ["EmptyJob", "Job", "LudwigWarning"]


class LudwigWarning(UserWarning):
    """Something was done differently from what was asked; the job runs."""


class Job:
    """One call of `submit()`. Made by `Client.submit` and `Client.job`."""

    def __init__(self, lab: Lab, project: str, number: int) -> None:
        self.lab = lab
        self._lookout = Lookout(lab)
        self.project = layout.check_project(project)
        self.id = number
        self._files = layout.job_files(project, number)

    # --- looking -------------------------------------------------------------------------------

    def status(self) -> JobStatus:
        """Counts, and the state of every task and why. `DriveAway` if the drive is."""
        return self._lookout.job(self.project, self.id)

    def wait(
        self, timeout: float | None = None, *, check: bool = False, progress: bool | None = None
    ) -> JobStatus:
        """Wait until every task has ended, with a progress bar where somebody is looking.

        Returns the status also when tasks failed: a sweep's other results are worth having
        (`status.ok`, `status.failed`). With `check=True`, `JobFailed` is raised instead, with the
        end of the first failed task's log. After `timeout` seconds the status of an unfinished job
        is returned (`status.finished` is False); with `check=True`, `TimeoutError` is raised.

        A drive that is away is waited for. Ctrl-C leaves the job as it is.
        """
        display = make_display(progress)
        try:
            last = self._watch(display, timeout)
        finally:
            display.close()
        if last.status is None:
            raise last.away or errors.DriveAway("looking at", self._files.folder)
        if check:
            last.status.check(hints=not self.lab.local)
            if last.late:
                raise TimeoutError(f"{last.status}; still not over after {timeout:g} s.")
        return last.status

    def _watch(self, display: Display, timeout: float | None) -> Moment:
        moment = Moment(None)
        told = False
        for moment in self.moments(timeout=timeout):
            display.show(moment)
            if moment.status is not None and moment.status.failed and not told:
                display.say(str(moment.status.failed[0]))
                told = True
        return moment

    def moments(self, *, timeout: float | None = None, poll_s: float = 2.0) -> Iterator[Moment]:
        """How the job is at every look until it is over: for whoever draws it in another way."""
        return moments(
            self._lookout,
            self.lab.drive,
            self.project,
            self.id,
            timeout=timeout,
            poll_s=poll_s,
        )

    # --- logs ----------------------------------------------------------------------------------

    def logs(self, task: int, attempt: int | None = None) -> str:
        """What a task has printed so far: of its last attempt, or of the one that is named.

        "" for a task that has printed nothing. `UsageError` if there is no such task or attempt.
        """
        self._check_tasks([task])
        attempts = list_attempts(self.lab.drive, self._files, [task]).get(task, [])
        if attempt is not None and attempt not in attempts:
            there = f"There is {', '.join(map(str, attempts))}." if attempts else "There is none."
            raise errors.UsageError(
                f"task {task} of job {self.id} has no log of an attempt {attempt}. {there}"
            )
        if not attempts:
            return ""
        return read_log(self.lab.drive, self._files.log_of(task, attempt or attempts[-1]))

    def log_path(self, task: int, attempt: int) -> str:
        """Where the log is: a path of this machine if the drive is mounted here."""
        return self.lab.where(self._files.log_of(task, attempt))

    def follow(self, *tasks: int, poll_s: float = 0.5) -> Iterator[LogLine]:
        """The lines of these tasks as they are printed, from the beginning, until all have ended.

        Without tasks: of all that have not ended yet. `str()` of a line has its task in front.
        A drive that is away is waited for; nothing is lost or repeated.
        """
        self._check_tasks(tasks)
        follower = Follower(self.lab.drive, self._files)
        wanted = set(tasks) or set(self._record_tasks()) - self.status().over
        bell = Bell(self.lab.drive, self._files)
        over: frozenset[int] = frozenset()
        try:
            while True:
                with suppress(errors.DriveAway):
                    # Looked at first: what was printed before a task ended is there by then.
                    over = self._lookout.job(self.project, self.id, logs=False).over
                    yield from follower.read(wanted, time.monotonic(), over=over)
                    if wanted <= over:
                        return
                bell.wait(poll_s, min(wanted - over, default=0))
        finally:
            bell.close()

    # --- results -------------------------------------------------------------------------------

    def results(self, **options: Any) -> pandas.DataFrame:
        """The results that are there by now, as one tidy frame; options of `read_results`.

        Raises `JobFailed`, with the traceback, when there is nothing to return because every task
        that ended has failed.
        """
        from ludwig.client.results import read_results

        status = self.status()
        if status.failed_tasks and not status.counts["done"]:
            status.check(hints=not self.lab.local)
        with suppress(errors.DriveRefused):  # of no matter to somebody who may only read
            queue.roll_forward(self.lab.drive, status.record)
        frame: pandas.DataFrame = read_results(
            self.lab.drive, self.project, jobs=[self.id], **options
        )
        return frame

    def plot(self, path: Path | str | None = None, **options: Any) -> Figure | Path:
        """The curves of the results so far; options of `plot_results`.

        Returns the figure; or, with `path`, writes it (.png, .pdf, .svg) and returns where.
        """
        from ludwig.client.plot import plot_results, save_plot

        frame = self.results()
        return plot_results(frame, **options) if path is None else save_plot(frame, path, **options)

    # --- ending and repeating ------------------------------------------------------------------

    def cancel(self, task: int | None = None) -> None:
        """Ask for the job, or one task of it, to be stopped. Cannot be taken back.

        Returns at once; running tasks get some seconds to end in order. What has ended stays.
        """
        if task is not None:
            self._check_tasks([task])
        by = model.Stop(user=this_user(), host=socket.gethostname(), nonce=secrets.token_hex(8))
        queue.stop(self.lab.drive, self._record(), by, task=task)

    def retry(self, tasks: list[int] | None = None) -> Job:
        """A new job with the tasks that failed, were lost or were stopped (or those named)."""
        job, submitted = self._retry(tasks)
        for note in submitted.warnings:
            warnings.warn(note, LudwigWarning, stacklevel=2)
        return job

    def _retry(self, tasks: list[int] | None) -> tuple[Job, Submitted]:
        """The job and what was done; for callers that tell it in their own way."""
        from ludwig.client import submit

        self._record()  # says so when there is no such job
        self._check_tasks(tasks or [])
        submitted = submit.retry(self.lab, self.project, self.id, tasks=tasks)
        job = submitted.job
        new = Job(self.lab, self.project, job) if job else EmptyJob(self.lab, self.project)
        return new, submitted

    # --- inside --------------------------------------------------------------------------------

    def _record(self) -> model.Job:
        return self._lookout.record(self.project, self.id)

    def _record_tasks(self) -> set[int]:
        return set(self._record().numbers())

    def _check_tasks(self, tasks: list[int] | tuple[int, ...]) -> None:
        known = self._record_tasks() if tasks else set()
        if unknown := sorted(set(tasks) - known):
            span = f"{min(known)} to {max(known)}" if known else "none"
            raise errors.UsageError(
                f"job {self.id} of {self.project} has no task {unknown[0]}. Its tasks are {span}."
            )

    def __repr__(self) -> str:
        return f"<job {self.id} of {self.project}>"


class EmptyJob(Job):
    """What `submit` returns when there was nothing to submit. Its number is 0."""

    def __init__(self, lab: Lab, project: str) -> None:
        super().__init__(lab, project, 0)

    def status(self) -> JobStatus:
        """Of no tasks: finished, and all of them done."""
        return JobStatus(
            record=self._record(), state="done", counts=counts([]), tasks=(), over=frozenset()
        )

    def moments(self, *, timeout: float | None = None, poll_s: float = 2.0) -> Iterator[Moment]:
        yield Moment(self.status())

    def results(self, **options: Any) -> pandas.DataFrame:
        """The results of the whole project: the runs that were asked for are among them."""
        from ludwig.client.results import read_results

        frame: pandas.DataFrame = read_results(self.lab.drive, self.project, **options)
        return frame

    def cancel(self, task: int | None = None) -> None:
        """Nothing is running."""

    def retry(self, tasks: list[int] | None = None) -> Job:
        raise errors.UsageError("nothing was submitted, so there is nothing to retry.")

    def _record(self) -> model.Job:
        return model.Job(
            project=self.project,
            job=0,
            nonce="",
            stamp="",
            contract="function",
            entry="",
            source="",
            params_sha256="",
            chunks={},
            origin=model.Origin(user=this_user(), host=""),
        )

    def __repr__(self) -> str:
        return f"<no new job of {self.project}>"
