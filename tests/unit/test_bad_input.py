"""Files that make no sense, in every place of the drive.

Nothing but a `LudwigError` comes out of reading them; one bad file never hides the good ones; and
what is passed over is named.
"""

import shutil
from pathlib import Path

import msgspec
import pytest

from ludwig import codec, errors, job_records, layout, queue, records, registry, states
from ludwig.drives.folder import FolderDrive
from ludwig.model import Beat, Claim, Done, Event, Job, Plan, Refusal, Stop
from ludwig.nodes import Observer, last_counter, write_beat
from ludwig.view import JobView
from tests.bad_files import FOLDER, KINDS, PLACES, put
from tests.claiming import claimable
from tests.jobs import tasks_in
from tests.simsubmit import submit


@pytest.fixture
def job(tmp_path: Path) -> Job:
    made = submit(
        FolderDrive(tmp_path),
        "trees",
        [{"lr": index} for index in range(4)],
        hosts=["hoff", "hebb"],
        nonce="a-submission",
    )
    assert made is not None
    return made.job


@pytest.fixture
def drive(tmp_path: Path, job: Job) -> FolderDrive:
    """A drive with one file of each kind that makes sense, beside those that will not."""
    drive = FolderDrive(tmp_path)
    files = layout.job_files("trees", job.job)
    drive.make_folders(layout.NODES)
    write_beat(drive, Beat(host="hebb", boot="boot1", counter=5, state="idle"))
    claim = Claim(host="hebb", boot="boot1", beat=4, nonce="12345678")
    assert queue.claim(drive, job, 3, 1, claim)
    assert queue.end(
        drive,
        job,
        Done(task=4, attempt=1, outcome="failed", host="hebb", nonce="87654321", why="x"),
    )
    accepted = codec.encode(Event(what="accepted"))
    drive.append(files.events_of("hebb", "boot1"), accepted, at=0)
    return drive


def look_at_everything(drive: FolderDrive, job: Job) -> tuple[JobView, Observer]:
    """What agents and clients do; these never raise for the sake of a file."""
    observer = Observer(drive, silent_s=60)
    view = JobView(drive, job)
    for now in (0.0, 30.0, 100.0):
        observer.look(now)
        view.refresh()
        for row in states.task_states(view, observer, now):
            assert row.why
        claimable(view, "hoff")
        list(states.left_over(view, observer, "hoff", now))
        list(states.retakes(view, observer, "hoff", now))
        list(states.abandoned_stops(view, observer, now))
        states.others_serving(view, observer, "hoff", now)
    queue.roll_forward(drive, job)
    last_counter(drive, "hoff")
    return view, observer


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", PLACES)
def test_nothing_but_a_named_error(drive: FolderDrive, job: Job, place: str, kind: str) -> None:
    path = PLACES[place](layout.job_files("trees", job.job))
    put(drive, path, kind)
    view, observer = look_at_everything(drive, job)
    assert 4 in view.done, "a bad file hides a good one"
    assert view.claims[3] == 1
    assert view.accepted >= {"hebb"}
    assert observer.beat("hebb") is not None
    for read in (
        lambda: job_records.read_job(drive, "trees", job.job),
        lambda: job_records.read_params(drive, job),
        lambda: job_records.read_task(drive, job, "hoff", job.chunks["hoff"].tasks[0]),
        lambda: queue.read_done(drive, job, 1),
        lambda: registry.read_registry(drive, "trees"),
        lambda: codec.from_yaml(
            records.read_bytes(drive, layout.project_files("trees").param2val("param_001")), "yaml"
        ),
    ):
        try:
            read()
        except errors.Malformed as error:
            assert error.path and error.reason
        except errors.LudwigError as error:
            assert str(error)


NAMED_IN_PROBLEMS = ["claim", "done", "events", "refusal"]


@pytest.mark.parametrize("kind", ["truncated", "wrong version", "deep array", FOLDER])
@pytest.mark.parametrize("place", NAMED_IN_PROBLEMS)
def test_what_is_passed_over_is_named(drive: FolderDrive, job: Job, place: str, kind: str) -> None:
    path = PLACES[place](layout.job_files("trees", job.job))
    put(drive, path, kind)
    if place == "events" and kind != FOLDER:
        with Path(drive.where, path).open("ab") as file:
            file.write(b"\n")
    view, _ = look_at_everything(drive, job)
    assert view.problems.get(path), view.problems


@pytest.mark.parametrize("kind", ["truncated", "empty", FOLDER])
def test_a_bad_beat_is_a_problem_of_its_node_alone(drive: FolderDrive, job: Job, kind: str) -> None:
    put(drive, layout.beat_path("hoff", 3), kind)
    _, observer = look_at_everything(drive, job)
    assert "hoff.00000003.json" in observer.nodes["hoff"].problem
    assert observer.nodes["hebb"].problem == ""


def test_a_beat_that_says_it_is_another_is_not_believed(drive: FolderDrive, job: Job) -> None:
    beat = Beat(host="hebb", boot="boot9", counter=900, state="draining")
    drive.publish(layout.beat_path("hoff", 3), codec.encode(beat))
    _, observer = look_at_everything(drive, job)
    assert observer.beat("hoff") is None
    assert "hebb" in observer.nodes["hoff"].problem


@pytest.mark.parametrize("kind", KINDS)
def test_a_bad_stop_file_stops_all_the_same(drive: FolderDrive, job: Job, kind: str) -> None:
    put(drive, layout.job_files("trees", job.job).stop(), kind)
    view, _ = look_at_everything(drive, job)
    assert not view.open_tasks()
    assert not claimable(view, "hoff")


@pytest.mark.parametrize("kind", KINDS)
def test_a_bad_end_is_an_end(drive: FolderDrive, job: Job, kind: str) -> None:
    """It must not run again; that it cannot be read is said."""
    put(drive, layout.job_files("trees", job.job).done_of(1), kind)
    view, observer = look_at_everything(drive, job)
    row = next(row for row in states.task_states(view, observer, 0.0) if row.task == 1)
    assert (row.state, "cannot be read" in row.why) == ("lost", True)
    assert 1 not in claimable(view, "hoff")


def test_whole_results_are_brought_to_their_place_also_when_their_end_cannot_be_read(
    drive: FolderDrive, job: Job, tmp_path: Path
) -> None:
    results = tmp_path / "results"
    results.mkdir()
    (results / "acc.csv").write_text("1\n")
    params = job_records.read_params(drive, job)
    for number in (1, 2):
        task = tasks_in(job)[number][1]
        queue.stage(drive, job, task, 1, folders=[results], params=params)
    files = queue.manifest([results])
    good = Done(task=2, attempt=1, outcome="done", host="hoff", nonce="12345678", files=files)
    assert queue.end(drive, job, good)
    put(drive, layout.job_files("trees", job.job).done_of(1), "truncated")
    assert queue.roll_forward(drive, job) == [1, 2]
    view, observer = look_at_everything(drive, job)
    rows = states.task_states(view, observer, 0.0)
    assert {rows[0].state, rows[1].state} == {"done"}
    assert "the record of its end was lost" in rows[0].why


@pytest.mark.parametrize("kind", KINDS)
def test_a_bad_plan_stops_submissions_by_name(drive: FolderDrive, job: Job, kind: str) -> None:
    path = layout.project_files("trees").plan(2)
    put(drive, path, kind)
    with pytest.raises(errors.Malformed, match="000002"):
        registry.read_registry(drive, "trees")


@pytest.mark.parametrize("name", ["../../etc", "runs", "param_x", "", "param_1/../.."])
def test_a_plan_with_strange_names_is_refused(drive: FolderDrive, job: Job, name: str) -> None:
    plan = Plan(nonce="12345678", names={name: "0" * 64})
    drive.publish(layout.project_files("trees").plan(2), codec.encode(plan))
    with pytest.raises(errors.Malformed, match="not the name of a configuration"):
        registry.read_registry(drive, "trees")


STRANGERS = [
    "README.txt",
    ".DS_Store",
    "Thumbs.db",
    "0001.1.json",
    "1",
    "1.1",
    "00001.1",
    "0001.01",
    "0001.-1",
    "０００１.1",
    "0001.1 ",
    "con.00000001.json",
    "a..b.00000001.json",
    "hoff.1.json",
    "hoff.00000000.json",
    "con.json",
    "hoff.a\\b.jsonl",
    "hoff..jsonl",
    "hoff.b oot.jsonl",
    ".jsonl",
    "stop.",
    "stop.1",
    "stop.0099",
    "9" * 200,
]


def test_files_of_strangers_are_passed_over(drive: FolderDrive, job: Job) -> None:
    files = layout.job_files("trees", job.job)
    before, _ = look_at_everything(drive, job)
    places = [files.folder, *files.folders([1]), layout.NODES]
    project = layout.project_files("trees")
    for folder in [*places, project.jobs, project.params]:
        for name in STRANGERS:
            Path(drive.where, folder, name).write_bytes(b"hello")
    view, observer = look_at_everything(drive, job)
    assert (view.claims, view.done, view.refusals) == (before.claims, before.done, before.refusals)
    assert view.open_tasks() == before.open_tasks()
    assert set(observer.nodes) == {"hebb"}
    assert job_records.list_jobs(drive, "trees") == [job.job]
    assert registry.read_registry(drive, "trees").plans == 1


@pytest.mark.parametrize("folder", ["claims/0000", "done/0000", "events", "refused", "staging"])
def test_a_file_in_place_of_a_folder(drive: FolderDrive, job: Job, folder: str) -> None:
    real = Path(drive.where, layout.job_files("trees", job.job).folder, folder)
    shutil.rmtree(real)
    real.write_bytes(b"")
    view = JobView(drive, job)
    view.refresh()
    if folder != "staging":
        assert str(real.relative_to(drive.where)) in view.problems
    try:
        queue.roll_forward(drive, job)
    except errors.LudwigError as error:
        assert folder in str(error)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"project": "words"}, "record of words"),
        ({"job": 99}, "record of trees/99"),
        ({"entry": "../../bin/sh"}, "entry"),
        ({"entry": "/bin/sh"}, "entry"),
        ({"entry": ""}, "entry"),
    ],
)
def test_a_job_that_leads_elsewhere_is_refused(
    drive: FolderDrive, job: Job, change: dict[str, object], says: str
) -> None:
    changed = msgspec.structs.replace(job, **change)
    Path(drive.where, layout.job_files("trees", job.job).record).write_bytes(codec.encode(changed))
    with pytest.raises(errors.Malformed, match=says):
        job_records.read_job(drive, "trees", job.job)


def test_a_job_with_two_tasks_for_one_folder_is_refused(drive: FolderDrive, job: Job) -> None:
    path = Path(drive.where, layout.job_files("trees", job.job).record)
    text = path.read_text().replace("num2", "num1").replace("_hebb_", "_hoff_")
    path.write_text(text.replace("param_002", "param_001"))
    with pytest.raises(errors.Malformed, match="two runs are called"):
        job_records.read_job(drive, "trees", job.job)


def test_a_job_that_was_changed_does_not_match_its_ticket(drive: FolderDrive, job: Job) -> None:
    path = layout.job_files("trees", job.job).record
    vouched = codec.sha256(drive.read(path))
    assert job_records.read_job(drive, "trees", job.job, sha256=vouched) == job
    with Path(drive.where, path).open("ab") as file:
        file.write(b" ")
    with pytest.raises(errors.TicketRefused, match="does not match its ticket"):
        job_records.read_job(drive, "trees", job.job, sha256=vouched)


def test_a_chunk_that_was_changed_is_not_used(drive: FolderDrive, job: Job) -> None:
    path = Path(drive.where, layout.job_files("trees", job.job).chunk_of("hoff"))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(errors.Malformed, match="SHA-256"):
        job_records.read_task(drive, job, "hoff", job.chunks["hoff"].tasks[-1])


def test_a_file_larger_than_anything_of_ours_is_not_read_to_its_end(drive: FolderDrive) -> None:
    path = Path(drive.where, "huge")
    with path.open("wb") as file:
        file.truncate(1 << 40)  # sparse
    with pytest.raises(errors.Malformed, match="larger than"):
        records.read_record(Refusal, drive, "huge")


def test_an_event_line_that_never_ends_is_skipped(
    drive: FolderDrive, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ludwig.view._EVENTS_LIMIT", 1000)
    path = layout.job_files("trees", job.job).events_of("hoff", "boot1")
    accepted = codec.encode(Event(what="accepted"))
    Path(drive.where, path).write_bytes(b"x" * 2500 + b"\n" + accepted)
    view = JobView(drive, job)
    for _ in range(5):
        view.refresh()
    assert "hoff" in view.accepted
    assert view.problems[path]


def test_zeros_in_events_mean_not_yet(drive: FolderDrive, job: Job) -> None:
    path = layout.job_files("trees", job.job).events_of("hoff", "boot1")
    line = codec.encode(Event(what="accepted"))
    Path(drive.where, path).write_bytes(bytes(10) + line[10:] + line)
    view = JobView(drive, job)
    view.refresh()
    assert "hoff" not in view.accepted
    Path(drive.where, path).write_bytes(line + line)
    view.refresh()
    assert "hoff" in view.accepted
    assert path not in view.problems


def test_texts_are_cut_so_that_readers_accept_them(drive: FolderDrive, job: Job) -> None:
    why = "é\udcff" * 30_000
    done = Done(task=1, attempt=1, outcome="failed", host="hoff", nonce="12345678", why=why)
    assert queue.end(drive, job, done)
    found = queue.read_done(drive, job, 1)
    assert found is not None
    assert found.why.startswith("é?é?")
    claim = Claim(host="hoff", boot="b", beat=1, nonce="12345678", why=why)
    assert queue.claim(drive, job, 2, 1, claim)
    view = JobView(drive, job)
    view.refresh()
    assert view.owner(2) is not None


def test_what_no_reader_would_accept_is_not_written() -> None:
    with pytest.raises(errors.Malformed, match="Stop"):
        codec.encode(Stop(user="x" * 2000))
    with pytest.raises(errors.Malformed, match="Unicode"):
        codec.encode(Stop(user="\udcff"))
