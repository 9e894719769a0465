"""A project of LudwigCluster's first generation, unchanged, on two nodes at the old path."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
import yaml

from tests.old_lab import HOSTS, NEEDED, OldLab

pytestmark = NEEDED

PROJECT = "Perceptrons"


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[OldLab]:
    with OldLab(tmp_path) as lab:
        yield lab


def test_submit_run_and_plot(lab: OldLab) -> None:
    project = lab.project("first_generation")
    assert lab.run(project, "python", "submit.py", "-t", "-w", "hoff") == ""
    assert not (lab.smb.folder / PROJECT / "runs").exists()

    lab.run(project, "python", "submit.py", "-r", "2")
    (job,) = lab.wait(PROJECT)
    assert lab.counts(PROJECT) == [2, 2, 2, 2]
    ends = lab.lab.ends(job)
    assert {done.host for done in ends.values()} == set(HOSTS)
    assert not any(done.moved for done in ends.values()), "the script put its runs there itself"
    for done in ends.values():
        assert {file.path for file in done.files[0]} >= {"accuracy.csv", "loss.csv", "weights.csv"}
    text = (lab.smb.folder / PROJECT / "runs/param_001/param2val.yaml").read_text()
    params = yaml.load(text, Loader=yaml.FullLoader)
    assert params["job_name"] is None and params["param_name"] == "param_001"
    assert isinstance(params["ngrams"], list)

    frame = job.results()
    assert frame["job_name"].nunique() == 8 and set(frame.columns) >= {"accuracy", "loss"}

    # Targets are totals; and the same sweep twice at once is the same sweep.
    racing = [lab.start(project, "python", "submit.py", "-r", "3", "-s") for _ in range(2)]
    for process in racing:
        out, err = process.communicate(timeout=90)
        assert process.returncode == 0, out + err
    lab.wait(PROJECT)
    assert lab.counts(PROJECT) == [3, 3, 3, 3]

    said = lab.run(project, "python", "plot.py", "curves.png", mounted=True)
    assert said.count("n=3 accuracy=") == 4 and (project / "curves.png").stat().st_size > 1000
    run = lab.runs(PROJECT)["param_004"][0]
    assert list(pd.read_csv(run / "accuracy.csv")) == ["epoch", "accuracy"]


def test_restricting_the_nodes(lab: OldLab) -> None:
    project = lab.project("first_generation")
    submit = project / "submit.py"
    submit.write_text(
        submit.read_text().replace(
            "namespace = parser", "SFTP.worker_names = ['hebb']\n    namespace = parser"
        )
    )
    lab.run(project, "python", "submit.py", "-r", "1", "-d")
    (job,) = lab.wait(PROJECT)
    assert {done.host for done in lab.lab.ends(job).values()} == {"hebb"}
    assert lab.counts(PROJECT) == [1, 1, 1, 1]
