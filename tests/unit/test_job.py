"""`Job` and `Client`: waiting, logs, cancelling, and what is said when something is wrong."""

import pickle
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import ludwig
import ludwig.client
from ludwig import errors, layout
from ludwig.client.client import Client
from ludwig.client.job import EmptyJob, Job
from ludwig.client.moments import Bell, Moment
from ludwig.client.pace import Pace
from ludwig.client.progress import Lines, NotebookBar, Silent, make_display, notebook_html
from tests.fakelab import Bells, FakeLab
from tests.harness import wait_until


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeLab:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    lab = FakeLab(tmp_path)
    lab.beat("hoff")
    lab.beat("hebb")
    return lab


def held(lab: FakeLab, tasks: int = 3) -> tuple[Job, ludwig.model.Job]:
    record = lab.submit(tasks)
    lab.accept(record)
    return Job(lab.lab, "trees", record.job), record


def in_thread(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_public_names() -> None:
    assert ludwig.Client is ludwig.client.Client is Client
    for name in ludwig.client.__all__:
        assert getattr(ludwig.client, name)
    with pytest.raises(AttributeError):
        _ = ludwig.client.nonsense


def test_wait_is_woken_when_the_last_task_ends(
    lab: FakeLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, record = held(lab)
    lab.end(record, 1)
    lab.end(record, 2)
    bells = Bells(lab.drive, monkeypatch)

    def finish() -> None:
        assert bells.armed.wait(20)
        lab.end(record, 3)

    in_thread(finish)
    status = job.wait()
    assert status.ok and status.finished
    assert bells.rang[-1], "it looked because its time had come, not because it was woken"


def test_wait_gives_back_what_failed_and_raises_when_told_to(lab: FakeLab) -> None:
    job, record = held(lab)
    lab.log(record, 2, b"Traceback (most recent call last):\nZeroDivisionError: division\n")
    lab.end(record, 2, "failed", why="exit status 1")
    for task in (1, 3):
        lab.end(record, task)
    status = job.wait()
    assert not status.ok and status.finished
    assert [one.task for one in status.failed] == [2]
    with pytest.raises(errors.JobFailed, match="ZeroDivisionError: division") as caught:
        job.wait(check=True)
    assert "ludwig retry 1" in str(caught.value)
    job.lab.local = True  # there, the command would mean the lab's job 1
    with pytest.raises(errors.JobFailed, match="ZeroDivisionError: division") as caught:
        job.wait(check=True)
    assert "ludwig retry" not in str(caught.value)


def test_wait_with_a_timeout(lab: FakeLab) -> None:
    job, _ = held(lab)
    assert not job.wait(timeout=0.1).finished
    assert not job.wait(timeout=0).finished
    with pytest.raises(TimeoutError, match="3 queued"):
        job.wait(timeout=0.1, check=True)


def test_wait_for_a_cancelled_job_ends(lab: FakeLab) -> None:
    job, record = held(lab)
    lab.end(record, 1)
    job.cancel()
    status = job.wait(timeout=5)
    assert status.finished and status.counts["stopped"] == 2
    assert (lab.root / layout.job_files("trees", record.job).stop()).exists()


def test_cancel_one_task(lab: FakeLab) -> None:
    job, _ = held(lab)
    job.cancel(2)
    job.cancel(2)
    assert job.status().counts["stopped"] == 1
    with pytest.raises(errors.UsageError, match="no task 9"):
        job.cancel(9)


def test_wait_survives_the_drive_being_away(lab: FakeLab) -> None:
    job, record = held(lab)
    lab.end(record, 1)
    seen: list[Moment] = []
    gone = lab.folder / "gone"

    def watch() -> None:
        for moment in job.moments(poll_s=0.1):
            seen.append(moment)

    thread = in_thread(watch)
    wait_until(lambda: seen, what="a first look")
    lab.root.rename(gone)
    wait_until(lambda: seen[-1].away, what="a look at a drive that is away")
    gone.rename(lab.root)
    lab.end(record, 2)
    lab.end(record, 3)
    thread.join(timeout=10)
    assert not thread.is_alive()
    away = [moment for moment in seen if moment.away]
    assert away and "still mounted" in away[-1].note
    assert away[-1].status is not None and away[-1].status.counts["done"] == 1
    assert seen[-1].status and seen[-1].status.ok and not seen[-1].away


def test_logs(lab: FakeLab) -> None:
    job, record = held(lab)
    assert job.logs(1) == ""
    lab.log(record, 1, "erste Größe\n".encode())
    lab.log(record, 1, b"second try\n", attempt=2)
    assert job.logs(1) == "second try\n"
    assert job.logs(1, attempt=1) == "erste Größe\n"
    with pytest.raises(errors.UsageError, match=r"no log of an attempt 3\. There is 1, 2"):
        job.logs(1, attempt=3)
    with pytest.raises(errors.UsageError, match=r"no task 4\. Its tasks are 1 to 3"):
        job.logs(4)


def test_follow_several_tasks_until_they_end(lab: FakeLab) -> None:
    job, record = held(lab)
    lab.log(record, 1, b"one\n")
    follow = job.follow(1, 2, poll_s=0.05)
    assert str(next(follow)) == "0001 | one"
    lab.log(record, 2, b"two\n")
    lab.end(record, 1)
    assert str(next(follow)) == "0002 | two"
    lab.log(record, 2, b"three")
    lab.end(record, 2)
    assert [str(line) for line in follow] == ["0002 | three"]


def test_follow_goes_on_after_the_drive_was_away(
    lab: FakeLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[int] = []
    plain = Bell.wait

    def counted(bell: Bell, seconds: float, task: int) -> None:
        waits.append(task)
        plain(bell, seconds, task)

    monkeypatch.setattr(Bell, "wait", counted)
    job, record = held(lab, tasks=1)
    lab.log(record, 1, b"one\n")
    follow = job.follow(poll_s=0.05)
    assert next(follow).text == "one"
    gone = lab.folder / "gone"
    lab.root.rename(gone)

    def come_back() -> None:
        wait_until(lambda: len(waits) > 1, what="a look while the drive is away")
        gone.rename(lab.root)
        lab.log(record, 1, b"two\n")
        lab.end(record, 1)

    in_thread(come_back)
    assert [line.text for line in follow] == ["two"]


def test_results_of_a_job_that_only_failed_are_its_traceback(lab: FakeLab) -> None:
    job, record = held(lab, tasks=2)
    lab.log(record, 1, b"NameError: name 'x'\n")
    lab.end(record, 1, "failed", why="exit status 1")
    with pytest.raises(errors.JobFailed, match="NameError: name 'x'"):
        job.results()
    lab.end(record, 2)
    assert job.results() is not None


def test_an_empty_job_is_over(lab: FakeLab) -> None:
    job = EmptyJob(lab.lab, "trees")
    assert job.id == 0
    assert job.wait().ok and job.status().finished
    job.cancel()
    with pytest.raises(errors.UsageError, match="nothing to retry"):
        job.retry()
    with pytest.raises(errors.UsageError, match="no task 1"):
        job.logs(1)


def test_a_client_makes_its_project(lab: FakeLab) -> None:
    client = Client("shrubs", lab=lab.lab)
    assert (lab.root / "shrubs").is_dir()
    assert client.jobs() == []
    with pytest.raises(errors.UsageError, match="no jobs yet"):
        client.job()
    assert {node.host for node in client.nodes()} == {"hoff", "hebb"}
    with pytest.raises(errors.NameNotAllowed, match="by case alone"):
        Client("Shrubs", lab=lab.lab)
    with pytest.raises(errors.NameNotAllowed):
        Client("a/b", lab=lab.lab)
    assert Client("trees", lab=lab.lab).jobs() == []


def test_a_job_can_be_put_away(lab: FakeLab) -> None:
    """As people do with pickle or joblib, after a submission that left connections behind."""
    (lab.home / "src").mkdir()
    (lab.home / "src" / "model.py").write_text("LAYERS = 2\n")
    (lab.home / "run.py").write_text("def main(param2val):\n    return []\n")
    with Client("trees", lab=lab.lab) as client:
        job = client.submit(["src"], root=lab.home)
        again: Job = pickle.loads(pickle.dumps(job))
        assert again.status().total == 1
        assert client.lab.connections is not again.lab.connections


def test_job_by_number(lab: FakeLab) -> None:
    record = lab.submit(1)
    client = Client("trees", lab=lab.lab)
    assert client.job().id == client.job(record.job).id == record.job
    with pytest.raises(errors.UsageError, match="no job 7"):
        client.job(7)


def test_pace(lab: FakeLab) -> None:
    job, record = held(lab, tasks=10)
    pace = Pace()
    pace.note(job.status(), 0.0)
    assert pace.words(job.status(), 1.0) == ""
    for task in (1, 2, 3, 4):
        lab.end(record, task)
    now = job.status()
    pace.note(now, 60.0)
    assert pace.words(now, 60.0) == "4/min, 2 min left"
    fresh = Pace()
    running = lab.start(record, 5, "hoff")
    lab.beat("hoff", state="busy", running=(running,))
    fresh.note(job.status(), 0.0)
    assert fresh.words(job.status(), 0.0) == "1.4/min, 4 min left"


def test_nothing_is_drawn_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(make_display(None), Silent)
    assert isinstance(make_display(False), Silent)
    assert isinstance(make_display(True), Lines)
    assert capsys.readouterr() == ("", "")


def test_a_bar_for_notebooks(lab: FakeLab) -> None:
    job, record = held(lab)
    lab.end(record, 1)
    (moment,) = list(job.moments(timeout=0))
    text = notebook_html(moment, Pace(), ["<b> & co"])
    assert '<progress value="1" max="3">' in text
    assert "&lt;b&gt; &amp; co" in text
    assert NotebookBar is not None
