"""What happens after a process has ended: its results go to the drive, and the task ends there.

One thread, in the order in which the processes ended, retried for as long as the drive is away. An
attempt's folder stays on this node's disk until its end is published, so nothing is lost in
between; the next task does not wait for any of it.
"""

from __future__ import annotations

import heapq
import logging
import queue as fifo
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from ludwig import errors, queue
from ludwig.drive import Drive
from ludwig.model import Done, Event
from ludwig.worker.bench import Bench
from ludwig.worker.endings import Endings
from ludwig.worker.foreman import CONCERNS_THE_JOB, is_gone
from ludwig.worker.held import Held
from ludwig.worker.journal import note
from ludwig.worker.prepare import Preparer
from ludwig.worker.stream import Events, Streamer
from ludwig.worker.threads import Threaded
from ludwig.worker.verdict import Failed, Released, Verdicts

__all__ = ["Publisher"]

log = logging.getLogger(__name__)

PAUSE_S, PAUSE_MAX_S = 0.1, 10.0


class Publisher(Threaded):
    """`put` hands it an attempt whose process has ended."""

    def __init__(
        self,
        drive: Drive,
        *,
        bench: Bench,
        verdicts: Verdicts,
        endings: Endings,
        preparer: Preparer,
        streamer: Streamer,
        events: Events,
        on_end: Callable[[], None],
    ) -> None:
        self._drive, self._bench = drive, bench
        self._verdicts, self._endings, self._preparer = verdicts, endings, preparer
        self._streamer, self._events, self._on_end = streamer, events, on_end
        self._queue: fifo.SimpleQueue[Held | None] = fifo.SimpleQueue()
        self._later: list[tuple[float, int, Held]] = []
        """What cannot be published for a reason of its own, and when to try again."""
        self._tries: dict[Held, int] = {}
        self._verdicts_given: dict[Held, Failed] = {}
        """Failures that could not be told yet."""
        self._stopping = threading.Event()
        super().__init__("publisher")
        self.trouble = ""
        """Why results cannot be published just now."""

    def put(self, held: Held) -> None:
        self._queue.put(held)

    def stop(self) -> None:
        """Stop after the attempt at hand. What is left is published by the next agent."""
        self._stopping.set()
        self._queue.put(None)
        self._join(20)

    # --- its thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.is_set():
            held = self._next()
            if held is not None:
                self._see_through(held)

    def _next(self) -> Held | None:
        """The next attempt, in order; what had to be put off when its time has come."""
        due = self._later[0][0] - time.monotonic() if self._later else None
        if due is not None and due <= 0:
            return heapq.heappop(self._later)[2]
        try:
            return self._queue.get(timeout=due)
        except fifo.Empty:
            return None

    def _see_through(self, held: Held) -> None:
        """Try until it is done. Whatever happens, the results stay on our disk until then.

        While the drive is away or full, everybody waits in line; what cannot be published for a
        reason of its own makes room for the others and is tried again later.
        """
        pause = PAUSE_S
        while not self._stopping.is_set():
            try:
                self.publish(held)
            except CONCERNS_THE_JOB as error:
                if not self._drop_if_gone(held):
                    self._put_off(held, str(error))
            except errors.DriveError as error:
                # `queue.finish` gives up so when folders are missing again and again.
                if error.doing == "finishing" and self._drop_if_gone(held):
                    return
                self._say(held, str(error))
                self._stopping.wait(pause)
                pause = min(pause * 2, PAUSE_MAX_S)
                continue
            except Exception as error:
                log.exception("publishing %s", held.name)
                self._put_off(held, repr(error))
            else:
                self._tries.pop(held, None)
                self.trouble = ""
            return

    def _drop_if_gone(self, held: Held) -> bool:
        """Nobody wants the results of a job that somebody removed from the drive."""
        if not is_gone(self._drive, held.open_job):
            return False
        note(log, "dropped", **held.facts, why="its job was removed from the drive")
        self._bench.drop(held)
        self._on_end()
        return True

    def _say(self, held: Held, why: str) -> None:
        trouble = f"{held.name} cannot be published: {why}"
        if trouble != self.trouble:
            note(log, "not-published", level=logging.WARNING, **held.facts, why=why)
        self.trouble = trouble

    def _put_off(self, held: Held, why: str) -> None:
        self._say(held, why)
        tries = self._tries[held] = self._tries.get(held, 0) + 1
        due = time.monotonic() + min(PAUSE_MAX_S, PAUSE_S * 2**tries)
        heapq.heappush(self._later, (due, id(held), held))

    # --- one attempt -----------------------------------------------------------------------------

    def publish(self, held: Held) -> None:
        """Bring one attempt to its end. May be repeated."""
        with suppress(*CONCERNS_THE_JOB):
            self._streamer.ship(held, final=True)
        verdict = held.decided() or self._verdicts_given.get(held) or self._verdicts.on(held)
        if isinstance(verdict, Released):
            self._endings.release(held, verdict.why)
        elif isinstance(verdict, Failed):
            self._hand_on(held, verdict)
        else:
            if fresh := held.decided() is None:
                held.decide(verdict)
            self._end(held, verdict, fresh=fresh and held.attempt == 1)
        self._on_end()

    def _hand_on(self, held: Held, verdict: Failed) -> None:
        """Tell that it failed, before a heartbeat without it tells others to take over."""
        opened = held.open_job
        if held not in self._verdicts_given:
            self._verdicts_given[held] = verdict
            failed = Event(
                what="failed", task=held.task.task, attempt=held.attempt, why=verdict.why
            )
            self._events.note(opened, failed)
        self._events.ship(opened)
        del self._verdicts_given[held]
        self._bench.drop(held, keep=True)
        opened.look_soon()

    def _end(self, held: Held, done: Done, *, fresh: bool) -> None:
        opened = held.open_job
        won = queue.finish(
            self._drive,
            opened.job,
            held.task,
            done,
            folders=self._preparer.result_folders(held),
            params=opened.params,
            fresh=fresh,
            seen=opened.params_seen,
        )
        opened.view.note_end(done.task)
        if won and done.outcome != "done":
            with suppress(errors.DriveError):
                self._preparer.clear_half_run(held)
        if won:
            ended = Event(what="ended", task=done.task, attempt=done.attempt, done=done)
            self._events.note(opened, ended)
        note(log, "ended", **held.facts, outcome=done.outcome if won else "by-another-node")
        self._bench.drop(held, keep=won and done.outcome == "failed")
