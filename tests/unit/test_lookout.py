"""What a user is told: jobs, nodes, and how old a heartbeat is by the server's clock."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ludwig import errors, job_records, layout, queue
from ludwig.client.lookout import Lookout, find_job, raise_unless_project, span
from ludwig.client.server_clock import PROBE, scan_nodes
from ludwig.client.status import JobStatus
from ludwig.drives.folder import FolderDrive
from ludwig.model import Origin, Stop
from tests.fakelab import FakeLab, gpu


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeLab:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return FakeLab(tmp_path)


class CountingDrive(FolderDrive):
    """Counts requests by kind."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.asked: list[tuple[str, str]] = []

    def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        self.asked.append(("read", path))
        return super().read(path, offset=offset, limit=limit)

    def list(self, path: str) -> list[str]:
        self.asked.append(("list", path))
        return super().list(path)


def test_a_job_in_all_its_states(lab: FakeLab) -> None:
    job = lab.submit(8)
    lab.accept(job)
    lab.end(job, 1)
    lab.log(job, 2, b"loading\nTraceback (most recent call last):\nValueError: no\n")
    lab.end(job, 2, "failed", why="exit status 1")
    held = lab.start(job, 3, "hoff")
    lab.beat("hoff", state="busy", running=(held,))
    lab.beat("hebb")
    queue.stop(lab.drive, job, Stop(), task=8)
    status = Lookout(lab.lab).job("trees", job.job)
    assert status.counts == {
        "queued": 4, "running": 1, "done": 1, "failed": 1, "lost": 0, "stopped": 1,
    }  # fmt: skip
    assert status.state == "running"
    assert status.over == {1, 2, 8}
    assert not status.finished and not status.ok
    (failure,) = status.failed
    assert (failure.task, failure.node, failure.why) == (2, "hoff", "exit status 1")
    assert failure.log_tail.endswith("ValueError: no")
    assert failure.log_path == str(lab.root / "trees/.ludwig/jobs/0001/logs/0000/0002.1.log")
    with pytest.raises(errors.JobFailed) as caught:
        status.check()
    assert "ValueError: no" in str(caught.value)
    assert failure.log_path in str(caught.value)


def test_an_ended_lost_task_is_over_and_one_to_be_retaken_is_not(lab: FakeLab) -> None:
    job = lab.submit(2)
    lab.accept(job)
    lab.beat("hoff", age=120)
    lab.beat("hebb")
    lab.end(job, 1, "lost", why="tried too often")
    lab.start(job, 2, "hoff")
    status = Lookout(lab.lab).job("trees", job.job)
    assert status.counts["lost"] == 2
    assert status.over == {1}
    assert [row.task for row in status.failed_tasks] == [1]
    assert "silent for 120 s" in status.tasks[1].why


def test_age_is_by_the_servers_clock_whatever_ours_says(lab: FakeLab) -> None:
    """The server's clock is an hour ahead, as far as file times go."""
    for host, age in (("hoff", 5.0), ("hebb", 100.0)):
        lab.beat(host, age=age)
    ahead = 3600.0
    for path in (lab.root / layout.NODES).iterdir():
        then = path.stat().st_mtime + ahead
        os.utime(path, (then, then))

    class Ahead(FolderDrive):
        def create(self, path: str, data: bytes) -> None:
            super().create(path, data)
            file = lab.root / path
            os.utime(file, (file.stat().st_mtime + ahead, file.stat().st_mtime + ahead))

    lab.drive = Ahead(lab.root)
    states = {node.host: node.state for node in Lookout(lab.lab).nodes()}
    assert states == {"hoff": "idle", "hebb": "silent"}


def test_a_node_is_silent_when_the_other_nodes_say_so(lab: FakeLab) -> None:
    """However often it beats: `beat_s` may have been set by hand."""
    lab.beat("hoff", age=30.0, every_s=2.0, silent_s=60.0)
    lab.beat("hebb", age=70.0, every_s=30.0, silent_s=60.0)
    lab.beat("rosen", age=70.0, every_s=30.0, silent_s=120.0)
    states = {node.host: node.state for node in Lookout(lab.lab).nodes()}
    assert states == {"hoff": "idle", "hebb": "silent", "rosen": "idle"}


def test_an_older_agent_is_judged_by_the_beats_it_promised_itself(lab: FakeLab) -> None:
    """The lab's agents were given another `node_silent_s` than this client (60 s)."""
    lab.beat("hoff", age=100.0, every_s=60.0)
    lab.beat("hebb", age=30.0, every_s=5.0)
    states = {node.host: node.state for node in Lookout(lab.lab).nodes()}
    assert states == {"hoff": "idle", "hebb": "silent"}


def test_a_beat_that_promises_nothing_is_judged_by_the_clients_own_patience(lab: FakeLab) -> None:
    lab.beat("hoff", age=50.0, every_s=0.0)
    lab.beat("hebb", age=70.0, every_s=-1.0)
    states = {node.host: node.state for node in Lookout(lab.lab).nodes()}
    assert states == {"hoff": "idle", "hebb": "silent"}


def test_a_user_who_may_not_write_compares_nodes_with_each_other(lab: FakeLab) -> None:
    lab.beat("hoff")
    lab.beat("hebb", age=100)

    class ReadOnly(FolderDrive):
        def create(self, path: str, data: bytes) -> None:
            raise errors.NoPermission("creating", path)

    lab.drive = ReadOnly(lab.root)
    states = {node.host: node.state for node in Lookout(lab.lab).nodes()}
    assert states == {"hoff": "idle", "hebb": "silent"}


def test_probes_leave_nothing_behind_and_clear_what_was_left(lab: FakeLab) -> None:
    lab.beat("hoff")
    forgotten = lab.root / layout.NODES / f"{PROBE}dead"
    forgotten.write_text("")
    os.utime(forgotten, (1, 1))
    beats, now = scan_nodes(lab.drive)
    assert now is not None and len(beats) == 1
    assert [path.name for path in (lab.root / layout.NODES).iterdir()] == [beats[0].name]


def test_nodes_that_were_never_heard_of_are_listed(lab: FakeLab) -> None:
    lab.beat("hoff", state="quarantined", why="it smells", gpus=(gpu(utilization=3.0),))
    lab.beat("guest")
    nodes = {node.host: node for node in Lookout(lab.lab).nodes()}
    assert nodes["hebb"].state == "silent" and "never heard of" in nodes["hebb"].why
    assert nodes["guest"].state == "idle"
    assert nodes["hoff"].as_json() == {
        "host": "hoff",
        "state": "quarantined",
        "why": "it smells",
        "gpus": [
            {
                "name": "NVIDIA GeForce RTX 3090",
                "utilization": 3.0,
                "memory_used": 500_000_000,
                "memory_total": 24_000_000_000,
                "temperature": 41.0,
                "power": 30.0,
            }
        ],
        "running": [],
    }


def test_finished_jobs_are_remembered(lab: FakeLab) -> None:
    for _ in range(5):
        job = lab.submit(3)
        for task in (1, 2, 3):
            lab.end(job, task)
    running = lab.submit(3)
    assert len(Lookout(lab.lab).jobs("trees")) == 6
    counting = CountingDrive(lab.root)
    lab.drive = counting
    again = Lookout(lab.lab).jobs("trees")
    assert [one.state for one in again] == ["done"] * 5 + ["queued"]
    assert {path for kind, path in counting.asked if kind == "read" and "/jobs/" in path} == {
        layout.job_files("trees", running.job).record
    }


def test_a_new_job_under_an_old_number_is_not_taken_for_the_old_one(lab: FakeLab) -> None:
    job = lab.submit(1)
    lab.end(job, 1)
    Lookout(lab.lab).jobs("trees")
    lab.drive.remove_folder(layout.job_files("trees", job.job).folder)
    lab.submit(7)
    assert [one.total for one in Lookout(lab.lab).jobs("trees")] == [7]


def test_a_cache_that_makes_no_sense_is_no_matter(lab: FakeLab, tmp_path: Path) -> None:
    job = lab.submit(1)
    lab.end(job, 1)
    Lookout(lab.lab).jobs("trees")
    (file,) = (tmp_path / "cache" / "ludwig" / "jobs").iterdir()
    for text in (b"", b"{", b'{"1": 3}', b"\xff"):
        file.write_bytes(text)
        assert [one.state for one in Lookout(lab.lab).jobs("trees")] == ["done"]


def test_looking_costs_requests_by_nodes_not_by_tasks(lab: FakeLab) -> None:
    job = lab.submit(200)
    lab.accept(job)
    lab.beat("hoff")
    lab.beat("hebb")
    for task in range(1, 190):
        lab.end(job, task)
    counting = CountingDrive(lab.root)
    lab.drive = counting
    Lookout(lab.lab).job("trees", job.job)
    assert len(counting.asked) <= 14, counting.asked


def test_only_jobs_of_a_user(lab: FakeLab) -> None:
    lab.submit(1, user="ana")
    lab.submit(1, user="bob")
    assert [one.job for one in Lookout(lab.lab).jobs("trees", user="bob")] == [2]


def test_the_last_job_is_one_that_exists(lab: FakeLab) -> None:
    lab.submit(1)
    lab.drive.make_folders(layout.job_files("trees", 2).folder)
    lab.drive.make_folders(layout.job_files("trees", 3).folder)
    job_records.abandon_job(lab.drive, "trees", 3, origin=Origin(user="", host=""), nonce="n" * 16)
    assert find_job(lab.lab, "trees", None) == 1
    assert find_job(lab.lab, "trees", 3) == 3
    assert [one.job for one in Lookout(lab.lab).jobs("trees")] == [1]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda lab: Lookout(lab).job("trees", 9), "no job 9 .* Its jobs are 1, 2"),
        (lambda lab: Lookout(lab).job("trees", 2), "being submitted just now, or"),
        (lambda lab: find_job(lab, "shrubs", None), "no project 'shrubs' .* There are: trees"),
        (lambda lab: raise_unless_project(lab, "shrubs"), "no project 'shrubs'"),
        (lambda lab: Lookout(lab).jobs("shrubs"), "no project 'shrubs'"),
    ],
)
def test_what_is_not_there(lab: FakeLab, call: Callable[[object], JobStatus], words: str) -> None:
    lab.submit(1)
    lab.drive.make_folders(layout.job_files("trees", 2).folder)
    with pytest.raises(errors.UsageError, match=words):
        call(lab.lab)


def test_files_that_make_no_sense_are_named(lab: FakeLab) -> None:
    job = lab.submit(2)
    path = layout.job_files("trees", job.job).done_of(1)
    (lab.root / path).write_text("rubbish\n")
    lab.refuse(job, "hebb", "no such interpreter")
    status = Lookout(lab.lab).job("trees", job.job)
    assert path in status.problems
    assert status.refused == {"hebb": "no such interpreter"}


def test_spans() -> None:
    texts = [span(seconds) for seconds in (3, 89, 600, 7200, 400_000)]
    assert texts == ["3 s", "89 s", "10 min", "2 h", "5 days"]


def test_one_job_that_makes_no_sense_does_not_hide_the_others(lab: FakeLab) -> None:
    for _ in range(3):
        lab.submit(1)
    path = layout.job_files("trees", 3).record
    (lab.root / path).write_text("{}")
    lookout = Lookout(lab.lab)
    assert [one.job for one in lookout.jobs("trees")] == [1, 2]
    assert list(lookout.problems) == [path]
    assert find_job(lab.lab, "trees", None) == 2
