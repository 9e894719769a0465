"""Whatever is killed, the end of an attempt is told truly, and nothing of it stays alive."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from ludwig.worker import processes
from ludwig.worker.attempt import find
from tests.attempts import Attempt, ending, nursery
from tests.harness import wait_until

__all__ = ["nursery"]
pytestmark = pytest.mark.usefixtures("nursery")

FOREVER = "import time\nprint('up', flush=True)\nwhile True: time.sleep(0.01)\n"
STUBBORN = """
    import signal, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print('up')
    while True: time.sleep(0.01)
"""
# A child in a session of its own, a double fork that is nobody's child, and one without our
# environment.
FAMILY = """
    import os, signal, subprocess, sys, time
    from pathlib import Path
    IGNORE = {ignore}
    code = "import signal, time\\nif %d: signal.signal(15, signal.SIG_IGN)\\n" % IGNORE
    code += "import os, sys; open(sys.argv[1], 'w').write(str(os.getpid()))\\n"
    code += "while True: time.sleep(0.01)"
    def run(name, **how):
        subprocess.Popen([sys.executable, "-c", code, name], **how)
    if IGNORE: signal.signal(15, signal.SIG_IGN)
    run("a", start_new_session=True)
    run("b", start_new_session=True, env={{}})
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            run("c")
        os._exit(0)
    os.wait()
    while not all(Path(name).exists() and Path(name).read_text() for name in "abc"):
        time.sleep(0.01)
    print("up")
    {then}
"""


def family(tmp_path: Path, *, ignore: bool, then: str) -> Attempt:
    code = FAMILY.format(ignore=int(ignore), then=then)
    return Attempt(tmp_path, {"run.py": code})


def members(attempt: Attempt) -> list[psutil.Process]:
    return [psutil.Process(int((attempt.tree / name).read_text())) for name in "abc"]


def all_gone(people: list[psutil.Process]) -> bool:
    return not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in people)


def test_stop_to_dead_tree_within_a_second(tmp_path: Path) -> None:
    attempt = family(tmp_path, ignore=False, then="while True: time.sleep(0.01)")
    process = attempt.start()
    attempt.says("up")
    people = members(attempt)
    began = time.monotonic()
    process.ask_to_stop()
    end = ending(process)
    assert time.monotonic() - began < 1
    assert end.signal == signal.SIGTERM
    assert end.left_behind == 3
    assert (attempt.folder / "stop").exists()
    assert all_gone(people)


def test_code_that_ignores_sigterm_is_killed_with_all_it_started(tmp_path: Path) -> None:
    attempt = family(tmp_path, ignore=True, then="while True: time.sleep(0.01)")
    process = attempt.start()
    attempt.says("up")
    people = members(attempt)
    process.ask_to_stop()
    assert process.exit() is None
    began = time.monotonic()
    process.kill()
    end = ending(process)
    assert time.monotonic() - began < 1
    assert end.signal == signal.SIGKILL
    assert all_gone(people)


@pytest.mark.parametrize("ignore", [False, True])
def test_what_is_left_behind_is_ended_and_named(tmp_path: Path, ignore: bool) -> None:
    attempt = family(tmp_path, ignore=ignore, then="pass")
    process = attempt.start()
    end = ending(process)
    assert (end.exit_code, end.left_behind) == (0, 3)
    assert not any(psutil.pid_exists(int((attempt.tree / name).read_text())) for name in "abc")
    assert "ludwig: ending 3 process(es) that the task left behind: " in attempt.log


def test_stop_file_reaches_code_that_looks_for_it(tmp_path: Path) -> None:
    code = """
        import os, signal, sys, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("up")
        while not os.path.exists(os.environ["LUDWIG_STOP"]): time.sleep(0.01)
        sys.exit(7)
    """
    attempt = Attempt(tmp_path, {"run.py": code})
    process = attempt.start()
    attempt.says("up")
    process.ask_to_stop()
    assert ending(process).exit_code == 7


def test_stop_right_after_the_start_is_not_lost(tmp_path: Path) -> None:
    for number in range(1, 9):
        attempt = Attempt(tmp_path, {"run.py": FOREVER}, number=number)
        process = attempt.start()
        for _ in range(number * 200):  # a little later each time
            os.getpid()
        process.ask_to_stop()
        assert ending(process).signal == signal.SIGTERM


def test_signal_to_the_group_spares_the_supervisor(tmp_path: Path) -> None:
    attempt = Attempt(tmp_path, {"run.py": FOREVER})
    process = attempt.start()
    attempt.says("up")
    record = process.record()
    assert record is not None
    assert os.getpgid(record.pid) != record.group
    os.killpg(record.group, signal.SIGKILL)
    assert ending(process).signal == signal.SIGKILL


def test_signal_to_the_supervisor_means_the_job(tmp_path: Path) -> None:
    attempt = Attempt(tmp_path, {"run.py": FOREVER})
    process = attempt.start()
    attempt.says("up")
    assert process.pid is not None
    os.kill(process.pid, signal.SIGTERM)
    assert ending(process).signal == signal.SIGTERM


def test_supervisor_killed(tmp_path: Path) -> None:
    attempt = family(tmp_path, ignore=True, then="while True: time.sleep(0.01)")
    process = attempt.start()
    attempt.says("up")
    people = [psutil.Process(pid) for pid in process.pids()]
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    end = ending(process)
    assert end.vanished
    assert not end.ok
    assert end.user_code_started
    assert end.error == "its supervisor was killed"
    # One of the family has none of our environment and is nobody's child: it cannot be found.
    unmarked = {int((attempt.tree / "b").read_text())}
    try:
        assert all_gone([one for one in people if one.pid not in unmarked])
    finally:
        for pid in unmarked:
            os.kill(pid, signal.SIGKILL)


AGENT = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.attempts import Attempt, EagerNursery
Attempt.nursery = EagerNursery() if {warm} else None
attempt = Attempt(Path({work!r}), {files!r})
attempt.start()
print("started", flush=True)
import time
while True: time.sleep(1)
"""


def agent_that_dies(work: Path, code: str) -> Path:
    """A process starts the attempt and is killed while it runs; returns the attempt's folder."""
    root = str(Path(__file__).parents[2])
    warm = Attempt.nursery is not None
    text = AGENT.format(root=root, work=str(work), files={"run.py": code}, warm=warm)
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE) as agent:
        assert agent.stdout is not None
        assert agent.stdout.readline() == b"started\n"
        agent.kill()
    return work / "attempts" / "trees-1-1-1"


@pytest.mark.parametrize(("code", "expected"), [("sys.exit(5)", 5), ("pass", 0)])
def test_agent_killed_while_the_task_runs(tmp_path: Path, code: str, expected: int) -> None:
    script = f"""
import os, sys, time
print("up", flush=True)
while not os.path.exists("go"): time.sleep(0.01)
print("still here")
{code}
"""
    folder = agent_that_dies(tmp_path, script)
    process = wait_until(lambda: find(folder))
    assert process.exit() is None
    wait_until(lambda: "up" in (folder / "log").read_text())
    assert process.pids()
    (folder / "tree" / "trees" / "go").touch()
    end = ending(process)
    assert (end.exit_code, end.vanished) == (expected, False)
    assert (folder / "log").read_text() == "up\nstill here\n"
    # Found by a third agent, after the end.
    again = find(folder)
    assert again is not None
    assert again.exit() == end


def test_agent_killed_before_the_supervisor_said_who_it_is(tmp_path: Path) -> None:
    attempt = Attempt(tmp_path, {"run.py": FOREVER})
    process = attempt.start()
    # Most likely there is no process.json yet. The kernel shows the environment of a process a
    # moment after it has said that it was started.
    found = wait_until(lambda: find(attempt.folder))
    assert found is not None
    assert found.exit() is None
    found.ask_to_stop()
    assert ending(found).signal == signal.SIGTERM
    assert ending(process).signal == signal.SIGTERM


def test_nothing_was_started(tmp_path: Path) -> None:
    assert find(Attempt(tmp_path, {"run.py": ""}).folder) is None
    assert find(tmp_path / "nowhere") is None


def test_pid_that_came_again_is_not_mistaken(tmp_path: Path) -> None:
    attempt = Attempt(tmp_path, {"run.py": ""})
    me = os.getpid()
    record = {"pid": me, "start": 1, "group": me, "boot": processes.boot_id()}
    (attempt.folder / "process.json").write_text(json.dumps(record))
    process = find(attempt.folder)
    assert process is not None
    assert process.pids() == set()
    process.ask_to_stop()
    process.kill()
    end = process.exit()
    assert end is not None
    assert end.vanished


def test_after_a_reboot(tmp_path: Path) -> None:
    attempt = Attempt(tmp_path, {"run.py": FOREVER})
    me = os.getpid()
    record = {"pid": me, "start": processes.start_time(me), "group": me, "boot": "another"}
    (attempt.folder / "process.json").write_text(json.dumps(record))
    process = find(attempt.folder)
    assert process is not None
    end = process.exit()
    assert end is not None
    assert end.vanished
    assert end.error == "the node was restarted meanwhile"


def test_end_of_an_earlier_boot_counts_only_if_its_results_were_synced(tmp_path: Path) -> None:
    attempt = Attempt(tmp_path, {"run.py": ""})
    record = '{"pid":1,"start":1,"group":1,"boot":"another"}'
    (attempt.folder / "process.json").write_text(record)
    for synced, vanished in ((True, False), (False, True)):
        written = {"exit_code": 0, "synced": synced, "boot": "another"}
        (attempt.folder / "exit.json").write_text(json.dumps(written))
        process = find(attempt.folder)
        assert process is not None
        end = process.exit()
        assert end is not None
        assert end.vanished is vanished


def test_records_that_the_job_forged_are_not_followed(tmp_path: Path) -> None:
    attempt = Attempt(tmp_path, {"run.py": FOREVER})
    secret = tmp_path / "secret"
    secret.write_text('{"exit_code":0}')
    (attempt.folder / "exit.json").symlink_to(secret)
    os.mkfifo(attempt.folder / "process.json")
    assert find(attempt.folder) is None


def test_broken_interpreter(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'error while loading shared libraries' >&2\nexit 127\n")
    broken.chmod(0o755)
    attempt = Attempt(tmp_path, {"run.py": ""}, python=str(broken))
    end = attempt.run()
    assert (end.vanished, end.user_code_started) == (True, False)
    assert "shared libraries" in attempt.log
    with pytest.raises(FileNotFoundError):
        Attempt(tmp_path, {"run.py": ""}, python="/nowhere/python", number=2).run()
