"""This machine as a node: its slots and GPUs, its disk, and whether it is to be trusted with work.

Owns who runs where (`slots.py`), what speaks against the node (`suspicion.py`), the drain file, and
the free-space floor. Knows nothing of the drive. Safe to ask from any thread.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Collection, Mapping

from ludwig.config import WorkerConfig
from ludwig.model import Gpu, Slots
from ludwig.worker import slots
from ludwig.worker.gpu import Gpus
from ludwig.worker.reading import Reading
from ludwig.worker.slots import Assignment, Leftover
from ludwig.worker.suspicion import Suspicion

__all__ = ["DRAINING", "Machine"]

LOOK_S = 1.0
DRAINING = "drained by whoever runs this node (ludwig-worker drain --undrain ends it)"


class Machine:
    """Call `observe` about once a second while GPUs are in use, and before the first task."""

    def __init__(self, config: WorkerConfig) -> None:
        self._config = config
        self._lock = threading.RLock()
        self._gpus = Gpus() if config.slots == "gpus" else None
        self._places = slots.start(
            config.slots, cores=os.cpu_count() or 1, beside_gpus=config.cpu_slots
        )
        self._suspicion = Suspicion()
        self._drain = config.work / "drain"
        self._looked = float("-inf")
        self._closed = ""
        self._disk_free = 0
        self.readings: list[Reading] = []

    # --- slots -----------------------------------------------------------------------------------

    def observe(self, pids: Mapping[str, Collection[int]], now: float) -> None:
        """Read the GPUs."""
        if self._gpus is None:
            return
        readings = self._gpus.readings()
        with self._lock:
            self.readings = readings
            broken = self._gpus.problem if self._gpus.broken else ""
            self._places = slots.observe(self._places, readings, pids=pids, now=now, broken=broken)

    @property
    def has_gpus(self) -> bool:
        return bool(self._places.gpus or self._places.broken)

    @property
    def unsettled(self) -> bool:
        """Whether a GPU is about to be free, or is kept from being used: to be looked at soon."""
        return any(not gpu.held and not gpu.free for gpu in self._places.gpus)

    def take(self, attempt: str, wanted: int | None) -> Assignment | None:
        """A place for an attempt, if there is one now."""
        with self._lock:
            assignment = slots.fit(self._places, wanted)
            if assignment is not None:
                self._places = slots.take(self._places, attempt, assignment)
            return assignment

    def adopt(self, attempt: str, assignment: Assignment) -> None:
        with self._lock:
            self._places = slots.adopt(self._places, attempt, assignment)

    def release(self, attempt: str, now: float, pids: Collection[int] = ()) -> None:
        with self._lock:
            self._places = slots.release(self._places, attempt, now, pids=pids)

    def leftovers(self) -> tuple[Leftover, ...]:
        return slots.leftovers(self._places)

    def lost(self) -> dict[str, str]:
        """Attempts whose GPU fell off the bus."""
        return slots.lost_attempts(self._places)

    def room(self, wanted: int | None) -> int:
        """How many more such tasks could start right now."""
        with self._lock:
            places, count = self._places, 0
        while (assignment := slots.fit(places, wanted)) is not None:
            places = slots.take(places, f"imagined {count}", assignment)
            count += 1
        return count

    def slots(self, wanted: int | None) -> int:
        """How many such tasks the node runs at once when nothing is in the way."""
        needed = self.needs(wanted)
        return len(self._places.gpus) // needed if needed else self._places.cpus

    def needs(self, wanted: int | None) -> int:
        """How many GPUs such a task takes here, 0 when it takes a CPU slot."""
        return slots.gpus_needed(self._places, wanted)

    def fits_alone(self, wanted: int | None) -> bool:
        """Whether such a task could start if nothing of ours ran."""
        return slots.fits_alone(self._places, wanted)

    def why_not(self, wanted: int | None) -> str:
        """Why no such task can start right now; empty if one can."""
        return slots.why_not(self._places, wanted)

    def never(self, wanted: int | None) -> str:
        return slots.never(self._places, wanted)

    def snapshot(self) -> tuple[tuple[Gpu, ...], Slots]:
        return slots.snapshot(self._places)

    # --- trust -----------------------------------------------------------------------------------

    def ended(
        self, job: str, task: int, *, seconds: float, failed: bool, user_code_reached: bool
    ) -> None:
        with self._lock:
            self._suspicion.ended(
                job,
                task,
                time.monotonic(),
                seconds=seconds,
                failed=failed,
                user_code_reached=user_code_reached,
            )

    def withdrawn(self, job: str) -> None:
        with self._lock:
            self._suspicion.withdrawn(job)

    def claimed(self, job: str) -> None:
        with self._lock:
            self._suspicion.claimed(job, time.monotonic())

    def forget(self, job: str) -> None:
        with self._lock:
            self._suspicion.forget(job)

    def may_claim(self, job: str, others_fine: bool) -> bool:
        with self._lock:
            return self._suspicion.may_claim(job, time.monotonic(), others_fine)

    def suspects(self, job: str) -> bool:
        """Whether something speaks against the job, or against this node: then how the other
        nodes are makes a difference."""
        with self._lock:
            return self._suspicion.suspects(job)

    def suspicion(self) -> tuple[bool, str, tuple[str, ...]]:
        """Whether the node is quarantined, why, and which jobs are set aside."""
        with self._lock:
            return self._suspicion.state(time.monotonic())

    # --- disk and drain --------------------------------------------------------------------------

    @property
    def disk_free(self) -> int:
        """Bytes, as of the last look."""
        self.closed()
        return self._disk_free

    def closed(self) -> str:
        """Why nothing new is claimed or started just now; empty if it is. Looks once a second."""
        with self._lock:
            if time.monotonic() - self._looked >= LOOK_S:
                self._closed = self._why_closed()
                self._looked = time.monotonic()
            return self._closed

    def look_again(self) -> None:
        """Something changed: do not answer from memory."""
        self._looked = float("-inf")

    def _why_closed(self) -> str:
        if self._drain.exists():
            return DRAINING
        work = self._config.work
        try:
            usage = shutil.disk_usage(work)
        except OSError as error:
            self._disk_free = 0
            return f"the disk of {work} cannot be used: {error.strerror}"
        self._disk_free = usage.free
        if usage.free < self._config.disk_free_min_gb * 1e9:
            return (
                f"only {usage.free / 1e9:.1f} GB free on {work}, and disk_free_min_gb is "
                f"{self._config.disk_free_min_gb:g}"
            )
        percent = 100.0 * usage.used / max(1, usage.used + usage.free)
        if percent > self._config.disk_max_percent:
            return (
                f"the disk of {work} is {percent:.0f} % full, and disk_max_percent is "
                f"{self._config.disk_max_percent:g}"
            )
        return ""
