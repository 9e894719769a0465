"""How many replications of each configuration there are or will be: `reps` is a target total.

Counts what is in `runs/`, and what is queued or running in every job of a project. Owns nothing on
the drive.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import psutil

from ludwig import errors, job_records, layout, queue
from ludwig.drive import Drive
from ludwig.layout import is_run
from ludwig.model import Job, Origin
from ludwig.registry import Registry
from ludwig.view import JobView

__all__ = ["Census", "is_dead", "take_census", "this_process"]

PATIENCE_S = 15.0
"""How long a submission that promised runs may take until its job is there."""


@dataclass
class Census:
    """What a project has and expects: names of runs, by param_name."""

    finished: dict[str, dict[str, Job]] = field(default_factory=dict)
    """Of tasks that ended well, with the job of each."""
    expected: dict[str, set[str]] = field(default_factory=dict)
    """Of tasks that are queued or running; and of those that ended well without leaving a file."""
    failed: dict[str, set[str]] = field(default_factory=dict)
    """Of tasks that ended otherwise. A script may have left half a run in `runs/`."""
    open_views: list[JobView] = field(default_factory=list)
    """Jobs with tasks that have not ended."""

    def needed(self, drive: Drive, project: str, wanted: Mapping[str, int]) -> dict[str, int]:
        """What is missing for each configuration to have its target total.

        Finished is what is in `runs/`, whoever put it there. So a run that somebody removed does
        not count, and one of the old system does.
        """
        there = self._runs(drive, project, wanted)
        missing = {}
        for name, total in wanted.items():
            runs = there.get(name, set()) - self.failed.get(name, set())
            missing[name] = total - len(runs | self.expected.get(name, set()))
        return {name: count for name, count in missing.items() if count > 0}

    def _runs(self, drive: Drive, project: str, names: Iterable[str]) -> dict[str, set[str]]:
        """What is in `runs/`, once what ended well but is not there yet has been moved: its node
        died, or is about to do it."""
        there = _list_runs(drive, project, names)
        late: dict[int, Job] = {}
        behind: set[str] = set()
        for name in names:
            for run, job in self.finished.get(name, {}).items():
                if run not in there.get(name, ()):
                    late[job.job] = job
                    behind.add(name)
        for job in late.values():
            queue.roll_forward(drive, job)
        return {**there, **_list_runs(drive, project, behind)} if late else there


def _list_runs(drive: Drive, project: str, names: Iterable[str]) -> dict[str, set[str]]:
    """param_name → the names of its runs, of those that have a folder."""
    files = layout.project_files(project)
    runs: dict[str, set[str]] = {}
    with suppress(errors.NotFound):
        for name in set(names).intersection(drive.list(files.runs)):
            with suppress(errors.NotFound, errors.WrongKind):
                runs[name] = {found for found in drive.list(files.param(name)) if is_run(found)}
    return runs


def take_census(
    drive: Drive,
    registry: Registry,
    *,
    origin: Origin,
    nonce: str,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    jobs: dict[int, Job | None] | None = None,
) -> Census:
    """Look at everything that the jobs in the registry promised.

    A job that was promised and is not there yet gets some seconds to appear; then its submission
    is taken for dead and abandoned, so that it cannot appear later.
    """
    census = Census()
    records = jobs if jobs is not None else {}
    for number in sorted(registry.promised):
        if number not in records:
            dead = is_dead(registry.promised_by.get(number, ""))
            records[number] = _await_job(
                drive,
                registry.project,
                number,
                origin=origin,
                nonce=nonce,
                sleep=sleep,
                deadline=clock() + (0.0 if dead else PATIENCE_S),
                clock=clock,
            )
        job = records[number]
        if job is None or job.abandoned:
            continue
        view = JobView(drive, job)
        view.refresh()
        _count(census, view)
    return census


def _await_job(
    drive: Drive,
    project: str,
    number: int,
    *,
    origin: Origin,
    nonce: str,
    sleep: Callable[[float], None],
    deadline: float,
    clock: Callable[[], float],
) -> Job | None:
    while True:
        try:
            return job_records.read_job(drive, project, number)
        except errors.NotFound:
            if clock() < deadline:
                sleep(0.2)
            elif job_records.abandon_job(drive, project, number, origin=origin, nonce=nonce):
                return None


def this_process() -> str:
    """Who promises: this process, told apart from one that has its number later."""
    me = psutil.Process()
    return f"{socket.gethostname()}:{me.pid}:{me.create_time():.0f}"


def is_dead(by: str) -> bool:
    """Whether that process ran on this machine and is gone. False when one cannot know."""
    host, _, rest = by.rpartition(":")[0].rpartition(":")
    if host != socket.gethostname() or not rest.isdigit():
        return False
    try:
        return by != f"{host}:{rest}:{psutil.Process(int(rest)).create_time():.0f}"
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:
        return False


def _count(census: Census, view: JobView) -> None:
    still_open = False
    for number, (_, task) in view.tasks.items():
        done = view.end_of(number)
        waits = number not in view.done and not view.stopped(number)
        still_open = still_open or waits
        for index, run in enumerate(task.runs):
            if done is not None and done.outcome == "done" and any(done.files[index : index + 1]):
                census.finished.setdefault(run.param_name, {})[run.job_name] = view.job
            elif waits or (done is not None and done.outcome == "done"):
                census.expected.setdefault(run.param_name, set()).add(run.job_name)
            else:
                census.failed.setdefault(run.param_name, set()).add(run.job_name)
    if still_open:
        census.open_views.append(view)
