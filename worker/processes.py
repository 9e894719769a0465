"""What /proc says about processes: identity, descent, and whose they are. Linux only."""

from __future__ import annotations

import contextlib
import functools
import os
from pathlib import Path

from ludwig.worker import child

__all__ = ["below", "boot_id", "marked", "parent", "send", "start_time"]

PROC = Path("/proc")


@functools.cache
def boot_id() -> str:
    """Different after every boot of the machine."""
    return child.boot_id()


def start_time(pid: int) -> int | None:
    """When a live process began, in ticks since boot: pids come again, this does not. Or None."""
    fields = child.stat_fields(pid)
    return int(fields[20]) if fields and fields[1] not in ("Z", "X") else None


def parent(pid: int) -> int:
    fields = child.stat_fields(pid)
    return int(fields[2]) if fields else 0


def send(pid: int, number: int) -> None:
    """Signal a process that may be gone or not ours."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def below(root: int) -> set[int]:
    """Every live descendant of a process."""
    if not _lists_children():
        return set(child.descendants(root))
    found: set[int] = set()
    waiting = [root]
    while waiting:
        for pid in _children(waiting.pop()):
            if pid not in found and start_time(pid) is not None:
                found.add(pid)
                waiting.append(pid)
    return found


def _children(pid: int) -> list[int]:
    """Every thread may have started some."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.scandir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                found += [int(word) for word in Path(thread.path, "children").read_bytes().split()]
    return found


@functools.cache
def _lists_children() -> bool:
    """Not every kernel is built so."""
    return (PROC / "self/task" / str(os.getpid()) / "children").exists()


def marked(name: str, value: str) -> set[int]:
    """Every live process that was started with this environment variable (as far as we may see)."""
    wanted = os.fsencode(f"{name}={value}")
    found = set()
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                variables = (entry / "environ").read_bytes().split(b"\0")
                if wanted in variables and start_time(int(entry.name)) is not None:
                    found.add(int(entry.name))
    return found
