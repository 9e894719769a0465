"""After a restart: take up the attempts that an earlier agent left on this machine.

Asks nothing of the drive: what is needed is in the attempts' folders and the ticket store.
"""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

from ludwig import codec, errors
from ludwig.worker import attempt, workspace
from ludwig.worker.bench import Bench
from ludwig.worker.doorman import Doorman
from ludwig.worker.held import HELD, KEPT, Held, HeldRecord
from ludwig.worker.journal import note
from ludwig.worker.machine import Machine
from ludwig.worker.prepare import Preparer
from ludwig.worker.recorder import Recorder
from ludwig.worker.slots import Assignment

__all__ = ["take_up_all"]

log = logging.getLogger(__name__)


def take_up_all(*, doorman: Doorman, bench: Bench, machine: Machine, preparer: Preparer) -> None:
    """Put them back on the bench: what waited waits, what was started counts as running.

    A process that ended meanwhile, or vanished with the last boot, is found out in the first tick.
    """
    doorman.reopen()
    for folder in sorted(preparer.attempts.iterdir(), key=_age):
        try:
            if (folder / HELD).exists():
                _take_up(folder, doorman, bench, machine, preparer)
            elif not (folder / KEPT).exists():
                workspace.remove(folder)  # the earlier agent died while removing it
        except (OSError, errors.LudwigError) as error:
            note(log, "left-alone", level=logging.ERROR, attempt=folder.name, why=error)


def _age(folder: Path) -> float:
    try:
        return (folder / HELD).stat().st_mtime
    except OSError:
        return 0.0


def _take_up(
    folder: Path, doorman: Doorman, bench: Bench, machine: Machine, preparer: Preparer
) -> None:
    record = codec.decode(HeldRecord, (folder / HELD).read_bytes(), str(folder / HELD))
    process = attempt.find(folder)
    opened = doorman.find(f"{record.project}/{record.job}")
    if opened is None or record.task not in opened.tasks:
        note(log, "dropped", level=logging.ERROR, attempt=folder.name, why="its ticket is gone")
        if process is not None:
            process.kill()
        workspace.remove(folder)
        return
    held = Held(
        open_job=opened,
        task=record.spec,
        attempt=record.attempt,
        claim=record.claim,
        folder=folder,
        process=process,
        started=record.started,
        stop_wanted=record.stop_asked,
        cause=record.cause,
        claimed_at=time.monotonic(),
    )
    held.tail = preparer.tail(folder)
    if record.started or process is not None:
        held.phase = "running"
        held.started_at = _started_at(process)
        held.assignment = Assignment(record.gpus)
        if record.gpus:
            held.recorder = Recorder(folder / "gpu.csv", record.gpus)
        machine.adopt(held.name, held.assignment)
    bench.add(held)
    note(log, "taken-up", **held.facts, phase=held.phase, pid=process.pid if process else None)


def _started_at(process: attempt.Process | None) -> float:
    """When a process that an earlier agent started began, by our monotonic clock."""
    record = process.record() if process is not None else None
    if record is None:
        return time.monotonic()
    ticks = record.start / os.sysconf("SC_CLK_TCK")
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks
    return time.monotonic() - max(0.0, age)
