"""That this agent is the only one of its name: in its work folder, and in the lab.

A second agent with the same `hostname` must not harm the first: it looks before it beats. An agent
that comes back after its own death must not wait: it knows the boots of its earlier lives.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

from ludwig import errors
from ludwig.drive import Drive
from ludwig.nodes import Observer

__all__ = ["LEFT", "AnotherAgent", "WorkLock", "await_silence_of_others"]

LEFT = "left"
"""In a heartbeat's `extra`: the agent said goodbye, its name is free."""
BOOTS_KEPT = 100


class AnotherAgent(errors.LudwigError):
    """Another agent has this name."""


class WorkLock:
    """Holds the work folder for as long as the process lives, however it ends."""

    def __init__(self, work: Path) -> None:
        work.mkdir(parents=True, exist_ok=True)
        self._boots = work / "boots"
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._descriptor = os.open(work / "agent.lock", flags, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pid = os.read(self._descriptor, 20).decode("ascii", "replace").strip()
            os.close(self._descriptor)
            raise AnotherAgent(
                f"an agent (process {pid or 'unknown'}) already works in {work}. Stop it first, "
                "or give this one a hostname and a work folder of its own."
            ) from None
        os.truncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        os.close(self._descriptor)

    def earlier_boots(self) -> set[str]:
        """The boots of agents that worked in this folder before."""
        try:
            return set(self._boots.read_text().split())
        except OSError:
            return set()

    def remember(self, boot: str) -> None:
        """Before the first heartbeat of this boot."""
        with contextlib.suppress(OSError):
            lines = self._boots.read_text().split() if self._boots.exists() else []
            self._boots.write_text("\n".join([*lines, boot][-BOOTS_KEPT:]) + "\n")


def await_silence_of_others(
    drive: Drive, host: str, ours: set[str], *, silent_s: float, wait: Callable[[float], bool]
) -> None:
    """Return when the name is ours to beat under. `AnotherAgent` when somebody else uses it.

    At once if nobody ever had the name, if it was we ourselves, or if the other said goodbye; else
    when the other has been silent for long enough. `wait` sleeps, and says whether to give up.
    """
    observer = Observer(drive, silent_s=silent_s)
    start = time.monotonic()
    observer.look(start, read=[host])
    seen = observer.nodes.get(host)
    if seen is None:
        return
    beat = seen.beat
    if beat is not None and (beat.boot in ours or beat.extra.get(LEFT) is True):
        return
    first = seen.counter
    while not observer.silent(host, time.monotonic()):
        if wait(silent_s / 10):
            return
        observer.look(time.monotonic(), read=())
        if observer.nodes[host].counter != first:
            raise AnotherAgent(
                f"another agent beats as {host!r} on {drive.where}. Give each node a hostname of "
                "its own in worker.toml."
            )
