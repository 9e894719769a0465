"""How many replications of each configuration there are or will be: `reps` is a target total.

Counts what has finished, and what is queued or running, in every job of a project; takes in runs
that the old system left behind. Owns nothing on the drive but, through `registry.py`, the plans.
"""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import psutil

from ludwig import codec, errors, layout, queue
from ludwig.drive import Drive
from ludwig.model import Job, Origin
from ludwig.registry import Registry
from ludwig.view import JobView

__all__ = ["Census", "count_legacy", "is_dead", "legacy_names", "take_census", "this_process"]

PATIENCE_S = 15.0
"""How long a submission that promised runs may take until its job is there."""


@dataclass
class Census:
    """What a project has and expects, by param_name."""

    counted: Counter[str] = field(default_factory=Counter)
    """Finished, running or queued replications."""
    job_names: dict[str, set[str]] = field(default_factory=dict)
    """Those of our jobs, whatever became of them."""
    open_views: list[JobView] = field(default_factory=list)
    """Jobs with tasks that have not ended."""

    def needed(self, wanted: Mapping[str, int]) -> dict[str, int]:
        """What is missing for each configuration to have its target total."""
        missing = {name: total - self.counted[name] for name, total in wanted.items()}
        return {name: count for name, count in missing.items() if count > 0}


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
    """Count everything that the jobs in the registry promised.

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
            return queue.read_job(drive, project, number)
        except errors.NotFound:
            if clock() < deadline:
                sleep(0.2)
            elif queue.abandon_job(drive, project, number, origin=origin, nonce=nonce):
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
    for number, (_, task) in view.job.tasks().items():
        if number in view.done:
            done = view.end_of(number)
            good = done is not None and done.outcome == "done"
        else:
            good = not view.stopped(number)
            still_open = still_open or good
        for run in task.runs:
            census.job_names.setdefault(run.param_name, set()).add(run.job_name)
            census.counted[run.param_name] += good
    if still_open:
        census.open_views.append(view)


def count_legacy(drive: Drive, registry: Registry, census: Census, names: Iterable[str]) -> None:
    """Add the finished runs of the old system: folders in `runs/` that no job of ours made."""
    files = layout.project_files(registry.project)
    for name in registry.imported.intersection(names):
        try:
            folders = drive.list(files.param(name))
        except errors.NotFound:
            continue
        ours = census.job_names.get(name, set())
        census.counted[name] += sum("num" in folder and folder not in ours for folder in folders)


def legacy_names(drive: Drive, registry: Registry) -> dict[str, str]:
    """Configurations in `runs/` that no plan knows: param_name → hash. Unreadable ones are skipped,
    but their number stays taken."""
    files = layout.project_files(registry.project)
    try:
        found = drive.list(files.runs)
    except errors.NotFound:
        return {}
    names: dict[str, str] = {}
    for name in found:
        if layout.parse_param(name) is None or name in registry.names:
            continue
        path = files.param2val(name)
        try:
            names[name] = codec.params_hash(codec.from_yaml(drive.read(path), path))
        except (errors.NotFound, errors.Malformed, errors.ParameterError):
            names[name] = codec.sha256(f"unreadable {name}".encode())
    return names
