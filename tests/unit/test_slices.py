"""The bytes of tasks, read with their neighbours."""

from __future__ import annotations

from pathlib import Path

import pytest

from ludwig import codec, errors, job_records, layout
from ludwig.drives.folder import FolderDrive
from ludwig.model import Job, Task
from ludwig.worker.slices import NEAR, Slices
from tests.hooked_drive import Count, HookedDrive
from tests.simsubmit import job_record


def publish(folder: Path, tasks: int) -> tuple[FolderDrive, Job]:
    drive = FolderDrive(folder)
    job, chunks, params = job_record(
        "trees",
        1,
        {"param_001": {"lr": 1}},
        {"param_001": tasks},
        hosts=["hoff"],
        nonce="12345678",
        stamp="2026-11-18-10-00-00",
    )
    job_records.publish_job(drive, job, chunks, params)
    return drive, job


@pytest.mark.parametrize("backwards", [False, True])
def test_neighbours_cost_no_request(tmp_path: Path, backwards: bool) -> None:
    drive, job = publish(tmp_path, 300)
    count = Count()
    slices = Slices(HookedDrive(drive, count))
    tasks = list(job.chunks["hoff"].tasks)
    for task in reversed(tasks) if backwards else tasks:
        data = slices.read(job, "hoff", task)
        assert data == job_records.read_task(drive, job, "hoff", task)
    size = sum(task.length for task in tasks)
    assert count.calls["read"] <= 1 + size // NEAR


def test_what_is_long_is_read_alone(tmp_path: Path) -> None:
    drive, job = publish(tmp_path, 3)
    path = layout.job_files("trees", 1).chunk_of("hoff")
    parts = [bytes([n]) * (NEAR + n) for n in range(1, 3)]
    (tmp_path / path).write_bytes(b"".join(parts))
    runs = job.chunks["hoff"].tasks[0].runs
    slices, at = Slices(drive), 0
    for number, part in enumerate(parts):
        task = Task(number + 1, at, len(part), codec.sha256(part), runs)
        assert slices.read(job, "hoff", task) == part
        at += len(part)


def test_only_what_the_job_vouches_for_is_given(tmp_path: Path) -> None:
    drive, job = publish(tmp_path, 3)
    path = tmp_path / layout.job_files("trees", 1).chunk_of("hoff")
    whole = path.read_bytes()
    first, second, third = job.chunks["hoff"].tasks
    path.write_bytes(whole[: second.offset] + bytes(len(whole) - second.offset))
    slices = Slices(drive)
    assert codec.sha256(slices.read(job, "hoff", first)) == first.sha256
    with pytest.raises(errors.Malformed, match="does not match"):
        slices.read(job, "hoff", second)
    path.write_bytes(whole)
    assert codec.sha256(slices.read(job, "hoff", second)) == second.sha256, "it is read again"
    assert codec.sha256(slices.read(job, "hoff", third)) == third.sha256
