"""How an attempt leaves this node without results: given back, or ended without being started.

Whoever calls this must have won the attempt (`Bench.move`) or be about to: each attempt is ended
or given back by one thread only.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import Callable

from ludwig import errors, queue
from ludwig.drive import Drive
from ludwig.model import Done, Event, Failure, Outcome
from ludwig.worker.bench import Bench
from ludwig.worker.held import Held, OpenJob
from ludwig.worker.journal import note
from ludwig.worker.machine import Machine
from ludwig.worker.stream import Events

__all__ = ["Endings"]

log = logging.getLogger(__name__)


class Endings:
    """Safe from every thread that may wait for the drive."""

    def __init__(
        self,
        drive: Drive,
        *,
        host: str,
        bench: Bench,
        events: Events,
        machine: Machine,
        on_release: Callable[[], None],
    ) -> None:
        self._drive, self._host = drive, host
        self._bench, self._events, self._machine = bench, events, machine
        self._on_release = on_release

    def give_back(self, held: Held, why: str) -> None:
        """Release an attempt that has not started, unless it is starting just now."""
        if self._bench.move(held, "waiting", "publishing"):
            if held.trial:
                self._machine.withdrawn(held.open_job.key)
            self.release(held, why)

    def release(self, held: Held, why: str) -> None:
        """Give back an attempt without counting it as a failure: any node may claim the next."""
        self._events.note(
            held.open_job,
            Event(what="released", task=held.task.task, attempt=held.attempt, why=why),
        )
        with contextlib.suppress(errors.DriveError):
            # Later will do: an attempt that no heartbeat lists is taken over all the same.
            self._events.ship(held.open_job)
        note(log, "released", **held.facts, why=why)
        self._bench.drop(held)
        held.open_job.look_soon()
        self._on_release()

    def end_unstarted(self, held: Held, outcome: Outcome, why: str) -> None:
        """End a task whose attempt on the bench was never started."""
        if self._bench.move(held, "waiting", "publishing"):
            try:
                failures = held.claim.failures
                self.end(held.open_job, held.task.task, held.attempt, outcome, why, failures)
            except errors.DriveError:
                self._bench.move(held, "publishing", "waiting")
                raise
            self._bench.drop(held)

    def end(
        self,
        opened: OpenJob,
        task: int,
        attempt: int,
        outcome: Outcome,
        why: str,
        failures: tuple[Failure, ...] = (),
    ) -> None:
        """Publish the end of a task that nobody works on."""
        done = Done(
            task=task,
            attempt=attempt,
            outcome=outcome,
            host=self._host,
            nonce=secrets.token_hex(8),
            why=why,
            failures=failures,
        )
        if queue.end(self._drive, opened.job, done):
            self._events.note(opened, Event(what="ended", task=task, attempt=attempt, done=done))
        opened.view.note_end(task)
        note(log, "ended", job=opened.key, task=task, outcome=outcome, why=why)
