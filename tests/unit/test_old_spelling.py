"""Which command lines are of the old kind, and what they mean. What they do is in tests/e2e."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ludwig.client.cli import old_spelling
from tests.fakelab import FakeLab

PARAMS = """
param2requests = {'lr': [0.1, 0.2, 0.3]}
param2default = {'lr': 0.5, 'sizes': (1, (2, None))}
param2debug = {'lr': 9}
"""


@pytest.mark.parametrize(
    "line",
    ["-r 2", "-r2", "--reps=2", "-e data", "-m", "-mnt /x", "-src pkg", "-x", "-i", "-v", "-n -s"],
)
def test_old(line: str) -> None:
    assert old_spelling.is_old(line.split())


@pytest.mark.parametrize("line", ["", "submit -r 2", "--help", "-h", "--version", "status", "-q"])
def test_new(line: str) -> None:
    assert not old_spelling.is_old(line.split())


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeLab:
    lab = FakeLab(tmp_path)
    package = lab.home / "pkg"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "params.py").write_text(PARAMS)
    (package / "job.py").write_text("def main(param2val): return []\n")
    return lab


def ludwig(lab: FakeLab, *words: str, status: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-c", "from ludwig.client.cli import main; main()", *words],
        cwd=lab.home,
        env=lab.environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("-l -i", "exclude each other"),
        ("-i -e pkg", "needs no -e"),
        ("-e nothing", "no such folder"),
        ("-w hoff -g fast", "one of the two"),
        ("-r -1", "from 0 on"),
        ("-r two", "invalid int"),
        ("-r 1 -g fast", "no node has that group"),
        ("-r 1 -w hof", "Did you mean 'hoff'"),
        ("-r 1 -src other", "does not hold a params.py"),
        ("-r 1 submit", "unrecognized arguments"),
    ],
)
def test_what_cannot_be_meant(lab: FakeLab, line: str, what: str) -> None:
    assert what in ludwig(lab, *line.split(), status=2)
    assert not (lab.root / "trees" / ".ludwig").exists()


def test_a_folder_without_a_package(lab: FakeLab) -> None:
    (lab.home / "pkg" / "job.py").unlink()
    assert "holds a params.py and a job.py" in ludwig(lab, "-r", "2", status=2)


def test_submitting_twice_and_more(lab: FakeLab) -> None:
    assert "Job 1 of trees: 6 tasks" in ludwig(lab, "-r", "2")
    assert "Nothing to do" in ludwig(lab, "submit", "-r", "2")
    assert "3 tasks" in ludwig(lab, "-r", "3")
    assert "1 task for hoff" in ludwig(lab, "-m", "-w", "hoff")
    assert "Cancelled your jobs of trees: 1, 2, 3" in ludwig(lab, "-r", "0").replace("4, ", "")
    assert "1 task" in ludwig(lab, "-f")


def test_of_several_packages_the_one_named_like_the_folder(lab: FakeLab) -> None:
    other = lab.home / "trees"
    other.mkdir()
    (other / "params.py").write_text("param2requests = {}\nparam2default = {'only': 1}\n")
    (other / "job.py").write_text("def main(param2val): pass\n")
    assert "1 task" in ludwig(lab, "-r", "1")
    assert "3 tasks" in ludwig(lab, "-src", "pkg")


def test_the_version_and_help(lab: FakeLab) -> None:
    assert ludwig(lab, "-v").startswith("ludwig ")
    assert "first remove the project's finished runs" in ludwig(lab, "-r", "1", "-h")
