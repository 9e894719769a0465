"""Interpreters that are kept warm: when there is one, when it is left alone, and what it costs."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from ludwig.worker import nursery as module
from ludwig.worker import processes
from ludwig.worker.attempt import MARKER
from ludwig.worker.nursery import Nursery, Warm
from tests.attempts import Attempt, EagerNursery, ending
from tests.harness import wait_until

PRINT = "import os; print(os.getpid(), os.getppid(), os.environ['LUDWIG_ATTEMPT'])"


@pytest.fixture
def eager() -> Iterator[EagerNursery]:
    nursery = Attempt.nursery = EagerNursery()
    yield nursery
    nursery.close()
    Attempt.nursery = None


def only(nursery: Nursery) -> Warm:
    (warm,) = nursery._warm.values()
    return warm


def test_short_tasks_that_follow_each_other_closely_are_forks(tmp_path: Path) -> None:
    nursery = Attempt.nursery = Nursery()
    try:
        assert Attempt(tmp_path, {"run.py": PRINT}, number=1).run().ok
        nursery.ended("trees/1", 0.1, time.monotonic())
        assert not nursery._warm  # it takes another
        assert Attempt(tmp_path, {"run.py": PRINT}, number=2).run().ok
        warm = only(nursery)
        wait_until(warm.is_ready)
        warm.used = time.monotonic()
        attempt = Attempt(tmp_path, {"run.py": PRINT + "\nwhile True: pass"}, number=3)
        process = attempt.start()
        attempt.says(" 3")
        supervisor = int(attempt.log.split()[1])
        assert process.pid == supervisor
        assert processes.parent(supervisor) == warm.process.pid
        process.kill()
        assert ending(process).signal == signal.SIGKILL
    finally:
        nursery.close()
        Attempt.nursery = None


def test_tasks_that_take_their_time_are_started_afresh(tmp_path: Path) -> None:
    nursery = Attempt.nursery = Nursery()
    try:
        for number, (seconds, ago) in enumerate([(60.0, 0.0), (0.1, 60.0), (60.0, 60.0)]):
            nursery.ended("trees/1", seconds, time.monotonic() - ago)
            assert Attempt(tmp_path, {"run.py": PRINT}, number=number + 1).run().ok
        assert not nursery._warm
    finally:
        nursery.close()
        Attempt.nursery = None


def test_every_fork_is_as_new(tmp_path: Path, eager: EagerNursery) -> None:
    """Variables, random numbers, modules and files of one task are unknown to the next."""
    code = """
        import os, random, sys
        print(sorted(k for k in os.environ if k.startswith("LUDWIG")), "SPOIL" in os.environ)
        print(random.random(), "spoil" in sys.modules, os.getcwd(), sys.argv)
        os.environ["SPOIL"] = "1"
        sys.modules["spoil"] = sys
        random.seed(1)
    """
    attempts = [Attempt(tmp_path, {"run.py": code}, number=n) for n in (1, 2)]
    assert all(attempt.run().ok for attempt in attempts)
    assert eager.forks == 2
    first, second = (attempt.log.splitlines() for attempt in attempts)
    assert first[0] == second[0]
    assert "LUDWIG_WARM" not in first[0]
    assert first[0].endswith("False")
    assert first[1].split()[0] != second[1].split()[0]
    assert first[1].split()[1] == second[1].split()[1] == "False"
    assert str(attempts[1].tree) in second[1]


def test_a_warm_interpreter_of_another_environment_is_not_used(
    tmp_path: Path, eager: EagerNursery
) -> None:
    code = "import os, sys; print(os.environ.get('A'), sys.flags.hash_randomization)"
    for number, env in ((1, {"A": "1"}), (2, {"A": "2", "PYTHONHASHSEED": "0"})):
        attempt = Attempt(tmp_path, {"run.py": code}, number=number, env=env)
        assert attempt.run().ok
        assert attempt.log == f"{number} {2 - number}\n"
    assert len(eager._warm) == 2


def test_it_goes_when_it_has_waited_or_served_long_enough(
    tmp_path: Path, eager: EagerNursery
) -> None:
    for change in ({"used": -module.SHORT_S - 1}, {"born": -module.SERVES_S - 1}):
        assert Attempt(tmp_path, {"run.py": ""}, number=len(str(change))).run().ok
        warm = only(eager)
        now = time.monotonic()
        eager.tidy(now)
        assert eager._warm
        for name, shift in change.items():
            setattr(warm, name, now + shift)
        eager.tidy(now)
        assert not eager._warm
        assert warm.process.wait(timeout=10) == 0


def test_one_that_has_died_is_done_without(tmp_path: Path, eager: EagerNursery) -> None:
    assert Attempt(tmp_path, {"run.py": ""}, number=1).run().ok
    warm = only(eager)
    warm.process.kill()
    warm.process.wait()
    assert Attempt(tmp_path, {"run.py": ""}, number=2).run().ok
    assert eager.forks == 1
    assert only(eager) is not warm if eager._warm else True


def test_one_that_does_not_answer_starts_nothing_twice(
    tmp_path: Path, eager: EagerNursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ANSWER_S", 0.2)
    assert Attempt(tmp_path, {"run.py": ""}, number=1).run().ok
    warm = only(eager)
    os.kill(warm.process.pid, signal.SIGSTOP)
    attempt = Attempt(tmp_path, {"run.py": "open('ran', 'a').write('x')"}, number=2)
    assert attempt.run().ok
    assert (attempt.tree / "ran").read_text() == "x"
    assert not psutil.pid_exists(warm.process.pid)


def test_one_that_forked_and_did_not_say_so_is_found(
    tmp_path: Path, eager: EagerNursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is lost, the attempt runs: it is taken up, not started again."""

    def lost(self: Warm, request: bytes, descriptor: int) -> int:
        pid = fork(self, request, descriptor)
        wait_until(lambda: processes.marked(MARKER, str(attempt.folder / "stop")))
        raise OSError(f"{pid} was not heard")

    assert Attempt(tmp_path, {"run.py": ""}, number=1).run().ok
    attempt = Attempt(
        tmp_path,
        {
            "run.py": "import os, time; open('ran', 'a').write('x'); print('up')\n"
            "while not os.path.exists('go'): time.sleep(0.01)"
        },
        number=2,
    )
    fork = Warm.fork
    monkeypatch.setattr(Warm, "fork", lost)
    process = attempt.start()
    attempt.says("up")
    (attempt.tree / "go").touch()
    assert ending(process).ok
    assert (attempt.tree / "ran").read_text() == "x"


def test_a_pid_that_is_no_child_is_not_believed(
    tmp_path: Path, eager: EagerNursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Attempt(tmp_path, {"run.py": ""}, number=1).run().ok
    warm = only(eager)
    monkeypatch.setattr(processes, "parent", lambda pid: 1)
    with pytest.raises(OSError, match="no child"):
        warm.fork(b'{"folder": "/", "variables": {}, "mark": ""}', 2)


def test_an_interpreter_that_cannot_be_kept_warm_is_not_tried_for_ever(tmp_path: Path) -> None:
    bad = tmp_path / "python"
    bad.write_text(
        f'#!/bin/sh\ncase "$1" in *start_warm.py) exit 3;; esac\nexec {sys.executable} "$@"\n'
    )
    bad.chmod(0o755)
    nursery = Attempt.nursery = Nursery()
    try:
        for number in range(1, 5):
            attempt = Attempt(tmp_path, {"run.py": ""}, number=number, python=str(bad))
            assert attempt.run().ok
            nursery.ended("trees/1", 0.1, time.monotonic())
            if nursery._warm:
                only(nursery).process.wait(timeout=10)
        assert nursery._hopeless
        assert not nursery._warm
    finally:
        nursery.close()
        Attempt.nursery = None


def test_it_ends_with_the_agent_and_what_it_started_goes_on(
    tmp_path: Path, eager: EagerNursery
) -> None:
    code = "import os, time\nprint('up')\nwhile not os.path.exists('go'): time.sleep(0.01)"
    attempt = Attempt(tmp_path, {"run.py": code})
    process = attempt.start()
    attempt.says("up")
    warm = only(eager)
    eager.close()
    assert warm.process.poll() == 0
    assert process.exit() is None
    (attempt.tree / "go").touch()
    assert ending(process).ok
