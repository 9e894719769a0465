"""A project of the second generation, submitted by the old spellings of the command."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from tests.old_lab import HOSTS, NEEDED, OldLab

pytestmark = NEEDED

PROJECT = "second_generation"


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[OldLab]:
    with OldLab(tmp_path) as lab:
        yield lab


def test_two_then_three(lab: OldLab) -> None:
    project = lab.project("second_generation")
    lexicon = lab.smb.folder / "Lexicon"  # what another project left on the drive
    lexicon.mkdir()
    (lexicon / "weights.txt").write_text("0.5\n")

    lab.run(project, "ludwig", "-r", "2", "-e", "data/", "toolbox/")
    (job,) = lab.wait(PROJECT)
    assert lab.counts(PROJECT) == [2, 2]
    assert {done.host for done in lab.lab.ends(job).values()} == set(HOSTS)
    for run in (run for runs in lab.runs(PROJECT).values() for run in runs):
        assert sorted(p.relative_to(run).as_posix() for p in run.rglob("*") if p.is_file()) == [
            "accuracy.csv",
            "loss.csv",
            "saves/weights.npz",
        ]
    # Replications are seeded by their names, so they differ.
    one, two = (pd.read_csv(run / "loss.csv") for run in lab.runs(PROJECT)["param_001"])
    assert not one.equals(two)

    lab.run(project, "ludwig", "-r3")
    lab.wait(PROJECT)
    assert lab.counts(PROJECT) == [3, 3]
    assert "Nothing to do" in lab.run(project, "ludwig", "submit", "-r", "3")

    # On the laptop, where the drive is not mounted; and where it is.
    for mounted in (False, True):
        said = lab.run(project, "python", "plot.py", "curves.png", mounted=mounted)
        assert said.splitlines()[0].startswith("hidden_sizes=(4,) learning_rate=0.5 n=3 accuracy=")
        assert said.count("norms 3") == 2 and (project / "curves.png").stat().st_size > 1000


def test_what_each_option_does(lab: OldLab) -> None:
    project = lab.project("second_generation")
    extra = ("-e", "data/", "toolbox/")
    assert "Nothing was started" in lab.run(project, "ludwig", "-n", *extra)
    lab.run(project, "ludwig", "-f", "-w", "hebb", *extra)
    (first,) = lab.wait(PROJECT)
    assert lab.counts(PROJECT) == [1] and lab.lab.ends(first)[1].host == "hebb"

    # Minimal runs are for trying out: they run again.
    for expected in ([1, 1], [1, 2]):
        assert "host keys are always checked" in lab.run(project, "ludwig", "-m", "-s", "-g", "hs")
        lab.wait(PROJECT)
        assert lab.counts(PROJECT) == expected

    # -x removes what is there; numbers stay. On this machine, with the lab's drive as if mounted.
    lab.run(project, "ludwig", "-x", "-l", "-mnt", str(lab.smb.folder))
    assert {name: len(runs) for name, runs in lab.runs(PROJECT).items()} == {
        "param_001": 1,
        "param_003": 1,
    }
    assert all("-local_num" in run.name for runs in lab.runs(PROJECT).values() for run in runs)
    assert not [p for p in (lab.smb.folder / ".ludwig/nodes").iterdir() if "local" in p.name]
    assert "Cancelled" in lab.run(project, "ludwig", "-r", "0")
