"""The drive goes away, fills up, and comes back while agents work."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.test_agent_tasks import gate
from tests.harness import SmbServer
from tests.lab import Lab

SAVE = """
import os, time
from pathlib import Path
def main(param2val):
    print("ready", flush=True)
    {wait}
    Path(param2val["save_path"], "model").write_bytes(b"x" * {size})
    print("over", flush=True)
"""


def test_results_wait_for_the_drive_and_are_published_in_order(
    tmp_path: Path, smb_server: SmbServer
) -> None:
    run = SAVE.format(wait=gate(tmp_path), size=1000)
    with Lab(tmp_path, smb=smb_server, silent_s=3.0) as lab:
        lab.start()
        hoff = lab["hoff"]
        job = lab.submit(run, [{"lr": n} for n in range(8)])
        lab.until(lambda: "ready" in lab.log(job, 1) and "ready" in lab.log(job, 2), "two to run")
        lab.until(lambda: len(lab.claims(job)) == 4, "two more to be claimed")
        smb_server.kill()
        (tmp_path / "open").touch()
        # Without the drive: what was claimed and prepared runs, and stays here when it has ended.
        lab.until(lambda: len(hoff.lines("exited")) == 4, "all four to have ended")
        lab.until(lambda: hoff.lines("not-published") or hoff.lines("drive-trouble"), "a complaint")
        kept = [p for p in (hoff.work / "attempts").iterdir() if (p / "exit.json").exists()]
        assert len(kept) == 4
        smb_server.start()
        ends = lab.wait(job)
        assert [(d.outcome, d.attempt) for d in ends.values()] == [("done", 1)] * 8
        for task, folders in lab.runs(job).items():
            assert (folders[0] / "saves" / "model").stat().st_size == 1000
            assert lab.log(job, task) == "ready\nover\n"
        exited = [line.partition("task=")[2].split()[0] for line in hoff.lines("exited")]
        ended = [line.partition("task=")[2].split()[0] for line in hoff.lines("ended")]
        assert ended[:4] == exited[:4], "in the order in which they ended"
        assert hoff.poll() is None


def test_an_agent_that_starts_without_the_drive_waits_for_it(
    tmp_path: Path, smb_server: SmbServer
) -> None:
    with Lab(tmp_path, smb=smb_server) as lab:
        job = lab.submit()
        smb_server.kill()
        lab["hoff"].start()
        lab.until(lambda: lab["hoff"].lines("no-heartbeat"), "a complaint")
        smb_server.start()
        assert [done.outcome for done in lab.wait(job).values()] == ["done"]


def test_a_restart_while_the_drive_is_away_takes_up_what_runs(
    tmp_path: Path, smb_server: SmbServer
) -> None:
    run = SAVE.format(wait=gate(tmp_path), size=10)
    with Lab(tmp_path, smb=smb_server) as lab:
        lab.start()
        hoff = lab["hoff"]
        job = lab.submit(run)
        lab.until(lambda: "ready" in lab.log(job, 1), "it to run")
        smb_server.kill()
        hoff.kill_alone()
        hoff.start()
        lab.until(lambda: hoff.lines("taken-up"), "it to be taken up")
        (tmp_path / "open").touch()
        lab.until(lambda: hoff.lines("exited"), "its end to be noticed")
        smb_server.start()
        (done,) = lab.wait(job).values()
        assert (done.outcome, done.attempt) == ("done", 1)


@pytest.fixture
def small_drive(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.needs_root
def test_a_full_drive_is_waited_for(tmp_path: Path, small_drive: Path) -> None:
    run = SAVE.format(wait=gate(tmp_path), size=1_000_000)
    with Lab(tmp_path, drive_folder=small_drive) as lab:
        lab.start()
        hoff = lab["hoff"]
        job = lab.submit(run, [{"lr": 1}, {"lr": 2}])
        lab.until(lambda: "ready" in lab.log(job, 1) and "ready" in lab.log(job, 2), "both to run")
        filler = small_drive / "somebody's thesis"
        with filler.open("wb", buffering=0) as file, pytest.raises(OSError):
            while True:
                file.write(b"\0" * 4096)
        (tmp_path / "open").touch()
        lab.until(lambda: hoff.lines("not-published"), "a complaint")
        assert "full" in hoff.lines("not-published")[0]
        assert not any(lab.runs(job).values()), "nothing half-written in runs/"
        filler.unlink()
        ends = lab.wait(job)
        assert [(d.outcome, d.attempt) for d in ends.values()] == [("done", 1)] * 2
        lab.until(lambda: all(lab.runs(job).values()), "the runs, which are moved after the ends")
        for folders in lab.runs(job).values():
            assert (folders[0] / "saves" / "model").stat().st_size == 1_000_000


def test_a_silent_nodes_tasks_are_taken_over(tmp_path: Path) -> None:
    run = """
    import os, time
    def main(param2val):
        print("ready", flush=True)
        if os.environ["LUDWIG_ATTEMPT"] == "1" and "/hoff/work/" in os.environ["LUDWIG_STOP"]:
            time.sleep(600)
    """
    with Lab(tmp_path, hosts=("hoff", "hebb"), silent_s=1.0) as lab:
        lab.start()
        job = lab.submit(run, [{"lr": n} for n in range(6)])
        lab.until(lambda: lab["hoff"].lines("started")[1:], "hoff to be busy")
        lab["hoff"].kill()  # with all that it started: the plug was pulled
        ends = lab.wait(job)
        assert len(ends) == 6
        again = [done for done in ends.values() if done.attempt == 2]
        assert again and {done.host for done in again} == {"hebb"}
        lab.until(
            lambda: any("silent" in event.why for event in lab.events(job, "claimed")),
            "hebb's events to tell why it took over",
        )
