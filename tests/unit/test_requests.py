"""What looking at a job costs the file server: it grows with the nodes, and with the buckets of
1,000 tasks that are not finished, but not with the tasks."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from ludwig import codec, job_records, layout, states
from ludwig.drive import Entry
from ludwig.drives.folder import FolderDrive
from ludwig.model import Beat, Claim, Done, Event, Job, RunningAttempt
from ludwig.nodes import Observer, write_beat
from ludwig.view import OTHER_BUCKETS, JobView
from tests.claiming import claimable
from tests.hooked_drive import Count, HookedDrive
from tests.simsubmit import job_record

RUNNING = 4


def busy_job(folder: Path, tasks: int, nodes: int) -> tuple[FolderDrive, Job]:
    """A job in the middle of its life: most has ended, every node runs some, the rest waits."""
    drive = FolderDrive(folder)
    hosts = [f"node{number}" for number in range(nodes)]
    job, chunks, params = job_record(
        "trees",
        1,
        {"param_001": {"lr": 1}},
        {"param_001": tasks},
        hosts=hosts,
        in_turn=False,
        nonce="12345678",
        stamp="2026-11-18-10-00-00",
    )
    job_records.publish_job(drive, job, chunks, params)
    drive.make_folders(layout.NODES)
    files = layout.job_files("trees", 1)
    root = Path(drive.where)
    for host in hosts:
        mine = [task.task for task in job.chunks[host].tasks]
        ended, running = mine[: len(mine) // 2], mine[len(mine) // 2 :][:RUNNING]
        lines = [codec.encode(Event(what="accepted"))]
        for task in ended:
            done = Done(task=task, attempt=1, outcome="done", host=host, nonce=f"nonce-{task:05d}")
            (root / files.done_of(task)).write_bytes(codec.encode(done))
            lines.append(codec.encode(Event(what="ended", task=task, attempt=1, done=done)))
        for task in [*ended, *running]:
            claim = Claim(host=host, boot="b", beat=1, nonce=f"nonce-{task:05d}")
            (root / files.claim_of(task, 1)).write_bytes(codec.encode(claim))
        (root / files.events_of(host, "b")).write_bytes(b"".join(lines))
        held = tuple(RunningAttempt(project="trees", job=1, task=t, attempt=1) for t in running)
        write_beat(drive, Beat(host=host, boot="b", counter=2, state="busy", running=held))
    return drive, job


def cost_of_looking(drive: FolderDrive, job: Job) -> tuple[Count, Count, dict[str, int]]:
    """Requests of the first look and of another one, and what was seen."""
    first, again = Count(), Count()
    hooked = HookedDrive(drive, first)
    view, observer = JobView(hooked, job), Observer(hooked, silent_s=60)
    for now, count in ((0.0, first), (1.0, again)):
        hooked.hook = count
        observer.look(now)
        view.refresh()
        rows = states.task_states(view, observer, now)
        assert not list(states.retakes(view, observer, "node0", now))
        assert claimable(view, "node0")
    return first, again, dict(states.counts(rows))


@pytest.mark.parametrize("nodes", [2, 8])
def test_ten_thousand_tasks_cost_no_more_than_eighty(tmp_path: Path, nodes: int) -> None:
    costs = []
    for tasks in (80, 10_000):
        folder = tmp_path / str(tasks)
        folder.mkdir()
        first, again, seen = cost_of_looking(*busy_job(folder, tasks, nodes))
        assert seen["done"] == tasks // 2
        assert seen["running"] == nodes * RUNNING
        costs.append((first.calls, again.calls))
    # Of two nodes' 5,000 tasks each, 1 to 2,500 and 5,001 to 7,500 have ended: three whole buckets.
    finished = 3 if nodes == 2 else 0
    for buckets, over, (first_calls, again_calls) in zip(
        (1, 11), (0, finished), costs, strict=True
    ):
        read = 2 * nodes  # the beat and the events of each node
        # Heartbeats, stops, refusals; ends, and then claims where not all tasks have ended.
        assert first_calls == {"list": 3 + 2 * buckets - over, "scan": 1, "read": read}
        # Nobody has said anything since.
        assert again_calls == {"list": 3 + 2 * (buckets - over), "scan": 1}


def test_a_bucket_whose_tasks_have_ended_is_not_listed_again(tmp_path: Path) -> None:
    drive, job = busy_job(tmp_path, 3_500, 1)
    listed: list[str] = []
    view = JobView(HookedDrive(drive, lambda name, path, moment: listed.append(path)), job)
    view.refresh()
    listed.clear()
    view.refresh()
    names = {path.rpartition("jobs/0001/")[2] for path in listed if path[-5:-3] == "/0"}
    buckets = ("0001", "0002", "0003")  # half of the tasks have ended: 1 to 1,750
    assert names - {"trees/.ludwig/jobs/0001"} == {
        f"{kind}/{bucket}" for kind in ("claims", "done") for bucket in buckets
    }


def test_a_node_lists_its_own_share_and_a_few_buckets_of_others(tmp_path: Path) -> None:
    drive, job = busy_job(tmp_path, 40_000, 20)
    count = Count()
    view = JobView(HookedDrive(drive, count), job)
    view.look_at_shares(["node3"])
    assert count.calls == {"list": 3}, "2,000 tasks in three buckets"
    assert set(range(6_001, 7_001 + RUNNING)) <= view.claims.keys(), "half have ended, some run"
    count.calls.clear()
    view.refresh_for("node3")
    assert count.calls["list"] <= 2 * (3 + OTHER_BUCKETS) + 2


def test_only_event_files_that_grew_are_read(tmp_path: Path) -> None:
    drive, job = busy_job(tmp_path, 80, 4)
    count = Count()
    view = JobView(HookedDrive(drive, count), job)
    view.refresh()
    path = layout.job_files("trees", 1).events_of("node2", "b")
    line = codec.encode(Event(what="failed", task=1, attempt=1))
    end = len(drive.read(path))
    drive.append(path, line[:10], at=end)
    count.calls.clear()
    view.look_at_events()
    assert count.calls == {"scan": 1, "read": 1} and not view.failed
    view.look_at_events()
    assert count.calls == {"scan": 2, "read": 2}, "half a line is looked at until it is whole"
    drive.append(path, line[10:], at=end + 10)
    view.look_at_events()
    assert (1, 1) in view.failed
    view.look_at_events()
    assert count.calls == {"scan": 4, "read": 3}


def test_a_size_that_lags_delays_an_event_and_never_loses_it(tmp_path: Path) -> None:
    """As a mount does for a second."""
    drive, job = busy_job(tmp_path, 80, 2)
    path = layout.job_files("trees", 1).events_of("node0", "b")
    lagging = Lagging(drive)
    view = JobView(lagging, job)
    view.refresh()
    lagging.sizes = {entry.name: entry for entry in drive.scan(layout.job_files("trees", 1).events)}
    for number, what in enumerate(("failed", "released")):
        line = codec.encode(Event(what=what, task=number + 1, attempt=1))  # type: ignore[arg-type]
        drive.append(path, line, at=len(drive.read(path)))
    view.look_at_events()
    assert not view.failed and not view.released
    lagging.sizes = {}
    view.look_at_events()
    assert (1, 1) in view.failed and (2, 1) in view.released


class Lagging(HookedDrive):
    """Tells sizes as they were."""

    sizes: Mapping[str, Entry] = {}

    def scan(self, path: str) -> list[Entry]:
        return [self.sizes.get(entry.name, entry) for entry in super().scan(path)]
