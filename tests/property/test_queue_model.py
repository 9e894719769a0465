"""Several simulated nodes, each with its own clock, and everything that can go wrong between them.

Whatever happens, in whatever order: no task is lost, none ends twice, one that was stopped before
it was claimed never starts, and every state shown is explained. At the end, as long as one node
lives, everything ends; and what a zombie does after that changes nothing.
"""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from ludwig import errors, layout, queue
from ludwig.model import Outcome, Stop
from tests.hooked_drive import CutAt
from tests.property.queue_lab import HOSTS, QueueLab

CHANGES = {"create", "publish", "replace", "move", "append", "remove_folder"}
MEANWHILE = ["another node ticks", "the job is stopped", "a task is stopped"]

some_node = st.integers(0, len(HOSTS) - 1)


class QueueMachine(QueueLab):
    """Everything that can go wrong between nodes."""

    @rule(node=some_node)
    def tick(self, node: int) -> None:
        self.guarded(node, "tick")

    @rule(node=some_node, seconds=st.sampled_from([1.0, 10.0, 14.0, 70.0]))
    def time_passes(self, node: int, seconds: float) -> None:
        self.times[node % len(self.sims)] += seconds

    @rule(seconds=st.sampled_from([5.0, 14.0]), rounds=st.integers(1, 6))
    def everybody_works(self, seconds: float, rounds: int) -> None:
        for _ in range(rounds):
            for index in range(len(self.sims)):
                self.times[index] += seconds
                self.guarded(index, "tick")

    @rule(node=some_node, call=st.integers(1, 60), moment=st.sampled_from(["before", "after"]))
    def dies_in_a_tick(self, node: int, call: int, moment: str) -> None:
        if node % len(self.sims) not in self.partitioned:
            self.hooked(self.sim(node)).hook = CutAt(call, moment)  # type: ignore[arg-type]
            self.guarded(node, "tick")

    @rule(node=some_node, call=st.integers(1, 60), moment=st.sampled_from(["before", "after"]))
    def loses_an_answer(self, node: int, call: int, moment: str) -> None:
        if node % len(self.sims) not in self.partitioned:
            away = errors.DriveTimeout("testing", "somewhere")
            self.hooked(self.sim(node)).hook = CutAt(call, moment, away)  # type: ignore[arg-type]
            self.guarded(node, "tick")

    @rule(
        node=some_node, change=st.integers(1, 6), other=some_node, what=st.sampled_from(MEANWHILE)
    )
    def something_happens_in_the_middle_of_a_tick(
        self, node: int, change: int, other: int, what: str
    ) -> None:
        """Right before a node changes something on the drive, others do what they do."""
        node %= len(self.sims)
        other = (node + 1 + other % 2) % len(self.sims)
        if node in self.partitioned:
            return
        changes = 0

        def meanwhile(name: str, path: str, moment: str) -> None:
            nonlocal changes
            if name not in CHANGES or moment != "before":
                return
            changes += 1
            if changes != change:
                return
            if what == "the job is stopped":
                self.somebody_cancels(0)
            elif what == "a task is stopped":
                self.somebody_cancels(1 + other)
            elif other != node:
                self.guarded(other, "tick")

        self.hooked(self.sims[node]).hook = meanwhile
        self.guarded(node, "tick")

    @rule(node=some_node)
    def is_taken_for_dead(self, node: int) -> None:
        """It goes on running, but does not come to speak until others have taken its work."""
        frozen = node % len(self.sims)
        self.everybody_works(5.0, 1)
        for turn in range(6):
            for index, sim in enumerate(self.sims):
                self.times[index] += 14.0
                if index != frozen:
                    if turn < 4:  # then there is room for the work of the frozen one
                        self.all_exit(sim)
                    self.guarded(index, "tick")

    @rule(node=some_node, change=st.integers(1, 6), other=some_node)
    def two_race_for_an_end(self, node: int, change: int, other: int) -> None:
        self.is_taken_for_dead(node)
        for sim in self.sims:
            self.all_exit(sim)
        self.something_happens_in_the_middle_of_a_tick(node, change, other, "another node ticks")

    @rule(node=some_node, call=st.integers(1, 60), seconds=st.sampled_from([1.0, 14.0]))
    def claims_and_is_never_heard_of_again(self, node: int, call: int, seconds: float) -> None:
        self.times[node % len(self.sims)] += seconds
        self.dies_in_a_tick(node, call, "after")
        self.buried.add(node % len(self.sims))

    @rule(node=some_node)
    def is_cut_off(self, node: int) -> None:
        index = node % len(self.sims)
        self.partitioned.add(index)

        def away(name: str, path: str, moment: str) -> None:
            raise errors.DriveAway(name, path)

        self.hooked(self.sims[index]).hook = away

    @precondition(lambda self: self.partitioned)
    @rule(node=some_node)
    def is_back(self, node: int) -> None:
        index = node % len(self.sims)
        self.partitioned.discard(index)
        self.hooked(self.sims[index]).unhook()

    @rule(node=some_node)
    def crashes(self, node: int) -> None:
        self.sim(node).crashed()

    @rule(node=some_node)
    def restarts(self, node: int) -> None:
        sim = self.sim(node)
        if not sim.alive and node % len(self.sims) not in self.buried:
            sim.boot()

    @rule(node=some_node, outcome=st.sampled_from(["done", "failed"]), then=st.booleans())
    def process_exits(self, node: int, outcome: Outcome, then: bool) -> None:
        sim = self.sim(node)
        running = [key for key, held in sim.held.items() if held.phase == "running"]
        if sim.alive and running:
            sim.exits(running[0], outcome, "it said no")
            if then:
                self.tick(node)

    @rule(node=some_node)
    def drains(self, node: int) -> None:
        sim = self.sim(node)
        sim.draining = sim.alive
        for key in [key for key, held in sim.held.items() if held.phase == "claimed"]:
            self.guarded(node, "release", key, "draining")

    @precondition(lambda self: self.cancels < 2)
    @rule(pick=st.integers(0, 20))
    def somebody_cancels(self, pick: int) -> None:
        """0 is the whole job."""
        self.cancels += 1
        task = pick % len(self.tasks) + 1 if pick else None
        claimed = {layout.parse_attempt(name) for name in self.drive.list(self.files.claims_in(0))}
        queue.stop(self.drive, self.job, Stop(user="ana"), task=task)
        hit = {task} if task else set(self.tasks)
        self.stopped |= hit
        self.stopped_unclaimed |= hit - {found[0] for found in claimed if found}

    @rule(pick=st.integers(0, 20))
    def somebody_empties_a_claim(self, pick: int) -> None:
        """Looks as if its writer had died before it wrote a byte, though it may live."""
        names = sorted(self.drive.list(self.files.claims_in(0)))
        if names:
            path = self.folder / "drive" / self.files.claims_in(0) / names[pick % len(names)]
            path.write_bytes(b"")


QueueMachine.TestCase.settings = settings(
    max_examples=80,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestQueueModel = QueueMachine.TestCase


# The machine finds these too, with luck. They are the heart of the matter, so none is left to it.


def machine(*, slots: int) -> QueueMachine:
    made = QueueMachine()
    made.start(tasks=4, slots=slots, retries=1, balance=True, nodes=2, offsets=[0.0, 5e5])
    return made


def check(made: QueueMachine) -> None:
    for look in (
        made.every_task_ends_once,
        made.what_was_stopped_before_it_was_claimed_never_starts,
        made.no_attempt_is_run_by_two,
        made.nothing_in_runs_is_incomplete,
        made.every_state_is_explained,
    ):
        look()
    made.teardown()


@pytest.mark.parametrize("change", range(1, 13))
def test_a_zombie_and_its_successor_end_a_task_at_once(change: int) -> None:
    made = machine(slots=2)
    made.is_taken_for_dead(0)
    held = [{task for task, _ in sim.held} for sim in made.sims]
    assert held[0] & held[1], "they do not hold the same task: nothing is tested"
    assert not (held[0] | held[1]) & set(made.ends)
    for sim in made.sims:
        made.all_exit(sim)
    made.something_happens_in_the_middle_of_a_tick(0, change, 0, "another node ticks")
    check(made)


@pytest.mark.parametrize("change", range(1, 9))
@pytest.mark.parametrize("what", MEANWHILE)
def test_claims_race_with_stops_and_with_claims(change: int, what: str) -> None:
    made = machine(slots=4)  # room for everything: both want every task
    made.something_happens_in_the_middle_of_a_tick(0, change, 0, what)
    made.tick(1)
    check(made)
