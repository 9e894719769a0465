"""The process is cut at every drive call of a submission and of an ending, one after another.

Before the call or after it took effect; dead for good, or with only the answer lost. Then somebody
goes on: the same client or node, or another one. What must hold is written at the bottom.
"""

import hashlib
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import pytest

from ludwig import codec, errors, job_records, layout, queue, registry
from ludwig.drive import Drive
from ludwig.drives.folder import FolderDrive
from ludwig.model import Done, Job
from tests.hooked_drive import Count, Cut, CutAt, HookedDrive, Moment
from tests.jobs import tasks_in
from tests.simsubmit import Submission, job_record, submit

HOSTS = ["hoff", "hebb"]
SWEEP = [{"lr": 0.1}, {"lr": 0.2}, {"lr": 0.3}]
ENOUGH = 200
"""More calls than any operation here makes."""


def cuts(
    operation: Callable[[Drive], object], fresh: Callable[[], FolderDrive], moment: Moment
) -> Iterator[tuple[FolderDrive, CutAt]]:
    """Fresh drives on which the operation was cut at call 1, 2, 3 … until it runs to its end."""
    for call in range(1, ENOUGH):
        drive = fresh()
        cut = CutAt(call, moment)
        try:
            operation(HookedDrive(drive, cut))
        except Cut:
            yield drive, cut
        else:
            assert cut.calls == call - 1, "it was cut nowhere, though it made the call"
            assert call > 5, "nothing was cut: the test tests nothing"
            return
    raise AssertionError("it never ran to its end")


@pytest.fixture
def fresh(tmp_path: Path) -> Callable[[], FolderDrive]:
    count = 0

    def make() -> FolderDrive:
        nonlocal count
        count += 1
        folder = tmp_path / f"drive{count}"
        folder.mkdir()
        return FolderDrive(folder)

    return make


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "corpora"
    folder.mkdir()
    (folder / "words.txt").write_text("the cat sat\n" * 100)
    return folder


# --- submission --------------------------------------------------------------------------------


def first(drive: Drive, data: Path) -> Submission | None:
    return submit(drive, "trees", SWEEP, hosts=HOSTS, nonce="first-submission", data=data)


def second(drive: Drive, data: Path) -> Submission | None:
    when = datetime(2026, 11, 18, 10, 0, 0)  # the same second: a clock may stand still
    return submit(
        drive, "trees", SWEEP, hosts=HOSTS, nonce="second-submission", data=data, when=when
    )


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_submission_is_there_whole_or_not_at_all(
    fresh: Callable[[], FolderDrive], data: Path, moment: Moment
) -> None:
    outcomes = set()
    for drive, cut in cuts(lambda drive: first(drive, data), fresh, moment):
        before = living_jobs(drive)
        for job in before:
            check_whole(drive, job)
        again = second(drive, data)
        after = living_jobs(drive)
        assert len(after) == 1, f"cut {cut.last}: {len(after)} jobs"
        check_whole(drive, after[0])
        assert (again is None) == bool(before), f"cut {cut.last}"
        check_names(drive, after[0])
        outcomes.add(bool(before))
    # After the last call took effect the job is there; only a cut before that loses it.
    assert outcomes == ({False} if moment == "before" else {False, True})


def test_a_submission_whose_answers_get_lost_is_repeated_by_the_same_client(
    fresh: Callable[[], FolderDrive], data: Path
) -> None:
    """Every operation may be repeated after `DriveTimeout`: by itself, with the same nonce."""
    calls = 0
    while True:
        calls += 1
        drive = fresh()
        cut = CutAt(calls, "after", errors.DriveTimeout("testing", ""))
        hooked = HookedDrive(drive, cut)
        try:
            submit_stepwise(hooked)
        except errors.DriveTimeout:  # pragma: no cover
            raise AssertionError(f"not repeated: {cut.last}") from None
        jobs = living_jobs(drive)
        assert len(jobs) == 1, cut.last
        check_whole(drive, jobs[0])
        known = registry.read_registry(drive, "trees")
        assert known.plans == 1, f"{cut.last}: promised twice"
        if not cut.last:
            assert calls > 5
            return


def submit_stepwise(drive: HookedDrive) -> None:
    """A client that repeats each step once when it lost the answer."""
    number = again(lambda: registry.reserve_job(drive, "trees"))
    hashes = [codec.params_hash(params) for params in SWEEP]

    def promise() -> dict[str, int]:
        known = registry.read_registry(drive, "trees")

        def decide(now: registry.Registry) -> tuple[dict[str, str], dict[str, int]]:
            names = now.name_new(hashes)
            return names, dict.fromkeys(names, 1)

        return dict(registry.promise(drive, known, decide, job=number, nonce="stepwise"))

    runs = again(promise)
    assert len(runs) == len(SWEEP)
    when = datetime(2026, 11, 18)
    stamp = again(lambda: registry.reserve_stamp(drive, "trees", when, "stepwise"))
    params = dict(zip(runs, SWEEP, strict=True))
    job, chunks, encoded = job_record(
        "trees", number, params, runs, hosts=HOSTS, nonce="stepwise", stamp=stamp
    )
    again(lambda: job_records.publish_job(drive, job, chunks, encoded))


T = TypeVar("T")


def again(step: Callable[[], T]) -> T:
    try:
        return step()
    except errors.DriveTimeout:
        return step()


def living_jobs(drive: Drive) -> list[Job]:
    found = []
    for number in job_records.list_jobs(drive, "trees"):
        try:
            job = job_records.read_job(drive, "trees", number)
        except errors.NotFound:
            continue
        if not job.abandoned:
            found.append(job)
    return found


def check_whole(drive: Drive, job: Job) -> None:
    """Everything that `job.json` refers to is there, byte by byte."""
    assert set(job_records.read_params(drive, job)) == {
        run.param_name for _, task in tasks_in(job).values() for run in task.runs
    }
    assert len(tasks_in(job)) == len(SWEEP)
    for host, task in tasks_in(job).values():
        job_records.read_task(drive, job, host, task)
    for folder in layout.job_files("trees", job.job).folders(tasks_in(job)):
        assert drive.exists(folder)


def check_names(drive: Drive, job: Job) -> None:
    """Names are given once, without gaps, and the job uses those of the registry."""
    known = registry.read_registry(drive, "trees")
    assert sorted(known.names) == ["param_001", "param_002", "param_003"]
    params = job_records.read_params(drive, job)
    for name, values in params.items():
        assert known.names[name] == codec.params_hash(values)


# --- ending ------------------------------------------------------------------------------------


class Ending:
    """A job with one task, claimed by hoff, whose results lie on hoff's disk."""

    def __init__(self, drive: FolderDrive, disk: Path) -> None:
        submission = submit(drive, "trees", SWEEP[:1], hosts=HOSTS, nonce="one-task-job")
        assert submission is not None
        self.job = submission.job
        self.task = tasks_in(self.job)[1][1]
        self.params = job_records.read_params(drive, self.job)
        self.folder = disk
        self.seen: set[str] = set()

    def done(self, attempt: int = 1, host: str = "hoff") -> Done:
        files = queue.manifest([self.folder])
        nonce = f"{host}-{attempt}-nonce"
        return Done(task=1, attempt=attempt, outcome="done", host=host, nonce=nonce, files=files)

    def finish(self, drive: Drive, done: Done, *, fresh: bool = False) -> bool:
        return queue.finish(
            drive,
            self.job,
            self.task,
            done,
            folders=[self.folder],
            params=self.params,
            fresh=fresh,
            seen=self.seen,
        )


@pytest.fixture(params=["files", "nothing"])
def results(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """What a run left; one that left nothing is staged in another way."""
    folder = tmp_path / "results"
    (folder / "saves").mkdir(parents=True)
    if request.param == "nothing":
        return folder
    (folder / "acc.csv").write_text("step,acc\n" + "1,0.5\n" * 50)
    (folder / "saves" / "model.pt").write_bytes(bytes(1000))
    return folder


Heir = Callable[[FolderDrive, Ending], None]


def the_same_node(drive: FolderDrive, ending: Ending) -> None:
    assert ending.finish(drive, ending.done())


def another_node(drive: FolderDrive, ending: Ending) -> None:
    queue.roll_forward(drive, ending.job)
    if queue.read_done(drive, ending.job, 1) is None:
        assert ending.finish(drive, ending.done(2, "hebb"))
    queue.roll_forward(drive, ending.job)


def another_node_then_a_zombie(drive: FolderDrive, ending: Ending) -> None:
    another_node(drive, ending)
    ended = queue.read_done(drive, ending.job, 1)
    assert ended is not None
    assert ending.finish(drive, ending.done()) == (ended.host == "hoff")


def another_node_then_a_zombie_that_suspects_nothing(drive: FolderDrive, ending: Ending) -> None:
    another_node(drive, ending)
    ended = queue.read_done(drive, ending.job, 1)
    assert ended is not None
    assert ending.finish(drive, ending.done(), fresh=True) == (ended.host == "hoff")


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize(
    "heir",
    [
        the_same_node,
        another_node,
        another_node_then_a_zombie,
        another_node_then_a_zombie_that_suspects_nothing,
    ],
)
def test_a_task_ends_once_wherever_the_node_dies(
    fresh: Callable[[], FolderDrive], results: Path, moment: Moment, heir: Heir
) -> None:
    endings: dict[str, Ending] = {}

    def prepared() -> FolderDrive:
        drive = fresh()
        endings[drive.where] = Ending(drive, results)
        return drive

    def finish(drive: Drive) -> object:
        ending = endings[drive.where]
        return ending.finish(drive, ending.done(), fresh=True)

    for drive, cut in cuts(finish, prepared, moment):
        ending = endings[drive.where]
        check_runs(drive, ending, complete=False)
        heir(drive, ending)
        check_runs(drive, ending, complete=True)
        assert not drive.list(layout.job_files("trees", ending.job.job).staging), cut.last


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_lost_answer_while_ending_is_no_loss(
    fresh: Callable[[], FolderDrive], results: Path, moment: Moment
) -> None:
    for call in range(1, ENOUGH):
        drive = fresh()
        ending = Ending(drive, results)
        cut = CutAt(call, moment, errors.DriveTimeout("testing", ""))
        hooked = HookedDrive(drive, cut)
        assert again(lambda e=ending, h=hooked: e.finish(h, e.done())), cut.last
        check_runs(drive, ending, complete=True)
        if not cut.last:
            assert call > 5
            return


def test_roll_forward_while_the_winner_stages_again_moves_nothing_half_written(
    fresh: Callable[[], FolderDrive], results: Path
) -> None:
    """The winner lost the answer to its publication and repeats itself, while others tidy up."""
    for call in range(1, ENOUGH):
        drive = fresh()
        ending = Ending(drive, results)
        hooked = HookedDrive(drive)
        queue.stage(drive, ending.job, ending.task, 1, folders=[results], params=ending.params)
        assert queue.end(drive, ending.job, ending.done())
        cut = CutAt(call, "after")
        interrupted = []

        def tidy(name: str, path: str, moment: Moment) -> None:
            try:
                cut(name, path, moment)  # noqa: B023
            except Cut:
                interrupted.append(path)  # noqa: B023
                queue.roll_forward(drive, ending.job)  # noqa: B023
                check_runs(drive, ending, complete=False)  # noqa: B023

        hooked.hook = tidy
        assert ending.finish(hooked, ending.done())
        check_runs(drive, ending, complete=True)
        if not interrupted:
            assert call > 2
            return


def test_what_somebody_removed_from_staging_is_brought_again(
    fresh: Callable[[], FolderDrive], results: Path
) -> None:
    drive = fresh()
    ending = Ending(drive, results)
    queue.stage(drive, ending.job, ending.task, 1, folders=[results], params=ending.params)
    queue.end(drive, ending.job, ending.done())
    queue.withdraw(drive, ending.job, 1, 1)
    assert ending.finish(drive, ending.done())
    check_runs(drive, ending, complete=True)


def test_roll_forward_makes_a_removed_parameter_folder_again(
    fresh: Callable[[], FolderDrive], results: Path
) -> None:
    drive = fresh()
    ending = Ending(drive, results)
    queue.stage(drive, ending.job, ending.task, 1, folders=[results], params=ending.params)
    queue.end(drive, ending.job, ending.done())
    drive.remove_folder("trees/runs/param_001")
    assert queue.roll_forward(drive, ending.job) == [1]
    check_runs(drive, ending, complete=True)


def test_parameters_that_somebody_removed_are_written_again(
    fresh: Callable[[], FolderDrive], results: Path
) -> None:
    """Though the node has seen them, and does not look again for every run."""
    drive = fresh()
    ending = Ending(drive, results)
    ending.seen.add(ending.task.runs[0].param_name)
    assert ending.finish(drive, ending.done(), fresh=True)
    check_runs(drive, ending, complete=True)


def test_the_end_of_a_run_without_files_costs_little(
    fresh: Callable[[], FolderDrive], tmp_path: Path
) -> None:
    drive, count, empty = fresh(), Count(), tmp_path / "empty"
    empty.mkdir()
    ending = Ending(drive, empty)
    run = ending.task.runs[0]
    queue.ensure_param(drive, "trees", run.param_name, ending.params[run.param_name])
    ending.seen.add(run.param_name)
    assert ending.finish(HookedDrive(drive, count), ending.done(), fresh=True)
    assert count.calls == {"make_folders": 2, "publish": 1, "move": 1, "remove_folder": 1}
    check_runs(drive, ending, complete=True)


def check_runs(drive: FolderDrive, ending: Ending, *, complete: bool) -> None:
    """`runs/` holds the run whole, once; or (unless it must) not at all."""
    run = ending.task.runs[0]
    param = Path(drive.where, layout.project_files("trees").param(run.param_name))
    folders = [path.name for path in param.iterdir() if path.is_dir()] if param.exists() else []
    if not complete and not folders:
        return
    assert folders == [run.job_name]
    assert (param / "param2val.yaml").is_file()
    done = queue.read_done(drive, ending.job, 1)
    assert done is not None
    found = {
        path.relative_to(param / run.job_name).as_posix(): sha256(path)
        for path in (param / run.job_name).rglob("*")
        if path.is_file()
    }
    assert found == {file.path: file.sha256 for file in done.files[0]}


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
