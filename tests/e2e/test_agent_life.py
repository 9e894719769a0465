"""The agent's own death, restarts, rivals, and what systemd hears of it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from pathlib import Path

import pytest

from tests.e2e.test_agent_tasks import gate
from tests.lab import Lab

COUNT = """
import os, sys, time
def main(param2val):
    for n in range(400):
        print("line", n, flush=True)
        time.sleep(0.005)
    print("the end", flush=True)
    sys.exit(int(param2val.get("code", 0)))
"""


@pytest.mark.parametrize("how", ["killed", "terminated"])
def test_a_task_outlives_its_agent(tmp_path: Path, how: str) -> None:
    with Lab(tmp_path) as lab:
        lab.start()
        hoff = lab["hoff"]
        job = lab.submit(COUNT, [{"code": 0}, {"code": 7}], retries=0)
        lab.until(lambda: "line 20\n" in lab.log(job, 1), "the log on the drive")
        before = lab.processes()
        if how == "killed":
            hoff.kill_alone()
        else:
            assert hoff.terminate() == 0
            beat = lab.beat("hoff")
            assert beat is not None and beat.state == "draining"
            assert "told to stop" in beat.why
            assert {r.task for r in beat.running} == {1, 2}
        assert before <= lab.processes(), "running tasks are left alone"
        lab.start()
        ends = lab.wait(job)
        assert sorted((d.outcome, d.exit_code, d.attempt) for d in ends.values()) == [
            ("done", 0, 1),
            ("failed", 7, 1),
        ]
        whole = "".join(f"line {n}\n" for n in range(400)) + "the end\n"
        assert lab.log(job, 1) == whole, "neither doubled nor cut"
        assert lab.log(job, 2) == whole
        assert lab.claims(job) == ["0001.1", "0002.1"]
        assert ends[1].seconds >= 2.0
        assert len(hoff.lines("taken-up")) == 2


def test_what_ended_while_the_agent_was_dead_is_published(tmp_path: Path) -> None:
    run = f"""
    import os, time
    from pathlib import Path
    def main(param2val):
        print("ready", flush=True)
        {gate(tmp_path)}
        Path(param2val["save_path"], "x").write_text("whole")
        print("over", flush=True)
    """
    with Lab(tmp_path) as lab:
        lab.start()
        job = lab.submit(run)
        lab.until(lambda: "ready" in lab.log(job, 1), "it to run")
        lab["hoff"].kill_alone()
        (tmp_path / "open").touch()
        lab.until(lambda: not lab.processes(), "its end")
        lab.start()
        (done,) = lab.wait(job).values()
        assert (done.outcome, done.attempt, done.exit_code) == ("done", 1, 0)
        assert lab.log(job, 1) == "ready\nover\n"
        (folder,) = lab.runs(job)[1]
        assert (folder / "saves" / "x").read_text() == "whole"


@pytest.mark.needs_root
@pytest.mark.needs_unshare
def test_after_a_reboot_tasks_are_retried_at_once(tmp_path: Path) -> None:
    run = f"""
    import os, time
    def main(param2val):
        print("ready", flush=True)
        {gate(tmp_path)}
    """
    with Lab(tmp_path, silent_s=60) as lab:
        lab.start()
        hoff = lab["hoff"]
        job = lab.submit(run, [{"lr": 1}, {"lr": 2}])
        lab.until(lambda: all("ready" in lab.log(job, task) for task in (1, 2)), "both to run")
        hoff.kill_alone()
        for pid in lab.processes():
            os.kill(pid, signal.SIGKILL)
        (tmp_path / "open").touch()
        other = tmp_path / "boot_id"
        other.write_text("11111111-2222-3333-4444-555555555555\n")
        bind = f'mount --bind {other} /proc/sys/kernel/random/boot_id && exec "$@"'
        hoff.wrap("unshare", "-m", "sh", "-c", bind, "sh")
        lab.start()
        # Far below the minute after which a silent node's tasks are taken over.
        ends = lab.wait(job, timeout=20)
        assert [(d.outcome, d.attempt) for d in ends.values()] == [("done", 2), ("done", 2)]
        assert "restarted" in lab.events(job, "released")[0].why


def test_a_second_agent_of_the_same_name_refuses_and_harms_nobody(tmp_path: Path) -> None:
    run = f"""
    import os, time
    def main(param2val):
        print("ready", flush=True)
        {gate(tmp_path)}
    """
    with Lab(tmp_path, hosts=("hoff", "twin")) as lab:
        twin = lab["twin"]
        twin.configure(hostname="hoff")
        lab.start("hoff")
        job = lab.submit(run, nodes=["hoff"])
        lab.until(lambda: "ready" in lab.log(job, 1), "it to run")
        first = lab.beat("hoff")
        twin.start()
        assert twin.await_end() == 1
        assert "another agent beats as 'hoff'" in twin.log.read_text()
        lab.until(lambda: (b := lab.beat("hoff")) and first and b.counter > first.counter + 2)
        beat = lab.beat("hoff")
        assert beat is not None and first is not None and beat.boot == first.boot
        # The same work folder is refused even sooner.
        shutil.copy(lab["hoff"].config, twin.config)
        twin.start()
        assert twin.await_end() == 1
        assert "already works in" in twin.log.read_text()
        (tmp_path / "open").touch()
        (done,) = lab.wait(job).values()
        assert (done.outcome, done.attempt) == ("done", 1)
        assert lab["hoff"].poll() is None


def test_another_machine_may_have_the_name_of_one_that_is_gone(tmp_path: Path) -> None:
    with Lab(tmp_path, hosts=("hoff", "heir"), silent_s=1.0) as lab:
        heir = lab["heir"]
        heir.configure(hostname="hoff")
        lab.start("hoff")
        old = lab.beat("hoff")
        lab["hoff"].kill_alone()
        heir.start()
        lab.until(lambda: (b := lab.beat("hoff")) and old and b.boot != old.boot, "the heir's beat")


def test_systemd_hears_that_the_agent_is_up_alive_and_going(tmp_path: Path) -> None:
    address = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(address))
        systemd.settimeout(20)
        env = {"NOTIFY_SOCKET": str(address), "WATCHDOG_USEC": "600000"}
        with Lab(tmp_path, env=env) as lab:
            lab.start()
            heard: list[str] = []
            while sum("WATCHDOG=1" in line for line in heard) < 5 or "READY=1" not in heard:
                heard += systemd.recv(1000).decode().splitlines()
            assert lab["hoff"].terminate() == 0
            while "STOPPING=1" not in heard:
                heard += systemd.recv(1000).decode().splitlines()
            assert heard.count("READY=1") == 1


def test_the_log_has_one_line_per_transition(tmp_path: Path) -> None:
    with Lab(tmp_path) as lab:
        lab.start()
        job = lab.submit()
        lab.wait(job)
        hoff = lab["hoff"]
        lab.until(lambda: hoff.lines("closed"), "the job to be closed")
        for what in ("accepted", "claimed", "started", "exited", "ended", "closed"):
            (line,) = hoff.lines(what)
            assert f"job=trees/{job.id}" in line, line
        assert "task=1 attempt=1" in hoff.lines("started")[0]
        assert "outcome=done" in hoff.lines("ended")[0]
        assert "Traceback" not in hoff.log.read_text()


def test_a_beat_says_when_others_take_its_silence_for_death(tmp_path: Path) -> None:
    with Lab(tmp_path, silent_s=7.0, beat_s=0.5) as lab:
        lab.start("hoff")
        beat = lab.beat("hoff")
        assert beat is not None
        assert (beat.every_s, beat.silent_s) == (0.5, 7.0)
