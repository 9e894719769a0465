"""A job, simulated nodes with a clock each, and what must be so whatever happens to them.

What happens is in `test_queue_model.py`.
"""

import shutil
import tempfile
from datetime import datetime
from functools import partial
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant

from ludwig import codec, errors, job_records, layout, queue, states
from ludwig.drives.folder import FolderDrive
from ludwig.model import Done, Job
from ludwig.nodes import Observer
from ludwig.view import JobView
from tests.hooked_drive import Cut, HookedDrive
from tests.jobs import tasks_in
from tests.simnode import SimNode
from tests.simsubmit import submit

SILENT_S = 60.0
HOSTS = ["hoff", "hebb", "pitts"]
FAST = Path("/dev/shm")


class QueueLab(RuleBasedStateMachine):
    """Whoever inherits this adds the rules. Its end is part of the test: `teardown`."""

    def __init__(self) -> None:
        super().__init__()
        parent = FAST if FAST.is_dir() else None
        self.folder = Path(tempfile.mkdtemp(prefix="ludwig-model-", dir=parent))
        (self.folder / "drive").mkdir()
        self.drive = FolderDrive(self.folder / "drive")
        self.sims: list[SimNode] = []
        self.ends: dict[int, bytes] = {}
        self.stopped_unclaimed: set[int] = set()
        self.stopped: set[int] = set()
        self.partitioned: set[int] = set()
        self.cancels = 0
        self.buried: set[int] = set()
        """Dead for good, unless nobody else is left at the end."""

    @initialize(
        tasks=st.integers(1, 8),
        slots=st.integers(1, 2),
        retries=st.integers(0, 2),
        balance=st.booleans(),
        nodes=st.sampled_from([1, 2, 2, 3, 3]),
        offsets=st.lists(st.floats(0, 1e6), min_size=3, max_size=3),
    )
    def start(
        self, tasks: int, slots: int, retries: int, balance: bool, nodes: int, offsets: list[float]
    ) -> None:
        hosts = HOSTS[:nodes]
        submission = submit(
            self.drive,
            "trees",
            [{"lr": index} for index in range(tasks)],
            hosts=hosts,
            nonce="submission-1",
            when=datetime(2026, 11, 18, 10),
            retries=retries,
            balance=balance,
        )
        assert submission is not None
        self.job: Job = submission.job
        self.tasks = tasks_in(self.job)
        self.files = layout.job_files("trees", self.job.job)
        params = job_records.read_params(self.drive, self.job)
        self.times = offsets[:nodes]
        self.sims = [
            SimNode(
                host=host,
                drive=HookedDrive(self.drive),
                job=self.job,
                params=params,
                disk=self.folder,
                clock=partial(self.times.__getitem__, index),
                silent_s=SILENT_S,
                slots=slots,
            )
            for index, host in enumerate(hosts)
        ]
        for sim in self.sims:
            sim.boot()
        self.client_time = 1e9
        self.client_view = JobView(self.drive, self.job)
        self.client_observer = Observer(self.drive, silent_s=SILENT_S)

    def sim(self, index: int) -> SimNode:
        return self.sims[index % len(self.sims)]

    def guarded(self, index: int, action: str, *arguments: object) -> None:
        """Let a node do something; it may die on the way, or lose the drive."""
        index %= len(self.sims)
        sim = self.sims[index]
        if not sim.alive:
            return
        try:
            getattr(sim, action)(*arguments)
        except Cut:
            sim.crashed()
        except errors.DriveAway:
            pass
        finally:
            if index not in self.partitioned:
                self.hooked(sim).unhook()

    @staticmethod
    def hooked(sim: SimNode) -> HookedDrive:
        assert isinstance(sim.drive, HookedDrive)
        return sim.drive

    # --- what must be so -----------------------------------------------------------------------

    @invariant()
    def every_task_ends_once(self) -> None:
        if not self.sims:
            return
        for name in self.drive.list(self.files.done_in(0)):
            task = layout.parse_task(name)
            assert task in self.tasks
            data = self.drive.read(self.files.done_of(task))
            assert self.ends.setdefault(task, data) == data, f"task {task} ended twice"
        assert set(self.ends) == {
            layout.parse_task(n) for n in self.drive.list(self.files.done_in(0))
        }
        for sim in self.sims:
            for done in sim.won:
                assert codec.encode(done) == self.ends[done.task], f"{sim.host} thinks it won"

    @invariant()
    def what_was_stopped_before_it_was_claimed_never_starts(self) -> None:
        started = {task for sim in self.sims for task, _ in sim.started}
        assert not started & self.stopped_unclaimed

    @invariant()
    def no_attempt_is_run_by_two(self) -> None:
        started = [key for sim in self.sims for key in sim.started]
        assert len(started) == len(set(started))

    @invariant()
    def nothing_in_runs_is_incomplete(self) -> None:
        if not self.sims:
            return
        for task, (_, spec) in self.tasks.items():
            for run in spec.runs:
                folder = layout.project_files("trees").run(run.param_name, run.job_name)
                if self.drive.exists(folder):
                    assert task in self.ends, "results of a task that has not ended"
                    self.check_complete(task, folder)

    def check_complete(self, task: int, folder: str) -> None:
        done = codec.decode(Done, self.ends[task], "done")
        assert done.outcome == "done"
        real = self.folder / "drive" / folder
        found = {p.relative_to(real).as_posix(): p for p in real.rglob("*") if p.is_file()}
        assert set(found) == {file.path for file in done.files[0]}
        for file in done.files[0]:
            assert codec.sha256(found[file.path].read_bytes()) == file.sha256

    @invariant()
    def every_state_is_explained(self) -> None:
        if not self.sims:
            return
        self.every_task_ends_once()
        self.client_time += 1.0
        self.client_observer.look(self.client_time)
        self.client_view.refresh()
        for view in (self.client_view, self.fresh_view()):
            rows = states.task_states(view, self.client_observer, self.client_time)
            assert [row.task for row in rows] == sorted(self.tasks)
            for row in rows:
                assert row.why, row
                assert (row.state in ("done", "failed")) <= (row.task in self.ends)
            numbers = states.counts(rows)
            assert sum(numbers.values()) == len(self.tasks)
            assert states.job_state(numbers) in states.STATES

    def fresh_view(self) -> JobView:
        view = JobView(self.drive, self.job)
        view.refresh()
        return view

    def teardown(self) -> None:
        try:
            if self.sims:
                self.everything_ends()
                self.zombies_change_nothing()
        finally:
            shutil.rmtree(self.folder)

    def everything_ends(self) -> None:
        living = [
            index
            for index, sim in enumerate(self.sims)
            if sim.alive and not sim.draining and index not in self.partitioned
        ]
        if not living:
            living = [0]
            self.partitioned.discard(0)
            self.hooked(self.sims[0]).unhook()
            self.sims[0].crashed()
            self.sims[0].boot()
        for _ in range(400):
            for index in range(len(self.sims)):
                self.times[index] += 14.0
                self.guarded(index, "tick")
            for index, sim in enumerate(self.sims):
                if sim.alive and index not in self.partitioned:
                    self.all_exit(sim)
            self.every_task_ends_once()
            self.nothing_in_runs_is_incomplete()
            if set(self.ends) >= set(self.tasks) - self.stopped:
                break
        missing = set(self.tasks) - self.stopped - set(self.ends)
        assert not missing, f"{missing} never ended: {self.rows()}"

    def rows(self) -> list[states.TaskStatus]:
        return states.task_states(self.fresh_view(), self.client_observer, self.client_time)

    @staticmethod
    def all_exit(sim: SimNode) -> None:
        if not sim.alive:
            return
        for key in [key for key, held in sim.held.items() if held.phase == "running"]:
            sim.exits(key, "done")

    def zombies_change_nothing(self) -> None:
        self.partitioned.clear()
        for sim in self.sims:
            self.hooked(sim).unhook()
            if sim.alive:
                self.all_exit(sim)
        for _ in range(12):
            for index in range(len(self.sims)):
                self.times[index] += 14.0
                self.guarded(index, "tick")
        self.every_task_ends_once()
        self.nothing_in_runs_is_incomplete()
        queue.roll_forward(self.drive, self.job)
        ended = [codec.decode(Done, data, "done") for data in self.ends.values()]
        for done in ended:
            run = self.tasks[done.task][1].runs[0]
            folder = layout.project_files("trees").run(run.param_name, run.job_name)
            assert self.drive.exists(folder) == (done.outcome == "done")
        left = {layout.parse_attempt(name) for name in self.drive.list(self.files.staging)}
        assert not {found[0] for found in left if found} & set(self.ends), "staging was not cleared"
