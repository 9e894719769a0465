"""Who runs where on this node: what is free, who gets it, and why somebody must wait.

Pure: functions of `Places` (see `places.py`, whose names can be had from here too) that give a new
one, or an answer. Killing processes is the agent's business.

A GPU is given to one attempt at a time. It is free when nobody holds it, nobody else's process sits
on it, and it can be read. After `release` it drains: it is free once an observation shows that
nothing of the attempt is left on it, and out of service when something stays.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

from ludwig.model import Gpu, Slots
from ludwig.worker.places import (
    Assignment,
    GpuPlace,
    Places,
    cpu_slots,
    observe,
    start,
    unexplained,
)
from ludwig.worker.reading import GpuProcess, Reading

__all__ = [
    "Assignment",
    "GpuPlace",
    "Leftover",
    "Places",
    "adopt",
    "cpu_slots",
    "fit",
    "fits_alone",
    "leftovers",
    "lost_attempts",
    "never",
    "observe",
    "release",
    "snapshot",
    "start",
    "take",
    "why_not",
]

Wanted = int | None
"""`gpus=` of a job: None for one slot, 0 for a CPU slot, n for exactly n GPUs."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """A process of an ended attempt that still holds memory on a GPU: to be killed."""

    attempt: str
    uuid: str
    process: GpuProcess


def fit(places: Places, wanted: Wanted) -> Assignment | None:
    """Where a task could start now, if anywhere.

    None wants one slot: a GPU on a node with GPUs (also while none of them can be used: a training
    run is not put on a CPU because a driver broke), else a CPU slot.
    """
    count = gpus_needed(places, wanted)
    if count == 0:
        return Assignment() if places.cpus_free else None
    free = places.gpus_free
    return Assignment(tuple(gpu.uuid for gpu in free[:count])) if len(free) >= count else None


def fits_alone(places: Places, wanted: Wanted) -> bool:
    """Whether the task could start as soon as nothing of ours runs here."""
    count = gpus_needed(places, wanted)
    if count == 0:
        return places.cpus > 0
    return sum(not (gpu.out or gpu.intruders) for gpu in places.gpus) >= count


def never(places: Places, wanted: Wanted) -> str:
    """Why the task cannot run here, whatever ends or is freed; empty when it can."""
    count = gpus_needed(places, wanted)
    if count == 0:
        return "" if places.cpus else "the node has no CPU slots"
    if count > len(places.gpus) and not places.broken:
        has = plural(len(places.gpus), "GPU") if places.gpus else "no GPU"
        return f"the task wants {plural(count, 'GPU')}, the node has {has}"
    return ""


def why_not(places: Places, wanted: Wanted) -> str:
    """Why `fit` gives None, for a person; empty when it does not."""
    if fit(places, wanted) is not None:
        return ""
    impossible = never(places, wanted)
    if impossible:
        return impossible
    count = gpus_needed(places, wanted)
    if count == 0:
        return (
            "the only CPU slot is in use"
            if places.cpus == 1
            else (f"all {places.cpus} CPU slots are in use")
        )
    if not places.gpus:
        return f"the node's GPUs cannot be used: {places.broken}"
    reasons = [f"GPU {g.reading.index} {why_taken(g)}" for g in places.gpus if not g.free]
    need = f"{count} GPUs are wanted, {len(places.gpus_free)} of {len(places.gpus)} free: "
    return (need if count > 1 else "") + "; ".join(reasons)


def why_taken(gpu: GpuPlace) -> str:
    """What keeps a GPU from being used, in the order of importance."""
    if gpu.out:
        return f"is out of service: {gpu.out}"
    others = ", ".join((*gpu.strays, *map(str, gpu.intruders)))
    if gpu.held:
        return f"runs {gpu.attempt}" + (f", and is used by {others} as well" if others else "")
    if gpu.draining_since is not None:
        return f"is being freed by {gpu.attempt}"
    return f"is used by {others}" if others else ""


def gpus_needed(places: Places, wanted: Wanted) -> int:
    if wanted is None:
        return 1 if places.gpus or places.broken else 0
    return wanted


def take(places: Places, attempt: str, assignment: Assignment) -> Places:
    """Give an attempt what `fit` found. ValueError when it is not free: nothing is given twice."""
    if attempt in places.attempts:
        raise ValueError(f"{attempt} has a place already")
    free = {gpu.uuid for gpu in places.gpus_free}
    if not free.issuperset(assignment.gpus) or not (assignment.gpus or places.cpus_free):
        raise ValueError(f"{assignment} is not free")
    gpus = tuple(
        replace(gpu, attempt=attempt, baseline=unexplained(gpu.reading), seen=frozenset())
        if gpu.uuid in assignment.gpus
        else gpu
        for gpu in places.gpus
    )
    return replace(places, gpus=gpus, attempts={**places.attempts, attempt: assignment})


def adopt(places: Places, attempt: str, assignment: Assignment) -> Places:
    """Take in an attempt that runs already, where it runs: for an agent that was restarted.

    A GPU that is not there (any more) counts as lost from the next observation on.
    """
    known = {gpu.uuid for gpu in places.gpus}
    missing = [uuid for uuid in assignment.gpus if uuid not in known]
    if places.slots != "gpus":
        missing = []
    unseen = tuple(GpuPlace(Reading(uuid, index=0, error="not seen yet")) for uuid in missing)
    gpus = tuple(
        replace(gpu, attempt=attempt, baseline=None, draining_since=None, seen=frozenset())
        if gpu.uuid in assignment.gpus
        else gpu
        for gpu in places.gpus + unseen
    )
    return replace(places, gpus=gpus, attempts={**places.attempts, attempt: assignment})


def release(places: Places, attempt: str, now: float, *, pids: Collection[int] = ()) -> Places:
    """The attempt ended. Its CPU slot is free, its GPUs after the next good observation.

    `pids`: all processes it was known to have, in case one was never seen on the GPU before.
    """
    gpus = tuple(
        replace(gpu, draining_since=now, pids=frozenset(pids))
        if gpu.attempt == attempt and gpu.held
        else gpu
        for gpu in places.gpus
    )
    attempts = {key: value for key, value in places.attempts.items() if key != attempt}
    return replace(places, gpus=gpus, attempts=attempts)


def leftovers(places: Places) -> tuple[Leftover, ...]:
    """What ended attempts left on GPUs: the agent kills these processes."""
    return tuple(
        Leftover(gpu.attempt, gpu.uuid, process)
        for gpu in places.gpus
        for process in gpu.left_behind()
    )


def lost_attempts(places: Places) -> dict[str, str]:
    """Attempts whose GPU is lost, and why: to be ended, and tried elsewhere."""
    return {
        gpu.attempt: f"GPU {gpu.reading.index} ({gpu.reading.name or gpu.uuid}): {gpu.lost}"
        for gpu in places.gpus
        if gpu.held and gpu.lost
    }


def snapshot(places: Places) -> tuple[tuple[Gpu, ...], Slots]:
    """What the heartbeat says. A GPU that is out of service is there, but never free."""
    slots = Slots(
        gpus=len(places.gpus),
        gpus_free=len(places.gpus_free),
        cpus=places.cpus,
        cpus_free=places.cpus_free,
    )
    return tuple(map(as_gpu, places.gpus)), slots


def as_gpu(gpu: GpuPlace) -> Gpu:
    reading = gpu.reading
    return Gpu(
        name=reading.name or reading.uuid,
        uuid=reading.uuid,
        utilization=reading.utilization or 0.0,
        memory_used=reading.memory_used,
        memory_total=reading.memory_total,
        temperature=reading.temperature or 0.0,
        power=reading.power or 0.0,
        state=state_of(gpu),
        why=why_taken(gpu),
    )


def state_of(gpu: GpuPlace) -> Literal["free", "busy", "foreign", "out"]:
    if gpu.out:
        return "out"
    if gpu.attempt or gpu.strays:
        return "busy"
    return "foreign" if gpu.intruders else "free"


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
