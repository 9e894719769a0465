"""What becomes of tasks that fail, are cancelled, or wait: retries, stops, balance, draining."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.lab import Agent, Lab

HERE = 'HERE = next(h for h in ("hoff", "hebb") if f"/{h}/work/" in os.environ["LUDWIG_STOP"])'


def worker(agent: Agent, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `ludwig-worker WORDS` for a node."""
    return subprocess.run(
        [sys.executable, "-m", "ludwig.worker", *words, "--config", str(agent.config)],
        env={**os.environ, **agent.lab.env},
        capture_output=True,
        text=True,
        timeout=60,
    )


def gate(folder: Path) -> str:
    """A line of code that waits until a file is there."""
    return f"while not os.path.exists({str(folder / 'open')!r}): time.sleep(0.01)"


def test_a_failure_is_retried_here_then_elsewhere_then_given_up(tmp_path: Path) -> None:
    run = """
    def main(param2val):
        raise ValueError("no such corpus")
    """
    with Lab(tmp_path, hosts=("hoff", "hebb")) as lab:
        lab.start()
        job = lab.submit(run, [{"lr": 1}], retries=1)
        (done,) = lab.wait(job).values()
        assert done.outcome == "failed"
        assert "ValueError: no such corpus" in done.why
        first, second, third = done.failures
        assert first.host == second.host != third.host
        assert [failure.attempt for failure in done.failures] == [1, 2, 3]
        assert all("ValueError: no such corpus" in failure.why for failure in done.failures)
        assert lab.claims(job) == ["0001.1", "0001.2", "0001.3"]
        assert "Traceback" in lab.log(job, 1, 3)
        assert not any(lab.runs(job).values())
        (row,) = job.status().tasks
        assert row.state == "failed" and "no such corpus" in row.why


def test_a_retry_that_succeeds_ends_the_task(tmp_path: Path) -> None:
    run = """
    import os
    def main(param2val):
        if os.environ["LUDWIG_ATTEMPT"] == "1":
            raise SystemExit(3)
    """
    with Lab(tmp_path) as lab:
        lab.start()
        job = lab.submit(run)
        (done,) = lab.wait(job).values()
        assert (done.outcome, done.attempt) == ("done", 2)
        assert "3" in done.failures[0].why
        assert [e.attempt for e in lab.events(job, "failed")] == [1]


def test_without_retries_nobody_tries_again(tmp_path: Path) -> None:
    with Lab(tmp_path, hosts=("hoff", "hebb")) as lab:
        lab.start()
        job = lab.submit("def main(param2val): 1 / 0", retries=0)
        (done,) = lab.wait(job).values()
        assert (done.outcome, done.attempt) == ("failed", 1)


def test_an_interpreter_that_is_not_there_fails_fast_and_is_not_held_against_the_node(
    tmp_path: Path,
) -> None:
    with Lab(tmp_path) as lab:
        lab.start()
        job = lab.submit(params=[{"lr": n} for n in range(4)], python="/no/such/python")
        named = lab.submit("def main(p): pass\n#", [{"lr": 9}], python="python9.99")
        for done in [*lab.wait(job).values(), *lab.wait(named).values()]:
            assert done.outcome == "failed"
            assert "could not be started" in done.why
        beat = lab.beat("hoff")
        assert beat is not None and beat.state != "quarantined"
        fine = lab.submit("def main(p): pass\n##", [{"lr": 10}])
        assert [done.outcome for done in lab.wait(fine).values()] == ["done"]


@pytest.mark.parametrize("kind", ["obeys", "ignores"])
def test_stop_ends_the_whole_tree_in_time(tmp_path: Path, kind: str) -> None:
    """Within a second of the stop file, or a second after the grace for code that ignores it."""
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    prelude = deaf if kind == "ignores" else "pass"
    run = f"""
    import os, subprocess, sys, time
    def main(param2val):
        {prelude}
        code = {prelude + "; import time; time.sleep(600)"!r}
        subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
        print("ready", flush=True)
        time.sleep(600)
    """
    with Lab(tmp_path, grace_s=1.0) as lab:
        lab.start()
        job = lab.submit(run, [{"lr": 1}, {"lr": 2}, {"lr": 3}])
        lab.until(lambda: sum("ready" in lab.log(job, task) for task in (1, 2, 3)) == 2, "two run")
        pids = lab.until(
            lambda: found if len(found := lab.processes()) >= 6 else None,
            "two supervisors, two jobs, and a child of each in a session of its own",
        )
        began = time.monotonic()
        job.cancel()
        lab.until(lambda: not any(map(is_alive, pids)), "the end of all processes")
        took = time.monotonic() - began
        assert took < (1.0 if kind == "obeys" else 1.0 + 1.0), took
        assert not lab.processes()
        ends = lab.wait(job)
        assert {done.outcome for done in ends.values()} == {"stopped"}
        assert len(ends) == 2  # the third was never claimed, or never started
        assert not any(lab.runs(job).values())
        lab.until(lambda: lab["hoff"].lines("closed"), "the job to be closed")


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_stop_of_one_task_leaves_the_others(tmp_path: Path) -> None:
    run = f"""
    import os, time
    def main(param2val):
        print("ready", flush=True)
        {gate(tmp_path)}
    """
    with Lab(tmp_path) as lab:
        lab.start()
        job = lab.submit(run, [{"lr": 1}, {"lr": 2}])
        lab.until(lambda: "ready" in lab.log(job, 1) and "ready" in lab.log(job, 2), "both")
        job.cancel(2)
        lab.until(lambda: 2 in lab.ends(job), "the end of task 2")
        (tmp_path / "open").touch()
        assert [done.outcome for done in lab.wait(job).values()] == ["done", "stopped"]


def test_a_node_helps_the_other_from_the_back(tmp_path: Path) -> None:
    run = f"""
    import os, time
    {HERE}
    def main(param2val):
        if HERE == "hoff":
            {gate(tmp_path)}
    """
    with Lab(tmp_path, hosts=("hoff", "hebb"), slots=1) as lab:
        lab.start()
        job = lab.submit(run, [{"lr": n} for n in range(12)])
        record = job.status().record
        home = [task.task for task in record.chunks["hoff"].tasks]
        lab.until(lambda: len(lab.ends(job)) >= 6 + 2, "hebb to have helped twice")
        helped = [task for task in lab.ends(job) if task in home]
        (tmp_path / "open").touch()
        ends = lab.wait(job)
        assert len(ends) == 12 and all(done.outcome == "done" for done in ends.values())
        # From the back: everything that hebb took lies behind everything that hoff took.
        assert helped
        taken = [task for task in home if ends[task].host == "hebb"]
        assert taken == home[-len(taken) :]
        assert all(name.endswith(".1") for name in lab.claims(job))


def test_without_balance_nobody_helps(tmp_path: Path) -> None:
    run = f"""
    import os, time
    {HERE}
    def main(param2val):
        if HERE == "hoff":
            {gate(tmp_path)}
    """
    with Lab(tmp_path, hosts=("hoff", "hebb"), slots=1) as lab:
        lab.start()
        job = lab.submit(run, [{"lr": n} for n in range(6)], balance=False)
        lab.until(lambda: lab["hebb"].lines("ended") and len(lab.ends(job)) == 3, "hebb's half")
        (tmp_path / "open").touch()
        ends = lab.wait(job)
        assert sorted(done.host for done in ends.values()) == ["hebb"] * 3 + ["hoff"] * 3


def test_draining_gives_back_what_was_claimed_ahead(tmp_path: Path) -> None:
    run = f"""
    import os, time
    def main(param2val):
        print("ready", flush=True)
        {gate(tmp_path)}
    """
    with Lab(tmp_path, slots=1) as lab:
        lab.start()
        hoff = lab["hoff"]
        job = lab.submit(run, [{"lr": n} for n in range(8)])
        lab.until(lambda: "ready" in lab.log(job, 1), "the first task")
        lab.until(lambda: lab.claims(job) == ["0001.1", "0002.1"], "one claimed ahead, no more")
        answer = worker(hoff, "drain")
        assert answer.returncode == 0, answer.stderr
        lab.until(lambda: [e.task for e in lab.events(job, "released")] == [2], "task 2 given back")

        def drained() -> bool:
            beat = lab.beat("hoff")
            assert beat is not None
            return beat.state == "draining" and [r.task for r in beat.running] == [1]

        lab.until(drained, "a heartbeat that says so")
        (tmp_path / "open").touch()
        lab.until(lambda: 1 in lab.ends(job), "what ran to be finished")
        assert lab.claims(job) == ["0001.1", "0002.1"]
        assert worker(hoff, "drain", "--undrain").returncode == 0
        ends = lab.wait(job)
        assert [done.outcome for done in ends.values()] == ["done"] * 8
        assert ends[2].attempt == 2


def test_nothing_is_claimed_below_the_free_space_floor(tmp_path: Path) -> None:
    with Lab(tmp_path, disk_free_min_gb=999_999) as lab:
        lab.start()
        job = lab.submit()

        def closed() -> bool:
            beat = lab.beat("hoff")
            assert beat is not None
            return beat.state == "draining" and "disk_free_min_gb" in beat.why

        lab.until(closed, "the heartbeat to say why")
        lab.until(lambda: lab["hoff"].lines("accepted"), "the ticket to be accepted")
        (row,) = job.status().tasks
        assert row.state == "queued" and "disk_free_min_gb" in row.why
        assert lab.claims(job) == []
        hoff = lab["hoff"]
        assert hoff.terminate() == 0
        hoff.configure()
        lab.start()
        assert [done.outcome for done in lab.wait(job).values()] == ["done"]


def test_a_bad_node_is_quarantined_and_others_finish(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho libcuda.so.1: cannot open shared object file >&2\nexit 1\n")
    broken.chmod(0o755)
    with Lab(tmp_path, hosts=("hoff", "hebb")) as lab:
        lab["hebb"].configure(python=str(broken))
        lab.start()
        job = lab.submit(params=[{"lr": n} for n in range(20)])
        ends = lab.wait(job)
        assert [done.outcome for done in ends.values()] == ["done"] * 20
        assert {done.host for done in ends.values()} == {"hoff"}
        beat = lab.beat("hebb")
        assert beat is not None
        assert beat.state in ("quarantined", "idle")
        failed = lab.events(job, "failed")
        assert 1 <= len(failed) <= 8, "a bad node must not burn through the queue"
        assert "libcuda" in failed[0].why


def test_a_quick_bad_node_does_not_give_up_for_a_slow_good_one(tmp_path: Path) -> None:
    """The good one is alive, but has not come to its ticket when the bad one is through."""
    run = f"""
    import os
    {HERE}
    def main(param2val):
        if HERE == "hebb":
            raise ImportError("libcudnn.so.8")
    """
    with Lab(tmp_path, hosts=("hoff", "hebb"), silent_s=5.0) as lab:
        lab.start()
        aside = tmp_path / "aside"
        lab["hoff"].suspend()
        job = lab.submit(run, [{"lr": 1}, {"lr": 2}])
        lab["hoff"].inbox.rename(aside)
        lab["hoff"].inbox.mkdir()
        lab["hoff"].resume()
        lab.until(lambda: len(lab.events(job, "failed")) == 4, "hebb to be through")
        assert lab.ends(job) == {}
        for folder in sorted(aside.iterdir()):  # sources come before tickets
            folder.rename(lab["hoff"].inbox / folder.name)
        ends = lab.wait(job)
        assert [(d.outcome, d.host) for d in ends.values()] == [("done", "hoff")] * 2


def test_a_job_that_dies_at_once_here_is_set_aside_here(tmp_path: Path) -> None:
    run = f"""
    import os
    {HERE}
    def main(param2val):
        if HERE == "hebb":
            raise ImportError("libcudnn.so.8")
    """
    with Lab(tmp_path, hosts=("hoff", "hebb")) as lab:
        lab.start()
        job = lab.submit(run, [{"lr": n} for n in range(24)])
        ends = lab.wait(job)
        assert [done.outcome for done in ends.values()] == ["done"] * 24
        assert {done.host for done in ends.values()} == {"hoff"}
        assert len(lab.events(job, "failed")) <= 10
        assert lab.events(job, "failed")


def test_a_killed_job_is_told_by_its_signal(tmp_path: Path) -> None:
    run = """
    import os, signal
    def main(param2val):
        os.kill(os.getpid(), signal.SIGKILL)
    """
    with Lab(tmp_path) as lab:
        lab.start()
        job = lab.submit(run, retries=0)
        (done,) = lab.wait(job).values()
        assert done.outcome == "failed" and done.signal == signal.SIGKILL
        assert "signal 9" in done.why
