"""Looking at the GPUs: samples for what runs, the end for what lost its GPU, nothing left behind.

Belongs to the agent's loop. Reading is `gpu.py`'s business, judging `slots.py`'s; this is who acts.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal

from ludwig.worker.bench import Bench
from ludwig.worker.held import Held
from ludwig.worker.journal import note
from ludwig.worker.machine import Machine

__all__ = ["GpuWatch"]

log = logging.getLogger(__name__)

BUSY_S = 1.0
IDLE_S = 5.0
WITHOUT_S = 60.0
"""How often a node without GPUs looks whether it has some now."""


class GpuWatch:
    """`look` does nothing until it is due; `soon` makes it due."""

    def __init__(self, machine: Machine, bench: Bench) -> None:
        self._machine, self._bench = machine, bench
        self._due = float("-inf")

    def soon(self) -> None:
        self._due = float("-inf")

    def pause(self, now: float) -> float:
        """How long until the next look is due."""
        return max(0.0, self._due - now)

    def look(self, now: float) -> None:
        """Read the GPUs and act on it."""
        if now < self._due:
            return
        running = [held for held in self._bench.running() if held.process is not None]
        self._observe(running, now)
        if not self._machine.has_gpus:
            self._due = now + WITHOUT_S
        elif self._machine.unsettled or any(h.assignment and h.assignment.gpus for h in running):
            self._due = now + BUSY_S
        else:
            self._due = now + IDLE_S

    def _observe(self, running: list[Held], now: float) -> None:
        for held in running:
            held.pids = frozenset(held.process.pids()) if held.process else frozenset()
        self._machine.observe({held.name: held.pids for held in running}, now)
        for held in running:
            if held.recorder is not None:
                held.recorder.sample(self._machine.readings, held.pids, now - held.started_at)
        lost = self._machine.lost()
        for held in running:
            if held.name in lost and not held.cause:
                held.cause = f"{lost[held.name]}; it is tried elsewhere"
                note(log, "gpu-lost", level=logging.ERROR, **held.facts, why=lost[held.name])
        for leftover in self._machine.leftovers():
            pid = leftover.process.pid
            note(log, "left-on-gpu", level=logging.WARNING, of=leftover.attempt, pid=pid)
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
