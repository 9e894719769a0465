"""What is exported can be read without knowing Ludwig; the short table has the best first."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ludwig import errors
from ludwig.client.export import export_results, last_values_table, lower_is_better
from ludwig.client.results import read_results
from ludwig.drives.folder import FolderDrive
from tests.jobs import tasks_in
from tests.labdrive import LabDrive


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LabDrive:
    monkeypatch.setenv("LUDWIG_CACHE", str(tmp_path / "cache"))
    (tmp_path / "drive").mkdir()
    made = LabDrive(FolderDrive(tmp_path / "drive"))
    job = made.submit(
        [
            {"lr": 0.1, "sizes": (1, "a,b"), "note": 'say "hi"\nnow', "extra": None, "same": 1},
            {"lr": 0.2, "sizes": (3,), "note": "", "extra": [1, None], "same": 1},
        ],
        reps=2,
    )
    for task in tasks_in(job):
        values = f"step,loss,accuracy\n0,9,0\n1,{10 - task},{task / 10}\n"
        made.finish(job, task, {"results.csv": values, "word.csv": "step,word\n0,tree\n"})
    return made


@pytest.mark.parametrize("summary", [None, "mean", ["mean", "sem"]])
def test_a_bare_read_csv_reads_it(lab: LabDrive, tmp_path: Path, summary: str | None) -> None:
    frame = read_results(lab.drive, lab.project, summary=summary, columns=["node", "duration"])
    path = export_results(frame, tmp_path / "out.csv")
    back = pd.read_csv(path)
    assert list(back.columns) == list(frame.columns) and len(back) == len(frame)
    for name in frame.columns:
        if pd.api.types.is_numeric_dtype(frame[name]):
            assert np.array_equal(back[name], frame[name], equal_nan=True), name
            assert back[name].dtype == frame[name].dtype
    assert back["sizes"].iloc[0] == "(1, 'a,b')"
    assert back["note"].iloc[0] == 'say "hi"\nnow'
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_parquet(lab: LabDrive, tmp_path: Path) -> None:
    frame = read_results(lab.drive, lab.project)
    back = pd.read_parquet(export_results(frame, tmp_path / "out.parquet"))
    assert back["loss"].tolist() == frame["loss"].tolist()
    assert back["sizes"].iloc[-1] == "(3,)" and back["extra"].iloc[-1] == "[1, None]"
    assert back["param_name"].tolist() == frame["param_name"].tolist()


def test_what_cannot_be_written(lab: LabDrive, tmp_path: Path) -> None:
    frame = read_results(lab.drive, lab.project)
    with pytest.raises(errors.UsageError, match="endings"):
        export_results(frame, tmp_path / "out.xlsx")
    with pytest.raises(errors.UsageError, match="cannot be written"):
        export_results(frame, tmp_path / "nowhere" / "out.csv")


def test_last_values_best_first(lab: LabDrive) -> None:
    frame = read_results(lab.drive, lab.project)
    table = last_values_table(frame)
    assert table.columns == [
        "param_name", "lr", "sizes", "note", "extra", "n", "loss", "accuracy",
    ]  # fmt: skip
    assert table.sorted_by == "loss" and table.lowest_first
    assert [row[0] for row in table.rows] == ["param_002", "param_001"]
    assert table.rows[0][-3:] == ["2", "6.5 ± 0.5", "0.35 ± 0.05"]
    accuracy = last_values_table(frame, by="accuracy", limit=1)
    assert not accuracy.lowest_first and accuracy.more == 1
    assert accuracy.rows[0][0] == "param_002"
    assert last_values_table(frame, lowest_first=False).rows[0][0] == "param_001"
    with pytest.raises(errors.UsageError, match="no values 'f1'"):
        last_values_table(frame, by="f1")


def test_last_values_of_other_frames(lab: LabDrive) -> None:
    last = read_results(lab.drive, lab.project, last=True)
    assert last_values_table(last) == last_values_table(read_results(lab.drive, lab.project))
    mean = last_values_table(read_results(lab.drive, lab.project, summary="mean"))
    assert mean.rows[0][-3:] == ["2", "6.5", "0.35"]
    assert last_values_table(read_results(lab.drive, "nothing")).rows == []


def test_what_is_better() -> None:
    assert all(map(lower_is_better, ["loss", "valid_loss", "test.error", "cross_entropy", "ppl"]))
    assert not any(map(lower_is_better, ["accuracy", "f1", "terror", "score", "closeness"]))
