"""The agent: one process that turns this machine into a node.

Its loop starts, watches and ends processes, and never waits for the network: that is left to the
foreman (tickets, claims, stops), the publisher (results), the heart and the streamer, each in a
thread of its own. Everything that must survive the agent is on disk, so the next agent goes on
where this one died.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import select
import signal
import threading
import time
from datetime import datetime
from pathlib import Path

import ludwig
from ludwig import codec, errors
from ludwig.config import WorkerConfig
from ludwig.drive import Drive
from ludwig.drives import check_format
from ludwig.model import Beat, Event, NodeState, Task
from ludwig.worker import runner, workspace
from ludwig.worker.foreman import Foreman
from ludwig.worker.heart import Heart
from ludwig.worker.held import Bench, Held, HeldRecord
from ludwig.worker.inbox import Inbox
from ludwig.worker.machine import Machine
from ludwig.worker.prepare import Preparer
from ludwig.worker.publish import Publisher
from ludwig.worker.recorder import Recorder
from ludwig.worker.slots import Assignment
from ludwig.worker.stream import Events, Streamer

__all__ = ["Agent"]

log = logging.getLogger(__name__)

STREAM_S = 0.5
GPU_S = 1.0
SWEEP_S = 600.0


def wall_clock() -> str:
    """For people only: nothing is ever decided by it."""
    return datetime.now().astimezone().isoformat(timespec="seconds")


class Agent:
    """`run` returns when `stop` was called (from a signal handler or another thread)."""

    def __init__(self, config: WorkerConfig, drive: Drive) -> None:
        self.config, self.drive = config, drive
        self.boot = secrets.token_hex(4)
        config.work.mkdir(parents=True, exist_ok=True)
        self._isolates = drive.mount is not None and runner.can_isolate(
            config.user, allow_root=config.user == "root"
        )
        self.bench = Bench()
        self.machine = Machine(config)
        self.preparer = Preparer(config, drive)
        self.streamer = Streamer(drive)
        self.events = Events(drive, host=config.hostname, boot=self.boot, clock=wall_clock)
        self.inbox = Inbox(config.inbox, self._on_inbox)
        self.foreman = Foreman(
            config,
            drive,
            boot=self.boot,
            machine=self.machine,
            bench=self.bench,
            inbox=self.inbox,
            events=self.events,
            preparer=self.preparer,
            isolates=self._isolates,
            beat_counter=lambda: self.heart.counter,
            wake_local=self.wake,
        )
        self.publisher = Publisher(
            drive,
            host=config.hostname,
            clock=wall_clock,
            foreman=self.foreman,
            bench=self.bench,
            preparer=self.preparer,
            streamer=self.streamer,
            events=self.events,
        )
        self.heart = Heart(
            drive,
            host=config.hostname,
            boot=self.boot,
            every_s=config.beat_s,
            compose=self._compose_beat,
            on_rival=self._on_rival,
        )
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._gpu_due = 0.0
        self._sweep_due = 0.0
        self._last_state: tuple[object, ...] = ()
        self.fatal = ""
        """Why the agent gave up, when it did."""

    # --- life ------------------------------------------------------------------------------------

    def run(self) -> None:
        """Serve until `stop`. What runs then goes on running: the next agent takes it up."""
        self._await_drive()
        self.machine.observe({}, time.monotonic())
        self.recover()
        threads = [
            threading.Thread(target=self.foreman.look_after_jobs, name="foreman", daemon=True),
            threading.Thread(target=self._stream, name="streamer", daemon=True),
        ]
        self.inbox.start()
        self.heart.start()
        self.publisher.start()
        for thread in threads:
            thread.start()
        log.info("node %s is up (boot %s)", self.config.hostname, self.boot)
        try:
            while not self._stopping.is_set():
                self._wake.clear()
                self.tick()
                self._wake.wait(self._pause())
        finally:
            self._leave(threads)

    def stop(self) -> None:
        """Safe in a signal handler."""
        self._stopping.set()
        self._wake.set()

    def wake(self) -> None:
        self._wake.set()

    def _leave(self, threads: list[threading.Thread]) -> None:
        log.info("leaving; %d attempts go on without me", len(self.bench))
        self._stopping.set()
        self.inbox.stop()
        self.foreman.stop()
        self.publisher.stop()
        for thread in threads:
            thread.join(timeout=20)
        with contextlib.suppress(errors.DriveError):
            self.events.ship()
        self.heart.stop()

    def _await_drive(self) -> None:
        pause, said = 0.5, ""
        while not self._stopping.is_set():
            try:
                check_format(self.drive)
                return
            except errors.DriveAway as error:
                if str(error) != said:
                    log.warning("waiting for the drive: %s", error)
                said = str(error)
                self._stopping.wait(pause)
                pause = min(pause * 2, 15.0)

    def tick(self) -> None:
        """One round of what happens on this machine."""
        now = time.monotonic()
        self.reap_finished(now)
        self.obey_stops(now)
        self.watch_gpus(now)
        self.start_what_fits(now)
        self.tidy(now)
        self.tell_changes()

    def _pause(self) -> float:
        """Processes that end wake us through `_await_exit`; the rest can wait this long."""
        if self.bench.of(lambda h: h.stop_asked is not None):
            return 0.05
        if self.bench.of(lambda h: h.phase == "running"):
            return GPU_S if self.machine.has_gpus else 2.0
        return 5.0

    # --- after a restart -------------------------------------------------------------------------

    def recover(self) -> None:
        """Take up the attempts that an earlier agent left on this machine."""
        self.foreman.doorman.reopen()
        for path in sorted(self.preparer.attempts.glob("*/held.json")):
            try:
                record = codec.decode(HeldRecord, path.read_bytes(), str(path))
                self._take_up(record, path.parent)
            except (OSError, errors.LudwigError) as error:
                log.warning("left alone: %s: %s", path.parent.name, error)

    def _take_up(self, record: HeldRecord, folder: Path) -> None:
        opened = self.foreman.doorman.jobs.get(f"{record.project}/{record.job}")
        if opened is None:
            log.warning("%s: its job is gone", folder.name)
            process = runner.find(folder)
            if process is not None:
                process.kill()
            return
        spec: Task = opened.tasks[record.task][1]
        held = Held(
            open_job=opened, task=spec, attempt=record.attempt, claim=record.claim, folder=folder
        )
        held.started = record.started
        held.tail = self.preparer.tail(folder, sent=record.log_sent)
        held.gpu_sent = record.gpu_sent
        held.process = runner.find(folder)
        if held.process is not None or record.started:
            held.assignment = Assignment(record.gpus)
            held.phase = "running"
            if held.assignment.gpus:
                held.recorder = Recorder(folder / "gpu.csv", held.assignment.gpus)
            self.machine.adopt(held.name, held.assignment)
            if held.process is not None:
                self._await_exit(held)
        self.bench.add(held)
        if record.stop_asked:
            held.stop_wanted = True
        log.info("took up %s (%s)", held.name, held.phase)

    # --- processes -------------------------------------------------------------------------------

    def reap_finished(self, now: float) -> None:
        """Hand over to the publisher whatever has ended."""
        for held in self.bench.of(lambda h: h.phase == "running"):
            ending = held.process.exit() if held.process else runner.Exit(vanished=True)
            if ending is None:
                continue
            held.exit = ending
            held.phase = "publishing"
            self.machine.release(held.name, now)
            if held.assignment is not None and held.assignment.gpus:
                self._gpu_due = 0.0
            self._judge(held, ending)
            self.publisher.put(held)
            self.foreman.wake()

    def _judge(self, held: Held, ending: runner.Exit) -> None:
        key = held.open_job.key
        if held.stop_wanted or held.cause or ending.vanished:
            self.machine.withdrawn(key)
            return
        self.machine.ended(
            key,
            held.task.task,
            seconds=ending.seconds,
            failed=ending.exit_code != 0,
            user_code_reached=ending.user_code_started,
        )

    def obey_stops(self, now: float) -> None:
        """Ask what is cancelled to stop; kill what does not listen."""
        for held in self.bench.of(lambda h: h.stop_wanted or bool(h.cause)):
            if held.phase == "waiting":
                held.phase = "publishing"
                self.publisher.put(held)
            elif held.phase == "running" and held.process is not None:
                if held.stop_asked is None:
                    held.stop_asked = now
                    held.save()
                    held.process.ask_to_stop()
                    log.info("asked %s to stop", held.name)
                elif now - held.stop_asked >= self.config.grace_s:
                    held.process.kill()

    def start_what_fits(self, now: float) -> None:
        """Start prepared attempts, in the order in which they were claimed."""
        if self._stopping.is_set():
            return
        for held in self.bench.of(lambda h: h.phase == "waiting" and h.prepared):
            if held.stop_wanted or not self._may_start(held):
                continue
            assignment = self.machine.take(held.name, held.open_job.job.gpus)
            if assignment is None:
                continue
            self._start(held, assignment, now)

    def _may_start(self, held: Held) -> bool:
        """A script starts when its chunk is where it looks for it: the foreman sees to that."""
        return held.placed or held.open_job.job.contract != "script"

    def _start(self, held: Held, assignment: Assignment, now: float) -> None:
        held.assignment = assignment
        held.started, held.started_at = wall_clock(), now
        try:
            held.save()
            held.process = runner.start(
                self._order(held, assignment),
                held.folder,
                python=Path(held.open_job.job.python or self.config.python),
                user=self.config.user,
                allow_root=self.config.user == "root",
            )
        except (OSError, errors.LudwigError) as error:
            held.exit = runner.Exit(exit_code=127, error=f"it could not be started: {error}")
            held.phase = "publishing"
            self.machine.release(held.name, now)
            self._judge(held, held.exit)
            self.publisher.put(held)
            return
        held.phase = "running"
        if assignment.gpus:
            held.recorder = Recorder(held.folder / "gpu.csv", assignment.gpus)
        self._await_exit(held)
        self.foreman.watch_stops(held.open_job)
        self.events.note(
            held.open_job, Event(what="started", task=held.task.task, attempt=held.attempt)
        )
        log.info("started %s", held.name)
        self.foreman.wake()

    def _order(self, held: Held, assignment: Assignment) -> runner.Order:
        job = held.open_job.job
        chunk_target = ""
        if job.contract == "script" and self._isolates:
            chunk_target = str(self.preparer.seed_chunk(held))
        return runner.Order(
            contract=job.contract,
            entry=job.entry,
            source_name=job.package,
            project=job.project,
            project_path=self.preparer.project_path(held),
            job=job.job,
            task=held.task.task,
            attempt=held.attempt,
            runs=held.task.runs,
            env=held.open_job.ticket.env,
            gpus=assignment.gpus,
            chunk_target=chunk_target,
        )

    def _await_exit(self, held: Held) -> None:
        """Have the loop woken when the process ends."""
        pid = held.process.pid if held.process else None
        if pid is not None:
            threading.Thread(
                target=self._wait_for, args=(pid,), name=f"wait {held.name}", daemon=True
            ).start()

    def _wait_for(self, pid: int) -> None:
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:  # gone already
            self.wake()
            return
        try:
            select.select([descriptor], [], [])
        finally:
            os.close(descriptor)
        self.wake()

    # --- GPUs ------------------------------------------------------------------------------------

    def watch_gpus(self, now: float) -> None:
        """Sample what the GPUs do; end what lost its GPU; kill what was left on one."""
        running = self.bench.of(lambda h: h.phase == "running" and h.process is not None)
        if now < self._gpu_due or not (running or self._gpu_due == 0.0):
            return
        self._gpu_due = now + GPU_S
        if not self.machine.has_gpus and not running:
            return
        pids = {h.name: h.process.pids() for h in running if h.process}
        self.machine.observe(pids, now)
        for held in running:
            if held.recorder is not None:
                held.recorder.sample(self.machine.readings, pids[held.name], now - held.started_at)
        for name, why in self.machine.lost().items():
            for held in running:
                if held.name == name and not held.cause:
                    held.cause = f"{why}; it is tried elsewhere"
                    log.error("%s: %s", name, why)
        for leftover in self.machine.leftovers():
            log.warning("%s left pid %d on a GPU", leftover.attempt, leftover.process.pid)
            with contextlib.suppress(OSError):
                os.kill(leftover.process.pid, signal.SIGKILL)

    # --- what others are told --------------------------------------------------------------------

    def _compose_beat(self, counter: int) -> Beat:
        gpus, free = self.machine.snapshot()
        state, why = self._state()
        return Beat(
            host=self.config.hostname,
            boot=self.boot,
            counter=counter,
            state=state,
            why=why,
            every_s=self.config.beat_s,
            ludwig=ludwig.__version__,
            mounted=self.drive.mount is not None,
            slots=free,
            gpus=gpus,
            running=self.bench.listed(),
            set_aside=self.machine.suspicion()[2],
            at=wall_clock(),
            disk_free=self.machine.disk_free(),
        )

    def _state(self) -> tuple[NodeState, str]:
        quarantined, suspicious, set_aside = self.machine.suspicion()
        trouble = self.publisher.trouble or self.foreman.trouble
        if self._stopping.is_set():
            return "draining", "the agent was told to stop; what runs goes on"
        if closed := self.machine.closed():
            return "draining", "" if closed == "draining" else closed
        if quarantined:
            return "quarantined", suspicious
        busy = bool(self.bench.of(lambda h: h.phase == "running"))
        if set_aside and not busy:
            return "quarantined", suspicious
        return "busy" if busy else "idle", trouble or suspicious

    def tell_changes(self) -> None:
        """Beat early when the node's state changed."""
        state = (*self._state(), len(self.machine.readings))
        if state != self._last_state:
            self._last_state = state
            self.heart.soon()

    def _on_inbox(self) -> None:
        self.foreman.wake()

    def _on_rival(self, why: str) -> None:
        log.error("%s", why)
        self.fatal = why
        self.stop()

    # --- background ------------------------------------------------------------------------------

    def _stream(self) -> None:
        """Keep logs, GPU samples and events on the drive up to date."""
        pause = STREAM_S
        while not self._stopping.wait(pause):
            pause = STREAM_S
            try:
                for held in self.bench.of(lambda h: h.phase == "running"):
                    self.streamer.ship(held)
                self.events.ship()
            except errors.NotFound:
                continue
            except errors.DriveError:
                pause = 2.0
            except Exception:
                log.exception("streamer stumbled")

    def tidy(self, now: float) -> None:
        """Remove old workspaces and sources now and then."""
        if now < self._sweep_due:
            return
        self._sweep_due = now + SWEEP_S
        in_use = {held.folder for held in self.bench} | self.foreman.doorman.sources_in_use()
        workspace.sweep(
            self.config.work,
            in_use=in_use,
            keep_days=self.config.keep_days,
            disk_max_percent=self.config.disk_max_percent,
            now=time.time(),
        )
