"""Results over every kind of drive: many runs of mixed shapes, and while tasks finish."""

from __future__ import annotations

import io
import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ludwig import layout
from ludwig.client.results import read_results
from ludwig.drive import Drive
from ludwig.drives import open_drive
from ludwig.results import gen_param_paths
from tests.harness import SmbShare
from tests.jobs import tasks_in
from tests.labdrive import LabDrive

RUNS = 1000
ROWS = 30


@pytest.fixture(params=["folder", "smb"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """How to open a fresh drive, also in another process."""
    if request.param == "folder":
        (tmp_path / "drive").mkdir()
        return {"url": str(tmp_path / "drive")}
    share: SmbShare = request.getfixturevalue("smb_share")
    return {"url": share.url, "user": share.user, "password": share.password}


@pytest.fixture
def drive(
    place: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Drive]:
    monkeypatch.setenv("LUDWIG_CACHE", str(tmp_path / "cache"))
    opened = open_drive(**place)
    yield opened
    opened.close()


def shapes(number: int) -> dict[str, str | bytes]:
    """The files of one run: seven kinds of runs take turns."""
    generator = np.random.default_rng(number)
    steps = pd.RangeIndex(0, 50, 10, name="step")
    loss = pd.Series(generator.random(5), index=steps, name="loss").to_csv()
    accuracy = pd.Series(generator.random(2), index=steps[[1, 4]], name="accuracy").to_csv()
    table = pd.DataFrame({"p": generator.random(3), "word": ["a", "b", None]}).to_csv()
    return [
        {"loss.csv": loss},
        {"loss.csv": loss, "accuracy.csv": accuracy, "saves/model.bin": b"\0" * 100},
        {"results.csv": f",score,kind\n0,{number}.5,tree\n"},
        {"table.csv": table},
        {"loss.csv": loss, "broken.csv": 'a,b\n"never closed\n1,2,3\n'},
        {},
        {"loss.csv": loss.replace("\n", "\r\n")},
    ][number % 7]  # type: ignore[return-value]


def test_a_thousand_runs_of_mixed_shapes(drive: Drive) -> None:
    lab = LabDrive(drive)
    configurations = [{"lr": i / 100, "shape": (i, i), "name": f"c{i}"} for i in range(50)]
    job = lab.submit(configurations, reps=RUNS // 50)
    tasks = tasks_in(job)
    lab.finish_all(job, {task: (shapes(task),) for task in tasks if task % 10})
    first = read_results(drive, lab.project, jobs=[job.job], columns=["task"])
    assert len(first.attrs["unfinished"]) == RUNS // 10
    assert len(first.attrs["empty"]) == sum(t % 7 == 5 for t in tasks if t % 10)
    assert len(first.attrs["unparsable"]) == sum(t % 7 == 4 for t in tasks if t % 10)
    for task in (1, 2, 3, 6, 7, 499, 932):
        _check_run(first[first["task"] == task], task)
    second = read_results(drive, lab.project, columns=["task"])
    pd.testing.assert_frame_equal(first, second)


def _check_run(rows: pd.DataFrame, task: int) -> None:
    for name, content in shapes(task).items():
        if not name.endswith(".csv") or "/" in name:
            continue
        expected = pd.read_csv(io.StringIO(str(content)))
        for column in expected.columns[1:]:
            ours = rows[column].dropna().tolist()
            assert ours == expected[column].dropna().tolist(), (task, name, column)
    assert len(rows) == {0: 5, 1: 5, 2: 1, 3: 3, 6: 5}[task % 7]


def finish_tasks(place: dict[str, Any], number: int, params: Any, quiet: bool) -> None:
    """In a process of its own: every file of a run has as many rows as every other."""
    drive = open_drive(**place)
    lab = LabDrive(drive)
    job = lab.adopt(number, params)
    for task in tasks_in(job):
        rows = "".join(f"{i},{task}\n" for i in range(ROWS))
        files = {f"{name}.csv": f"step,{name}\n{rows}" for name in ("a", "b", "c")}
        # Every third agent dies before it moves its results, every fifth before it tells.
        lab.finish(job, task, files, settle=bool(task % 3), tell=bool(task % 5) and not quiet)
    drive.close()


@pytest.mark.parametrize("quiet", [False, True], ids=["events", "no events"])
def test_while_tasks_finish_no_run_is_seen_in_part(
    drive: Drive, place: dict[str, Any], quiet: bool
) -> None:
    lab = LabDrive(drive)
    configurations = [{"lr": i} for i in range(5)]
    job = lab.submit(configurations, reps=12)
    context = multiprocessing.get_context("spawn")
    params = lab.params_of(job)
    process = context.Process(target=finish_tasks, args=(place, job.job, params, quiet))
    process.start()
    seen = [0]
    try:
        while process.is_alive() or seen[-1] < 60:
            assert process.is_alive() or not process.exitcode
            for jobs in ([job.job], None):
                frame = read_results(drive, lab.project, jobs=jobs, columns=["task"])
                seen.append(_check_whole(frame))
                assert not frame.attrs["missing"] and not frame.attrs["unparsable"]
    finally:
        process.join(30)
    assert seen == sorted(seen), "a run that was there was gone later"
    assert seen[-1] == 60 and len(set(seen)) > 3


def _check_whole(frame: pd.DataFrame) -> int:
    if frame.empty:
        return 0
    runs = frame.groupby("job_name", observed=True)
    assert set(runs.size()) == {ROWS}
    assert not frame[["a", "b", "c"]].isna().any().any()
    for name in ("a", "b", "c"):
        assert (frame[name] == frame["task"]).all()
    return len(runs)


def test_gen_param_paths_over_any_drive(
    drive: Drive, place: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = LabDrive(drive)
    default = {"lr": 0.1, "sizes": (1, 2), "seed": None}
    job = lab.submit([default, default | {"lr": 0.2}], reps=2)
    for task in tasks_in(job):
        lab.finish(job, task, {"loss.csv": f"step,loss\n0,{task}\n", "saves/m.bin": b"m"})
    monkeypatch.setattr("ludwig.results._lab_drive", lambda: drive)
    for _ in range(2):  # the second time from the copies
        found = list(gen_param_paths(lab.project, {"lr": [0.1, 0.2]}, default))
        assert [label for _, label in found] == ["lr=0.1\nn=2", "lr=0.2\nn=2"]
        for path, _ in found:
            assert (path / "param2val.yaml").is_file()
            assert len(list(path.glob("*num*/loss.csv"))) == 2
            assert len(list(path.glob("**/saves/m.bin"))) == 2
    with pytest.raises(SystemExit, match="1 have no runs"):
        list(gen_param_paths(lab.project, {"lr": [0.1, 0.5]}, default))


def test_removed_runs_leave_the_copies_too(drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = LabDrive(drive)
    job = lab.submit([{"lr": 0.1}], reps=2)
    for task in tasks_in(job):
        lab.finish(job, task, {"loss.csv": "step,loss\n0,1\n"})
    monkeypatch.setattr("ludwig.results._lab_drive", lambda: drive)
    list(gen_param_paths(lab.project, {"lr": [0.1]}, {"lr": 0}))
    run = tasks_in(job)[1][1].runs[0]
    drive.remove_folder(layout.project_files(lab.project).run(run.param_name, run.job_name))
    ((path, label),) = gen_param_paths(lab.project, {"lr": [0.1]}, {"lr": 0})
    assert label == "lr=0.1\nn=1" and len(list(path.glob("*num*"))) == 1
