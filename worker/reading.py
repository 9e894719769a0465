"""One GPU at one moment, as `gpu.py` reads it and `slots.py` judges it. Data, and nothing else."""

from __future__ import annotations

import time
from dataclasses import dataclass

__all__ = ["GpuProcess", "Reading", "gone"]


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that holds memory on a GPU, and whose it is as far as can be seen."""

    pid: int
    memory: int
    """Bytes; 0 when the driver does not say."""
    graphics: bool = False
    """It draws on a screen (and may compute as well)."""
    name: str = ""
    user: str = ""
    started: float = 0.0
    """By this node's clock, in seconds since 1970; 0 when the process cannot be seen."""

    def __str__(self) -> str:
        who = f"{self.name or 'a process'} of {self.user or 'somebody'}"
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(self.started))
        since = f", since {when}" if self.started else ""
        return f"{who} (pid {self.pid}, {self.memory / 2**30:.1f} GiB{since})"


@dataclass(frozen=True, slots=True)
class Reading:
    """One GPU at one moment. None is what this GPU does not tell.

    With an `error` only who it is can be relied on; `lost` says that it will not come back by
    itself, and that what ran on it is dead.
    """

    uuid: str
    """`unknown-<index>` for a GPU that never said."""
    index: int
    name: str = ""
    bus: str = ""
    utilization: float | None = None
    memory_used: int = 0
    memory_total: int = 0
    temperature: float | None = None
    power: float | None = None
    """Watts."""
    processes: tuple[GpuProcess, ...] = ()
    error: str = ""
    lost: bool = False


def gone(reading: Reading, why: str, *, lost: bool = False) -> Reading:
    """Who it was, and why nothing more is known."""
    return Reading(
        reading.uuid,
        reading.index,
        reading.name,
        reading.bus,
        memory_total=reading.memory_total,
        error=why,
        lost=lost,
    )
