"""Claiming, helping and taking over where a job's tasks are in several buckets."""

from __future__ import annotations

from pathlib import Path

import pytest

from ludwig import codec, job_records, layout
from ludwig.drives.folder import FolderDrive
from ludwig.view import JobView
from tests.simnode import SimNode
from tests.simsubmit import job_record

FILES = layout.job_files("trees", 1)


class Two:
    """hoff has tasks 1 to 1,010 and does little, hebb has two tasks and twenty slots."""

    def __init__(self, folder: Path) -> None:
        self.drive = FolderDrive(folder)
        self.now = 0.0
        job, chunks, params = job_record(
            "trees",
            1,
            {"param_001": {"lr": 1}},
            {"param_001": 1_012},
            hosts=["hoff", "hebb"],
            nonce="12345678",
            stamp="2026-11-18-10-00-00",
            shares={"hoff": 1_010, "hebb": 2},
        )
        self.record = job_records.publish_job(self.drive, job, chunks, params)
        self.job = job_records.read_job(self.drive, "trees", 1, sha256=codec.sha256(self.record))
        self.hoff, self.hebb = (self.node(host, folder) for host in ("hoff", "hebb"))

    def node(self, host: str, folder: Path) -> SimNode:
        node = SimNode(
            host=host,
            drive=self.drive,
            job=self.job,
            params=job_records.read_params(self.drive, self.job),
            disk=folder / "disk",
            clock=lambda: self.now,
            slots=2 if host == "hoff" else 20,
        )
        node.boot()
        return node

    def claims(self, bucket: int) -> list[str]:
        return sorted(self.drive.list(FILES.claims_in(bucket)))


@pytest.fixture
def two(tmp_path: Path) -> Two:
    return Two(tmp_path)


def test_a_helper_goes_from_bucket_to_bucket(two: Two) -> None:
    two.hoff.tick()
    two.hebb.tick()
    assert two.claims(1) == [f"{task}.1" for task in range(1_000, 1_013)]
    assert two.claims(0) == ["0001.1", "0002.1", *(f"{t:04d}.1" for t in range(993, 1_000))]
    assert two.drive.exists(FILES.claim_of(999, 1)), FILES.claim_of(999, 1)


def test_what_a_dead_node_held_is_found_in_every_bucket(two: Two) -> None:
    two.hoff.tick()
    two.hebb.tick()
    two.hebb.crashed()
    for _ in range(6):
        two.now += 14.0
        two.hoff.tick()
    assert two.hoff.observer.silent("hebb", two.now)
    two.hoff.slots = 22
    two.hoff.tick()
    again = [task for task, attempt in two.hoff.started if attempt == 2]
    assert again == list(range(993, 1_013))
    for key in list(two.hoff.held):
        two.hoff.exits(key, "done")
    two.hoff.tick()
    view = JobView(two.drive, two.job)
    view.refresh()
    assert set(again) <= view.done
    assert {layout.parse_task(name) for name in two.drive.list(FILES.done_in(1))} == set(
        range(1_000, 1_013)
    )
