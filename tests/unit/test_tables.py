"""Tasks of a large job are in tables, and nobody notices but who changes one."""

from __future__ import annotations

from pathlib import Path

import pytest

from ludwig import codec, errors, job_records, layout, states
from ludwig.drives.folder import FolderDrive
from ludwig.model import Chunk, Job, Table, TaskTable
from ludwig.nodes import Observer
from ludwig.view import JobView
from tests.hooked_drive import Count, HookedDrive
from tests.jobs import tasks_in
from tests.simnode import SimNode
from tests.simsubmit import job_record

FILES = layout.job_files("trees", 1)
HOSTS = ("hoff", "hebb", "pitts")


@pytest.fixture
def drive(tmp_path: Path) -> FolderDrive:
    return FolderDrive(tmp_path)


def publish(drive: FolderDrive, tasks: int) -> tuple[Job, Job]:
    """A job as it was meant, and as its record is on the drive."""
    meant, chunks, params = job_record(
        "trees",
        1,
        {"param_001": {"lr": 1}},
        {"param_001": tasks},
        hosts=HOSTS,
        nonce="12345678",
        stamp="2026-11-18-10-00-00",
        in_turn=False,
    )
    record = job_records.publish_job(drive, meant, chunks, params)
    return meant, job_records.read_job(drive, "trees", 1, sha256=codec.sha256(record))


def test_a_small_job_is_one_file(drive: FolderDrive) -> None:
    meant, job = publish(drive, 300)
    assert job == meant
    assert not [name for name in drive.list(FILES.chunks) if name.endswith(".json")]


def test_what_is_in_tables_reads_as_if_it_were_not(drive: FolderDrive) -> None:
    meant, job = publish(drive, 6_000)
    assert not tasks_in(job) and len(drive.read(FILES.record)) < 2_000
    tasks = job_records.tasks_of(drive, job)
    assert dict(tasks) == tasks_in(meant) and len(tasks) == 6_000
    assert [tasks.home(number) for number in (0, 1, 2_000, 2_001, 6_000, 6_001)] == [
        *(None, "hoff", "hoff", "hebb", "pitts", None)
    ]
    assert 6_001 not in tasks and "1" not in tasks
    with pytest.raises(KeyError):
        tasks[6_001]
    home, last = tasks[6_000]
    assert codec.sha256(job_records.read_task(drive, job, home, last)) == last.sha256


def test_only_the_tables_that_are_asked_for_are_read(drive: FolderDrive) -> None:
    _, job = publish(drive, 6_000)
    count = Count()
    tasks = job_records.tasks_of(HookedDrive(drive, count), job)
    assert 17 in tasks and tasks.home(5_000) == "pitts" and len(list(tasks)) == 6_000
    assert not count.calls
    assert tasks[17][0] == tasks[18][0] == "hoff"
    assert count.calls == {"read": 1}


def test_a_table_that_was_changed_is_refused(drive: FolderDrive) -> None:
    _, job = publish(drive, 6_000)
    path = Path(drive.where, FILES.table_of("hebb"))
    path.write_bytes(path.read_bytes().replace(b"_num2001", b"_num9999"))
    tasks = job_records.tasks_of(drive, job)
    assert tasks[1] and tasks[6_000]
    with pytest.raises(errors.Malformed, match="does not match the SHA-256"):
        tasks[2_001]
    view = JobView(drive, job)
    with pytest.raises(errors.Malformed, match=r"hebb\.json"):
        states.task_states(view, Observer(drive, silent_s=60), 0.0)


def vouched(job: Job, drive: FolderDrive, table: TaskTable) -> Job:
    """The job with another table of hoff's, its hash and all: as its client might have written."""
    data = codec.encode(table)
    Path(drive.where, FILES.table_of("hoff")).write_bytes(data)
    old = job.chunks["hoff"].table
    assert old is not None
    named = Table(sha256=codec.sha256(data), first=old.first, count=old.count)
    return Job(
        **{
            **{name: getattr(job, name) for name in job.__struct_fields__},
            "chunks": {**job.chunks, "hoff": Chunk(table=named)},
        }
    )


def test_a_table_may_lead_nowhere_but_into_its_project(drive: FolderDrive) -> None:
    meant, job = publish(drive, 6_000)
    tasks = list(meant.chunks["hoff"].tasks)
    first = tasks[0]
    evil = type(first)(first.task, 0, 1, first.sha256, (type(first.runs[0])("..", "num"),))
    twice = type(first)(first.task, 0, 1, first.sha256, tasks[1].runs)
    for wrong in ([evil, *tasks[1:]], tasks[1:], [twice, *tasks[1:]], tasks[::-1]):
        bad = vouched(job, drive, TaskTable(host="hoff", tasks=tuple(wrong)))
        with pytest.raises(errors.Malformed):
            job_records.tasks_of(drive, bad)[1]
    of_another = vouched(job, drive, TaskTable(host="hebb", tasks=tuple(tasks)))
    with pytest.raises(errors.Malformed):
        job_records.tasks_of(drive, of_another)[1]


def test_tables_that_overlap_are_refused(drive: FolderDrive) -> None:
    _, job = publish(drive, 6_000)
    fields = {name: getattr(job, name) for name in job.__struct_fields__}
    zeros = "0" * 64
    overlapping = Chunk(table=Table(sha256=zeros, first=2_000, count=5))
    for chunks in (
        {**job.chunks, "hebb": overlapping},
        {**job.chunks, "hebb": Chunk(tasks=job_record_tasks())},
    ):
        with pytest.raises(errors.Malformed):
            job_records.check_job(Job(**{**fields, "chunks": chunks}), "trees", 1, "job.json")


def job_record_tasks() -> tuple[object, ...]:
    job, _, _ = job_record(
        "trees", 1, {"param_001": {}}, {"param_001": 1}, hosts=["hebb"], nonce="1" * 8, stamp="x"
    )
    return job.chunks["hebb"].tasks


def test_nodes_work_from_tables(drive: FolderDrive, tmp_path: Path) -> None:
    """Real bytes over a folder: pitts runs its own, then what silent nodes have, from the back."""
    _, job = publish(drive, 5_001)
    now = [0.0]
    node = SimNode(
        host="pitts",
        drive=drive,
        job=job,
        params=job_records.read_params(drive, job),
        disk=tmp_path / "disk",
        clock=lambda: now[0],
        slots=1_700,
    )
    node.boot()
    node.tick()
    home = list(job.chunks["pitts"].numbers)
    assert [task for task, _ in node.started[: len(home)]] == home
    others = {task for task, _ in node.started[len(home) :]}
    assert others and others <= {*range(1_600, 1_668), *range(3_300, 3_335)}
    for key in [*node.held][:3] + [*node.held][-3:]:
        node.exits(key, "done")
    node.tick()
    view = JobView(drive, job)
    view.refresh()
    assert len(view.done) == 6
    rows = states.task_states(view, Observer(drive, silent_s=60), 0.0)
    assert states.counts(rows)["done"] == 6 and len(rows) == 5_001
