"""The operations on a job: create, read, claim, finish, roll forward, stop.

Owns the order in which files appear (payload, then what refers to it, then what announces it) and
so the guarantee that every task ends exactly once, whatever dies in between. Each operation may be
repeated after an error. What state a task is in, and what to claim next, is decided by the pure
functions of `states.py`; heartbeats are in `nodes.py`, numbers and names in `registry.py`.
Never sleeps, never asks for the time, never unpickles.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from ludwig import codec, errors, layout, records
from ludwig.drive import Drive
from ludwig.drives.trees import local_files
from ludwig.model import (
    Chunk,
    Claim,
    Done,
    File,
    Job,
    Origin,
    Refusal,
    Stop,
    Table,
    Task,
    TaskTable,
)
from ludwig.tasks import Tasks

__all__ = [
    "abandon_job",
    "claim",
    "end",
    "ensure_param",
    "finish",
    "list_jobs",
    "manifest",
    "publish_job",
    "read_done",
    "read_job",
    "read_params",
    "read_task",
    "refuse",
    "roll_forward",
    "settle",
    "stage",
    "stop",
    "tasks_of",
    "withdraw",
]


FINISH_TRIES = 5
TABLES_FROM = 5_000
"""A job of more tasks than these has them in tables, lest every node reads what all nodes do."""


# --- creating and reading ----------------------------------------------------------------------


def publish_job(drive: Drive, job: Job, chunks: Mapping[str, bytes], params: bytes) -> bytes:
    """Make a job exist. Its folder is reserved (`registry.reserve_job`) and otherwise empty.

    `chunks` are the bytes of each host's chunk, `params` those of `params.json`. Returns the bytes
    of `job.json`, whose hash goes into the tickets. `Exists` when somebody took this submission
    for dead and abandoned it: then nothing was submitted.
    """
    files = layout.job_files(job.project, job.job)
    job, tables = in_tables(job) if len(job.tasks()) > TABLES_FROM else (job, {})
    for folder in files.folders(job.numbers()):
        drive.make_folders(folder)
    # Published, though nobody races for them: a call that was cut short can then be repeated.
    for host, data in chunks.items():
        drive.publish(files.chunk_of(host), data)
    for host, data in tables.items():
        drive.publish(files.table_of(host), data)
    drive.publish(files.params, params)
    record = codec.encode(job)
    drive.publish(files.record, record)
    return record


def in_tables(job: Job) -> tuple[Job, dict[str, bytes]]:
    """The record of a large job, and the bytes of each host's table of tasks.

    A job in which some host's tasks are not numbered in a row keeps them all in its record.
    """
    chunks, tables = dict(job.chunks), {}
    for host, chunk in job.chunks.items():
        if not chunk.tasks:
            continue
        first, count = chunk.numbers[0], len(chunk.numbers)
        if list(chunk.numbers) != list(range(first, first + count)):
            return job, {}
        tables[host] = codec.encode(TaskTable(host=host, tasks=chunk.tasks))
        table = Table(sha256=codec.sha256(tables[host]), first=first, count=count)
        chunks[host] = Chunk(table=table)
    return msgspec.structs.replace(job, chunks=chunks), tables


def abandon_job(drive: Drive, project: str, number: int, *, origin: Origin, nonce: str) -> bool:
    """Declare a submission dead that reserved a number and never published its job.

    False if the job was there after all. Should its submitter live, it is told by `Exists`.
    """
    zeros = "0" * 64
    job = Job(
        project=project,
        job=number,
        nonce=nonce,
        stamp="",
        contract="function",
        entry="",
        source=zeros,
        params_sha256=zeros,
        chunks={},
        origin=origin,
        abandoned=True,
    )
    try:
        drive.publish(layout.job_files(project, number).record, codec.encode(job))
    except errors.Exists:
        return False
    return True


def list_jobs(drive: Drive, project: str) -> list[int]:
    """The numbers of a project's jobs, also of those being submitted just now."""
    try:
        names = drive.list(layout.project_files(project).jobs)
    except errors.NotFound:
        return []
    return sorted(number for name in names if (number := layout.parse_job(name)))


def read_job(drive: Drive, project: str, number: int, *, sha256: str | None = None) -> Job:
    """A job's record. `NotFound` if there is no such job (yet).

    With `sha256`, only the very bytes a ticket vouches for are accepted.
    """
    path = layout.job_files(project, number).record
    data = records.read_bytes(drive, path, limit=codec.MAX_BYTES)
    if sha256 is not None and (actual := codec.sha256(data)) != sha256:
        raise errors.TicketRefused(
            f"job.json does not match its ticket (sha256 {actual[:4]}… ≠ {sha256[:4]}…). Somebody "
            f"changed <drive>/{path} after it was submitted. Submit again."
        )
    job = codec.decode(Job, data, path)
    check_job(job, project, number, path)
    return job


def check_job(job: Job, project: str, number: int, path: str) -> None:
    """Refuse a record whose names could lead anywhere but into its own project."""
    if (job.project, job.job) != (project, number):
        raise errors.Malformed(path, f"it is the record of {job.project}/{job.job}")
    try:
        if not job.abandoned:
            layout.check_relative(job.entry, what="entry")
        hosts = {layout.check_host(host).lower() for host in job.chunks}
    except errors.NameNotAllowed as error:
        raise errors.Malformed(path, str(error)) from error
    if len(hosts) != len(job.chunks):
        raise errors.Malformed(path, "two hosts differ by case alone")
    _check_tables(job, path)
    check_tasks([task for chunk in job.chunks.values() for task in chunk.tasks], project, path)


def _check_tables(job: Job, path: str) -> None:
    """All tasks are here, or all are in tables; and no task is in two of these."""
    tables = sorted(
        (chunk.table.first, chunk.table.count) for chunk in job.chunks.values() if chunk.table
    )
    if tables and any(chunk.tasks for chunk in job.chunks.values()):
        raise errors.Malformed(path, "some of its tasks are in tables and some are not")
    for (first, count), (following, _) in itertools.pairwise(tables):
        if following < first + count:
            raise errors.Malformed(path, f"task {following} is in two tables")


_USUAL_NAMES = re.compile(r"(?:param_[0-9]{1,12}/[0-9][0-9-]*_[A-Za-z0-9-]+_num[0-9]+\n)*+")


def check_tasks(tasks: Sequence[Task], project: str, path: str) -> None:
    """Refuse tasks whose names could lead anywhere but into their own project, or to each other."""
    seen: set[int] = set()
    folders: set[str] = set()
    for task in tasks:
        if task.task in seen or not task.runs:
            raise errors.Malformed(path, f"task {task.task} is there twice, or empty")
        seen.add(task.task)
        for run in task.runs:
            folder = f"{run.param_name}/{run.job_name}".lower()
            if folder in folders:
                raise errors.Malformed(path, f"two runs are called {run.job_name!r}")
            folders.add(folder)
    names = [f"{run.param_name}/{run.job_name}" for task in tasks for run in task.runs]
    # For ten thousand runs with names of the usual form this takes a thirtieth of the time.
    if _USUAL_NAMES.fullmatch("".join(f"{name}\n" for name in names)) is None:
        for task in tasks:
            _check_runs(task, project, path)


def _check_runs(task: Task, project: str, path: str) -> None:
    for run in task.runs:
        try:
            layout.project_files(project).run(run.param_name, run.job_name)
        except errors.NameNotAllowed as error:
            raise errors.Malformed(path, str(error)) from error
        if layout.parse_param(run.param_name) is None or "num" not in run.job_name:
            raise errors.Malformed(path, f"task {task.task} has an unusual name")


def tasks_of(drive: Drive, job: Job) -> Tasks:
    """The tasks of a job; those in tables are read, and verified, when they are asked for."""
    return Tasks(job, lambda host: _read_table(drive, job, host))


def _read_table(drive: Drive, job: Job, host: str) -> tuple[Task, ...]:
    """The tasks of one host, exactly those that `job.json` vouches for."""
    path = layout.job_files(job.project, job.job).table_of(host)
    data = records.read_bytes(drive, path, limit=codec.MAX_BYTES)
    expected = job.chunks[host].table
    if expected is None or codec.sha256(data) != expected.sha256:
        raise errors.Malformed(path, "it does not match the SHA-256 in job.json")
    table = codec.decode(TaskTable, data, path)
    if table.host != host or [t.task for t in table.tasks] != list(job.chunks[host].numbers):
        raise errors.Malformed(path, "it does not hold the tasks that job.json says")
    check_tasks(table.tasks, job.project, path)
    return table.tasks


def read_params(drive: Drive, job: Job) -> dict[str, dict[str, object]]:
    """The parameters of every configuration of a job, by param_name."""
    path = layout.job_files(job.project, job.job).params
    data = records.read_bytes(drive, path, limit=codec.MAX_BYTES)
    if codec.sha256(data) != job.params_sha256:
        raise errors.Malformed(path, "it does not match the SHA-256 in job.json")
    return codec.decode_params(data, path)


def read_task(drive: Drive, job: Job, host: str, task: Task) -> bytes:
    """The pickled bytes of a task, exactly those that `job.json` vouches for."""
    path = layout.job_files(job.project, job.job).chunk_of(host)
    data = drive.read(path, offset=task.offset, limit=task.length)
    if codec.sha256(data) != task.sha256:
        raise errors.Malformed(path, f"task {task.task} does not match its SHA-256 in job.json")
    return data


# --- claiming ----------------------------------------------------------------------------------


def claim(drive: Drive, job: Job, task: int, attempt: int, by: Claim) -> bool:
    """Try to become the one who runs this attempt. False when somebody was first."""
    path = layout.job_files(job.project, job.job).claim_of(task, attempt)
    try:
        drive.create(path, codec.encode(by))
    except errors.Exists:
        return False
    return True


def refuse(drive: Drive, project: str, number: int, refusal: Refusal) -> None:
    """Say on the drive that this node will not work on a job. Said once."""
    files = layout.job_files(project, number)
    with suppress(errors.Exists):
        drive.make_folders(files.refused)
        drive.publish(files.refused_by(refusal.host), codec.encode(refusal))


# --- ending ------------------------------------------------------------------------------------


def stage(
    drive: Drive,
    job: Job,
    task: Task,
    attempt: int,
    *,
    folders: Sequence[Path],
    params: Mapping[str, Mapping[str, object]],
) -> tuple[tuple[File, ...], ...]:
    """Bring the results of an attempt to the drive, one local folder per run of the task.

    Returns the manifest for `done`. Nothing of it is visible in `runs/` yet but the parameters.
    """
    files = manifest(folders)
    _upload(drive, job, task, attempt, folders=folders, params=params, files=files)
    return files


def manifest(folders: Sequence[Path]) -> tuple[tuple[File, ...], ...]:
    """Every file of some local folders, with size and hash."""
    return tuple(
        tuple(_file(folder, name) for name in sorted(local_files(folder))) for folder in folders
    )


def _file(folder: Path, name: str) -> File:
    path = folder / name
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return File(name, path.stat().st_size, digest)


def _upload(
    drive: Drive,
    job: Job,
    task: Task,
    attempt: int,
    *,
    folders: Sequence[Path],
    params: Mapping[str, Mapping[str, object]],
    files: Sequence[Sequence[File]],
    fresh: bool = False,
    seen: set[str] | None = None,
) -> None:
    """A staged folder is whole or not there: once the task has ended, anybody may move it.

    `fresh`: nothing was staged before, so there is no need to look. `seen`: see `finish`.
    """
    staging = layout.job_files(job.project, job.job)
    seen = seen if fresh and seen is not None else set()
    for index, (run, folder) in enumerate(zip(task.runs, folders, strict=True)):
        if run.param_name not in seen:
            ensure_param(drive, job.project, run.param_name, params[run.param_name])
            seen.add(run.param_name)
        staged = staging.staged_run(task.task, attempt, index)
        if not fresh and drive.exists(staged):
            continue
        if not files[index]:  # whole as soon as it is there
            drive.make_folders(staging.staging_of(task.task, attempt), staged)
            continue
        arriving = staging.arriving_run(task.task, attempt, index)
        drive.upload(folder, arriving, files=[file.path for file in files[index]])
        with suppress(errors.Exists):
            drive.move(arriving, staged)


def ensure_param(drive: Drive, project: str, param_name: str, params: Mapping[str, object]) -> None:
    """`runs/<param_name>/param2val.yaml`, written once by whoever needs it first."""
    files = layout.project_files(project)
    if drive.exists(files.param2val(param_name)):  # as for every replication but the first
        return
    drive.make_folders(files.param(param_name))
    text = codec.to_yaml({**params, "param_name": param_name, "job_name": None})
    with suppress(errors.Exists):
        drive.publish(files.param2val(param_name), text.encode())


def end(drive: Drive, job: Job, done: Done) -> bool:
    """Publish the end of a task. True for the one who ended it, also when asked again.

    Repeating the call after an error needs the very same record.
    """
    path = layout.job_files(job.project, job.job).done_of(done.task)
    try:
        drive.publish(path, codec.encode(done))
    except errors.Exists:
        return False
    return True


def read_done(drive: Drive, job: Job, task: int) -> Done | None:
    """How a task ended. None if it has not."""
    path = layout.job_files(job.project, job.job).done_of(task)
    try:
        done = records.read_record(Done, drive, path, limit=codec.MAX_BYTES)
    except errors.NotFound:
        return None
    if done.task != task:
        raise errors.Malformed(path, f"it is the end of task {done.task}")
    return done


def settle(drive: Drive, job: Job, task: Task, done: Done) -> bool:
    """Move the winner's results to `runs/`. Anybody may do it, any number of times.

    False when something is neither staged nor in place: then it must be staged again.
    """
    if done.outcome != "done" or not done.moved:
        return True
    files = layout.job_files(job.project, job.job)
    project = layout.project_files(job.project)
    complete = True
    for index, run in enumerate(task.runs):
        staged = files.staged_run(done.task, done.attempt, index)
        target = project.run(run.param_name, run.job_name)
        try:
            drive.move(staged, target)
        except errors.Exists:
            pass  # moved before; what is still staged is an upload that came too late
        except errors.NotFound:
            complete = complete and drive.exists(target)
    if complete:
        drive.remove_folder(files.staging_of(done.task, done.attempt))
    return complete


def withdraw(drive: Drive, job: Job, task: int, attempt: int) -> None:
    """Take back what an attempt staged that did not win."""
    drive.remove_folder(layout.job_files(job.project, job.job).staging_of(task, attempt))


def finish(
    drive: Drive,
    job: Job,
    task: Task,
    done: Done,
    *,
    folders: Sequence[Path],
    params: Mapping[str, Mapping[str, object]],
    fresh: bool = False,
    seen: set[str] | None = None,
) -> bool:
    """End a task whose results lie in local folders. True if this attempt is the one that counts.

    The manifest in `done` must be that of the folders (see `manifest`). May be repeated, with the
    very same record. `fresh`: it is the first attempt at the task and the first call, so that most
    likely nobody has ended it. Should somebody have, that shows all the same, a little later.
    `seen` remembers between calls whose parameters are in `runs/`: these are not looked for again
    unless a run cannot be moved there.
    """
    brings = done.outcome == "done" and done.moved
    for turn in range(FINISH_TRIES):
        first = fresh and turn == 0
        # Looking first spares a latecomer the upload, and leaves alone what others may be moving.
        won = None if first else _ended_by(drive, job, done)
        try:
            if brings and won is None:
                _upload(
                    drive,
                    job,
                    task,
                    done.attempt,
                    folders=folders,
                    params=params,
                    files=done.files,
                    fresh=first,
                    seen=seen,
                )
            if won is None:
                won = end(drive, job, done)
            if not won:
                _withdraw_loser(drive, job, done)
                return False
            if settle(drive, job, task, done):
                return True
            _upload(
                drive, job, task, done.attempt, folders=folders, params=params, files=done.files
            )
        except errors.NotFound:
            continue  # somebody cleared the staging folder meanwhile: look again
    path = layout.job_files(job.project, job.job).staging_of(done.task, done.attempt)
    raise errors.DriveAway("finishing", path, "what is staged vanishes again and again")


def _ended_by(drive: Drive, job: Job, done: Done) -> bool | None:
    """Whether a task was ended by this very record, by another, or (None) not at all."""
    try:
        found = read_done(drive, job, done.task)
    except errors.Malformed:
        return False
    return None if found is None else found.nonce == done.nonce


def _withdraw_loser(drive: Drive, job: Job, done: Done) -> None:
    """Remove what we staged, unless the winner ran under the same number.

    That cannot be unless somebody removed a claim; then the folder may hold the winner's results.
    """
    with suppress(errors.Malformed):
        winner = read_done(drive, job, done.task)
        if winner is not None and winner.attempt == done.attempt:
            return
    withdraw(drive, job, done.task, done.attempt)


def roll_forward(drive: Drive, job: Job) -> list[int]:
    """Complete what a dead winner left: move results of ended tasks that are still staged.

    Also removes what losers left. Returns the tasks that were helped. For agents and clients.
    """
    files = layout.job_files(job.project, job.job)
    try:
        staged = [
            found for name in drive.list(files.staging) if (found := layout.parse_attempt(name))
        ]
    except errors.NotFound:
        return []
    tasks = tasks_of(drive, job)
    ended = _ended_of(drive, files, {task for task, _ in staged if task in tasks})
    helped = []
    for task, attempt in staged:
        if task not in ended:
            continue
        try:
            done = read_done(drive, job, task)
        except errors.Malformed:
            continue  # one bad file must not keep the others from being completed
        if done is None:
            continue
        if done.attempt == attempt and done.outcome == "done" and done.moved:
            if _settle_for_another(drive, job, tasks, done):
                helped.append(task)
        else:
            withdraw(drive, job, task, attempt)
    return helped


def _ended_of(drive: Drive, files: layout.JobFiles, tasks: set[int]) -> set[int]:
    """Which of these tasks have ended, by listing: names that were looked for in vain stay
    "not found" for a second on a mount."""
    found: set[int] = set()
    for bucket in {layout.bucket_of(task) for task in tasks}:
        with suppress(errors.NotFound):
            names = drive.list(files.done_in(bucket))
            found |= {task for name in names if (task := layout.parse_task(name))}
    return found & tasks


def _settle_for_another(drive: Drive, job: Job, tasks: Tasks, done: Done) -> bool:
    """As `settle`. Should somebody have removed `runs/<param_name>`, it is made again."""
    try:
        task = tasks[done.task][1]
        if settle(drive, job, task, done):
            return True
        params = read_params(drive, job)
        for run in task.runs:
            ensure_param(drive, job.project, run.param_name, params[run.param_name])
        return settle(drive, job, task, done)
    except (errors.WrongKind, errors.NotFound, errors.Malformed, KeyError):
        return False


# --- stopping ----------------------------------------------------------------------------------


def stop(drive: Drive, job: Job, by: Stop, *, task: int | None = None) -> None:
    """Ask for a job, or one task of it, to be cancelled. Cannot be taken back."""
    with suppress(errors.Exists):
        drive.create(layout.job_files(job.project, job.job).stop(task), codec.encode(by))
