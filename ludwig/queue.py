"""The operations on a job's tasks: claim, refuse, end, roll forward, stop.

Owns the order in which files appear (payload, then what refers to it, then what announces it) and
so the guarantee that every task ends exactly once, whatever dies in between. Each operation may be
repeated after an error. The job itself is created and read in `job_records.py`. What state a task
is in is decided by the pure functions of `states.py`, what to claim next in `shares.py`; heartbeats
are in `nodes.py`, numbers and names in `registry.py`. Never sleeps, never asks for the time, never
unpickles.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ludwig import codec, errors, job_records, layout, records
from ludwig.drive import Drive
from ludwig.drives.trees import local_files
from ludwig.model import Claim, Done, File, Job, Refusal, Stop, Task
from ludwig.tasks import Tasks

__all__ = [
    "claim",
    "end",
    "ensure_param",
    "finish",
    "manifest",
    "read_done",
    "refuse",
    "roll_forward",
    "settle",
    "stage",
    "stop",
    "withdraw",
]


FINISH_TRIES = 5


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
            if not won and not (brings and _is_spoilt(drive, job, done.task)):
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


def _is_spoilt(drive: Drive, job: Job, task: int) -> bool:
    """Whether a task has an end that nobody can read. Whose it was cannot be known any more, so
    whole results count, whoever has them; and he who had published it tells of the end again."""
    try:
        read_done(drive, job, task)
    except errors.Malformed:
        return True
    return False


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
    tasks = job_records.tasks_of(drive, job)
    ended = _ended_of(drive, files, {task for task, _ in staged if task in tasks})
    helped = []
    for task, attempt in staged:
        if task not in ended:
            continue
        try:
            done = read_done(drive, job, task)
        except errors.Malformed:
            if drive.exists(files.stop()) or drive.exists(files.stop(task)):
                continue
            # Who won cannot be known any more. Results that are whole are better than none.
            done = Done(task=task, attempt=attempt, outcome="done", host="", nonce="")
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
        params = job_records.read_params(drive, job)
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
