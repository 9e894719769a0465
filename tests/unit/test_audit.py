"""What a user is told about files that only nodes write, a full drive, and attempts that failed."""

from pathlib import Path

import pytest
from rich.console import Console

from ludwig import layout
from ludwig.client.audit import audit
from ludwig.client.cli.show_job import job_page
from ludwig.client.lookout import Lookout
from ludwig.client.status import JobStatus
from ludwig.drive import Usage
from ludwig.layout import JobFiles
from ludwig.model import Event, Job
from ludwig.view import JobView
from tests.fakelab import FakeLab

HALF = '{"version": 1, "half'


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeLab:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return FakeLab(tmp_path)


@pytest.fixture
def job(lab: FakeLab) -> Job:
    """Task 1 was taken over by hebb and is done, task 2 is done, task 3 runs, 4 waits."""
    job = lab.submit(4)
    lab.accept(job)
    claim(lab, job, 1, "hoff")
    claim(lab, job, 1, "hebb", 2, why="attempt 1: hoff has been silent for 61 s")
    lab.end(job, 1, host="hebb", attempt=2)
    claim(lab, job, 2, "hoff")
    lab.end(job, 2)
    claim(lab, job, 3, "hoff")
    lab.beat("hoff")
    lab.beat("hebb")
    return job


def claim(lab: FakeLab, job: Job, task: int, host: str, attempt: int = 1, *, why: str = "") -> None:
    lab.start(job, task, host, attempt)
    lab.tell(job, host, Event(what="claimed", task=task, attempt=attempt, why=why))


def files(job: Job) -> JobFiles:
    return layout.job_files(job.project, job.job)


def status(lab: FakeLab, job: Job) -> JobStatus:
    return Lookout(lab.lab).job(job.project, job.job)


def page(now: JobStatus) -> str:
    console = Console(width=120, record=True, file=None)
    with console.capture() as shown:
        console.print(job_page(now))
    return " ".join(shown.get().split())


def test_nothing_is_wrong(lab: FakeLab, job: Job) -> None:
    now = status(lab, job)
    assert now.problems == {}
    assert now.as_json()["problems"] == now.as_json()["refused"] == {}


def test_why_one_attempt_was_not_enough(lab: FakeLab, job: Job) -> None:
    now = status(lab, job)
    row = now.as_json()["tasks"][0]
    assert row["why"] == "finished on hebb after 42.0 s; attempt 1: hoff has been silent for 61 s"
    assert "1 of them needed more than one attempt: 1 attempt 1: hoff has been" in page(now)
    assert now.as_json()["tasks"][1]["why"] == "finished on hoff after 42.0 s"


def test_an_attempt_that_was_not_needed_in_the_end(lab: FakeLab, job: Job) -> None:
    claim(lab, job, 3, "hebb", 2, why="attempt 1: hoff has been silent for 61 s")
    lab.end(job, 3)
    assert status(lab, job).tasks[2].why == (
        "finished on hoff after 42.0 s; attempt 2 was not needed in the end "
        "(attempt 1: hoff has been silent for 61 s)"
    )


def test_the_claim_tells_why_if_the_events_do_not(lab: FakeLab, job: Job) -> None:
    path = files(job).events_of("hebb", lab.boot)
    (lab.root / path).unlink()
    now = status(lab, job)
    assert "nobody can tell why any more" in now.tasks[0].why
    assert now.problems == {path: "hebb worked on this job, and its events are gone"}


@pytest.mark.parametrize("which", ["done", "claim", "running claim"])
def test_what_somebody_removed_is_named(lab: FakeLab, job: Job, which: str) -> None:
    paths = {
        "done": files(job).done_of(2),
        "claim": files(job).claim_of(2, 1),
        "running claim": files(job).claim_of(3, 1),
    }
    path = paths[which]
    (lab.root / path).unlink()
    now = status(lab, job)
    assert "somebody removed it" in now.problems[path]
    assert "somebody removed it" in page(now)
    assert now.counts["done"] == 2


@pytest.mark.parametrize("which", ["done", "claim"])
def test_what_was_cut_short_is_named(lab: FakeLab, job: Job, which: str) -> None:
    path = files(job).done_of(2) if which == "done" else files(job).claim_of(1, 1)
    (lab.root / path).write_text(HALF)
    assert path in status(lab, job).as_json()["problems"]


def test_events_that_were_overwritten_are_named(lab: FakeLab, job: Job) -> None:
    path = files(job).events_of("hoff", lab.boot)
    (lab.root / path).write_text(HALF)
    assert "does not tell of attempt 1 of task" in status(lab, job).problems[path]


def test_a_claim_that_is_just_being_made_is_not_trouble(lab: FakeLab, job: Job) -> None:
    (lab.root / files(job).claim_of(4, 1)).touch()
    view = JobView(lab.drive, job)
    view.refresh()
    assert audit(lab.drive, view) == {}


def test_a_full_drive_is_told_by_whoever_looks(
    lab: FakeLab, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(lab.drive), "usage", lambda _: Usage(total=10**9, free=4096))
    lab.beat("hoff", age=120)
    lookout = Lookout(lab.lab)
    (trouble,) = lookout.job(job.project, job.job).problems.values()
    assert trouble.startswith("the drive is full (0.0 MB free)")
    (hoff,) = (node for node in lookout.nodes() if node.host == "hoff")
    assert hoff.as_json()["why"] == f"silent for 2 min; {trouble}"


def test_events_of_two_nodes_are_missed_though_there_are_too_many_to_look_into_all(
    lab: FakeLab,
) -> None:
    job = lab.submit(80)
    lab.accept(job)
    for task in range(1, 81):
        lab.start(job, task, "hoff" if task <= 40 else "hebb")
        lab.end(job, task, tell=False)
    paths = [files(job).events_of(host, lab.boot) for host in ("hoff", "hebb")]
    for path in paths:
        (lab.root / path).unlink()
    assert paths == sorted(status(lab, job).problems, reverse=True)


def test_a_finished_job_tells_of_retries_though_the_events_are_gone(lab: FakeLab) -> None:
    job = lab.submit(1, hosts=["hoff"])
    lab.accept(job, "hoff")
    lab.start(job, 1, "hoff")
    claim(lab, job, 1, "hebb", 2, why="attempt 1: hoff has been silent for 61 s")
    lab.end(job, 1, host="hebb", attempt=2, tell=False)
    for path in (lab.root / files(job).events).iterdir():
        path.unlink()
    now = status(lab, job)
    assert "attempt 1 was given up" in now.tasks[0].why
    assert files(job).events_of("hebb", lab.boot) in now.problems
