"""Which attempts this node claims: its own chunk first, then others', then what others left.

Decides with `ludwig.shares`, `ludwig.states`, `appetite.py` (how many) and `looks.py`; owns what is
known of other nodes. Called by the foreman's thread, and by the publisher's for the next attempt at
what failed; one lock keeps them apart, and nobody else may wait for it: it is held during calls to
the drive.
"""

from __future__ import annotations

import logging
import random
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from ludwig import errors, layout, queue, states
from ludwig.config import WorkerConfig
from ludwig.drive import Drive
from ludwig.model import Claim, Event, Failure, Task
from ludwig.nodes import Observer
from ludwig.shares import Share
from ludwig.worker import looks
from ludwig.worker.appetite import Appetite
from ludwig.worker.bench import Bench
from ludwig.worker.endings import Endings
from ludwig.worker.held import OpenJob
from ludwig.worker.journal import note
from ludwig.worker.machine import Machine
from ludwig.worker.prepare import Preparer
from ludwig.worker.stream import Events

__all__ = ["Claims"]

log = logging.getLogger(__name__)

HELP_CHOICE = 8
"""Of so many nodes, the one with the most left is helped. In a small lab these are all."""
MISSES = 8
"""After so many tasks that others were first to claim, or have, a listing tells more cheaply."""
WHY_LIMIT = 900


class Claims:
    """Puts what it claims on the bench."""

    def __init__(
        self,
        config: WorkerConfig,
        drive: Drive,
        *,
        boot: str,
        machine: Machine,
        bench: Bench,
        events: Events,
        preparer: Preparer,
        endings: Endings,
        beat_counter: Callable[[], int],
    ) -> None:
        self._config, self._drive, self._boot = config, drive, boot
        self._host = config.hostname
        self._machine, self._bench = machine, bench
        self._events, self._preparer, self._endings = events, preparer, endings
        self._beat_counter = beat_counter
        self.lock = threading.RLock()
        self.observer = Observer(drive, silent_s=config.drive.node_silent_s)
        self.appetite = Appetite(self._host, machine=machine, bench=bench, observer=self.observer)
        self._lot = random.random()  # noqa: S311
        """Decides whether this node watches the heartbeats of a large lab while it is busy."""

    # --- what nobody has claimed ---------------------------------------------------------------

    def claim_next(self, opened: OpenJob) -> bool:
        """Claim a task of a job that nobody has claimed yet. False when there is none.

        Of a job with very short tasks, some more: so the looks that follow are for all of them.
        """
        with self.lock:
            claimed, wanted = 0, self.appetite.how_many(opened)
            for task in self._unclaimed(opened):
                early = self.appetite.has_enough(opened)
                claimed += self._claim(opened, opened.tasks[task][1], 1, early=early)
                if claimed >= wanted:
                    break
            return claimed > 0

    def _unclaimed(self, opened: OpenJob) -> Iterator[int]:
        """Home first; then, having looked, from the back of one who has much left."""
        shares = opened.shares
        yield from self._one_by_one(opened, self._host, shares.of(self._host).first)
        if opened.job.balance:
            while home := self._whom_to_help(opened):
                yield from self._one_by_one(opened, home, shares.of(home).last)
            return
        now = time.monotonic()
        for task in states.left_over(opened.view, self.observer, self._host, now):
            if task not in opened.view.claims:
                yield task

    def _one_by_one(
        self, opened: OpenJob, home: str, following: Callable[[], int | None]
    ) -> Iterator[int]:
        """Whoever asks for another one was too late for the one before."""
        missed = 0
        while (task := following()) is not None:
            yield task
            missed += 1
            if missed % MISSES == 0:
                self._look_at_shares(opened, [home], time.monotonic())

    def _whom_to_help(self, opened: OpenJob) -> str:
        """One node is helped until nothing is left there, so that only its claims are listed; then
        the one of a few with the most left. "" when nothing is left that we know of."""
        now, shares = time.monotonic(), opened.shares
        if shares.of(opened.helping).exhausted():
            opened.helping = self._fullest_of_some(opened, now)
            if opened.helping and not self._can_read(opened, opened.helping):
                return self._whom_to_help(opened)
        elif now - opened.claims_seen >= looks.help_s(len(opened.job.chunks)):
            self._look_at_shares(opened, [opened.helping], now)
        return opened.helping

    def _fullest_of_some(self, opened: OpenJob, now: float) -> str:
        """Looks at some homes, one after the other, until something is left. Those whose tasks are
        in the same buckets were looked at too."""
        shares, view = opened.shares, opened.view
        others = shares.others(self._host)
        listed: set[int] = set()
        found: list[str] = []
        for home in random.sample(others, min(HELP_CHOICE, len(others))):
            if listed.issuperset(view.buckets_of(home)):
                continue
            self._look_at_shares(opened, [home], now)
            listed.update(view.buckets_of(home))
            homes = view.homes_in(listed)
            found = [one for one in homes if one != self._host and not shares.of(one).exhausted()]
            if found and len(homes) >= HELP_CHOICE:
                break
        return shares.fullest(random.sample(found, min(HELP_CHOICE, len(found))))

    def _can_read(self, opened: OpenJob, home: str) -> bool:
        """Whether a home's table of tasks is what the job says. Who changed it shall not keep us
        from helping others."""
        try:
            opened.tasks.load(home)
        except errors.Malformed as error:
            note(log, "not-helped", level=logging.WARNING, job=opened.key, home=home, why=error)
            opened.shares.give_up(home)
            return False
        return True

    def _look_at_shares(self, opened: OpenJob, homes: list[str], now: float) -> None:
        opened.view.look_at_shares(homes)
        opened.claims_seen = now

    def _claim(
        self,
        opened: OpenJob,
        task: Task,
        attempt: int,
        *,
        why: str = "",
        failures: tuple[Failure, ...] = (),
        early: bool = False,
    ) -> bool:
        """Claim one attempt; on success it is on the bench, and prepared a little later."""
        quarantined, _, set_aside = self._machine.suspicion()
        with self._bench.intend(opened.job, task.task, attempt):
            claim = Claim(
                host=self._host,
                boot=self._boot,
                beat=self._beat_counter(),
                nonce=secrets.token_hex(8),
                why=why[:WHY_LIMIT],
                failures=failures,
            )
            won = queue.claim(self._drive, opened.job, task.task, attempt, claim)
            opened.view.note_claim(task.task, attempt)
            if not won:
                return False
            held = self._preparer.take_in(opened, task, attempt, claim)
            held.early = early
            held.trial = quarantined or opened.key in set_aside
            self._bench.add(held)
        self._events.note(opened, Event(what="claimed", task=task.task, attempt=attempt, why=why))
        self._machine.claimed(opened.key)
        note(log, "claimed", **held.facts, why=why)
        return True

    # --- what failed ---------------------------------------------------------------------------

    def claim_again(
        self, opened: OpenJob, task: Task, attempt: int, failures: tuple[Failure, ...]
    ) -> bool:
        """The next attempt at a task that failed here."""
        if self._machine.closed():
            return False
        last = failures[-1]
        why = f"attempt {last.attempt} failed on {last.host}: {last.why}"
        with self.lock:
            return self._claim(opened, task, attempt, why=why, failures=failures)

    def others_serve(self, opened: OpenJob) -> bool:
        """Whether another node works on this job, as far as one can tell.

        Looks anew, unless somebody who was known to is not silent.
        """
        with self.lock:
            now = time.monotonic()
            self.observer.count(now)
            if states.others_serving(opened.view, self.observer, self._host, now):
                return True
            self.observer.read(opened.job.chunks)
            opened.view.look_at_events()
            return self._others_serve(opened, now)

    def _others_serve(self, opened: OpenJob, now: float) -> bool:
        if states.others_serving(opened.view, self.observer, self._host, now):
            return True
        # Right after a submission others may not have come to their tickets yet. To give up then
        # would let a bad node that is quick spoil what a good one could do.
        if now - opened.opened_at > self.observer.silent_s:
            return False
        return any(self._may_still_come(opened, host, now) for host in opened.job.chunks)

    def _may_still_come(self, opened: OpenJob, host: str, now: float) -> bool:
        beat = self.observer.beat(host)
        known = {self._host, *opened.view.accepted, *opened.view.refusals}
        return (
            host not in known
            and beat is not None
            and beat.state in ("idle", "busy")
            and not self.observer.silent(host, now)
        )

    # --- looking -------------------------------------------------------------------------------

    def glance_s(self, opened: OpenJob) -> float:
        """How often the job is glanced at."""
        return looks.glance_s(self.observer.silent_s, len(opened.job.chunks))

    def watches(self, opened: OpenJob) -> bool:
        """Whether to list the heartbeats at this glance: always with room, or to look at the whole
        job. While they are busy, some nodes of a large lab do it for all."""
        if self._lot < looks.watching(len(opened.job.chunks)):
            return True
        return self._has_room(opened) or self._is_time(opened, time.monotonic())

    def _has_room(self, opened: OpenJob) -> bool:
        return self.appetite.wants_more(opened) or not self._bench.all()

    def count_beats(self, jobs: Iterable[OpenJob]) -> None:
        """Who of these jobs' nodes is silent. Costs one listing."""
        with self.lock:
            now = time.monotonic()
            self.observer.first_look({host for job in jobs for host in job.job.chunks}, now)
            self.observer.count(now)

    def get_to_know(self, opened: OpenJob) -> None:
        """The first look at a job, before anything of it is claimed."""
        with self.lock:
            opened.view.refresh_for(self._host, first=True)
            self._looked(opened)

    def must_ask_others(self, opened: OpenJob) -> bool:
        """Whether something speaks against the job, or this node, and others were never heard."""
        others = [host for host in opened.job.chunks if host != self._host]
        return self._machine.suspects(opened.key) and not any(map(self.observer.beat, others))

    def ask_others(self, opened: OpenJob) -> None:
        """How the other nodes are."""
        with self.lock:
            self.observer.read(opened.job.chunks)

    def is_due(self, opened: OpenJob) -> bool:
        """Whether it is time for a whole look, now that we know who is silent."""
        now = time.monotonic()
        # Enough that somebody finds what they left: not all nodes of a large lab at once.
        chosen = random.random() < looks.chance(len(opened.job.chunks))  # noqa: S311
        left = chosen and self._silent(opened, now) - opened.silent
        if left and self.appetite.wants_more(opened, lost=True):
            return True
        return self._is_time(opened, now)

    def _is_time(self, opened: OpenJob, now: float) -> bool:
        since, silent_s = now - opened.refreshed, self.observer.silent_s
        if opened.refreshed <= 0.0:
            return True
        if self._machine.suspects(opened.key):
            return since >= looks.look_s(silent_s)
        room = self._has_room(opened)
        return since >= looks.whole_s(silent_s, len(opened.job.chunks), room=room) * opened.patience

    def _silent(self, opened: OpenJob, now: float) -> frozenset[str]:
        return frozenset(host for host in opened.job.chunks if self.observer.silent(host, now))

    def look(self, opened: OpenJob) -> None:
        """Look at a job as a whole: at the heartbeats of its nodes first."""
        with self.lock:
            self.observer.read(opened.job.chunks)
            opened.view.refresh_for(self._host)
            self._looked(opened)

    def _looked(self, opened: OpenJob) -> None:
        now = time.monotonic()
        opened.refreshed = opened.glanced = opened.claims_seen = now
        opened.silent = self._silent(opened, now)
        if len(opened.job.chunks) > looks.LOOKERS:  # lest all of them look at the same moments
            opened.patience = random.expovariate(1.0)

    def glance(self, opened: OpenJob) -> None:
        """Look for stops, and whether others take from our share."""
        with self.lock:
            opened.view.look_at_stops()
            opened.glanced = time.monotonic()
            self._look_behind(opened, opened.shares.of(self._host))

    def _look_behind(self, opened: OpenJob, share: Share) -> None:
        """Helpers take the last first: if nobody has claimed that, nobody has claimed anything."""
        for _ in range(MISSES):
            task = share.last()
            if task is None or not opened.view.look_at_claim(task):
                return
        opened.view.look_at_shares([self._host])

    # --- what others left ----------------------------------------------------------------------

    def take_over(self, opened: OpenJob) -> None:
        """Claim what dead or failing nodes left; end what is cancelled and held by nobody."""
        now = time.monotonic()
        with self.lock:
            for retake in self._retakes(opened, now):
                self._retake(opened, retake, now)
            for task, attempt, why in list(states.abandoned_stops(opened.view, self.observer, now)):
                if not self._is_held(opened, task, attempt):
                    self._endings.end(opened, task, attempt, "stopped", why)

    def _retakes(self, opened: OpenJob, now: float) -> list[states.Retake]:
        """What was left, once the ends and claims of those very tasks have been looked at."""
        view = opened.view
        found = list(states.retakes(view, self.observer, self._host, now))
        if found:
            view.look_at_buckets({layout.bucket_of(retake.task) for retake in found})
            found = list(states.retakes(view, self.observer, self._host, now))
        return found

    def _is_held(self, opened: OpenJob, task: int, attempt: int) -> bool:
        """Whether it is ours, and perhaps about to be published."""
        return self._bench.has((opened.job.project, opened.job.job, task, attempt))

    def _retake(self, opened: OpenJob, retake: states.Retake, now: float) -> None:
        if self._is_held(opened, retake.task, retake.attempt - 1):
            return
        task, failures = retake.task, retake.failures
        if retake.lost:
            why = f"tried too often: {retake.why}"
            self._endings.end(opened, task, retake.attempt - 1, "lost", why, failures)
        elif len(failures) > opened.job.retries and failures[-1].host == self._host:
            # It had its tries here: another node's turn, if there is one.
            if not self._others_serve(opened, now):
                why = failures[-1].why
                self._endings.end(opened, task, retake.attempt - 1, "failed", why, failures)
        elif not self._machine.closed() and self.appetite.wants_more(opened, lost=True):
            home = opened.tasks.home(task)
            if home is not None and self._can_read(opened, home):
                spec = opened.tasks[task][1]
                self._claim(opened, spec, retake.attempt, why=retake.why, failures=failures)
