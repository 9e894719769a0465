"""The processes of this machine: which attempt starts where, which has ended, which must stop.

Belongs to the agent's loop: nothing here waits for the drive. What ended is handed to the
publisher; what may start was prepared by the foreman.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

from ludwig import errors
from ludwig.config import WorkerConfig
from ludwig.model import Event
from ludwig.worker import runner
from ludwig.worker.bell import Bell
from ludwig.worker.bench import Bench
from ludwig.worker.held import Held
from ludwig.worker.journal import note
from ludwig.worker.machine import Machine
from ludwig.worker.nursery import Nursery
from ludwig.worker.prepare import Preparer
from ludwig.worker.recorder import Recorder
from ludwig.worker.slots import Assignment
from ludwig.worker.stream import Events
from ludwig.worker.verdict import was_lost

__all__ = ["Floor"]

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""How often every process is looked at, should its end not have been heard."""


class Floor:
    """For the agent's loop only."""

    def __init__(
        self,
        config: WorkerConfig,
        *,
        machine: Machine,
        bench: Bench,
        preparer: Preparer,
        events: Events,
        bell: Bell,
        isolates: bool,
        clock: Callable[[], str],
        publish: Callable[[Held], None],
        on_change: Callable[[], None],
        on_gpu_freed: Callable[[], None],
    ) -> None:
        self._config, self._machine, self._bench = config, machine, bench
        self._preparer, self._events, self._bell = preparer, events, bell
        self._isolates, self._clock = isolates, clock
        self._publish, self._on_change = publish, on_change
        self._on_gpu_freed = on_gpu_freed
        self._nursery = Nursery()
        self._ended_perhaps: set[Held] = set()
        self._look_due = 0.0

    def listen(self, held: Held) -> None:
        """Have the loop woken when the process ends."""
        if held.process is not None and held.process.pid is not None:
            self._bell.listen(held.process.pid, lambda: self._ended_perhaps.add(held))

    def close(self) -> None:
        """What runs goes on."""
        self._nursery.close()

    # --- ending ----------------------------------------------------------------------------------

    def reap_finished(self, now: float) -> None:
        """Hand over to the publisher whatever has ended."""
        heard, self._ended_perhaps = self._ended_perhaps, set()
        if all_due := now >= self._look_due:
            self._look_due = now + LOOK_S
        for held in self._bench.running():
            # Asking each process every time would cost more than many a task.
            if not (all_due or held in heard or held.stop_asked is not None):
                continue
            if held.process is None:
                held.cause = held.cause or "the agent died while it was being started"
                self._ended(held, runner.Exit(vanished=True), now)
            elif (ending := held.process.exit()) is not None:
                self._ended(held, ending, now)

    def _ended(self, held: Held, ending: runner.Exit, now: float) -> None:
        held.exit = ending
        held.open_job.ended_after(now - held.started_at)
        self._machine.release(held.name, now, held.pids)
        if held.assignment is not None and held.assignment.gpus:
            self._on_gpu_freed()
        self._judge(held, ending)
        if ending.ok:
            self._nursery.ended(held.open_job.key, ending.seconds, now)
        note(
            log,
            "exited",
            **held.facts,
            code=ending.exit_code,
            signal=ending.signal,
            seconds=f"{ending.seconds:.3f}",
            why=held.cause or ending.error,
        )
        if self._bench.move(held, "running", "publishing"):
            self._publish(held)
        self._on_change()

    def _judge(self, held: Held, ending: runner.Exit) -> None:
        """Let the node draw its conclusions about the job, and about itself."""
        job = held.open_job
        if held.stop_wanted or was_lost(held):
            self._machine.withdrawn(job.key)
            return
        self._machine.ended(
            job.key,
            held.task.task,
            seconds=ending.seconds,
            failed=not ending.ok,
            # An interpreter that the job named itself is the job's fault, not the node's.
            user_code_reached=ending.user_code_started or job.job.python is not None,
        )

    # --- stopping --------------------------------------------------------------------------------

    def obey_stops(self, now: float) -> None:
        """Ask what is cancelled to stop; kill what does not listen."""
        for held in self._bench.of(lambda h: h.stop_wanted or bool(h.cause)):
            if self._bench.move(held, "waiting", "publishing"):
                self._publish(held)
            elif held.phase == "running" and held.process is not None:
                if held.stop_asked is None:
                    self._ask(held, now)
                elif now - held.stop_asked >= self._config.grace_s:
                    held.process.kill()

    def _ask(self, held: Held, now: float) -> None:
        held.stop_asked = now
        if held.process is not None:
            held.process.ask_to_stop()
        note(log, "stopping", **held.facts, why=held.cause or "cancelled")
        try:
            held.save()
        except OSError as error:  # a later agent asks again
            note(log, "not-saved", level=logging.WARNING, **held.facts, why=error)

    # --- starting --------------------------------------------------------------------------------

    def start_what_fits(self, now: float) -> None:
        """Start prepared attempts, in the order in which they were claimed.

        One that needs more than is free, but no more than we could free, is not overtaken: else
        who wants two GPUs would wait for as long as somebody wants one.
        """
        self._nursery.tidy(now)
        kept: set[bool] = set()
        for held in self._bench.of(lambda h: h.phase == "waiting" and h.prepared):
            if held.stop_wanted or self._machine.closed():
                continue
            if held.open_job.job.contract == "script" and not held.placed:
                continue
            wanted = held.open_job.job.gpus
            on_gpus = self._machine.needs(wanted) > 0
            if on_gpus in kept:
                continue
            assignment = self._machine.take(held.name, wanted)
            if assignment is not None:
                self._start(held, assignment, now)
            elif self._machine.fits_alone(wanted):
                kept.add(on_gpus)

    def _start(self, held: Held, assignment: Assignment, now: float) -> None:
        if not self._bench.move(held, "waiting", "running"):
            self._machine.release(held.name, now)
            return
        held.assignment = assignment
        held.started, held.started_at = self._clock(), now
        if assignment.gpus:  # before the job could put something in its place
            held.recorder = Recorder(held.folder / "gpu.csv", assignment.gpus)
        try:
            held.save()
            held.process = runner.start(
                self._order(held, assignment),
                held.folder,
                python=self._interpreter(held),
                user=self._config.user,
                allow_root=self._config.user == "root",
                nursery=self._nursery,
            )
        except (OSError, errors.LudwigError) as error:
            ending = runner.Exit(exit_code=127, error=f"it could not be started: {error}")
            self._ended(held, ending, now)
            return
        self.listen(held)
        self._events.note(
            held.open_job, Event(what="started", task=held.task.task, attempt=held.attempt)
        )
        gpus = ",".join(assignment.gpus)
        note(log, "started", **held.facts, pid=held.process.pid, gpus=gpus)
        self._on_change()

    def _interpreter(self, held: Held) -> Path:
        """The job's own, else the node's; a bare name is looked for on the PATH."""
        name = held.open_job.job.python or str(self._config.python)
        found = name if "/" in name else shutil.which(name)
        if found is None:
            raise FileNotFoundError(f"there is no interpreter {name!r} on this node")
        return Path(found)

    def _order(self, held: Held, assignment: Assignment) -> runner.Order:
        job = held.open_job.job
        isolated = job.contract == "script" and self._isolates
        return runner.Order(
            contract=job.contract,
            entry=job.entry,
            source_name=job.package,
            project=job.project,
            project_path=self._preparer.project_path(held),
            job=job.job,
            task=held.task.task,
            attempt=held.attempt,
            runs=held.task.runs,
            env=held.open_job.ticket.env,
            gpus=assignment.gpus,
            chunk_target=str(self._preparer.seed_chunk(held)) if isolated else "",
        )
