"""What the benchmarks share: processor time of a whole family of processes, blocks, and tables.

A benchmark makes itself the adoptive parent of whatever its contenders leave behind
(`adopt_orphans`): so daemons stay in its family, their processor time is counted, and at the end
nothing is left running (`end_family`).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import psutil

__all__ = [
    "Block",
    "adopt_orphans",
    "cpu_seconds",
    "end_family",
    "load",
    "measured",
    "percentile",
    "table",
]

PR_SET_CHILD_SUBREAPER = 36


@dataclass
class Block:
    """What a block of work took: by the clock, and of all processors together."""

    seconds: float = 0.0
    cpu: float = 0.0


@contextlib.contextmanager
def measured() -> Iterator[Block]:
    """Filled in at the end of the `with`."""
    block = Block()
    cpu, start = cpu_seconds(), time.perf_counter()
    yield block
    block.seconds, block.cpu = time.perf_counter() - start, cpu_seconds() - cpu


def adopt_orphans() -> None:
    """Daemons become our children, not those of init."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def family() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def cpu_seconds() -> float:
    """Processor time of this process and of everything it started, dead or alive."""
    _reap_orphans()
    own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    total = sum(usage.ru_utime + usage.ru_stime for usage in own)
    for process in family():
        with contextlib.suppress(psutil.Error):
            total += sum(process.cpu_times()[:4])
    return total


def _reap_orphans() -> None:
    """The times of a zombie are told in hundredths of a second; those of the reaped are exact."""
    for process in psutil.Process().children():
        with contextlib.suppress(psutil.Error, ChildProcessError):
            if process.status() == psutil.STATUS_ZOMBIE:
                os.waitpid(process.pid, os.WNOHANG)


def end_family() -> list[str]:
    """Kill whatever is left; what that was."""
    left = []
    for process in family():
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE:
                left.append(f"{process.pid} {' '.join(process.cmdline())[:80]}")
                process.kill()
    return left


def load() -> str:
    """How busy the machine is with other things: it belongs beside every figure."""
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"


def percentile(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns as wide as they must be; the first to the left, the others to the right."""
    lines = [list(head), *map(list, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i in (0, len(head) - 1) else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
