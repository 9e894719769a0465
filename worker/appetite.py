"""How much this node wants of a job: what can start now, and a little more.

Claims nothing itself (`claims.py` does); looks only at what is known already, never at the drive.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from ludwig import states
from ludwig.nodes import Observer
from ludwig.worker.bench import Bench
from ludwig.worker.held import Held, OpenJob
from ludwig.worker.machine import Machine

__all__ = ["Appetite"]

EARLY_S = 0.25
"""So much work may be claimed early, for each slot."""
EARLY_MAX = 4
"""So many attempts at most, for each slot."""
TOO_EARLY_S = 1.0
"""What was claimed early and has not started after this goes back to whoever is faster."""


class Appetite:
    """For whoever holds the lock of `claims.py`, and for the foreman's thread."""

    def __init__(self, host: str, *, machine: Machine, bench: Bench, observer: Observer) -> None:
        self._host, self._machine, self._bench = host, machine, bench
        self._observer = observer

    def wants_more(self, opened: OpenJob, *, lost: bool = False) -> bool:
        """Whether one more task of the job could start now, or soon when there is plenty.

        What others `lost` was begun long ago: it need not wait until nothing new is left.
        """
        if not self._machine.may_claim(opened.key, self.others_fine(opened)):
            return False
        waiting, running = self._alike(opened)
        if len(waiting) < self._machine.room(opened.job.gpus):
            return True
        ahead = self._ahead(opened, running)
        if lost:
            return ahead > 0 and len(waiting) <= ahead
        if self._machine.suspects(opened.key):  # what died here was perhaps only the beginning
            return False
        # Half of what may wait is left when more is claimed: so some are claimed at a time.
        level = max(ahead, ahead * self._depth(opened, running) // 2)
        return len(waiting) < level and self._spare(opened) > 0

    def how_many(self, opened: OpenJob) -> int:
        """How many to claim at a time. More than one only of very short tasks of our own share, and
        only of what is plentiful."""
        if self._machine.suspects(opened.key) or opened.shares.of(self._host).exhausted():
            return 1
        waiting, running = self._alike(opened)
        depth = self._depth(opened, running)
        most = self._ahead(opened, running) * depth - len(waiting)
        return max(1, min(most, self._spare(opened))) if depth > 1 else 1

    def has_enough(self, opened: OpenJob) -> bool:
        """Whether as much waits as can start soon, however long what runs may take."""
        waiting, running = self._alike(opened)
        room = self._machine.room(opened.job.gpus)
        return len(waiting) >= max(room, self._ahead(opened, running))

    def was_too_early(self, held: Held, now: float) -> bool:
        """Whether an attempt that was claimed early had better be left to another node."""
        opened = held.open_job
        if not held.early or now - held.claimed_at <= TOO_EARLY_S or len(opened.job.chunks) < 2:
            return False
        waiting, running = self._alike(opened)
        ahead = self._ahead(opened, running)
        return ahead > 0 and held in waiting[ahead:] and self._depth(opened, running) == 1

    def _alike(self, opened: OpenJob) -> tuple[list[Held], list[Held]]:
        """What waits, and what runs, on the kind of slot that the job wants."""
        needs = self._machine.needs
        wanted = needs(opened.job.gpus)
        held = self._bench.of(lambda h: needs(h.open_job.job.gpus) == wanted)
        waiting = [h for h in held if h.phase == "waiting"]
        return waiting, [h for h in held if h.phase == "running"]

    def _ahead(self, opened: OpenJob, running: Sequence[Held]) -> int:
        """For how many slots one may wait: those that our own tasks will free. Of others' we know
        nothing."""
        return min(len(running), self._machine.slots(opened.job.gpus))

    def _depth(self, opened: OpenJob, running: Sequence[Held]) -> int:
        """How many attempts may wait for each slot, as far as one can tell how long they wait."""
        now = time.monotonic()
        longest = max((now - h.started_at for h in running), default=0.0)
        pace = max(opened.pace, longest, *(h.open_job.pace for h in running))
        return max(1, min(EARLY_MAX, int(EARLY_S / max(pace, 1e-3))))

    def is_owed_a_turn(self, opened: OpenJob) -> bool:
        """Whether the job has nothing here, though it could once some of what we run has ended."""
        return (
            not self._bench.of_job(opened)
            and self._machine.fits_alone(opened.job.gpus)
            and self._machine.may_claim(opened.key, self.others_fine(opened))
            and self._has_some_for_us(opened)
        )

    def _has_some_for_us(self, opened: OpenJob) -> bool:
        """Keeping one GPU idle until another is free too is for one node only: the task's home."""
        if self._machine.needs(opened.job.gpus) < 2:
            tasks = opened.shares.claimable(self._host, balance=opened.job.balance)
            return next(tasks, None) is not None
        if not opened.shares.of(self._host).exhausted():
            return True
        now = time.monotonic()
        return any(True for _ in states.left_over(opened.view, self._observer, self._host, now))

    def _spare(self, opened: OpenJob) -> int:
        """How many could be claimed early without taking anything from anybody.

        Counts only the share that is being worked on, since of the others little is known. While
        nobody else takes from it, all of it is ours to do.
        """
        shares, mine = opened.shares, self._machine.slots(opened.job.gpus)
        share = shares.of(self._host)
        if share.exhausted():
            share = shares.of(opened.helping)
        elif not share.helped():
            return share.left() - 2 * mine
        return share.left() - 2 * max(mine, self._slots_of_all(opened, mine))

    def _slots_of_all(self, opened: OpenJob, mine: int) -> int:
        """Of a node whose heartbeat was not read, nothing better is known than our own number."""
        beats = (self._observer.beat(host) for host in opened.job.chunks)
        return sum(max(1, b.slots.gpus or b.slots.cpus) if b else max(1, mine) for b in beats)

    def others_fine(self, opened: OpenJob) -> bool:
        """Whether some other node has not set the job aside: else the job itself is at fault."""
        now = time.monotonic()
        for host in opened.job.chunks:
            if host != self._host and not self._observer.silent(host, now):
                beat = self._observer.beat(host)
                if beat is not None and opened.key not in beat.set_aside:
                    return True
        return False
