"""The record of an end is destroyed, with every copy of it: the run is not lost, and is found."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ludwig import job_records, layout, queue
from ludwig.client.job import Job
from ludwig.client.replications import take_census
from ludwig.client.results import read_results
from ludwig.client.retry import _to_retry
from ludwig.model import Done, Origin, Stop
from ludwig.registry import Registry
from ludwig.view import RECORD_LOST, JobView
from tests.fakelab import FakeLab
from tests.jobs import tasks_in

HARMS: list[Callable[[Path], object]] = [
    lambda path: path.write_bytes(b'{"version": 1, "half'),
    lambda path: path.unlink(),
]
harms = pytest.mark.parametrize("harm", HARMS, ids=["corrupted", "deleted"])


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeLab:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return FakeLab(tmp_path)


class Ended:
    """One task that hoff ended and told nobody of, before it died and came back."""

    def __init__(self, lab: FakeLab, folder: Path) -> None:
        self.lab, self.results = lab, folder / "results"
        self.record = lab.submit(1, hosts=["hoff"])
        self.task = tasks_in(self.record)[1][1]
        lab.accept(self.record, "hoff")
        lab.beat("hoff")
        lab.start(self.record, 1, "hoff")
        self.results.mkdir()
        (self.results / "acc.csv").write_text("step,acc\n0,0.5\n")
        files = queue.manifest([self.results])
        self.done = Done(
            task=1, attempt=1, outcome="done", host="hoff", nonce="hoff-nonce", files=files
        )
        self.params = job_records.read_params(lab.drive, self.record)
        paths = layout.job_files("trees", self.record.job)
        self.path = lab.root / paths.done_of(1)
        (run,) = self.task.runs
        files_of = layout.project_files("trees")
        self.run = lab.root / files_of.run(run.param_name, run.job_name)

    def finish(self) -> bool:
        return queue.finish(
            self.lab.drive,
            self.record,
            self.task,
            self.done,
            folders=[self.results],
            params=self.params,
        )

    def stage(self) -> None:
        queue.stage(
            self.lab.drive, self.record, self.task, 1, folders=[self.results], params=self.params
        )

    def job(self) -> Job:
        return Job(self.lab.lab, "trees", self.record.job)


@pytest.fixture
def ended(lab: FakeLab, tmp_path: Path) -> Ended:
    return Ended(lab, tmp_path)


@harms
def test_the_run_is_there_so_the_task_is_done(
    ended: Ended, lab: FakeLab, harm: Callable[[Path], object]
) -> None:
    assert ended.finish()
    harm(ended.path)
    lab.beat("hoff")  # it does not know of the attempt any more
    status = ended.job().wait(timeout=5)
    (row,) = status.tasks
    assert status.finished and status.ok, "nobody waits for ever"
    assert (row.state, row.why) == ("done", RECORD_LOST)
    assert str(ended.path.relative_to(lab.root)) in status.problems
    assert len(read_results(lab.drive, "trees", jobs=[ended.record.job])) == 1


@harms
def test_it_counts_as_a_replication_and_is_not_run_again(
    ended: Ended, lab: FakeLab, harm: Callable[[Path], object]
) -> None:
    assert ended.finish()
    harm(ended.path)
    lab.beat("hoff")
    ended.job().status()
    known = Registry("trees")
    known.promised[ended.record.job] = {ended.task.runs[0].param_name: 1}
    census = take_census(
        lab.drive, known, origin=Origin(user="ana", host="laptop"), nonce="census-nonce"
    )
    name = ended.task.runs[0].param_name
    assert census.needed(lab.drive, "trees", {name: 1}) == {}


def test_the_node_that_has_the_results_brings_them_though_the_end_cannot_be_read(
    ended: Ended,
) -> None:
    """Killed between the end and the move; meanwhile somebody spoilt the end."""
    ended.stage()
    queue.end(ended.lab.drive, ended.record, ended.done)
    ended.path.write_bytes(b'{"version": 1, "half')
    assert ended.finish(), "so that it tells of the end once more"
    assert (ended.run / "acc.csv").exists()


def test_what_is_staged_is_moved_though_the_end_cannot_be_read(ended: Ended) -> None:
    ended.stage()
    queue.end(ended.lab.drive, ended.record, ended.done)
    ended.path.write_bytes(b"")
    assert queue.roll_forward(ended.lab.drive, ended.record) == [1]
    assert (ended.run / "acc.csv").exists()
    assert ended.job().status().ok


def test_but_not_what_was_cancelled(ended: Ended) -> None:
    ended.stage()
    queue.stop(ended.lab.drive, ended.record, Stop(user="ana"), task=1)
    ended.path.write_bytes(b"")
    assert queue.roll_forward(ended.lab.drive, ended.record) == []
    assert not ended.run.exists()


def test_an_end_that_left_nothing_can_be_tried_again(ended: Ended) -> None:
    ended.path.write_bytes(b"")
    status = ended.job().wait(timeout=5)
    assert status.finished and [row.state for row in status.failed_tasks] == ["lost"]
    view = JobView(ended.lab.drive, ended.record)
    view.refresh()
    assert _to_retry(view, 1, None), "as `ludwig status` says"


def test_a_script_may_have_left_half_a_run(lab: FakeLab, tmp_path: Path) -> None:
    record = lab.submit(1, hosts=["hoff"], contract="script")
    (run,) = tasks_in(record)[1][1].runs
    (lab.root / layout.project_files("trees").run(run.param_name, run.job_name)).mkdir(parents=True)
    (lab.root / layout.job_files("trees", record.job).done_of(1)).write_bytes(b"")
    (row,) = Job(lab.lab, "trees", record.job).status().tasks
    assert row.state == "lost"
