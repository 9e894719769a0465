"""Which runs there are, what their parameters were, and which files they left.

Jobs of ours are read from their records and events, so the cost grows with the nodes and not with
the runs; what a dead winner left is moved to its place first. Runs that no job knows (drives of
the old system, scripts that wrote to `runs/` themselves) are found by listing. Reads no result.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from ludwig import codec, errors, job_records, layout, queue, records
from ludwig.drive import Drive
from ludwig.model import Done, File, Job, Task
from ludwig.view import JobView

__all__ = ["Found", "FoundRun", "TaskNote", "find_runs", "in_parallel"]

A = TypeVar("A")
B = TypeVar("B")

_THREADS = 8
_TRIED = 2
_WAITING_S = 0.0005
_DEEPEST = 8


class TaskNote(NamedTuple):
    """A run that is not among the results, and why."""

    job: int
    task: int
    state: str
    param_name: str
    job_name: str
    node: str
    why: str


class FoundRun(NamedTuple):
    """One finished run. `files` is its manifest; `stamp` tells files without a hash apart."""

    param_name: str
    job_name: str
    folder: str
    job: int
    task: int
    done: Done | None
    files: tuple[File, ...]
    stamp: str


@dataclass
class Found:
    """Everything that was found. `params` is by param_name: a name never changes its meaning."""

    runs: list[FoundRun] = field(default_factory=list)
    params: dict[str, dict[str, object]] = field(default_factory=dict)
    unfinished: list[TaskNote] = field(default_factory=list)
    failed: list[TaskNote] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)
    """path → what is wrong with it."""
    known: set[tuple[str, str]] = field(default_factory=set)
    """Every run that some job has promised, finished or not."""
    removed: list[str] = field(default_factory=list)
    """Folders of finished runs that somebody has taken away since."""

    def add(self, other: Found) -> None:
        self.runs += other.runs
        self.params.update(other.params)
        self.unfinished += other.unfinished
        self.failed += other.failed
        self.problems.update(other.problems)
        self.known |= other.known


def find_runs(
    drive: Drive,
    project: str,
    jobs: Sequence[int] | None,
    *,
    wanted: Callable[[Mapping[str, object]], bool] = lambda _: True,
    deep: bool = False,
) -> Found:
    """The finished runs of some jobs, or of the whole project with what no job knows.

    `wanted` chooses configurations by their parameters. `deep` also looks into the folders of runs
    that have no manifest. `NotFound` for a job that is named and not there.
    """
    found = Found()
    numbers = job_records.list_jobs(drive, project) if jobs is None else list(dict.fromkeys(jobs))
    for one in in_parallel(lambda n: _of_job(drive, project, n, must=jobs is not None), numbers):
        found.add(one)
    if jobs is None:
        _add_strangers(drive, project, found)
    order = {name: i for i, name in enumerate(sorted(found.params, key=_param_order))}
    found.params = {name: found.params[name] for name in order}
    found.runs.sort(key=lambda run: (order[run.param_name], run.job))
    _choose(found, wanted)
    _list_missing(drive, found, deep=deep)
    return found


def _choose(found: Found, wanted: Callable[[Mapping[str, object]], bool]) -> None:
    names = {name for name, params in found.params.items() if wanted(params)}
    if len(names) == len(found.params):
        return
    found.params = {name: params for name, params in found.params.items() if name in names}
    found.runs = [run for run in found.runs if run.param_name in names]
    found.unfinished = [note for note in found.unfinished if note.param_name in names]
    found.failed = [note for note in found.failed if note.param_name in names]


def in_parallel(work: Callable[[A], B], items: Iterable[A]) -> list[B]:
    """`work` on every item, in their order; several at a time if it is mostly waiting."""
    everything = list(items)
    start = time.perf_counter()
    done = [work(item) for item in everything[:_TRIED]]
    rest = everything[_TRIED:]
    if (time.perf_counter() - start) / _TRIED < _WAITING_S:
        # Answers from this machine's own memory: threads would be in each other's way.
        return done + [work(item) for item in rest]
    size = -(-len(rest) // (4 * _THREADS)) or 1
    slices = [rest[i : i + size] for i in range(0, len(rest), size)]
    if not slices:
        return done
    with ThreadPoolExecutor(min(_THREADS, len(slices))) as pool:
        for part in pool.map(lambda some: [work(item) for item in some], slices):
            done += part
    return done


# --- jobs of ours ------------------------------------------------------------------------------

_checked: dict[str, Job] = {}
_checked_lock = threading.Lock()
_CHECKED_LIMIT = 64


def _read_job(drive: Drive, project: str, number: int) -> Job:
    """As `job_records.read_job`; bytes that were checked before are not checked again."""
    path = layout.job_files(project, number).record
    data = records.read_bytes(drive, path, limit=codec.MAX_BYTES)
    key = codec.sha256(path.encode() + b"\0" + data)
    with _checked_lock:
        known = _checked.get(key)
    if known is not None:
        return known
    job = codec.decode(Job, data, path)
    job_records.check_job(job, project, number, path)
    with _checked_lock:
        while len(_checked) >= _CHECKED_LIMIT:
            _checked.pop(next(iter(_checked)))
        _checked[key] = job
    return job


def _of_job(drive: Drive, project: str, number: int, *, must: bool) -> Found:
    found = Found()
    try:
        job = _read_job(drive, project, number)
        if job.abandoned:
            return found
        found.params.update(job_records.read_params(drive, job))
    except errors.NotFound:  # being submitted just now
        if must:
            raise
        return found
    except errors.Malformed as error:
        found.problems[error.path] = error.reason
        return found
    view = JobView(drive, job)
    view.look_at_events()
    if not view.finished():
        view.look_at_ends()  # an agent may have died between the end of a task and its event
    # After looking: then everything that was seen to have ended is in its place.
    with suppress(errors.DriveRefused, errors.Malformed):
        queue.roll_forward(drive, job)
    try:
        _sort_tasks(view, found)
    except errors.Malformed as error:  # a table of its tasks
        found.problems[error.path] = error.reason
    found.problems.update(view.problems)
    return found


def _sort_tasks(view: JobView, found: Found) -> None:
    job = view.job
    runs_folder = layout.project_files(job.project).runs
    tasks = view.tasks
    _read_ends(view)
    if not view.finished():
        view.look_at_claims()
        view.look_at_stops()
    found.known = {(r.param_name, r.job_name) for _, task in tasks.values() for r in task.runs}
    for number, (_, task) in sorted(tasks.items()):
        done = view.end_of(number)
        if done is None and number in view.claims and view.left_results(number):
            done = view.ended[number]  # somebody removed the record
        if done is None or done.outcome != "done":
            (found.failed if done else found.unfinished).extend(_notes(view, task, done))
            continue
        for index, run in enumerate(task.runs):
            files = done.files[index] if index < len(done.files) else ()
            folder = f"{runs_folder}/{run.param_name}/{run.job_name}"
            names = (run.param_name, run.job_name)
            found.runs.append(FoundRun(*names, folder, job.job, number, done, files, done.nonce))


def _read_ends(view: JobView) -> None:
    """Ends that no event tells of (its writer died): each has to be read by itself."""
    in_parallel(view.end_of, sorted(view.done - view.ended.keys()))


def _notes(view: JobView, task: Task, done: Done | None) -> Iterable[TaskNote]:
    if done is not None:
        state, node, why = str(done.outcome), done.host, done.why
    elif view.stopped(task.task):
        state, node, why = "stopped", "", "it was cancelled"
    elif task.task in view.done:
        state, node, why = "failed", "", "the record of its end cannot be read"
    elif task.task in view.claims:
        claim = view.owner(task.task)
        state, node, why = "running", claim.host if claim else "", ""
    else:
        state, node, why = "queued", "", ""
    for run in task.runs:
        yield TaskNote(view.job.job, task.task, state, run.param_name, run.job_name, node, why)


# --- runs without a job, or without a manifest -------------------------------------------------


def _add_strangers(drive: Drive, project: str, found: Found) -> None:
    """Runs that no job knows. The listing also tells which known ones are there no more."""
    files = layout.project_files(project)
    names = sorted(filter(layout.parse_param, _list(drive, files.runs)), key=_param_order)
    folders = in_parallel(lambda name: _list(drive, f"{files.runs}/{name}"), names)
    there = {(name, run) for name, runs in zip(names, folders, strict=True) for run in runs}
    gone = [run for run in found.runs if (run.param_name, run.job_name) not in there]
    if gone:
        found.removed = [run.folder for run in gone]
        found.runs = [r for r in found.runs if (r.param_name, r.job_name) in there]
    strangers = sorted(s for s in there - found.known if layout.is_run(s[1]))
    unnamed = sorted({name for name, _ in strangers} - found.params.keys())
    named = in_parallel(lambda n: _params(drive, files.param2val(n), found), unnamed)
    found.params.update(zip(unnamed, named, strict=True))
    for name, run in strangers:
        folder = f"{files.runs}/{name}/{run}"
        found.runs.append(FoundRun(name, run, folder, 0, 0, None, (), ""))


def _params(drive: Drive, path: str, found: Found) -> dict[str, object]:
    try:
        params = codec.from_yaml(drive.read(path), path)
    except (errors.Malformed, errors.NotFound, errors.WrongKind) as error:
        found.problems[path] = error.reason
        return {}
    return {k: v for k, v in params.items() if k not in codec.RESERVED}


def _param_order(name: str) -> tuple[int, str]:
    return layout.parse_param(name) or 0, name


def _list(drive: Drive, folder: str) -> list[str]:
    try:
        return drive.list(folder)
    except (errors.NotFound, errors.WrongKind):
        return []


def _list_missing(drive: Drive, found: Found, *, deep: bool) -> None:
    """Look for the files of runs that have no manifest."""
    where = [i for i, run in enumerate(found.runs) if not run.files and _unlisted(run)]
    listings = in_parallel(
        lambda i: _files_below(drive, found.runs[i].folder, deep=_DEEPEST if deep else 0), where
    )
    for index, files in zip(where, listings, strict=True):
        found.runs[index] = found.runs[index]._replace(files=files)


def _unlisted(run: FoundRun) -> bool:
    return run.done is None or not run.done.moved


def _files_below(drive: Drive, folder: str, *, deep: int, prefix: str = "") -> tuple[File, ...]:
    """The files of a folder; the time of each takes the place of the hash nobody computed."""
    try:
        entries = drive.scan(folder)
    except (errors.NotFound, errors.WrongKind, errors.NameNotAllowed):
        return ()
    files = []
    for entry in sorted(entries):
        if not entry.is_folder:
            files.append(File(prefix + entry.name, entry.size, f"modified {entry.modified!r}"))
        elif deep:
            below = f"{folder}/{entry.name}"
            files += _files_below(drive, below, deep=deep - 1, prefix=f"{prefix}{entry.name}/")
    return tuple(files)
