"""What the tidy frame holds, over a folder drive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ludwig import errors, layout, queue
from ludwig.client.results import read_results
from ludwig.drives.folder import FolderDrive
from ludwig.model import Claim, GpuSummary
from tests.jobs import tasks_in
from tests.labdrive import LabDrive

CONFIGURATIONS: list[dict[str, Any]] = [
    {"lr": 0.1, "layers": (64, 32), "optimizer": None, "steps": 10, "dropout": True},
    {"lr": 0.2, "layers": (8,), "optimizer": "adam", "steps": 20, "dropout": False},
]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUDWIG_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def lab(tmp_path: Path) -> LabDrive:
    (tmp_path / "drive").mkdir()
    return LabDrive(FolderDrive(tmp_path / "drive"))


def curve(name: str = "loss", *, at: Any = (0, 10, 20), start: float = 1.0) -> pd.Series:
    index = pd.Index(list(at), name="step")
    return pd.Series(start + np.arange(len(index)) / 4, index=index, name=name)


def read(lab: LabDrive, **options: Any) -> pd.DataFrame:
    return read_results(lab.drive, lab.project, **options)


def test_a_row_for_each_configuration_replication_and_index_value(lab: LabDrive) -> None:
    job = lab.submit(CONFIGURATIONS, reps=2)
    for task in tasks_in(job):
        lab.finish(job, task, {"loss.csv": curve(start=task)})
    frame = read(lab, jobs=[job.job])
    assert len(frame) == 2 * 2 * 3
    assert list(frame.columns) == [
        "lr", "layers", "optimizer", "steps", "dropout",
        "param_name", "job_name", "step", "loss",
    ]  # fmt: skip
    assert frame.groupby(["param_name", "job_name"], observed=True).size().tolist() == [3] * 4
    assert frame["loss"].tolist()[:6] == [1.0, 1.25, 1.5, 2.0, 2.25, 2.5]
    assert frame.attrs["files"] == {"loss.csv": ["loss"]}
    assert frame.attrs["index"] == ["step"]
    pd.testing.assert_frame_equal(frame, read(lab))  # the whole project; from the cache


def test_parameters_keep_their_types(lab: LabDrive) -> None:
    job = lab.submit(CONFIGURATIONS)
    for task in tasks_in(job):
        lab.finish(job, task, {"loss.csv": curve()})
    for frame in (read(lab), read(lab, last=True), read(lab, summary="mean")):
        first, last = frame.iloc[0], frame.iloc[-1]
        assert first["layers"] == (64, 32) and isinstance(first["layers"], tuple)
        assert first["optimizer"] is None and last["optimizer"] == "adam"
        assert frame["lr"].dtype == np.float64
        assert frame["steps"].dtype == np.int64
        assert frame["dropout"].dtype == np.bool_


def test_a_parameter_that_some_jobs_do_not_have(lab: LabDrive) -> None:
    for configuration in ({"lr": 1}, {"lr": 2, "seed": 7}):
        job = lab.submit([configuration])
        lab.finish(job, 1, {"loss.csv": curve(at=[0])})
    frame = read(lab)
    assert frame["seed"].isna().tolist() == [True, False]
    assert frame["seed"].iloc[1] == 7 and isinstance(frame["seed"].iloc[1], int)


def test_files_of_a_run_are_joined_on_their_index(lab: LabDrive) -> None:
    job = lab.submit(CONFIGURATIONS[:1])
    accuracy = curve("accuracy", at=[20, 30])
    lab.finish(job, 1, {"loss.csv": curve(), "accuracy.csv": accuracy})
    frame = read(lab)
    assert frame["step"].tolist() == [0, 10, 20, 30]
    assert frame["loss"].tolist()[:3] == [1.0, 1.25, 1.5] and np.isnan(frame["loss"][3])
    assert frame["accuracy"].tolist()[2:] == [1.0, 1.25] and frame["accuracy"].isna().sum() == 2


def test_index_values_that_repeat_are_matched_in_their_order(lab: LabDrive) -> None:
    job = lab.submit(CONFIGURATIONS[:1])
    lab.finish(job, 1, {"a.csv": "step,a\n1,10\n1,11\n2,12\n", "b.csv": "step,b\n1,20\n1,21\n"})
    frame = read(lab)
    assert frame["step"].tolist() == [1, 1, 2]
    assert frame["a"].tolist() == [10, 11, 12]
    assert frame["b"].tolist()[:2] == [20, 21]


def test_indices_of_other_names_are_not_mixed_up(lab: LabDrive) -> None:
    job = lab.submit(CONFIGURATIONS[:1], reps=2)
    for task in (1, 2):
        lab.finish(job, task, {"a.csv": "step,a\n1,10\n", "b.csv": "word,b\ncat,20\ndog,21\n"})
    frame = read(lab)
    assert frame.attrs["index"] == ["step", "word"]
    assert frame["a"].tolist()[0] == 10
    assert frame["word"].tolist()[1:3] == ["cat", "dog"]
    assert len(frame) == 6 and frame["job_name"].astype(str).is_monotonic_increasing


def test_names_that_clash_say_whose_they_are(lab: LabDrive) -> None:
    job = lab.submit([{"loss": "mse", "step": 3, "node": "x"}])
    lab.finish(job, 1, {"train.csv": "step,loss,f1\n0,1.5,2.5\n", "valid.csv": "step,f1\n0,3.5\n"})
    frame = read(lab, columns=["node"])
    row = frame.iloc[0]
    assert (row["loss"], row["step"], row["node"]) == ("mse", 3, "x")
    assert (row["train.loss"], row["index.step"], row["task.node"]) == (1.5, 0, "hoff")
    assert (row["train.f1"], row["valid.f1"]) == (2.5, 3.5)


def test_scalars_and_values_without_an_index(lab: LabDrive) -> None:
    job = lab.submit(CONFIGURATIONS)
    lab.finish(job, 1, {"results.csv": ",accuracy,name\n0,0.5,tree\n"})
    lab.finish(job, 2, {"values.csv": "x\n5\n6\n"})
    frame = read(lab)
    assert frame["index"].tolist() == [0, 0, 1]
    assert frame["accuracy"].tolist()[0] == 0.5
    assert frame["x"].tolist()[1:] == [5, 6]


def test_partial_results_are_told_of_and_never_an_error(lab: LabDrive) -> None:
    job = lab.submit(CONFIGURATIONS, reps=3)
    lab.finish(job, 1, {"loss.csv": curve()})
    lab.finish(job, 2, outcome="failed", why="ZeroDivisionError")
    lab.finish(job, 3, {"notes.txt": "nothing to see"})
    lab.finish(job, 4, {"loss.csv": curve(), "bad.csv": "a,b\n1,2\n1,2,3\n", "none.csv": ""})
    claim = Claim(host="hebb", boot="b", beat=1, nonce="12345678")
    queue.claim(lab.drive, job, 5, 1, claim)
    attrs = read(lab).attrs
    assert len(read(lab)) == 6
    assert [(n.task, n.state, n.why) for n in attrs["failed"]] == [
        (2, "failed", "ZeroDivisionError")
    ]
    assert [(n.task, n.state, n.node) for n in attrs["unfinished"]] == [
        (5, "running", "hebb"),
        (6, "queued", ""),
    ]
    assert len(attrs["empty"]) == 1
    unparsable = dict(attrs["unparsable"])
    assert [path.rpartition("/")[2] for path in unparsable] == ["bad.csv", "none.csv"]
    assert "it is empty" in unparsable.values()


def test_nothing_there_yet(lab: LabDrive) -> None:
    assert read(lab).empty
    job = lab.submit(CONFIGURATIONS)
    for options in ({}, {"last": True}, {"summary": "mean"}, {"columns": ["node", "job"]}):
        assert read(lab, **options).empty
    assert len(read(lab, jobs=[job.job]).attrs["unfinished"]) == 2
    with pytest.raises(errors.NotFound):
        read(lab, jobs=[99])


def test_what_a_dead_winner_left_is_moved_to_its_place(lab: LabDrive) -> None:
    job = lab.submit(CONFIGURATIONS)
    lab.finish(job, 1, {"loss.csv": curve()}, settle=False, tell=False)
    lab.finish(job, 2, {"loss.csv": curve()}, settle=False)
    frame = read(lab, jobs=[job.job])
    assert len(frame) == 6 and not frame.attrs["unfinished"]
    run = tasks_in(job)[1][1].runs[0]
    folder = layout.project_files(lab.project).run(run.param_name, run.job_name)
    assert lab.drive.list(folder) == ["loss.csv"]


def test_facts_about_the_tasks(lab: LabDrive) -> None:
    job = lab.submit(CONFIGURATIONS[:1], reps=2)
    gpu = GpuSummary(gpus=("RTX", "A40"), utilization_mean=50.0, memory_max=7, energy=2.5)
    lab.finish(job, 1, {"loss.csv": curve(at=[0])}, gpu=gpu)
    lab.finish(job, 2, {"loss.csv": curve(at=[0])})
    columns = ["job", "task", "node", "state", "duration", "gpu"]
    first, second = read(lab, columns=columns).to_dict("records")
    assert (first["job"], first["task"], first["node"], first["state"]) == (1, 1, "hoff", "done")
    assert first["duration"] == 61.0
    assert (first["gpu"], first["gpu_utilization"], first["gpu_energy"]) == ("RTX, A40", 50.0, 2.5)
    assert second["gpu"] == "" and np.isnan(second["gpu_memory"])
    with pytest.raises(errors.UsageError, match="There is no column 'colour'"):
        read(lab, columns=["colour"])


def test_choosing_files_and_parameters(lab: LabDrive) -> None:
    job = lab.submit(CONFIGURATIONS)
    files = {"loss.csv": curve(), "eval_a.csv": curve("a"), "saves/deep.csv": curve("deep")}
    for task in tasks_in(job):
        lab.finish(job, task, files)
    assert set(read(lab).attrs["files"]) == {"loss.csv", "eval_a.csv"}
    assert set(read(lab, files="loss").attrs["files"]) == {"loss.csv"}
    assert set(read(lab, files=["eval_*", "loss.csv"]).attrs["files"]) == {"eval_a.csv", "loss.csv"}
    assert set(read(lab, files="saves/*.csv").attrs["files"]) == {"saves/deep.csv"}
    assert list(read(lab, params=["lr"]).columns[:2]) == ["lr", "param_name"]
    assert read(lab, params={"layers": (8,)})["lr"].unique().tolist() == [0.2]
    assert read(lab, params={"lr": [0.1, 0.3]})["lr"].unique().tolist() == [0.1]
    assert read(lab, params={"optimizer": None})["lr"].unique().tolist() == [0.1]
    assert read(lab, params={"colour": 1}).empty


def test_last_values_are_the_last_of_each_column(lab: LabDrive) -> None:
    job = lab.submit(CONFIGURATIONS[:1], reps=2)
    for task in (1, 2):
        lab.finish(job, task, {"loss.csv": curve(start=task), "a.csv": curve("a", at=[0])})
    frame = read(lab, last=True)
    assert frame["step"].tolist() == [20, 20]
    assert frame["loss"].tolist() == [1.5, 2.5]
    assert frame["a"].tolist() == [1.0, 1.0]


def test_summaries_over_replications(lab: LabDrive) -> None:
    job = lab.submit(CONFIGURATIONS, reps=2)
    for task in tasks_in(job):
        lab.finish(job, task, {"loss.csv": curve(start=task)})
    mean = read(lab, summary="mean")
    assert mean["loss"].tolist()[:3] == [1.5, 1.75, 2.0] and mean["n"].tolist() == [2] * 6
    both = read(lab, summary=["mean", "std", "sem"], last=True)
    assert both["loss_mean"].tolist() == [2.0, 4.0]
    assert both["loss_sem"].tolist() == pytest.approx([0.5, 0.5])
    assert both.attrs["files"]["loss.csv"] == ["loss_mean", "loss_std", "loss_sem"]
    with pytest.raises(errors.UsageError, match="no summary 'avg'"):
        read(lab, summary="avg")


def test_tasks_of_several_runs(lab: LabDrive) -> None:
    job = lab.submit(CONFIGURATIONS, reps=2, chunk=3)
    lab.finish(job, 1, *({"loss.csv": curve(start=i)} for i in range(3)))
    frame = read(lab)
    assert len(frame) == 9
    assert frame.groupby("param_name", observed=True)["job_name"].nunique().tolist() == [2, 1]


def test_runs_that_no_job_knows(lab: LabDrive, tmp_path: Path) -> None:
    job = lab.submit([{"lr": 0.1}])
    lab.finish(job, 1, {"loss.csv": curve()})
    runs = tmp_path / "drive" / lab.project / "runs"
    for name in ("2019-01-01-10:00:00_bengio_num0", "2019-01-01-10:00:00_bengio_num1"):
        (runs / "param_7" / name / "saves").mkdir(parents=True)
        (runs / "param_7" / name / "loss.csv").write_text(",loss\n0,1.5\n1,0.5\n")
        (runs / "param_7" / name / "saves" / "x.csv").write_text(",x\n0,1\n")
    yaml = "lr: 0.5\nsizes: !!python/tuple [1, 2]\nparam_name: param_7\njob_name: null\n"
    (runs / "param_7" / "param2val.yaml").write_text(yaml)
    (runs / "param_7" / "notes").mkdir()
    (runs / "param_8" / "x_num0").mkdir(parents=True)
    (runs / "param_8" / "param2val.yaml").write_text("- not a mapping")
    frame = read(lab, columns=["job", "state"])
    old = frame[frame["param_name"] == "param_7"]
    assert old["loss"].tolist() == [1.5, 0.5] * 2
    assert old["sizes"].iloc[0] == (1, 2)
    assert old["job"].unique().tolist() == [0]
    assert any("param_8" in path for path, _ in frame.attrs["unparsable"])
    assert len(read(lab, jobs=[1])) == 3
    assert set(read(lab, files=["saves/x"]).attrs["files"]) == {"saves/x.csv"}
    # A file that grew has another size and time: it is read again.
    grown = runs / "param_7" / "2019-01-01-10:00:00_bengio_num0" / "loss.csv"
    grown.write_text(",loss\n0,1.5\n1,0.5\n2,0.25\n")
    assert len(read(lab)) == len(frame) + 1


def test_a_script_that_is_still_writing_shows_nothing(lab: LabDrive, tmp_path: Path) -> None:
    job = lab.submit(CONFIGURATIONS[:1], contract="script")
    run = tasks_in(job)[1][1].runs[0]
    files = layout.project_files(lab.project)
    queue.ensure_param(lab.drive, lab.project, run.param_name, CONFIGURATIONS[0])
    folder = files.run(run.param_name, run.job_name)
    lab.drive.make_folders(folder)
    lab.drive.create(f"{folder}/loss.csv", b"step,loss\n0,1.0\n")
    assert read(lab).empty


def test_runs_that_somebody_removed_or_changed(lab: LabDrive, tmp_path: Path) -> None:
    job = lab.submit(CONFIGURATIONS, reps=2)
    for task in tasks_in(job):
        lab.finish(job, task, {"loss.csv": curve(start=task)})
    runs = [task.runs[0] for _, task in tasks_in(job).values()]
    folder = tmp_path / "drive" / lab.project / "runs"
    (folder / runs[0].param_name / runs[0].job_name / "loss.csv").write_text("step,loss\n0,99.5\n")
    gone = folder / runs[1].param_name / runs[1].job_name
    (gone / "loss.csv").unlink()
    frame = read(lab)
    assert frame["loss"].tolist()[0] == 99.5 and len(frame) == 1 + 2 * 3
    assert len(frame.attrs["changed"]) == 1
    assert [path.rpartition("/")[2] for path in frame.attrs["missing"]] == [runs[1].job_name]
    gone.rmdir()
    assert len(read(lab).attrs["missing"]) == 1


def test_attrs_survive_what_people_do_with_frames(lab: LabDrive) -> None:
    job = lab.submit(CONFIGURATIONS)
    lab.finish(job, 1, {"loss.csv": curve()})
    frame = read(lab)
    copied = frame[frame["step"] > 0].copy()
    assert copied.attrs["unfinished"] == frame.attrs["unfinished"]
    assert pd.concat([frame, frame]).attrs["params"] == frame.attrs["params"]
