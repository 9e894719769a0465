"""A small, faithful agent without processes: for the model-based test and the simulator.

It uses the functions a real agent uses, in the order `PROTOCOL.md` asks for, and does one thing
after another in `tick`. What would be a process is an attempt in phase "running" until somebody
calls `exits`. A `Cut` or a `DriveError` may come out of any drive call: after the first the node is
dead (`crashed`, then `boot`), after the second `tick` is simply called again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ludwig import codec, errors, job_records, layout, nodes, queue, states
from ludwig.drive import Drive
from ludwig.model import (
    ATTEMPT_LIMIT,
    Beat,
    Claim,
    Done,
    Event,
    Failure,
    Job,
    Outcome,
    RunningAttempt,
    Task,
)
from ludwig.nodes import Observer
from ludwig.shares import Shares
from ludwig.view import JobView

__all__ = ["Held", "SimNode"]


@dataclass
class Held:
    """An attempt on this node. `done` is what was decided: it outlives the agent, on its disk."""

    task: Task
    attempt: int
    claim: Claim
    phase: Literal["claimed", "running", "publishing"] = "claimed"
    outcome: Outcome | None = None
    why: str = ""
    done: Done | None = None


@dataclass
class SimNode:
    """`clock` is this machine's monotonic time: nobody else's is ever asked."""

    host: str
    drive: Drive
    job: Job
    params: Mapping[str, Mapping[str, object]]
    disk: Path
    clock: Callable[[], float]
    silent_s: float = 60.0
    slots: int = 2
    alive: bool = False
    draining: bool = False
    boots: int = 0
    nonces: int = 0
    counter: int | None = None
    held: dict[tuple[int, int], Held] = field(default_factory=dict)
    intended: tuple[int, int] | None = None
    unsent: bytes = b""
    sent: int = 0
    started: list[tuple[int, int]] = field(default_factory=list)
    """Every attempt whose process was started, ever."""
    won: list[Done] = field(default_factory=list)
    """Every end that this node published, as far as it knows."""

    # --- life ----------------------------------------------------------------------------------

    def boot(self) -> None:
        """Start the agent. What was decided before it died is on its disk, the rest is gone."""
        self.alive, self.draining = True, False
        self.boots += 1
        self.counter, self.sent, self.unsent = None, 0, b""
        self.intended = None
        self.held = {key: held for key, held in self.held.items() if held.done is not None}
        self.view = JobView(self.drive, self.job)
        self.shares = Shares(self.view)
        self.observer = Observer(self.drive, silent_s=self.silent_s)
        self._note(Event(what="accepted"))

    def crashed(self) -> None:
        self.alive = False

    def tick(self) -> None:
        """One round of everything. Raises `DriveError` when the drive does: call it again."""
        self.beat()
        self.look()
        self.check_claimed()
        self.publish()
        self.end_lost_and_stopped()
        self.take_over()
        self.claim_new()
        self.check_claimed()
        self.ship()
        queue.roll_forward(self.drive, self.job)

    @property
    def boot_name(self) -> str:
        return f"boot{self.boots}"

    def _nonce(self) -> str:
        self.nonces += 1
        return f"{self.host}-{self.boots}-{self.nonces:08d}"

    # --- heartbeat -----------------------------------------------------------------------------

    def beat(self) -> None:
        if self.counter is None:
            self.counter = nodes.last_counter(self.drive, self.host)
        self.counter += 1  # a counter is used once, whatever became of it
        beat = Beat(
            host=self.host,
            boot=self.boot_name,
            counter=self.counter,
            state="draining" if self.draining else "busy" if self.held else "idle",
            running=tuple(self._listed()),
        )
        nodes.write_beat(self.drive, beat)

    def _listed(self) -> list[RunningAttempt]:
        keys: dict[tuple[int, int], Literal["waiting", "running", "publishing"]] = {}
        if self.intended:
            keys[self.intended] = "waiting"
        for key, held in self.held.items():
            keys[key] = "waiting" if held.phase == "claimed" else held.phase
        return [
            RunningAttempt(
                project=self.job.project, job=self.job.job, task=task, attempt=attempt, phase=phase
            )
            for (task, attempt), phase in keys.items()
        ]

    def look(self) -> None:
        """Heartbeats first, then the job: whoever ends a task says so before it drops it."""
        now = self.clock()
        self.observer.first_look(self.job.chunks, now)
        self.observer.look(now)
        self.view.refresh_for(self.host)

    # --- claiming ------------------------------------------------------------------------------

    @property
    def free(self) -> int:
        return 0 if self.draining else self.slots - len(self.held)

    def claim_new(self) -> None:
        if self.counter is None:
            return
        for task in self._candidates():
            if self.free <= 0:
                return
            self.claim(task, 1)

    def _candidates(self) -> Iterator[int]:
        yield from self.shares.claimable(self.host, balance=self.job.balance)
        for task in states.left_over(self.view, self.observer, self.host, self.clock()):
            if task not in self.view.claims:
                yield task

    def claim(
        self, task: int, attempt: int, *, why: str = "", failures: tuple[Failure, ...] = ()
    ) -> bool:
        assert self.counter is not None, "beat before you claim"
        key = (task, attempt)
        self.intended = key
        try:
            claim = Claim(
                host=self.host,
                boot=self.boot_name,
                beat=self.counter,
                nonce=self._nonce(),
                why=why,
                failures=failures,
            )
            won = queue.claim(self.drive, self.job, task, attempt, claim)
            self.view.note_claim(task, attempt)
            if won:
                self.held[key] = Held(self.view.tasks[task][1], attempt, claim)
                self._note(Event(what="claimed", task=task, attempt=attempt, why=why))
            return won
        finally:
            self.intended = None

    def check_claimed(self) -> None:
        """After the claim and before the start: was it stopped, or ended, in the meantime?"""
        claimed = {key: held for key, held in self.held.items() if held.phase == "claimed"}
        if not claimed:
            return
        self.view.look_at_stops()
        for key, held in claimed.items():
            task = held.task.task
            if self.view.stopped(task):
                self.decide(held, "stopped", "cancelled before it started")
            elif held.attempt > 1 and self._has_ended(task):
                del self.held[key]
            else:
                home = self.view.tasks[task][0]
                job_records.read_task(self.drive, self.job, home, held.task)
                held.phase = "running"
                self.started.append(key)

    def _has_ended(self, task: int) -> bool:
        return queue.read_done(self.drive, self.job, task) is not None

    # --- ending --------------------------------------------------------------------------------

    def exits(self, key: tuple[int, int], outcome: Outcome, why: str = "") -> None:
        """The attempt's process has ended. Happens whether or not the drive is there."""
        held = self.held[key]
        assert held.phase == "running"
        held.outcome, held.why = outcome, why
        held.phase = "publishing"
        if outcome == "done":
            folder = self.results(held)
            folder.mkdir(parents=True)
            (folder / "out.csv").write_text(f"{self.host},{held.task.task},{held.attempt}\n" * 20)
            (folder / "saves").mkdir()
            (folder / "saves" / "model.bin").write_bytes(bytes(range(256)))
            self.decide(held, "done", "")

    def results(self, held: Held) -> Path:
        return self.disk / self.host / f"{held.task.task}.{held.attempt}"

    def decide(self, held: Held, outcome: Outcome, why: str) -> None:
        """From here on the attempt ends with this very record, however often it takes."""
        failures = held.claim.failures
        if outcome == "failed":
            failures = (*failures, Failure(attempt=held.attempt, host=self.host, why=why))
        held.phase = "publishing"
        held.done = Done(
            task=held.task.task,
            attempt=held.attempt,
            outcome=outcome,
            host=self.host,
            nonce=self._nonce(),
            why=why,
            files=queue.manifest([self.results(held)]) if outcome == "done" else (),
            failures=failures,
        )

    def publish(self) -> None:
        for key, held in list(self.held.items()):
            if held.phase == "running" and self.view.stopped(held.task.task):
                self.decide(held, "stopped", "cancelled while it ran")
            if held.phase != "publishing":
                continue
            if held.done is None:
                self._after_failure(held)
            if held.done is not None:
                self._finish(held)
            self.held.pop(key, None)

    def _finish(self, held: Held) -> None:
        assert held.done is not None
        folders = [self.results(held)] if held.done.outcome == "done" else []
        won = queue.finish(
            self.drive, self.job, held.task, held.done, folders=folders, params=self.params
        )
        self.view.note_end(held.task.task)
        if won:
            self._ended(held.done)

    def _ended(self, done: Done) -> None:
        self.won.append(done)
        self._note(Event(what="ended", task=done.task, attempt=done.attempt, done=done))
        self.ship()

    def _after_failure(self, held: Held) -> None:
        """Retry here, leave it to another node, or give up. The next claim comes before the word
        that this one failed, else somebody would take it from us."""
        task = held.task.task
        failure = Failure(attempt=held.attempt, host=self.host, why=held.why)
        failures = (*held.claim.failures, failure)
        others = states.others_serving(self.view, self.observer, self.host, self.clock())
        step = states.after_failure(self.job, failures, self.host, others=bool(others))
        if self.view.stopped(task):
            self.decide(held, "stopped", "cancelled after it failed")
        elif step == "give up":
            self.decide(held, "failed", held.why)
        elif step == "retry" and held.attempt + 1 <= ATTEMPT_LIMIT:
            why = f"attempt {held.attempt} failed on {self.host}"
            self.claim(task, held.attempt + 1, why=why, failures=failures)
        else:
            self._note(Event(what="failed", task=task, attempt=held.attempt, why=held.why))
            self.ship()

    def end_lost_and_stopped(self) -> None:
        now = self.clock()
        for task, attempt, why in list(states.abandoned_stops(self.view, self.observer, now)):
            if (task, attempt) not in self.held:
                self._end(task, attempt, "stopped", why)

    def _end(
        self,
        task: int,
        attempt: int,
        outcome: Outcome,
        why: str,
        failures: tuple[Failure, ...] = (),
    ) -> None:
        done = Done(
            task=task,
            attempt=attempt,
            outcome=outcome,
            host=self.host,
            nonce=self._nonce(),
            why=why,
            failures=failures,
        )
        won = queue.end(self.drive, self.job, done)
        self.view.note_end(task)
        if won:
            self._ended(done)

    def take_over(self) -> None:
        now = self.clock()
        for retake in self._retakes(now):
            if (retake.task, retake.attempt - 1) in self.held:
                continue
            if retake.lost:
                self._end(retake.task, retake.attempt - 1, "lost", f"tried too often: {retake.why}")
                continue
            failures = retake.failures
            mine = bool(failures) and failures[-1].host == self.host
            if mine and len(failures) > self.job.retries:
                if not states.others_serving(self.view, self.observer, self.host, now):
                    last = failures[-1].why
                    self._end(retake.task, retake.attempt - 1, "failed", last, failures)
                continue
            if self.free > 0:
                self.claim(retake.task, retake.attempt, why=retake.why, failures=failures)

    def _retakes(self, now: float) -> list[states.Retake]:
        found = list(states.retakes(self.view, self.observer, self.host, now))
        if found:
            self.view.look_at_buckets({layout.bucket_of(retake.task) for retake in found})
            found = list(states.retakes(self.view, self.observer, self.host, now))
        return found

    def release(self, key: tuple[int, int], why: str) -> None:
        """Give back what has not started."""
        held = self.held.pop(key)
        self._note(Event(what="released", task=held.task.task, attempt=held.attempt, why=why))
        self.ship()

    # --- events --------------------------------------------------------------------------------

    def _note(self, event: Event) -> None:
        self.unsent += codec.encode(event)

    def ship(self) -> None:
        if self.unsent:
            files = layout.job_files(self.job.project, self.job.job)
            path = files.events_of(self.host, self.boot_name)
            self.drive.append(path, self.unsent, at=self.sent)
            self.sent += len(self.unsent)
            self.unsent = b""


def tick_all(sims: list[SimNode]) -> None:
    """A round of every node that lives; one whose drive is away just waits."""
    for sim in sims:
        if sim.alive:
            try:
                sim.tick()
            except errors.DriveAway:
                continue
