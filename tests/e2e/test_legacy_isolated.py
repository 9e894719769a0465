"""`ludwig -i`: a project of the second generation on this machine, without any lab."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from ludwig.results import gen_param_paths

EXAMPLE = Path(__file__).parents[2] / "examples" / "legacy" / "second_generation"


def test_everything_stays_in_the_folder(tmp_path: Path) -> None:
    project = tmp_path / "projects" / "Categories"
    shutil.copytree(EXAMPLE, project, ignore=shutil.ignore_patterns("__pycache__"))
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("LUDWIG", "XDG"))}
    for expected in (1, 2):  # what is there does not count: one is trying things out
        done = subprocess.run(
            [Path(sys.executable).with_name("ludwig"), "-i", "-m"],
            cwd=project,
            env={**environment, "HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=90,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Starting param_001" in done.stdout + done.stderr
        requests = {"hidden_sizes": [(2,)], "num_epochs": [2]}
        default = {
            "hidden_sizes": (8,),
            "learning_rate": 0.1,
            "schedule": ((0, 1.0), (20, 0.5)),
            "num_epochs": 30,
            "noise": None,
            "init": {"scale": 0.5, "bias": 0},
            "corpus": "contexts",
        }
        ((path, label),) = gen_param_paths("any", requests, default, runs_path=project / "runs")
        assert label == f"hidden_sizes=(2,)\nnum_epochs=2\nn={expected}"
        assert len(list(path.glob("**/saves/weights.npz"))) == expected
    assert [p.name for p in project.parent.iterdir()] == ["Categories"], "the folder above is clean"
    assert not (project / "scratch.txt").exists(), "jobs write to their own copy of the source"
