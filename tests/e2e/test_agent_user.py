"""Jobs of an agent that is root run as somebody else, and reach nothing of the agent's."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import Lab
from tests.processes import make_state_folder

PYTHON = "/usr/bin/python3"
"""The tests' own interpreter may lie where only its owner can look."""

pytestmark = pytest.mark.skipif(not Path(PYTHON).exists(), reason=f"needs {PYTHON}")

LOOK = """
import os
from pathlib import Path

def try_to(what, action):
    try:
        action()
        print(what, "done")
    except OSError as error:
        print(what, "refused")

def main(param2val):
    print("uid", os.getuid(), "groups", os.getgroups(), "home", os.environ["HOME"])
    folder = Path(os.environ["LUDWIG_STOP"]).parent
    try_to("tickets", lambda: list((folder.parent.parent / "tickets").iterdir()))
    try_to("attempts", lambda: list(folder.parent.iterdir()))
    try_to("chunk", lambda: (folder / "chunk.pkl").write_bytes(b""))
    try_to("held", lambda: (folder / "held.json").read_bytes())
    try_to("replace", lambda: os.replace("run.py", folder / "order.json"))
    Path(param2val["save_path"], "x").write_text("x")
    print("secret", os.environ.get("LUDWIG_SMB_PASSWORD"), os.environ["TOKEN"])
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can pass through, unlike pytest's."""
    folder = make_state_folder("user")
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.needs_root
def test_a_job_runs_as_the_configured_user(open_folder: Path) -> None:
    with Lab(
        open_folder, user="nobody", python=PYTHON, env={"LUDWIG_SMB_PASSWORD": "hunter2"}
    ) as lab:
        lab.start()
        job = lab.submit(LOOK, env={"TOKEN": "abc"})
        (done,) = lab.wait(job).values()
        lines = lab.log(job, 1).splitlines()
        assert done.outcome == "done", lines
        assert lines[0].startswith("uid 65534 groups [65534]")
        refused = [
            f"{what} refused" for what in ("tickets", "attempts", "chunk", "held", "replace")
        ]
        assert lines[1:6] == refused
        assert lines[6] == "secret None abc"
        (folder,) = lab.runs(job)[1]
        assert (folder / "saves" / "x").read_text() == "x"


@pytest.mark.needs_root
@pytest.mark.needs_unshare
def test_a_script_is_isolated_for_that_user_too_and_outlives_the_agent(open_folder: Path) -> None:
    run = f"""
    import os, pickle, time
    from pathlib import Path
    print("uid", os.getuid(), flush=True)
    while not Path({str(open_folder / "open")!r}).exists():
        time.sleep(0.01)
    path = Path(os.environ["LUDWIG_PROJECT_PATH"]) / "hoff_param2val_chunk.pkl"
    with path.open("rb") as f:
        print([param2val["lr"] for param2val in pickle.load(f)], os.access(path, os.W_OK))
    """
    with Lab(open_folder, user="nobody", python=PYTHON) as lab:
        lab.start()
        job = lab.submit(run, [{"lr": 1}, {"lr": 2}])
        lab.until(lambda: all("uid 65534" in lab.log(job, task) for task in (1, 2)), "both to run")
        lab["hoff"].kill_alone()
        lab.start()
        (open_folder / "open").touch()
        ends = lab.wait(job)
        assert [(d.outcome, d.attempt) for d in ends.values()] == [("done", 1)] * 2
        said = sorted(lab.log(job, task).splitlines()[1] for task in ends)
        assert said == ["[1] False", "[2] False"]


@pytest.mark.needs_root
def test_stop_reaches_the_processes_of_that_user(open_folder: Path) -> None:
    run = """
    import time
    def main(param2val):
        print("ready", flush=True)
        time.sleep(600)
    """
    with Lab(open_folder, user="nobody", python=PYTHON) as lab:
        lab.start()
        job = lab.submit(run)
        lab.until(lambda: "ready" in lab.log(job, 1), "it to run")
        job.cancel()
        (done,) = lab.wait(job).values()
        assert done.outcome == "stopped"
        assert not lab.processes()


@pytest.mark.needs_root
@pytest.mark.parametrize("level", [1, 2, 3])
def test_a_link_in_place_of_the_results_shows_nothing_of_the_agents(
    open_folder: Path, level: int
) -> None:
    secret = open_folder / "secret"
    secret.mkdir()
    run = f"""
    import os, shutil
    from pathlib import Path
    def main(param2val):
        results = Path(param2val["save_path"]).absolute().parents[{level - 1}]
        shutil.rmtree(results)
        results.symlink_to({str(secret)!r})
        print("linked", results)
    """
    with Lab(open_folder, user="nobody", python=PYTHON) as lab:
        job = lab.submit(run)
        row = job.status().tasks[0]
        hidden = secret.joinpath(*(row.param_name, row.job_name)[3 - level :])
        hidden.mkdir(parents=True, exist_ok=True)
        for name in ("key", "KEY"):
            (hidden / name).write_text("private")
        secret.chmod(0o700)
        lab.start()
        lab.wait(job)
        assert "linked" in lab.log(job, 1)
        assert not [path for path in lab.root.rglob("*") if path.name.lower() == "key"]
        assert sorted(path.name for path in hidden.iterdir()) == ["KEY", "key"]


@pytest.mark.needs_root
def test_a_job_cannot_say_itself_how_it_ended(open_folder: Path) -> None:
    run = """
    import json, os
    from pathlib import Path
    def main(param2val):
        forged = {"task": 1, "attempt": 1, "outcome": "done", "host": "hebb", "nonce": "12345678"}
        Path(os.environ["LUDWIG_STOP"]).with_name("done.json").write_text(json.dumps(forged))
        raise RuntimeError("no")
    """
    with Lab(open_folder, user="nobody", python=PYTHON) as lab:
        lab.start()
        (done,) = lab.wait(lab.submit(run, retries=0)).values()
        assert (done.outcome, done.host) == ("failed", "hoff")
