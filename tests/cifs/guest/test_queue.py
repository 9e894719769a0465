"""Results that two machines bring home at once over a mount: there once, and whole."""

import secrets
from pathlib import Path

import msgspec
import pytest

from ludwig import codec, job_records, layout, queue
from ludwig.drives.folder import FolderDrive
from ludwig.model import Chunk, Done, Job, Origin, Run, Task
from tests.jobs import tasks_in

PARAMS = {"param_001": {"lr": 0.1}}


@pytest.fixture
def job(drive: FolderDrive) -> Job:
    zeros = "0" * 64
    runs = [Run("param_001", f"2026-11-18-10-00-00_hoff_num{i}") for i in range(4)]
    params = codec.encode_params(PARAMS)
    job = Job(
        project="trees",
        job=1,
        nonce=secrets.token_hex(8),
        stamp="2026-11-18-10-00-00",
        contract="function",
        entry="run.py",
        source=zeros,
        params_sha256=codec.sha256(params),
        chunks={
            "hoff": Chunk(tasks=tuple(Task(i + 1, i, 1, zeros, (r,)) for i, r in enumerate(runs)))
        },
        origin=Origin(user="ana", host="laptop"),
    )
    job_records.publish_job(drive, job, {"hoff": bytes(4)}, params)
    return job


def result(tmp_path: Path, number: int) -> Path:
    folder = tmp_path / f"run{number}"
    (folder / "saves").mkdir(parents=True)
    (folder / "loss.csv").write_text(f"0,{number}\n" * 500)
    (folder / "saves" / "model").write_bytes(bytes([number]) * 100_000)
    return folder


def done_of(number: int, folder: Path) -> Done:
    done = Done(
        task=number, attempt=1, outcome="done", host="hoff", nonce=secrets.token_hex(8), files=()
    )
    return msgspec.structs.replace(done, files=queue.manifest([folder]))


def assert_home(drive: FolderDrive, job: Job, number: int, folder: Path) -> None:
    run = tasks_in(job)[number][1].runs[0]
    target = layout.project_files(job.project).run(run.param_name, run.job_name)
    assert sorted(drive.list(target)) == ["loss.csv", "saves"]
    assert drive.read(f"{target}/loss.csv") == (folder / "loss.csv").read_bytes()
    assert drive.read(f"{target}/saves/model") == (folder / "saves" / "model").read_bytes()
    assert drive.list(layout.job_files(job.project, job.job).staging) == []


def test_somebody_else_moves_what_is_staged(
    drive: FolderDrive, other: FolderDrive, job: Job, tmp_path: Path
) -> None:
    """The winner has just looked for the target in vain; its kernel says so for a second."""
    folder = result(tmp_path, 1)
    task, done = tasks_in(job)[1][1], done_of(1, folder)
    run = task.runs[0]
    target = layout.project_files(job.project).run(run.param_name, run.job_name)
    queue.stage(drive, job, task, 1, folders=[folder], params=PARAMS)
    assert queue.end(drive, job, done)
    assert not drive.exists(target)
    assert queue.roll_forward(other, job) == [1]
    assert queue.finish(drive, job, task, done, folders=[folder], params=PARAMS)
    assert_home(drive, job, 1, folder)
    assert_home(other, job, 1, folder)


def test_both_settle(drive: FolderDrive, other: FolderDrive, job: Job, tmp_path: Path) -> None:
    for number in (1, 2, 3, 4):
        folder = result(tmp_path, number)
        task, done = tasks_in(job)[number][1], done_of(number, folder)
        queue.stage(drive, job, task, 1, folders=[folder], params=PARAMS)
        assert queue.end(drive, job, done)
        first, second = (drive, other) if number % 2 else (other, drive)
        assert queue.settle(first, job, task, done)
        assert queue.finish(second, job, task, done, folders=[folder], params=PARAMS)
        assert_home(drive, job, number, folder)


def test_a_loser_withdraws(
    drive: FolderDrive, other: FolderDrive, job: Job, tmp_path: Path
) -> None:
    folder = result(tmp_path, 2)
    task, won = tasks_in(job)[2][1], done_of(2, folder)
    late = msgspec.structs.replace(won, attempt=2, nonce=secrets.token_hex(8), host="hebb")
    assert queue.read_done(other, job, 2) is None  # so its kernel believes for a second
    assert queue.finish(drive, job, task, won, folders=[folder], params=PARAMS)
    assert not queue.finish(other, job, task, late, folders=[folder], params=PARAMS)
    assert_home(other, job, 2, folder)
