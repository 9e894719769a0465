"""What a job is on the drive: creating it, giving it up, and reading it back.

Owns the order in which a submission appears (chunks and tables, parameters, and last `job.json`,
which makes the job exist), and what is checked before a record from the drive is believed: its hash
where a ticket or `job.json` names one, and every name that becomes part of a path. Numbers are
reserved by `registry.py`; what is done with a job's tasks is in `queue.py`. Never unpickles.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence

import msgspec

from ludwig import codec, errors, layout, records
from ludwig.drive import Drive
from ludwig.model import Chunk, Job, Origin, Table, Task, TaskTable
from ludwig.tasks import Tasks

__all__ = [
    "abandon_job",
    "check_job",
    "check_tasks",
    "list_jobs",
    "publish_job",
    "read_job",
    "read_params",
    "read_task",
    "tasks_of",
]

TABLES_FROM = 5_000
"""A job of more tasks than these has them in tables, lest every node reads what all nodes do."""


def publish_job(drive: Drive, job: Job, chunks: Mapping[str, bytes], params: bytes) -> bytes:
    """Make a job exist. Its folder is reserved (`registry.reserve_job`) and otherwise empty.

    `chunks` are the bytes of each host's chunk, `params` those of `params.json`. Returns the bytes
    of `job.json`, whose hash goes into the tickets. `Exists` when somebody took this submission
    for dead and abandoned it: then nothing was submitted.
    """
    files = layout.job_files(job.project, job.job)
    count = sum(len(chunk.tasks) for chunk in job.chunks.values())
    job, tables = in_tables(job) if count > TABLES_FROM else (job, {})
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
