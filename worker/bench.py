"""All attempts this node holds, and the lock that guards them.

An attempt goes on from one phase to the next by `move`, which only one of racing threads wins:
whoever wins does what comes next. The lock is held for moments only, never during a call to the
drive, so that the agent's loop may always ask.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from ludwig.model import Job, RunningAttempt
from ludwig.worker.held import Held, Key, OpenJob, Phase

__all__ = ["Bench"]


class Bench:
    """Safe from every thread."""

    def __init__(self, remove: Callable[[Path], None]) -> None:
        self._remove = remove
        self._lock = threading.Lock()
        self._held: dict[Key, Held] = {}
        self._intents: dict[Key, RunningAttempt] = {}

    def __len__(self) -> int:
        return len(self._held)

    @contextlib.contextmanager
    def intend(self, job: Job, task: int, attempt: int) -> Iterator[None]:
        """List an attempt in heartbeats while it is being claimed: see `Claim.beat`."""
        key = (job.project, job.job, task, attempt)
        with self._lock:
            self._intents[key] = RunningAttempt(
                project=job.project, job=job.job, task=task, attempt=attempt, phase="waiting"
            )
        try:
            yield
        finally:
            with self._lock:
                self._intents.pop(key, None)

    def add(self, held: Held) -> None:
        with self._lock:
            self._held[held.key] = held

    def has(self, key: Key) -> bool:
        return key in self._held

    def move(self, held: Held, start: Phase, to: Phase) -> bool:
        """Go from one phase to another. False when somebody else did so before."""
        with self._lock:
            if held.phase != start or held.key not in self._held:
                return False
            held.phase = to
            return True

    def drop(self, held: Held, *, keep: bool = False) -> None:
        """Forget an attempt whose end is on the drive; with `keep`, leave its folder for a while.

        No heartbeat lists it from now on, and no later agent takes it up.
        """
        with self._lock:
            self._held.pop(held.key, None)
        held.let_go(keep=keep)
        if not keep:
            self._remove(held.folder)

    def listed(self) -> tuple[RunningAttempt, ...]:
        """What a heartbeat says."""
        with self._lock:
            known = [held.listed() for held in self._held.values()]
            return (*known, *(i for key, i in self._intents.items() if key not in self._held))

    def all(self) -> list[Held]:
        """In the order in which they were claimed."""
        with self._lock:
            return list(self._held.values())

    def of(self, wanted: Callable[[Held], bool]) -> list[Held]:
        return [held for held in self.all() if wanted(held)]

    def waiting(self) -> list[Held]:
        return self.of(lambda held: held.phase == "waiting")

    def running(self) -> list[Held]:
        return self.of(lambda held: held.phase == "running")

    def of_job(self, open_job: OpenJob) -> list[Held]:
        return self.of(lambda held: held.open_job is open_job)
