"""Each example runs as its README says, on a lab of two nodes."""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ludwig import Client
from ludwig.client.embedded import EmbeddedLab
from ludwig.config import load_lab
from tests.docs import ROOT
from tests.harness import wait_until

BIN = Path(sys.executable).parent
EXAMPLES = ROOT / "examples"
STAND_IN = ROOT / "tests" / "stand_in"

pytestmark = pytest.mark.xdist_group("examples")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedLab]:
    lab = EmbeddedLab(tmp_path_factory.mktemp("lab"), ["hoff", "hebb"], slots=2)
    lab.start()
    yield lab
    lab.close()


def call(lab: EmbeddedLab, example: str, tmp_path: Path, *command: str) -> str:
    """Run a command in a copy of an example, as somebody of the lab."""
    folder = tmp_path / example
    if not folder.exists():
        shutil.copytree(EXAMPLES / example, folder, ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(
        command,
        cwd=folder,
        env={
            **os.environ,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "LUDWIG_CONFIG": str(lab.folder / "ludwig.toml"),
            "LUDWIG_CACHE": str(tmp_path / "cache"),
        },
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def client(lab: EmbeddedLab, project: str) -> Client:
    return Client(project, config=load_lab(lab.folder / "ludwig.toml"))


def test_grid(lab: EmbeddedLab, tmp_path: Path) -> None:
    table = call(lab, "grid", tmp_path, "python", "submit.py")
    assert "degree" in table and "0.1" in table and "0.3" in table
    frame = client(lab, "grid").results(last=True)
    assert len(frame) == 12
    means = frame.groupby("degree")["test_error"].mean()
    assert means[3] < means[1], "a line cannot follow a sine"


def test_seed(lab: EmbeddedLab, tmp_path: Path) -> None:
    assert "job 1 of seed" in call(lab, "seed", tmp_path, "python", "submit.py")
    job = client(lab, "seed").job(1)
    assert job.wait(timeout=60, progress=False).ok
    frame = job.results()
    assert len(frame) == 2 * 2 * 20
    assert set(frame["learning_rate"]) == {0.1, 0.3}
    assert frame.groupby("epoch")["accuracy"].mean().iloc[-1] > 0.9
    runs = sorted((lab.drive_folder / "seed" / "runs").glob("param_*/*num*/accuracy.csv"))
    assert len(runs) == 4


def test_pytorch(lab: EmbeddedLab, tmp_path: Path) -> None:
    """With a stand-in only where there is no torch."""
    options = ["-g", "lr=0.01,0.1", "-g", "hidden=32", "-r", "2", "--follow", *torch()]
    assert "4 done" in call(lab, "pytorch", tmp_path, "ludwig", "submit", *options)
    job = client(lab, "pytorch").job(1)
    assert "epoch 14: loss" in job.logs(1)
    frame = job.results()
    first, last = (frame[frame["epoch"] == epoch]["loss"].mean() for epoch in (0, 14))
    assert last < first
    models = list((lab.drive_folder / "pytorch" / "runs").glob("*/*/saves/model.pt"))
    assert len(models) == 4


def torch() -> list[str]:
    if importlib.util.find_spec("torch") is None:
        return ["--env", f"PYTHONPATH={STAND_IN}"]
    return []


def test_pytorch_stops_in_order(lab: EmbeddedLab, tmp_path: Path) -> None:
    options = ["-g", "lr=0.01", "-g", "hidden=32", "-g", "epochs=1_000_000", *torch()]
    call(lab, "pytorch", tmp_path, "ludwig", "submit", *options)
    mine = client(lab, "pytorch")
    job = mine.job(mine.jobs()[-1].job)
    wait_until(lambda: "epoch 3:" in job.logs(1), timeout=60, what="it to train")
    job.cancel()
    assert job.wait(timeout=60, progress=False).tasks[0].state == "stopped"
    assert job.logs(1).rstrip().endswith("told to stop")


@pytest.mark.parametrize("example", ["grid", "pytorch", "seed"])
def test_readme_names_every_file(example: str) -> None:
    text = (EXAMPLES / example / "README.md").read_text()
    assert text.startswith("# ") and len(text.splitlines()) < 40
    for name in ("submit.py", "run.py"):
        if (EXAMPLES / example / name).exists() and "| file |" in text:
            assert f"`{name}`" in text
