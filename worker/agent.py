"""The agent: one process that turns this machine into a node.

Its loop starts, watches and ends processes, and never waits for the network: that is left to the
foreman (tickets, claims, stops), the publisher (results), the heart and the streamer, each in a
thread of its own. Everything that must survive the agent is on disk, so the next agent goes on
where this one died.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import time
from datetime import datetime

from ludwig import errors
from ludwig.config import WorkerConfig
from ludwig.drive import Drive
from ludwig.worker import runner
from ludwig.worker.account import job_account
from ludwig.worker.bell import Bell
from ludwig.worker.bench import Bench
from ludwig.worker.bulletin import Bulletin
from ludwig.worker.claims import Claims
from ludwig.worker.doorman import Doorman
from ludwig.worker.endings import Endings
from ludwig.worker.floor import Floor
from ludwig.worker.foreman import Foreman
from ludwig.worker.gpuwatch import GpuWatch
from ludwig.worker.heart import Heart
from ludwig.worker.identity import WorkLock
from ludwig.worker.inbox import Inbox
from ludwig.worker.janitor import Janitor
from ludwig.worker.journal import note
from ludwig.worker.machine import Machine
from ludwig.worker.notify import notify, watchdog_s
from ludwig.worker.prepare import Preparer
from ludwig.worker.publish import Publisher
from ludwig.worker.recover import take_up_all
from ludwig.worker.stockroom import Stockroom
from ludwig.worker.stops import Stops
from ludwig.worker.stream import Events, Streamer
from ludwig.worker.verdict import Verdicts

__all__ = ["Agent"]

log = logging.getLogger(__name__)

STOPPING_S = 0.02
"""Pause of the loop while something is being stopped."""
RUNNING_S = 2.0
IDLE_S = 5.0
READY_ANYWAY_S = 20.0
"""When systemd is told that we are up though the drive is away."""


def wall_clock() -> str:
    """For people only: nothing is ever decided by it."""
    return datetime.now().astimezone().isoformat(timespec="seconds")


class Agent:
    """`run` returns when `stop` was called (from a signal handler or another thread)."""

    def __init__(self, config: WorkerConfig, drive: Drive) -> None:
        self.config, self.drive = config, drive
        self.boot = secrets.token_hex(4)
        self.fatal = ""
        """Why the agent gave up, when it did."""
        root = config.user == "root"
        account = job_account(config.user, allow_root=root)  # says now what would fail every task
        self._lock = WorkLock(config.work)
        isolates = drive.mount is not None and runner.can_isolate(config.user, allow_root=root)
        host = config.hostname
        self.bell = Bell()
        self.janitor = Janitor()
        self.bench = Bench(self.janitor.remove)
        self.machine = Machine(config)
        self.stockroom = Stockroom(config.work, account, disk_max_percent=config.disk_max_percent)
        self.preparer = Preparer(config, drive, self.stockroom)
        self.events = Events(
            drive, host=host, boot=self.boot, clock=wall_clock, on_note=self._on_event
        )
        self.streamer = Streamer(drive, self.bench, self.events)
        self.inbox = Inbox(config.inbox, self._on_news)
        self.doorman = Doorman(
            config,
            drive,
            machine=self.machine,
            inbox=self.inbox,
            events=self.events,
            stockroom=self.stockroom,
        )
        self.endings = Endings(
            drive,
            host=host,
            bench=self.bench,
            events=self.events,
            machine=self.machine,
            on_release=self._on_change,
        )
        self.bulletin = Bulletin(
            config,
            boot=self.boot,
            mounted=drive.mount is not None,
            machine=self.machine,
            bench=self.bench,
            clock=wall_clock,
            leaving=lambda: self._leaving,
            trouble=lambda: self.publisher.trouble or self.foreman.trouble,
        )
        self.heart = Heart(
            drive,
            host=host,
            every_s=config.beat_s,
            silent_s=config.drive.node_silent_s,
            ours=self._lock.earlier_boots(),
            compose=self.bulletin.beat,
            on_fatal=self._give_up,
        )
        claims = Claims(
            config,
            drive,
            boot=self.boot,
            machine=self.machine,
            bench=self.bench,
            events=self.events,
            preparer=self.preparer,
            endings=self.endings,
            beat_counter=lambda: self.heart.counter,
        )
        self.foreman = Foreman(
            config,
            drive,
            machine=self.machine,
            bench=self.bench,
            events=self.events,
            doorman=self.doorman,
            claims=claims,
            preparer=self.preparer,
            endings=self.endings,
            stops=Stops(drive, self.bench, on_stop=self.bell.ring),
            stockroom=self.stockroom,
            isolates=isolates,
            ready=self.heart.begun,
            wake_local=self.bell.ring,
        )
        verdicts = Verdicts(
            drive,
            host=host,
            clock=wall_clock,
            claims=claims,
            preparer=self.preparer,
            events=self.events,
        )
        self.publisher = Publisher(
            drive,
            bench=self.bench,
            verdicts=verdicts,
            endings=self.endings,
            preparer=self.preparer,
            streamer=self.streamer,
            events=self.events,
            on_end=self._on_change,
        )
        self.gpus = GpuWatch(self.machine, self.bench)
        self.floor = Floor(
            config,
            machine=self.machine,
            bench=self.bench,
            preparer=self.preparer,
            events=self.events,
            bell=self.bell,
            isolates=isolates,
            clock=wall_clock,
            publish=self.publisher.put,
            on_change=self._on_change,
            on_gpu_freed=self.gpus.soon,
        )
        self._threads = (
            self.heart,
            self.foreman,
            self.publisher,
            self.streamer,
            self.janitor,
            self.stockroom,
        )
        self._stop_wanted = False
        self._leaving = False
        self._ready_said = False
        self._gist: tuple[object, ...] = ()

    # --- life ------------------------------------------------------------------------------------

    def run(self) -> None:
        """Serve until `stop`. What runs then goes on running: the next agent takes it up."""
        begun = time.monotonic()
        self._lock.remember(self.boot)
        self.take_up()
        self.inbox.start(self.config.work)
        for thread in self._threads:
            thread.start()
        note(log, "up", node=self.config.hostname, boot=self.boot, drive=self.drive.where)
        try:
            while not self._stop_wanted:
                if self._turn():
                    self._tell_systemd(begun)
                self.bell.wait(self._pause())
        finally:
            self._leave()

    def stop(self) -> None:
        """Safe in a signal handler."""
        self._stop_wanted = True
        self.bell.ring()

    def take_up(self) -> None:
        """Go on with what an earlier agent left here."""
        self.gpus.look(time.monotonic())
        take_up_all(
            doorman=self.doorman, bench=self.bench, machine=self.machine, preparer=self.preparer
        )
        self.gpus.soon()
        for held in self.bench.running():
            self.floor.listen(held)

    def tick(self) -> None:
        """One round of what happens on this machine."""
        now = time.monotonic()
        self.floor.reap_finished(now)
        self.floor.obey_stops(now)
        self.gpus.look(now)
        self.floor.start_what_fits(now)
        self.tell_changes()

    def _turn(self) -> bool:
        """A tick, and whether all is well."""
        try:
            self.tick()
        except Exception:
            log.exception("the loop stumbled")
            time.sleep(0.5)
            return False
        if dead := [type(t).__name__ for t in self._threads if not t.alive and not self.fatal]:
            self._give_up(f"{dead[0]} stopped working: see above")
        return True

    def _pause(self) -> float:
        """Processes that end ring the bell; the rest can wait this long."""
        if self.bench.of(lambda h: h.stop_asked is not None and h.phase == "running"):
            return STOPPING_S
        usual = RUNNING_S if self.bench.running() else IDLE_S
        pause = min(usual, self.gpus.pause(time.monotonic()))
        watchdog = watchdog_s()
        return min(pause, watchdog / 3) if watchdog else pause

    def tell_changes(self) -> None:
        """Beat early, and look for work, when the node's state changed."""
        gist = self.bulletin.gist()
        if gist != self._gist:
            self._gist = gist
            self.heart.soon()
            self.foreman.wake()

    def _tell_systemd(self, begun: float) -> None:
        """Only the loop says that all is well: should it hang, systemd hears nothing."""
        if not self._ready_said:
            late = time.monotonic() - begun > READY_ANYWAY_S
            if self.heart.begun.is_set() or late:
                self._ready_said = True
                notify("READY=1", f"STATUS=serving as {self.config.hostname}")
        notify("WATCHDOG=1")

    def _leave(self) -> None:
        """Say goodbye, and leave running processes alone."""
        notify("STOPPING=1")
        note(log, "leaving", goes_on=len(self.bench), why=self.fatal)
        self._leaving = True
        self.inbox.stop()
        self.floor.close()
        self.foreman.stop()
        self.publisher.stop()
        self.streamer.stop()
        self.janitor.stop()
        self.stockroom.stop()
        with contextlib.suppress(errors.DriveError):
            self.events.ship()
        self.heart.stop()
        self._lock.release()

    # --- what the parts tell each other ----------------------------------------------------------

    def _on_news(self) -> None:
        """Something changed in the inbox, or somebody drains this node."""
        self.machine.look_again()
        self.foreman.wake()
        self.bell.ring()

    def _on_change(self) -> None:
        """An attempt started or ended."""
        self.foreman.wake()
        self.streamer.wake()
        self.bell.ring()

    def _on_event(self) -> None:
        self.streamer.wake()

    def _give_up(self, why: str) -> None:
        self.fatal = why
        note(log, "giving-up", level=logging.ERROR, why=why)
        self.stop()
