"""Starting attempts: as whom, from which orders, and with which view of the drive."""

import grp
import os
import pwd
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from ludwig.errors import ConfigError, NameNotAllowed
from ludwig.worker import launch, runner
from ludwig.worker.account import job_account
from ludwig.worker.attempt import find
from tests.attempts import NAMES, PROJECT, RUN, Attempt, ending, nursery
from tests.harness import wait_until
from tests.tools import require

__all__ = ["nursery"]
pytestmark = pytest.mark.usefixtures("nursery")

SYSTEM_PYTHON = "/usr/bin/python3"


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A folder that other users can pass through, unlike pytest's."""
    with tempfile.TemporaryDirectory(prefix="ludwig-") as name:
        Path(name).chmod(0o711)
        yield Path(name)


def test_start_comes_back_at_once(tmp_path: Path) -> None:
    code = "import time\nwhile True: time.sleep(0.01)\n"
    attempts = [Attempt(tmp_path, {"run.py": code}, number=n) for n in range(1, 11)]
    launch.stage(tmp_path)
    began = time.process_time()
    running = [attempt.start() for attempt in attempts]
    spent = time.process_time() - began
    assert all(process.exit() is None for process in running)
    assert spent / len(running) < 0.02
    for process in running:
        process.ask_to_stop()
    assert {ending(process).signal for process in running} == {signal.SIGTERM}


def test_pids_are_those_of_the_job(tmp_path: Path) -> None:
    code = """
        import os, subprocess, sys, threading, time
        loop = [sys.executable, "-c", "import time\\nwhile True: time.sleep(0.01)"]
        threads = [threading.Thread(target=subprocess.run, args=(loop,)) for _ in range(2)]
        for thread in threads: thread.start()
        print(f"up {os.getpid()}")
        while True: time.sleep(0.01)  # also when the others are killed first
    """
    attempt = Attempt(tmp_path, {"run.py": code})
    process = attempt.start()
    attempt.says("up ")
    pids = wait_until(lambda: (p := process.pids()) and len(p) == 3 and p)
    assert isinstance(pids, set)
    assert int(attempt.log.split()[1]) in pids
    assert process.pid not in pids
    assert process.pid is not None
    assert pids == {p.pid for p in psutil.Process(process.pid).children(recursive=True)}
    process.kill()
    assert ending(process).signal == signal.SIGKILL
    assert process.pids() == set()


def test_a_second_start_in_the_same_folder_begins_anew(tmp_path: Path) -> None:
    attempt = Attempt(tmp_path, {"run.py": "import sys; sys.exit(4)"})
    assert attempt.run().exit_code == 4
    (attempt.tree / "run.py").write_text("pass")
    assert attempt.run().exit_code == 0


@pytest.mark.parametrize(
    "change",
    [
        {"entry": "../run.py"},
        {"entry": "/etc/run.py"},
        {"entry": "run.sh"},
        {"project": "../x"},
        {"source_name": "a/b"},
        {"source_name": ".."},
        {"runs": ()},
        {"runs": (("..", "x"),)},
        {"runs": (("param_001", "a/../../x"),)},
        {"env": {"A=B": "c"}},
        {"env": {"A": "b\0c"}},
    ],
)
def test_orders_that_point_elsewhere_are_refused(tmp_path: Path, change: dict[str, object]) -> None:
    attempt = Attempt(tmp_path, {"run.py": ""})
    if "runs" in change:
        runs = tuple(type(RUN)(*run) for run in change["runs"])  # type: ignore[attr-defined]
        change = {**change, "runs": runs}
    attempt.order = msgspec.structs.replace(attempt.order, **change)
    with pytest.raises(NameNotAllowed):
        attempt.start()
    assert find(attempt.folder) is None


def test_environment_is_not_written_down(tmp_path: Path) -> None:
    attempt = Attempt(tmp_path, {"run.py": ""}, env={"WANDB_API_KEY": "s3cret"})
    assert attempt.run().ok
    for path in attempt.folder.rglob("*"):
        assert not path.is_file() or b"s3cret" not in path.read_bytes()


@pytest.mark.needs_root
def test_root_runs_no_jobs_unless_allowed() -> None:
    with pytest.raises(ConfigError, match="must not"):
        job_account(None)
    with pytest.raises(ConfigError, match="must not"):
        job_account("root")
    with pytest.raises(ConfigError, match="no such account"):
        job_account("nobody-of-that-name")
    assert job_account("root", allow_root=True).uid == 0


@pytest.mark.needs_root
@pytest.mark.skipif(not Path(SYSTEM_PYTHON).exists(), reason="no interpreter others can run")
def test_jobs_run_as_the_configured_user(open_path: Path) -> None:
    code = """
        import os, pickle, socket
        print(os.getresuid(), os.getresgid(), os.getgroups(), os.environ["USER"])
        chunk = os.environ["LUDWIG_CHUNK"]
        print(pickle.load(open(chunk, "rb"))[0]["lr"])
        folder = os.path.dirname(chunk)
        for path in (chunk, folder + "/order.json", folder + "/log"):
            try: os.unlink(path)
            except PermissionError: pass
            else: print("removed", path)
        try: open(chunk, "ab")
        except PermissionError: pass
        else: print("can write", chunk)
        open("new", "w").close(); open("run.py", "a").close()
        open(os.path.join(os.environ["TMPDIR"], "x"), "w").close()
        open(os.path.join(os.environ["LUDWIG_SAVE_PATH"], "x"), "w").close()
        open(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "y"), "w")
        print(os.path.isdir(os.environ["HOME"]))
    """
    attempt = Attempt(open_path, {"run.py": code}, user="nobody", python=SYSTEM_PYTHON)
    end = attempt.run()
    assert end.ok, attempt.log
    uid, gid = pwd.getpwnam("nobody").pw_uid, pwd.getpwnam("nobody").pw_gid
    assert attempt.log.splitlines() == [
        f"({uid}, {uid}, {uid}) ({gid}, {gid}, {gid}) [{gid}] nobody",
        "0.1",
        "True",
    ]
    assert grp.getgrgid(gid)


@pytest.mark.needs_root
@pytest.mark.skipif(not Path(SYSTEM_PYTHON).exists(), reason="no interpreter others can run")
def test_jobs_of_another_user_are_stopped_and_killed(open_path: Path) -> None:
    code = "import signal, time\n{}\nprint('up')\nwhile True: time.sleep(0.01)\n"
    ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    for number, line in enumerate(("", ignore), start=1):
        files = {"run.py": code.format(line)}
        attempt = Attempt(open_path, files, number=number, user="nobody", python=SYSTEM_PYTHON)
        process = attempt.start()
        attempt.says("up")
        process.ask_to_stop()
        if line:
            process.kill()
        assert ending(process).signal == (signal.SIGKILL if line else signal.SIGTERM)


@pytest.mark.needs_root
def test_a_folder_prepared_by_root_is_handed_over(open_path: Path) -> None:
    """`copy_tree` and a chunk written by hand, as an agent may do it step by step."""
    attempt = Attempt(open_path, {"run.py": "open('x', 'w').close()"}, python=SYSTEM_PYTHON)
    attempt.user = "nobody"
    for path in (attempt.folder, *attempt.folder.rglob("*")):
        os.chown(path, 0, 0)
    (attempt.folder / "chunk.pkl").chmod(0o600)
    assert attempt.run().ok, attempt.log


CHUNK_READER = """
    import os, pickle, sys
    path = os.path.join(os.environ["LUDWIG_PROJECT_PATH"], "hoff_param2val_chunk.pkl")
    print(pickle.load(open(path, "rb"))[0]["lr"], os.getuid())
    try:
        open(path, "ab")
        print("writable")
    except OSError as error:
        print("read-only")
    name = "written-" + os.environ["LUDWIG_ATTEMPT"]
    open(os.path.join(os.environ["LUDWIG_PROJECT_PATH"], name), "w")
    {then}
"""


@pytest.fixture
def drive(open_path: Path) -> Path:
    project = open_path / "drive" / PROJECT
    project.mkdir(parents=True)
    project.chmod(0o777)
    (project.parent).chmod(0o755)
    target = project / "hoff_param2val_chunk.pkl"
    target.write_bytes(b"what somebody else put there")
    target.chmod(0o666)
    return target


@pytest.mark.parametrize("user", [None, "nobody"])
@pytest.mark.parametrize("method", ["isolate", "bwrap"])
def test_attempts_side_by_side_each_see_their_own_chunk(
    open_path: Path, drive: Path, monkeypatch: pytest.MonkeyPatch, user: str | None, method: str
) -> None:
    if method == "bwrap":
        require("bwrap")
    if user:
        require("root")
    account = job_account(user, allow_root=True)
    if not launch._works(method, account):
        pytest.skip(f"{method} does not work here as {account.name}")
    monkeypatch.setattr(launch, "_method", lambda account: method)
    then = "import time; print('up')\n    while True: time.sleep(0.01)"
    attempts = [
        Attempt(
            open_path,
            {"run.py": CHUNK_READER.replace("{then}", then)},
            chunk=[{"lr": number, **NAMES}],
            number=number,
            user=user,
            python=SYSTEM_PYTHON,
            chunk_target=str(drive),
            env={"LD_PRELOAD": "/nonexistent.so", "PYTHONPATH": "/nonexistent"},
        )
        for number in (1, 2)
    ]
    running = [attempt.start() for attempt in attempts]
    for number, attempt in enumerate(attempts, start=1):
        attempt.says("up")
        assert f"{number} {account.uid}\nread-only\n" in attempt.log
        assert (drive.parent / f"written-{number}").exists()
        assert find(attempt.folder) is not None
    assert drive.read_bytes() == b"what somebody else put there"
    assert all(process.pids() for process in running)
    running[0].ask_to_stop()
    running[1].kill()
    assert [ending(process).signal for process in running] == [signal.SIGTERM, signal.SIGKILL]


def test_isolation_that_fails_is_the_nodes_fault(open_path: Path) -> None:
    if not runner.can_isolate(allow_root=True):
        pytest.skip("no private mounts here")
    attempt = Attempt(open_path, {"run.py": ""}, chunk_target=str(open_path / "missing"))
    end = attempt.run()
    assert (end.vanished, end.user_code_started) == (True, False)
    assert "ludwig: the task cannot be given its own view of the drive" in attempt.log


@pytest.mark.needs_root
@pytest.mark.needs_unshare
def test_root_can_isolate() -> None:
    assert runner.can_isolate("nobody")


def test_results_are_synced_before_the_end_of_a_long_attempt(tmp_path: Path) -> None:
    from ludwig.worker import child

    attempt = Attempt(tmp_path, {"run.py": "def main(p): return {'x': 1}"}, contract="function")
    assert attempt.run().ok
    order = child.read_json(str(attempt.folder / "order.json"))
    child.sync_results(order)  # links and devices among the results do not hurt
    (attempt.results / "link").symlink_to("/dev/zero")
    os.mkfifo(attempt.results / "pipe")
    child.sync_results(order)
