"""The agent's dealings with the drive about work: accept tickets, claim, obey stops, take over.

Runs in a thread of its own, since every call may block for as long as the file server likes; what
runs on this machine (`agent.py`) never waits for it. Owns the accepted jobs and what is known of
other nodes. Hands prepared attempts to the bench and never starts anything.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
import time
from collections.abc import Callable

from ludwig import errors, layout, queue, states
from ludwig.config import WorkerConfig
from ludwig.drive import Drive
from ludwig.model import Claim, Done, Event, Failure, Task
from ludwig.nodes import Observer
from ludwig.worker.doorman import Doorman
from ludwig.worker.held import Bench, Held, OpenJob
from ludwig.worker.inbox import Inbox
from ludwig.worker.machine import Machine
from ludwig.worker.prepare import Preparer
from ludwig.worker.stream import Events

__all__ = ["Foreman"]

log = logging.getLogger(__name__)

HELP_LOOK_S = 1.0
"""How old a listing of claims may be when helping another node."""


class Foreman:
    """All public methods but `look_after_jobs` may be called from any thread."""

    def __init__(
        self,
        config: WorkerConfig,
        drive: Drive,
        *,
        boot: str,
        machine: Machine,
        bench: Bench,
        inbox: Inbox,
        events: Events,
        preparer: Preparer,
        isolates: bool,
        beat_counter: Callable[[], int],
        wake_local: Callable[[], None],
    ) -> None:
        self._config, self._drive, self._boot = config, drive, boot
        self._machine, self._bench = machine, bench
        self._events, self._preparer = events, preparer
        self._isolates = isolates
        self._beat_counter, self._wake_local = beat_counter, wake_local
        self._lock = threading.RLock()
        self.doorman = Doorman(
            config, drive, machine=machine, inbox=inbox, events=events, lock=self._lock
        )
        self.observer = Observer(drive, silent_s=config.drive.node_silent_s)
        self._watchers: dict[str, threading.Thread] = {}
        self._news = threading.Event()
        self._stopping = threading.Event()
        self._look_s = max(0.2, min(15.0, config.drive.node_silent_s / 8))
        self.trouble = ""
        """Why the drive cannot be used just now; shown in the heartbeat once it can."""

    # --- the loop ------------------------------------------------------------------------------

    def look_after_jobs(self) -> None:
        """Until `stop`. Never raises: trouble with the drive is waited out."""
        pause = 0.2
        while not self._stopping.is_set():
            self._news.clear()
            try:
                self.round()
                self.trouble, pause = "", 0.2
            except errors.DriveError as error:
                if str(error) != self.trouble:
                    log.warning("drive: %s", error)
                self.trouble = str(error)
                pause = min(pause * 2, 5.0)
                self._stopping.wait(pause)
                continue
            except Exception:
                log.exception("foreman stumbled")
                self._stopping.wait(1.0)
            self._news.wait(self._pause())

    def round(self) -> None:
        """One pass over everything there is to do on the drive."""
        self.doorman.accept_tickets()
        self.claim_ahead()
        self.take_over()
        self.prepare_waiting()
        self.close_finished()

    def wake(self) -> None:
        """There may be something to do: a ticket, a free slot."""
        self._news.set()

    def stop(self) -> None:
        self._stopping.set()
        self._news.set()

    def _pause(self) -> float:
        """Without jobs only the inbox matters, and that wakes us: an idle node asks for nothing."""
        return self._look_s if self.doorman.jobs else 30.0

    # --- claiming ------------------------------------------------------------------------------

    def claim_ahead(self) -> None:
        """Claim as much as can start, and a little more, so that no slot waits for the drive."""
        if self._machine.closed():
            return
        claimed: set[str] = set()
        exhausted: set[str] = set()
        while True:
            candidates = [
                job
                for job in self._fair_order()
                if job.key not in exhausted and self._wants_more(job)
            ]
            if not candidates:
                break
            opened = candidates[0]
            if self._claim_next(opened):
                claimed.add(opened.key)
            else:
                exhausted.add(opened.key)
        for key in claimed:
            # After the claims, before anything starts: what was stopped by now never starts.
            self.look_for_stops(self.doorman.jobs[key])

    def _fair_order(self) -> list[OpenJob]:
        """Who has least on this node comes first; then who came first."""
        with self._lock:
            jobs = list(self.doorman.jobs.values())
        return sorted(jobs, key=lambda job: (len(self._bench.of_job(job)), job.order))

    def _wants_more(self, opened: OpenJob) -> bool:
        wanted = opened.job.gpus
        waiting = len(
            self._bench.of(lambda h: h.phase == "waiting" and h.open_job.job.gpus == wanted)
        )
        if waiting < self._machine.room(wanted):
            return True
        return waiting < self._machine.slots(wanted) and self._plentiful(opened)

    def _plentiful(self, opened: OpenJob) -> bool:
        """Whether so much is left that a claim made early takes nothing from anybody."""
        left = len(opened.tasks) - len(opened.view.claims)
        beats = (self.observer.beat(host) for host in opened.job.chunks)
        slots = sum(max(1, b.slots.gpus or b.slots.cpus) for b in beats if b is not None)
        return left > 2 * max(slots, self._machine.slots(opened.job.gpus))

    def _claim_next(self, opened: OpenJob) -> bool:
        """Claim one task of a job that nobody has claimed yet."""
        host = self._config.hostname
        if not self._machine.may_claim(opened.key, self._others_fine(opened)):
            return False
        with self._lock:
            for task in states.claimable(opened.view, host):
                home, spec = opened.tasks[task]
                if home != host:
                    self._look_before_helping(opened)
                    if task in opened.view.claims or task in opened.view.done:
                        continue
                if self._claim(opened, spec, 1):
                    return True
            for task in states.left_over(opened.view, self.observer, host, time.monotonic()):
                if self._claim(opened, opened.tasks[task][1], 1):
                    return True
        return False

    def _look_before_helping(self, opened: OpenJob) -> None:
        now = time.monotonic()
        if now - opened.refreshed >= HELP_LOOK_S:
            opened.view.look_at_claims()
            opened.view.look_at_ends()
            opened.refreshed = now

    def _claim(
        self,
        opened: OpenJob,
        task: Task,
        attempt: int,
        *,
        why: str = "",
        failures: tuple[Failure, ...] = (),
    ) -> bool:
        """Claim one attempt; on success it is on the bench, and prepared a little later."""
        with self._bench.intend(opened.job, task.task, attempt):
            claim = Claim(
                host=self._config.hostname,
                boot=self._boot,
                beat=self._beat_counter(),
                nonce=secrets.token_hex(8),
                why=why,
                failures=failures,
            )
            won = queue.claim(self._drive, opened.job, task.task, attempt, claim)
            opened.view.claims[task.task] = max(attempt, opened.view.claims.get(task.task, 0))
            if not won:
                return False
            held = self._preparer.take_in(opened, task, attempt, claim)
            self._bench.add(held)
        self._events.note(opened, Event(what="claimed", task=task.task, attempt=attempt, why=why))
        self._machine.claimed(opened.key)
        log.info("claimed %s", held.name)
        return True

    def claim_again(self, held: Held, failures: tuple[Failure, ...]) -> bool:
        """The next attempt at a task that failed here. For the publisher."""
        why = f"attempt {held.attempt} failed on {failures[-1].host}: {failures[-1].why}"
        with self._lock:
            return self._claim(
                held.open_job, held.task, held.attempt + 1, why=why[:900], failures=failures
            )

    def prepare_waiting(self) -> None:
        """Make ready what was claimed: fetch its bytes, copy the source."""
        for held in self._bench.of(lambda h: h.phase == "waiting" and not h.prepared):
            try:
                self._preparer.prepare(held)
            except errors.Malformed as error:
                self.end_unstarted(held, "failed", str(error))
                continue
            except OSError as error:
                self.release(held, f"could not be prepared on {self._config.hostname}: {error}")
                continue
            self._wake_local()
        self._place_scripts()

    def _place_scripts(self) -> None:
        """Put the chunk of the next script of each project where the script looks for it.

        Where attempts cannot be isolated, scripts of one project take turns.
        """
        scripts = self._bench.of(lambda h: h.open_job.job.contract == "script")
        busy = {
            h.open_job.job.project
            for h in scripts
            if h.phase == "running" or (h.phase == "waiting" and h.placed)
        }
        for held in scripts:
            project = held.open_job.job.project
            if held.phase == "waiting" and held.prepared and not held.placed:
                if project in busy and not self._isolates:
                    continue
                self._preparer.place_chunk(held)
                held.placed = True
                busy.add(project)
                self._wake_local()

    # --- taking over ---------------------------------------------------------------------------

    def take_over(self) -> None:
        """Look at jobs as a whole from time to time; claim what dead or failing nodes left."""
        now = time.monotonic()
        due = [job for job in self._fair_order() if now - job.refreshed >= self._look_s]
        if not due:
            return
        with self._lock:
            hosts = {host for job in due for host in job.job.chunks}
            self.observer.first_look(hosts, now)
            self.observer.look(now, read=hosts)
            for opened in due:
                self._look(opened)
                for retake in list(
                    states.retakes(opened.view, self.observer, self._config.hostname, now)
                ):
                    self._retake(opened, retake, now)
        for opened in due:
            self._mark_stopped(opened)

    def _look(self, opened: OpenJob) -> None:
        opened.view.refresh()
        opened.refreshed = time.monotonic()

    def _retake(self, opened: OpenJob, retake: states.Retake, now: float) -> None:
        key = (opened.job.project, opened.job.job, retake.task, retake.attempt - 1)
        if any(held.key == key for held in self._bench):
            return  # it is ours, and about to be published
        spec = opened.tasks[retake.task][1]
        if retake.lost:
            self._end(opened, spec, retake.attempt - 1, "lost", f"tried too often: {retake.why}")
            return
        failures = retake.failures
        mine = bool(failures) and failures[-1].host == self._config.hostname
        if failures and len(failures) > opened.job.retries and mine:
            if not states.others_serving(opened.view, self.observer, self._config.hostname, now):
                self._end(opened, spec, retake.attempt - 1, "failed", failures[-1].why, failures)
            return  # another node takes it
        if self._machine.closed() or not self._wants_more(opened):
            return
        if self._machine.may_claim(opened.key, self._others_fine(opened)):
            why = retake.why[:900]
            self._claim(opened, spec, retake.attempt, why=why, failures=failures)

    def closed(self) -> bool:
        """Whether this node takes nothing new."""
        return bool(self._machine.closed())

    def others_serve(self, opened: OpenJob) -> bool:
        """Whether another node works on this job, as far as one can tell. Looks anew."""
        with self._lock:
            now = time.monotonic()
            self.observer.look(now, read=opened.job.chunks)
            opened.view.look_at_events()
            return bool(
                states.others_serving(opened.view, self.observer, self._config.hostname, now)
            )

    def _others_fine(self, opened: OpenJob) -> bool:
        """Whether some other node has not set the job aside: else the job itself is at fault."""
        for host in opened.job.chunks:
            if host != self._config.hostname and not self.observer.silent(host, time.monotonic()):
                beat = self.observer.beat(host)
                if beat is not None and opened.key not in beat.set_aside:
                    return True
        return False

    # --- stopping ------------------------------------------------------------------------------

    def look_for_stops(self, opened: OpenJob) -> None:
        """Look at a job's stop files now."""
        opened.view.look_at_stops()
        self._mark_stopped(opened)

    def _mark_stopped(self, opened: OpenJob) -> None:
        hit = False
        for held in self._bench.of_job(opened):
            if opened.view.stopped(held.task.task) and not held.stop_wanted:
                held.stop_wanted = hit = True
        if hit:
            self._wake_local()

    def watch_stops(self, opened: OpenJob) -> None:
        """Have stop files noticed at once for as long as the job has something on the bench."""
        with self._lock:
            thread = self._watchers.get(opened.key)
            if thread is not None and thread.is_alive():
                return
            thread = threading.Thread(
                target=self._watch, args=(opened,), name=f"stops {opened.key}", daemon=True
            )
            self._watchers[opened.key] = thread
            thread.start()

    def _watch(self, opened: OpenJob) -> None:
        folder = layout.job_files(opened.job.project, opened.job.job).folder
        idle = 0
        with self._drive.watch(folder) as watch:
            while not self._stopping.is_set() and idle < 5:
                changed = watch.wait(1.0)
                if changed:
                    with contextlib.suppress(errors.DriveError):
                        self.look_for_stops(opened)
                idle = 0 if self._bench.of_job(opened) else idle + 1

    # --- ending without a process --------------------------------------------------------------

    def end_unstarted(self, held: Held, outcome: str, why: str) -> None:
        """End a task whose attempt on the bench was never started."""
        self._end(held.open_job, held.task, held.attempt, outcome, why, held.claim.failures)
        self._bench.drop(held)

    def _end(
        self,
        opened: OpenJob,
        task: Task,
        attempt: int,
        outcome: str,
        why: str,
        failures: tuple[Failure, ...] = (),
    ) -> None:
        done = Done(
            task=task.task,
            attempt=attempt,
            outcome=outcome,  # type: ignore[arg-type]
            host=self._config.hostname,
            nonce=secrets.token_hex(8),
            why=why,
            failures=failures,
        )
        if queue.end(self._drive, opened.job, done):
            self._events.note(
                opened, Event(what="ended", task=task.task, attempt=attempt, done=done)
            )
        opened.view.done.add(task.task)
        log.info("%s task %s ended: %s (%s)", opened.key, task.task, outcome, why)

    def release(self, held: Held, why: str) -> None:
        """Give back an attempt without counting it as a failure."""
        self._events.note(
            held.open_job,
            Event(what="released", task=held.task.task, attempt=held.attempt, why=why),
        )
        with contextlib.suppress(errors.DriveError):
            self._events.ship(held.open_job)
        log.info("released %s: %s", held.name, why)
        self._bench.drop(held)

    def close_finished(self) -> None:
        """Let go of jobs in which nothing is left to do."""
        for opened in self._fair_order():
            if self._bench.of_job(opened) or not opened.view.over():
                continue
            queue.roll_forward(self._drive, opened.job)
            self._events.ship(opened)
            self.doorman.close(opened)
