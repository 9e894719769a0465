"""The agent's dealings with the drive about work: accept tickets, claim, obey stops, take over.

Runs in a thread of its own, since every call may block for as long as the file server likes; what
runs on this machine (`agent.py`) never waits for it. Hands prepared attempts to the bench and never
starts anything.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator

from ludwig import errors, layout, queue
from ludwig.config import WorkerConfig
from ludwig.drive import Drive
from ludwig.drives import check_format
from ludwig.worker import workspace
from ludwig.worker.bench import Bench
from ludwig.worker.claims import Claims
from ludwig.worker.doorman import Doorman
from ludwig.worker.endings import Endings
from ludwig.worker.held import NEVER, Held, OpenJob
from ludwig.worker.journal import note
from ludwig.worker.machine import Machine
from ludwig.worker.prepare import Preparer
from ludwig.worker.stockroom import Stockroom
from ludwig.worker.stops import Stops
from ludwig.worker.stream import Events
from ludwig.worker.threads import Threaded

__all__ = ["Foreman", "is_gone"]

log = logging.getLogger(__name__)

IDLE_S = 30.0
"""How often an idle node looks into its inbox, in case inotify missed something."""
REST_S = 5.0
STUCK_S = 5.0
"""How long a claimed attempt may wait for a slot that nothing of ours will free."""
SWEEP_S = 600.0

CONCERNS_THE_JOB = (errors.NotFound, errors.WrongKind, errors.NoPermission, errors.Malformed)
"""Errors that say something about one job, not about the drive."""


class Foreman(Threaded):
    """`wake` and `stop` may be called from any thread."""

    def __init__(
        self,
        config: WorkerConfig,
        drive: Drive,
        *,
        machine: Machine,
        bench: Bench,
        events: Events,
        doorman: Doorman,
        claims: Claims,
        preparer: Preparer,
        endings: Endings,
        stops: Stops,
        stockroom: Stockroom,
        isolates: bool,
        ready: threading.Event,
        wake_local: Callable[[], None],
    ) -> None:
        self._config, self._drive = config, drive
        self._machine, self._bench, self._events = machine, bench, events
        self._doorman, self._claims, self._preparer = doorman, claims, preparer
        self._endings, self._stops, self._stockroom = endings, stops, stockroom
        self._isolates = isolates
        self._ready, self._wake_local = ready, wake_local
        self._news = threading.Event()
        self._stopping = threading.Event()
        super().__init__("foreman")
        self._sweep_due = 0.0
        self.trouble = ""
        """Why the drive cannot be used just now; shown in the heartbeat once it can."""

    # --- the loop ------------------------------------------------------------------------------

    def wake(self) -> None:
        """There may be something to do: a ticket, a free slot."""
        self._news.set()

    def stop(self) -> None:
        self._stopping.set()
        self._stops.close()
        self._news.set()
        self._join(20)

    def _run(self) -> None:
        """Never raises: trouble with the drive is waited out."""
        while not self._ready.wait(0.5):
            if self._stopping.is_set():
                return
        pause = 0.2
        while not self._stopping.is_set():
            self._news.clear()
            try:
                self.round()
                self.trouble, pause = "", 0.2
            except errors.DriveError as error:
                if str(error) != self.trouble:
                    note(log, "drive-trouble", level=logging.WARNING, why=error)
                self.trouble = str(error)
                pause = min(pause * 2, 5.0)
                self._stopping.wait(pause)
            except Exception:
                log.exception("foreman stumbled")
                self._stopping.wait(1.0)
            else:
                self._news.wait(self._pause())

    def _pause(self) -> float:
        """Without jobs only the inbox matters, and that wakes us: an idle node asks for nothing."""
        if self._doorman.expects_more or any(held.early for held in self._bench.waiting()):
            return 0.5
        return min(
            (self._claims.glance_s(job) for job in self._doorman.open_jobs()), default=IDLE_S
        )

    def round(self) -> None:
        """One pass over everything there is to do on the drive."""
        self._doorman.prepare_sources()
        self._doorman.accept_tickets()
        self.get_to_know_new_jobs()
        self.give_back()
        self.claim_ahead()
        self.prepare_waiting()
        self.look_at_jobs()
        self._stops.watch()
        self.close_finished()
        self.tidy()

    @contextlib.contextmanager
    def _about(self, opened: OpenJob) -> Iterator[None]:
        """What is wrong with one job must not keep the node from the others."""
        try:
            yield
        except CONCERNS_THE_JOB as error:
            opened.rests_until = time.monotonic() + REST_S
            note(log, "job-trouble", level=logging.WARNING, job=opened.key, why=error)
            if is_gone(self._drive, opened):
                opened.gone = True
                self._stops.mark(opened)

    def _jobs(self) -> list[OpenJob]:
        """Who has least on this node comes first; then who came first."""
        now = time.monotonic()
        jobs = [job for job in self._doorman.open_jobs() if now >= job.rests_until]
        return sorted(jobs, key=lambda job: (len(self._bench.of_job(job)), job.order))

    # --- claiming ------------------------------------------------------------------------------

    def get_to_know_new_jobs(self) -> None:
        """Nothing of a job is claimed before it was looked at; nor, once its tasks die here, before
        we know whether other nodes fare better."""
        new = [job for job in self._jobs() if job.refreshed == NEVER]
        doubtful = [job for job in self._jobs() if self._claims.must_ask_others(job)]
        if new or doubtful:
            self._claims.count_beats([*new, *doubtful])
        for opened in new:
            with self._about(opened):
                self._claims.get_to_know(opened)
                self._stops.mark(opened)
        for opened in doubtful:
            self._claims.ask_others(opened)

    def give_back(self) -> None:
        """Release what was claimed and is not to start here after all."""
        waiting = self._bench.waiting()
        if not waiting:
            return
        closed, running, now = self._machine.closed(), self._bench.running(), time.monotonic()
        for held in waiting:
            opened = held.open_job
            if closed:
                self._endings.give_back(held, closed)
            elif not held.trial and not self._machine.may_claim(
                opened.key, self._claims.appetite.others_fine(opened)
            ):
                self._endings.give_back(held, self._machine.suspicion()[1])
            elif self._claims.appetite.was_too_early(held, now):
                self._endings.give_back(held, "claimed early, and what runs here takes longer")
            elif (
                not running
                and now - held.claimed_at > STUCK_S
                and (why := self._machine.why_not(opened.job.gpus))
            ):
                self._endings.give_back(held, why)

    def claim_ahead(self) -> None:
        """Claim as much as can start, and a little more, so that no slot waits for the drive."""
        exhausted: set[str] = set()
        while not self._machine.closed():
            opened = self._whose_turn(exhausted)
            if opened is None:
                return
            with self._about(opened):
                if self._claims.claim_next(opened):
                    continue
            exhausted.add(opened.key)

    def _whose_turn(self, exhausted: set[str]) -> OpenJob | None:
        """The job to claim a task of, if any.

        One that has nothing here yet and must wait for room is not overtaken: else a sweep that
        claims ahead would keep everybody else out, and who wants two GPUs would never find two.
        """
        kept: set[bool] = set()
        for opened in self._jobs():
            on_gpus = self._machine.needs(opened.job.gpus) > 0
            if opened.refreshed == NEVER or opened.key in exhausted or on_gpus in kept:
                continue
            if self._claims.appetite.wants_more(opened):
                return opened
            if self._claims.appetite.is_owed_a_turn(opened):
                kept.add(on_gpus)
        return None

    def prepare_waiting(self) -> None:
        """Make ready what was claimed: look for stops, fetch its bytes, copy the source."""
        waiting = self._bench.waiting()
        # After the claim and before it can start: what was stopped by then never starts.
        fresh = {h.open_job.key: h.open_job for h in waiting if not h.prepared}
        looked: set[str] = set()
        for key, opened in fresh.items():
            with self._about(opened):
                self._stops.look(opened)
                looked.add(key)
        for held in waiting:
            if held.stop_wanted or not (held.prepared or held.open_job.key in looked):
                continue
            with self._about(held.open_job):
                if not held.prepared:
                    self._prepare(held)
                if held.prepared and not held.placed and self._may_place(held):
                    self._preparer.place_chunk(held, isolated=self._isolates)
                    held.placed = True
                    self._wake_local()

    def _prepare(self, held: Held) -> None:
        try:
            self._preparer.prepare(held)
        except errors.Malformed as error:
            self._endings.end_unstarted(held, "failed", str(error))
        except OSError as error:
            why = f"it could not be prepared on {self._config.hostname}: {error}"
            self._endings.give_back(held, why)
        else:
            self._wake_local()

    def _may_place(self, held: Held) -> bool:
        """Where attempts cannot be isolated, scripts of one project take turns."""
        job = held.open_job.job
        if job.contract != "script":
            return False
        return self._isolates or not self._bench.of(
            lambda h: (
                h.open_job.job.contract == "script"
                and h.open_job.job.project == job.project
                and (h.phase == "running" or (h.phase == "waiting" and h.placed))
            )
        )

    # --- looking -------------------------------------------------------------------------------

    def look_at_jobs(self) -> None:
        """Glance at jobs from time to time, for stops; look at the whole of those that we could do
        something about, for what others left."""
        now = time.monotonic()
        due = [job for job in self._jobs() if now - job.glanced >= self._claims.glance_s(job)]
        if watched := [job for job in due if self._claims.watches(job)]:
            self._claims.count_beats(watched)
        for opened in due:
            with self._about(opened):
                if whole := self._claims.is_due(opened):
                    self._claims.look(opened)
                else:
                    self._claims.glance(opened)
                self._check_still_there(opened)
                self._stops.mark(opened)
                if whole:
                    self._claims.take_over(opened)
        if due:
            self.prepare_waiting()  # what was taken over need not wait for the next round

    def _check_still_there(self, opened: OpenJob) -> None:
        """A view takes a folder that is missing for an empty one."""
        if not opened.view.there:
            record = layout.job_files(opened.job.project, opened.job.job).record
            raise errors.NotFound("looking for", record)

    def close_finished(self) -> None:
        """Let go of jobs in which nothing is left to do."""
        for opened in self._doorman.open_jobs():
            if self._bench.of_job(opened) or not (opened.gone or self._is_over(opened)):
                continue
            with self._about(opened):
                if not opened.gone:
                    queue.roll_forward(self._drive, opened.job)
                    self._events.ship(opened)
                self._doorman.close(opened)

    def _is_over(self, opened: OpenJob) -> bool:
        return opened.refreshed != NEVER and opened.view.over()

    def tidy(self) -> None:
        """Remove old workspaces and sources now and then."""
        now = time.monotonic()
        if now < self._sweep_due:
            return
        self._sweep_due = now + SWEEP_S
        self._stockroom.tidy()
        # Only whoever holds this lock makes folders that must not be swept.
        with self._claims.lock:
            in_use = {held.folder for held in self._bench.all()} | self._doorman.sources_in_use()
            workspace.sweep(
                self._config.work,
                in_use=in_use,
                keep_days=self._config.keep_days,
                disk_max_percent=self._config.disk_max_percent,
                now=time.time(),
            )


def is_gone(drive: Drive, opened: OpenJob) -> bool:
    """Whether somebody removed the job. A drive that is not mounted proves nothing."""
    try:
        check_format(drive)
        return not drive.exists(layout.job_files(opened.job.project, opened.job.job).record)
    except errors.LudwigError:
        return False
