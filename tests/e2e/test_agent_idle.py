"""What an idle node costs, and a busy one; and that the loop alone speaks for the agent. In this
process."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from ludwig import job_records, layout
from ludwig.config import load_worker
from ludwig.drives.folder import FolderDrive
from ludwig.worker.agent import Agent
from tests.counting_drive import CountingDrive
from tests.harness import wait_until
from tests.lab import Lab


@contextmanager
def agent_here(lab: Lab, drive: object) -> Iterator[Agent]:
    agent = Agent(load_worker(lab["hoff"].config), drive)  # type: ignore[arg-type]
    thread = threading.Thread(target=agent.run, daemon=True)
    thread.start()
    try:
        yield agent
    finally:
        agent.stop()
        thread.join(timeout=30)
        assert not thread.is_alive()


def test_an_idle_node_asks_the_drive_for_nothing_but_its_heartbeat(tmp_path: Path) -> None:
    with Lab(tmp_path, silent_s=1.0) as lab:
        drive = CountingDrive(FolderDrive(lab.root))
        with agent_here(lab, drive) as agent:
            wait_until(agent.heart.begun.is_set, what="the first beat")
            job = lab.submit()
            lab.wait(job)  # having worked, it is idle again
            wait_until(lambda: not agent.doorman.open_jobs(), what="the job to be closed")
            drive.forget()
            wait_until(lambda: drive.number("publish") >= 8, what="eight beats", timeout=30)
            calls = dict(drive.calls)
        others = {
            (what, path): number
            for (what, path), number in calls.items()
            if not path.startswith(layout.NODES) and what != "watch"
        }
        # The watch of the job's stop files lingers for some seconds after its end.
        assert not others, others
        assert {what for what, _ in calls} <= {"publish", "remove"}, calls


SLEEP = """
import time

def main(param2val):
    time.sleep(600)
"""


def test_a_busy_node_lists_heartbeats_and_stops_and_reads_nothing(tmp_path: Path) -> None:
    with Lab(tmp_path, hosts=("hoff", "hebb"), silent_s=16.0, slots=2) as lab:
        lab.start("hebb")
        drive = CountingDrive(FolderDrive(lab.root))
        with agent_here(lab, drive) as agent:
            wait_until(agent.heart.begun.is_set, what="the first beat")
            job = lab.submit(SLEEP, [{"lr": n} for n in range(4)])
            folder = layout.job_files("trees", job.id).folder
            lab.until(lambda: len(lab.claims(job)) == 4, "all to be claimed")
            wait_until(lambda: len(agent.bench.running()) == 2, what="both slots to be in use")
            glances = [("list", layout.NODES), ("list", folder)]
            wait_until(lambda: drive.calls[glances[1]] >= 2, what="the agent to settle down")
            drive.forget()
            wait_until(lambda: drive.calls[glances[1]] >= 3, what="some glances", timeout=30)
            calls = dict(drive.calls)
            assert calls[glances[0]] in (calls[glances[1]] - 1, calls[glances[1]])
            asked = {call for call in calls if call[0] in ("list", "scan", "read", "exists")}
            assert asked == set(glances), asked
            job.cancel()
            lab.wait(job)


def test_an_agent_helps_across_buckets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """hebb has its share, and never comes to it."""
    monkeypatch.setattr(layout, "BUCKET", 3)
    with Lab(tmp_path, hosts=("hoff", "hebb"), silent_s=4.0) as lab:
        with agent_here(lab, FolderDrive(lab.root)) as agent:
            wait_until(agent.heart.begun.is_set, what="the first beat")
            job = lab.submit(params=[{"lr": n} for n in range(12)])
            ends = lab.wait(job)
            wait_until(lambda: not agent.doorman.open_jobs(), what="the job to be closed")
        assert {done.host for done in ends.values()} == {"hoff"} and len(ends) == 12
        order = [event.task for event in lab.events(job, "claimed")]
        chunks = job.status().record.chunks
        home, other = ([task.task for task in chunks[host].tasks] for host in ("hoff", "hebb"))
        assert len(other) > 3 and order == [*home, *reversed(other)]
        assert {path.name for path in (lab.job_folder(job) / "done").iterdir()} == {
            f"{bucket:04d}" for bucket in range(5)
        }


def test_an_agent_works_from_tables_and_helps_no_one_whose_table_was_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """hebb and pitts have their shares, and never come to them."""
    monkeypatch.setattr(job_records, "TABLES_FROM", 3)
    hosts = ("hoff", "hebb", "pitts")
    with Lab(tmp_path, hosts=hosts, silent_s=4.0) as lab:
        with agent_here(lab, FolderDrive(lab.root)) as agent:
            wait_until(agent.heart.begun.is_set, what="the first beat")
            real = job_records.publish_job

            def and_change(*args: Any) -> bytes:
                record = real(*args)
                path = lab.root / layout.job_files("trees", 1).table_of("hebb")
                path.write_bytes(path.read_bytes().replace(b"_num", b"_mun"))
                return record

            monkeypatch.setattr(job_records, "publish_job", and_change)
            job = lab.submit(params=[{"lr": n} for n in range(12)])
            chunks = job_records.read_job(lab.drive, "trees", job.id).chunks
            good = {*chunks["hoff"].numbers, *chunks["pitts"].numbers}
            assert len(good) < 12

            def ended() -> set[int]:
                names = (path.name for path in (lab.job_folder(job) / "done").glob("*/*"))
                return {task for name in names if (task := layout.parse_task(name))}

            lab.until(lambda: ended() == good, "all but hebb's")
            job.cancel()
            wait_until(lambda: not agent.doorman.open_jobs(), what="the job to be closed")
        assert ended() == good
        assert {path.name for path in (lab.job_folder(job) / "claims").glob("*/*")} == {
            layout.attempt_name(task, 1) for task in good
        }


def test_a_loop_that_hangs_is_not_alive_for_systemd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = tmp_path / "notify"
    monkeypatch.setenv("NOTIFY_SOCKET", str(address))
    monkeypatch.setenv("WATCHDOG_USEC", "300000")
    hung, go_on = threading.Event(), threading.Event()
    with (
        Lab(tmp_path, silent_s=1.0) as lab,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd,
    ):
        systemd.bind(str(address))
        systemd.settimeout(10)
        with agent_here(lab, FolderDrive(lab.root)) as agent:
            while b"WATCHDOG=1" not in systemd.recv(1000):
                pass

            def hang() -> None:
                hung.set()
                go_on.wait(30)

            monkeypatch.setattr(agent, "tick", hang)
            assert hung.wait(10)
            counter = agent.heart.counter
            systemd.setblocking(False)
            with pytest.raises(BlockingIOError):
                while True:
                    systemd.recv(1000)
            wait_until(lambda: agent.heart.counter >= counter + 4, what="the heart to beat on")
            with pytest.raises(BlockingIOError):
                systemd.recv(1000)
            go_on.set()


def test_an_agent_is_small(tmp_path: Path) -> None:
    with Lab(tmp_path) as lab:
        lab.start()
        lab.wait(lab.submit(params=[{"lr": n} for n in range(10)]))
        process = psutil.Process(lab["hoff"].pid)
        assert process.memory_info().rss < 80e6
        loaded = {Path(found.path).name for found in process.memory_maps()}
        assert not any("pandas" in name or "numpy" in name for name in loaded)
