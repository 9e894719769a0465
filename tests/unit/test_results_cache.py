"""The cache: believed only if whole, safe to share, bounded."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ludwig import errors
from ludwig.client import results_cache, results_read
from ludwig.client.results import read_results
from ludwig.client.results_cache import ResultsCache, file_key
from ludwig.client.results_parse import parse
from ludwig.drives.folder import FolderDrive
from tests.jobs import tasks_in
from tests.labdrive import LabDrive

FILES = {
    "numbers.csv": "step,x,y\n0,1,0.1\n1,2,nan\n",
    "words.csv": "step,w\n0,cat\n1,\n",
    "truth.csv": "step,t\n0,True\n1,False\n",
    "mixed.csv": "step,m\n0,True\n1,\n",
    "large.csv": "step,l\n0,18446744073709551615\n",
}


class Counting(FolderDrive):
    """Counts the result files that are read."""

    reads = 0

    def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        self.reads += path.endswith(".csv")
        return super().read(path, offset=offset, limit=limit)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LUDWIG_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "results"


@pytest.fixture
def lab(tmp_path: Path) -> LabDrive:
    (tmp_path / "drive").mkdir()
    return LabDrive(Counting(tmp_path / "drive"))


def reads(lab: LabDrive, **options: Any) -> tuple[int, pd.DataFrame]:
    assert isinstance(lab.drive, Counting)
    lab.drive.reads = 0
    frame = read_results(lab.drive, lab.project, **options)
    return lab.drive.reads, frame


def test_the_second_look_reads_only_what_is_new(lab: LabDrive, cache: Path) -> None:
    job = lab.submit([{"lr": 0.1}], reps=3)
    for task in (1, 2):
        lab.finish(job, task, {n: c.replace("1", str(task + 2)) for n, c in FILES.items()})
    count, first = reads(lab)
    assert count == 10
    count, second = reads(lab)
    assert count == 0
    pd.testing.assert_frame_equal(first, second)
    lab.finish(job, 3, {"numbers.csv": "step,x,y\n0,7,7\n"})
    assert reads(lab)[0] == 1
    assert reads(lab)[0] == 0
    count, without = reads(lab, cache=False)
    assert count == 11
    pd.testing.assert_frame_equal(reads(lab)[1], without)


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "noise", "folder"])
def test_a_damaged_cache_is_rebuilt(lab: LabDrive, cache: Path, damage: str) -> None:
    job = lab.submit([{"lr": 0.1}])
    lab.finish(job, 1, FILES)
    _, first = reads(lab)
    for path in cache.glob("*/*.results"):
        data = path.read_bytes()
        if damage == "cut":
            path.write_bytes(data[: len(data) // 2])
        elif damage == "flip":
            path.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
        elif damage == "empty":
            path.write_bytes(b"")
        elif damage == "noise":
            path.write_bytes(b"\0" * 500)
        else:
            path.unlink()
            path.mkdir()
    count, second = reads(lab)
    assert count == len(FILES)
    pd.testing.assert_frame_equal(first, second)
    if damage != "folder":
        assert reads(lab)[0] == 0


def test_a_cache_that_cannot_be_written_is_no_cache(
    lab: LabDrive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("LUDWIG_CACHE", str(tmp_path / "file"))
    job = lab.submit([{"lr": 0.1}])
    lab.finish(job, 1, FILES)
    assert reads(lab)[0] == reads(lab)[0] == len(FILES)


def test_it_stays_small(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUDWIG_CACHE_BYTES", "60000")
    for number in range(12):
        data = pd.DataFrame({"step": np.arange(1000), f"x{number}": 0.5}).to_csv(index=False)
        blocks, _ = parse([(file_key("p", number, ""), data.encode())])
        ResultsCache("drive", f"project{number}").add(blocks)
    left = list(cache.glob("*/*.results"))
    assert 1 <= len(left) <= 3
    assert sum(path.stat().st_size for path in left) <= 60_000


def test_many_small_additions_become_one_file(cache: Path) -> None:
    kept = ResultsCache("drive", "project")
    for number in range(30):
        kept.load()
        blocks, _ = parse([(file_key("p", number, ""), f"step,x\n{number},1\n".encode())])
        kept.add(blocks)
    assert len(list(cache.glob("*/*.results"))) <= results_cache._MANY
    keys = [key for block in kept.load() for key in block.keys]
    assert len(keys) == len(set(keys)) == 30


def test_readers_at_the_same_time(lab: LabDrive, cache: Path) -> None:
    job = lab.submit([{"lr": 0.1}], reps=40)
    for task in tasks_in(job):
        lab.finish(job, task, {"numbers.csv": f"step,x\n{task},1\n"})
    frames: list[pd.DataFrame] = []

    def look() -> None:
        for _ in range(5):
            frames.append(read_results(lab.drive, lab.project))

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(frames) == 20
    for frame in frames:
        pd.testing.assert_frame_equal(frame, frames[0])


def test_a_drive_that_reads_many_is_asked_to(lab: LabDrive, cache: Path) -> None:
    job = lab.submit([{"lr": 0.1}])
    lab.finish(job, 1, FILES)
    asked: list[Sequence[str]] = []

    class Many(Counting):
        def read_many(self, paths: Sequence[str]) -> list[bytes | errors.LudwigError]:
            asked.append(paths)
            return [self.read(path) for path in paths]

    drive = Many(lab.drive.where)
    assert isinstance(drive, results_read.ReadsMany)
    assert len(read_results(drive, lab.project)) == 2
    assert [len(paths) for paths in asked] == [len(FILES)]
