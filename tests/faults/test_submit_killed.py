"""The real `submit()`, killed with SIGKILL at every step; the second one completes.

Also: two processes that submit at the same time to one project.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from ludwig import errors, job_records, layout, registry
from ludwig.client.lab import Lab
from ludwig.client.submit import Submission, Submitted, submit
from ludwig.client.upload import Inboxes
from ludwig.config import DriveConfig, LabConfig, NodeConfig
from ludwig.drives import write_format
from ludwig.drives.folder import FolderDrive
from ludwig.model import Origin
from ludwig.view import JobView
from tests.hooked_drive import Hook, HookedDrive
from tests.jobs import tasks_in

HOSTS = ("hoff", "hebb")
PROJECT = "trees"
SWEEP = [{"lr": 0.1}, {"lr": 0.2}, {"lr": 0.3}]
REPS = 2


class Place:
    """A folder with a drive, two inboxes and a user's project."""

    def __init__(self, folder: Path) -> None:
        self.drive_folder, self.root = folder / "drive", folder / "project"
        self.inboxes = {host: folder / "inboxes" / host for host in HOSTS}
        for path in (self.drive_folder, self.root / "src", *self.inboxes.values()):
            path.mkdir(parents=True)
        (self.root / "run.py").write_text("def main(param2val):\n    return []\n")
        (self.root / "src" / "model.py").write_text("LAYERS = 2\n")
        (self.root / "corpora").mkdir()
        (self.root / "corpora" / "words.txt").write_text("to be or not to be\n")
        write_format(FolderDrive(self.drive_folder))

    def lab(self, hook: Hook | None = None) -> Lab:
        drive = FolderDrive(self.drive_folder)
        nodes = {h: NodeConfig(address=f"folder:{path}") for h, path in self.inboxes.items()}
        config = LabConfig(drive=DriveConfig(url=str(self.drive_folder)), nodes=nodes)
        return Lab(config, HookedDrive(drive, hook) if hook else drive)

    def submit(self, hook: Hook | None = None, sweep: list[dict[str, float]] = SWEEP) -> Submitted:
        submission = Submission(
            src_ps=[Path("src")],
            data_ps=[Path("corpora")],
            param2val_list=sweep,
            reps=REPS,
            root=self.root,
        )
        return submit(self.lab(hook), PROJECT, submission)

    def jobs(self) -> list[JobView]:
        """Every job that exists, each whole."""
        drive = FolderDrive(self.drive_folder)
        views = []
        for number in job_records.list_jobs(drive, PROJECT):
            try:
                job = job_records.read_job(drive, PROJECT, number)
            except errors.NotFound:
                continue
            if job.abandoned:
                continue
            assert job_records.read_params(drive, job)
            for home, task in tasks_in(job).values():
                assert job_records.read_task(drive, job, home, task)
            view = JobView(drive, job)
            view.refresh()
            views.append(view)
        return views


def in_a_child(action: Callable[[], object]) -> int:
    """Run something in a process of its own; its exit code, or minus the signal that ended it."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            action()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


class KillAt:
    """SIGKILL for this process at the n-th step, before or after it took effect."""

    def __init__(self, n: int, moment: str) -> None:
        self.n, self.moment, self.steps = n, moment, 0

    def __call__(self, name: str, path: str, moment: str) -> None:
        if moment == "before":
            self.steps += 1
        if self.steps == self.n and moment == self.moment:
            os.kill(os.getpid(), signal.SIGKILL)


def check_complete(place: Place) -> None:
    """Each configuration has its replications once, and every job its tickets and source."""
    views = place.jobs()
    runs = Counter(
        run.param_name for view in views for _, t in tasks_in(view.job).values() for run in t.runs
    )
    assert dict(runs) == {f"param_00{n}": REPS for n in (1, 2, 3)}
    for view in views:
        for host in view.job.chunks:
            inbox = place.inboxes[host]
            assert (inbox / layout.inbox.ticket(PROJECT, view.job.job)).is_file()
            assert (inbox / layout.inbox.source(view.job.source)).is_file()
    known = registry.read_registry(FolderDrive(place.drive_folder), PROJECT)
    assert sorted(known.names) == ["param_001", "param_002", "param_003"]


def steps_of_a_submission(folder: Path) -> int:
    counter = KillAt(0, "never")
    Place(folder).submit(counter)
    return counter.steps


@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_at_every_drive_call(tmp_path: Path, moment: str) -> None:
    steps = steps_of_a_submission(tmp_path / "count")
    assert steps > 20
    for n in range(1, steps + 1):
        place = Place(tmp_path / str(n))
        code = in_a_child(lambda: place.submit(KillAt(n, moment)))  # noqa: B023
        assert code == -signal.SIGKILL, f"step {n} was not reached"
        place.submit()
        check_complete(place)
        assert place.submit().job is None, "a third one has nothing to do"


@pytest.mark.parametrize("method", ["connect", "send_source", "send_tickets"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_while_talking_to_nodes(tmp_path: Path, method: str, moment: str) -> None:
    place = Place(tmp_path)

    def killed() -> None:
        real = getattr(Inboxes, method)

        def deadly(*arguments: object, **options: object) -> object:
            if moment == "after":
                real(*arguments, **options)
            os.kill(os.getpid(), signal.SIGKILL)

        setattr(Inboxes, method, deadly)
        place.submit()

    assert in_a_child(killed) == -signal.SIGKILL
    second = place.submit()
    check_complete(place)
    if method == "send_tickets":
        assert second.job is None
        assert second.completed == (1,), "the job was there, and its tickets are sent again"


def test_a_submission_that_was_given_up_is_told_so(tmp_path: Path) -> None:
    place = Place(tmp_path)

    def abandon(name: str, path: str, moment: str) -> None:
        if (name, moment) == ("publish", "before") and path.endswith("job.json"):
            lab = place.lab()
            job_records.abandon_job(
                lab.drive,
                PROJECT,
                1,
                origin=Origin(user="ben", host="elsewhere"),
                nonce="0123456789",
            )

    with pytest.raises(errors.SubmitError, match="submit again"):
        place.submit(abandon)
    assert place.jobs() == []
    place.submit()
    check_complete(place)


def test_two_processes_submit_twenty_jobs_each(tmp_path: Path) -> None:
    place = Place(tmp_path)

    def twenty(offset: int) -> None:
        for n in range(20):
            place.submit(sweep=[{"lr": offset + n / 100}, {"lr": 0.5}])

    children = []
    for offset in (1, 2):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                twenty(offset)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        children.append(pid)
    for pid in children:
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
    views = place.jobs()
    assert len({view.job.job for view in views}) == len(views) == 40
    known = registry.read_registry(FolderDrive(place.drive_folder), PROJECT)
    assert len(set(known.names.values())) == len(known.names) == 41
    assert sorted(known.names) == [f"param_{n:03d}" for n in range(1, 42)]
    runs = [run for v in views for _, t in tasks_in(v.job).values() for run in t.runs]
    assert Counter(Counter(run.param_name for run in runs).values()) == {REPS: 41}
    # People seed with job_name: no two replications share one, of whatever configuration and job.
    assert len({run.job_name for run in runs}) == len(runs)
