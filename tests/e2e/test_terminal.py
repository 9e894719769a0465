"""What a person sees in a terminal of 80 columns, and what Ctrl-C asks.

The nodes are played by the test, which advances a job on the drive while the real command watches.
"""

import sys
from pathlib import Path

import pytest

from ludwig import layout
from ludwig.model import Job, Slots
from tests.fakelab import GB, FakeLab, gpu
from tests.terminal import Terminal

pytestmark = pytest.mark.needs_tmux

LUDWIG = str(Path(sys.executable).parent / "ludwig")
ATTACH = """
import sys
from ludwig.client.cli.follow import attach
from ludwig.client.job import Job
from ludwig.client.lab import open_lab
lab = open_lab()
lab.local = "local" in sys.argv
sys.exit(attach(Job(lab, "trees", 1), logs="logs" in sys.argv))
"""
WAIT = """
from ludwig import Client
print(Client("trees").job(1).wait())
"""
SUBMIT = """
import time
from ludwig import Client
from ludwig.drives import trees
plain = trees.open_file
def slow(path, flags, *more):
    if ".tmp-" in str(path) and "corpora" in str(path):
        time.sleep(0.7)  # a slow drive
    return plain(path, flags, *more)
trees.open_file = slow
print(Client("trees").submit(["src"], ["corpora"], [{"lr": 1}]))
"""


@pytest.fixture
def lab(tmp_path: Path) -> FakeLab:
    lab = FakeLab(tmp_path)
    lab.beat("hoff")
    lab.beat("hebb")
    return lab


def python(lab: FakeLab, code: str, *arguments: str) -> Terminal:
    command = [sys.executable, "-c", code, *arguments]
    return Terminal(command, cwd=lab.home, env=lab.environment)


def ludwig(lab: FakeLab, *arguments: str, height: int = 24) -> Terminal:
    return Terminal([LUDWIG, *arguments], cwd=lab.home, env=lab.environment, height=height)


def started(lab: FakeLab) -> Job:
    job = lab.submit(8)
    lab.accept(job)
    for task in (1, 2):
        lab.end(job, task)
    held = lab.start(job, 3, "hoff")
    lab.beat("hoff", state="busy", running=(held,))
    return job


def test_the_bar_of_wait(lab: FakeLab) -> None:
    job = started(lab)
    with python(lab, WAIT) as terminal:
        screen = terminal.wait_for("job 1", "2/8  1 running", "left")
        assert "━" in screen
        assert all(len(line) <= 80 for line in screen.splitlines())
        lab.log(job, 3, b"Traceback (most recent call last):\nValueError: no\n")
        lab.end(job, 3, "failed", why="exit status 1")
        screen = terminal.wait_for("3/8", "1 failed", "ValueError: no", "0003.1.log")
        assert screen.count("job 1") == 1, screen
        for task in range(4, 9):
            lab.end(job, task)
        screen = terminal.wait_for("8/8", "job 1 of trees: 7 done, 1 failed", "exit status 0")
        assert screen.count("━") > 10


@pytest.mark.parametrize("width", [80, 50])
def test_the_bar_of_data_on_its_way(lab: FakeLab, width: int) -> None:
    (lab.home / "src").mkdir()
    (lab.home / "src" / "model.py").write_text("LAYERS = 2\n")
    (lab.home / "run.py").write_text("def main(param2val):\n    return []\n")
    (lab.home / "corpora").mkdir()
    for number in range(4):
        (lab.home / "corpora" / f"words{number}.txt").write_bytes(bytes(3_000_000))
    command = [sys.executable, "-c", SUBMIT]
    with Terminal(command, cwd=lab.home, env=lab.environment, width=width) as terminal:
        for words in ("0.0/12.0 MB", "6.0/12.0 MB"):
            screen = terminal.wait_for(words)
            line = next(line for line in screen.splitlines() if words in line)
            assert line.startswith("sending data ━") and len(line) <= width
            assert "-:--" in line or "00:0" in line, "how long it will take"
        screen = terminal.wait_for("exit status 0")
    assert screen.splitlines() == ["<job 1 of trees>", "", "exit status 0"], "the bar is gone"


def test_the_drive_goes_away_and_comes_back(lab: FakeLab) -> None:
    job = started(lab)
    with python(lab, ATTACH) as terminal:
        terminal.wait_for("2/8  1 running")
        lab.root.rename(lab.folder / "gone")
        terminal.wait_for("The drive has been away for", "The job goes on")
        (lab.folder / "gone").rename(lab.root)
        lab.end(job, 3)
        screen = terminal.wait_for("3/8")
        assert "away" not in screen
        for task in range(4, 9):
            lab.end(job, task)
        terminal.wait_for("Job 1 of trees is over: 8 done.", "exit status 0")


def test_control_c_then_go_on(lab: FakeLab) -> None:
    job = started(lab)
    with python(lab, ATTACH) as terminal:
        terminal.wait_for("2/8")
        terminal.press("C-c")
        screen = terminal.wait_for("Job 1 of trees is not over. What now?", "c, d or g?")
        assert "━" not in screen
        terminal.press("x", "Enter")
        terminal.press("clear", "Enter")
        terminal.press("g", "Enter")
        terminal.wait_for("2/8")
        for task in range(3, 9):
            lab.end(job, task)
        terminal.wait_for("8/8", "is over: 8 done.", "ludwig results 1", "exit status 0")
    assert not (lab.root / layout.job_files("trees", 1).stop()).exists()


@pytest.mark.parametrize("keys", [("d", "Enter"), ("C-c",), ("C-d",)])
def test_control_c_then_detach(lab: FakeLab, keys: tuple[str, ...]) -> None:
    started(lab)
    with python(lab, ATTACH) as terminal:
        terminal.wait_for("2/8")
        terminal.press("C-c")
        terminal.wait_for("c, d or g?")
        terminal.press(*keys)
        terminal.wait_for("Job 1 goes on without you: ludwig status 1 --watch", "exit status 0")
    assert not (lab.root / layout.job_files("trees", 1).stop()).exists()


def test_control_c_then_cancel(lab: FakeLab) -> None:
    job = started(lab)
    with python(lab, ATTACH) as terminal:
        terminal.wait_for("2/8")
        terminal.press("C-c")
        terminal.wait_for("c, d or g?")
        terminal.press("c", "Enter")
        terminal.wait_for("Asked the nodes to stop job 1", "7/8  1 running  5 stopped")
        assert (lab.root / layout.job_files("trees", 1).stop()).exists()
        lab.end(job, 3, "stopped", why="cancelled")
        terminal.wait_for("Job 1 of trees is over: 2 done, 6 stopped.", "exit status 1")


def test_a_job_of_this_machine_cannot_be_left(lab: FakeLab) -> None:
    started(lab)
    with python(lab, ATTACH, "local") as terminal:
        terminal.wait_for("2/8")
        terminal.press("C-c")
        screen = terminal.wait_for("c or g?")
        assert "detach" not in screen
        terminal.press("C-c")
        terminal.wait_for("ends with this command", "exit status 1")


def test_a_job_of_this_machine_is_not_retried_in_the_lab(lab: FakeLab) -> None:
    """`ludwig retry 1` would mean job 1 of the lab."""
    job = started(lab)
    with python(lab, ATTACH, "local") as terminal:
        terminal.wait_for("2/8")
        lab.end(job, 3, "failed", why="exit status 1")
        for task in range(4, 9):
            lab.end(job, task)
        screen = terminal.wait_for("Submit again to run them again.", "exit status 1")
        assert "ludwig retry" not in screen


def test_following_with_logs(lab: FakeLab) -> None:
    job = started(lab)
    lab.log(job, 3, b"first\n")
    with python(lab, ATTACH, "logs") as terminal:
        terminal.wait_for("0003 | first", "2/8")
        lab.log(job, 3, b"second\n")
        terminal.wait_for("0003 | second")
        terminal.press("C-c")
        terminal.wait_for("c, d or g?")
        terminal.press("g", "Enter")
        lab.log(job, 3, b"third\n")
        screen = terminal.wait_for("0003 | third")
        assert screen.count("first") == 1


def test_status_in_80_columns(lab: FakeLab) -> None:
    job = started(lab)
    lab.refuse(job, "hebb", "the interpreter /opt/ml/bin/python is not there. " * 3)
    with ludwig(lab, "status", "1", height=40) as terminal:
        screen = terminal.wait_for("exit status 0")
        assert all(len(line) <= 80 for line in screen.splitlines())
        for words in (
            "Job 1 of trees: running – 1 running, 5 queued, 2 done (8 tasks)",
            "git diff refs/ludwig/1",
            "    3  running  hoff    1  param_003\n",
            "5–8  hebb cannot (refused: the interpreter",
            "Refused by hebb",
        ):
            assert words in screen, screen


def test_jobs_in_80_columns(lab: FakeLab) -> None:
    for _ in range(3):
        started(lab)
    with ludwig(lab, "status", "--all") as terminal:
        screen = terminal.wait_for("exit status 0")
    rows = [line for line in screen.splitlines() if "5 queued" in line]
    assert len(rows) == 3 and all(len(row) <= 80 for row in rows)


def test_nodes_in_80_columns_live(lab: FakeLab) -> None:
    job = lab.submit(2)
    held = lab.start(job, 1, "hoff")
    busy = gpu(0, utilization=97.0, memory_used=11 * GB, state="busy")
    lab.beat("hoff", state="busy", running=(held,), gpus=(busy, gpu(1)))
    lab.beat("hebb", gpus=(), slots=Slots(cpus=4, cpus_free=4))
    with ludwig(lab, "nodes", "--watch") as terminal:
        screen = terminal.wait_for("hoff")
        assert all(len(line) <= 80 for line in screen.splitlines())
        (first,) = [line for line in screen.splitlines() if line.startswith("hoff")]
        assert "busy   0 RTX 3090  97 %  11/24 GB" in first
        assert "trees 1.1 since 10:02" in first
        assert "4 of 4 cpu" in screen
        lab.beat("hoff", state="draining", why="the power goes off at noon")
        screen = terminal.wait_for("draining", "hoff: the power goes off at noon")
        assert screen.count("NODE") == 1
        terminal.press("C-c")
        terminal.wait_for("exit status 130")


def test_status_live_until_the_job_is_over(lab: FakeLab) -> None:
    job = started(lab)
    with ludwig(lab, "status", "1", "--watch") as terminal:
        terminal.wait_for("1 running, 5 queued, 2 done")
        for task in range(3, 9):
            lab.end(job, task)
        screen = terminal.wait_for("8 done", "exit status 0")
        assert screen.count("Job 1 of trees") == 1


def test_errors_are_folded_to_the_terminal(lab: FakeLab) -> None:
    with ludwig(lab, "status", "-p", "a_project_with_a_name_that_is_rather_long") as terminal:
        screen = terminal.wait_for("exit status 2")
    assert screen.startswith("ludwig: there is no project")
    assert "\n        " in screen
