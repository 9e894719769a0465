"""How it stands with the GPUs and CPU slots of this node: what is seen, and what it means.

Pure: `Places` is a value, `observe` gives a new one, time is passed in. Who gets what is decided in
`slots.py`; reading the GPUs is `gpu.py`'s business.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from ludwig.worker.reading import GpuProcess, Reading, gone

__all__ = ["Assignment", "GpuPlace", "Places", "cpu_slots", "observe", "start", "unexplained"]

GRAPHICS_IGNORED_BELOW = 1 << 30
"""Bytes. A desktop (Xorg, gnome-shell, a browser) draws on a GPU without being in the way; a game
or a renderer takes more. A process that only computes always counts."""
UNEXPLAINED_IGNORED_BELOW = 512 << 20
"""Bytes held by no process in the list, beyond what was held so before the attempt. A process that
hangs in the kernel is no longer listed, but keeps its memory."""
DRAIN_S = 10.0
RETURN_S = 60.0
"""How long a GPU that was lost must be well before it is used again."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """Where an attempt runs: on these GPUs, or without any on a CPU slot."""

    gpus: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GpuPlace:
    """One GPU, and how it stands with it."""

    reading: Reading
    attempt: str = ""
    """Who holds it; after `draining_since`, who held it last."""
    seen: frozenset[tuple[int, float]] = frozenset()
    """Processes of `attempt` that were seen on it, as pid and start: a pid alone is used again."""
    pids: frozenset[int] = frozenset()
    """Processes that `attempt` had when it ended, to be looked for once."""
    baseline: int | None = None
    """Memory that no process explained when it was given away. None: not known."""
    draining_since: float | None = None
    intruders: tuple[GpuProcess, ...] = ()
    """Somebody else's processes: they keep it from being used."""
    strays: tuple[str, ...] = ()
    """Attempts of ours that use it without having been given it."""
    lost: str = ""
    """Why it was lost; stays until it has been well for `RETURN_S`."""
    well_since: float | None = None
    out: str = ""
    """Why it is out of service; empty when it is not."""

    @property
    def uuid(self) -> str:
        return self.reading.uuid

    @property
    def held(self) -> bool:
        """An attempt runs on it."""
        return bool(self.attempt) and self.draining_since is None

    @property
    def free(self) -> bool:
        return not (self.attempt or self.intruders or self.strays or self.out)

    def left_behind(self) -> tuple[GpuProcess, ...]:
        """Processes of the attempt that held it last."""
        if self.draining_since is None:
            return ()
        return tuple(p for p in self.reading.processes if (p.pid, p.started) in self.seen)


@dataclass(frozen=True, slots=True)
class Places:
    """All there is on this node, and who holds it."""

    slots: Literal["gpus"] | int
    cores: int
    beside_gpus: int | None = None
    """`cpu_slots` of worker.toml; None for half the cores."""
    gpus: tuple[GpuPlace, ...] = ()
    attempts: Mapping[str, Assignment] = field(default_factory=dict)
    broken: str = ""
    """Why GPUs that should be there cannot be seen; empty on a node without."""

    @property
    def cpus(self) -> int:
        has_gpus = bool(self.gpus or self.broken)
        if self.slots == "gpus" and has_gpus and self.beside_gpus is not None:
            return self.beside_gpus
        return cpu_slots(self.slots, self.cores, has_gpus=has_gpus)

    @property
    def cpus_free(self) -> int:
        return max(0, self.cpus - sum(not a.gpus for a in self.attempts.values()))

    @property
    def gpus_free(self) -> tuple[GpuPlace, ...]:
        return tuple(gpu for gpu in self.gpus if gpu.free)

    def gpu(self, uuid: str) -> GpuPlace | None:
        return next((gpu for gpu in self.gpus if gpu.uuid == uuid), None)


def cpu_slots(slots: Literal["gpus"] | int, cores: int, *, has_gpus: bool) -> int:
    """How many tasks without a GPU run at once.

    A number in the configuration is that number. Else one per core, and beside GPUs one for two
    cores: a training run needs the others to feed its GPU.
    """
    if slots != "gpus":
        return slots
    return max(1, cores // 2) if has_gpus else max(1, cores)


def start(slots: Literal["gpus"] | int, *, cores: int, beside_gpus: int | None = None) -> Places:
    """Before anything was read. With a number for `slots` the node's GPUs are left alone."""
    return Places(slots, cores, beside_gpus)


def observe(
    places: Places,
    readings: Iterable[Reading],
    *,
    pids: Mapping[str, Collection[int]],
    now: float,
    broken: str = "",
    drain_s: float = DRAIN_S,
) -> Places:
    """Take in what the GPUs do now. `pids`: the live processes of every attempt of ours.

    `broken` is why GPUs cannot be seen at all (`Gpus.problem`, when `Gpus.broken`).
    """
    if places.slots != "gpus":
        return places
    found = {reading.uuid: reading for reading in readings}
    # With no reading at all it is NVML that is missing: no reason to end what runs.
    listed = bool(found) and not broken
    for gpu in places.gpus:
        known = gpu.attempt or not gpu.uuid.startswith("unknown-")
        if gpu.uuid not in found and known:
            why = broken or "the driver no longer lists it"
            found[gpu.uuid] = gone(gpu.reading, why, lost=listed)
    owners = {pid: attempt for attempt, group in pids.items() for pid in group}
    gpus = []
    for reading in sorted(found.values(), key=lambda r: (r.index, r.uuid)):
        gpu = replace(places.gpu(reading.uuid) or GpuPlace(reading), reading=reading)
        gpu = judge_health(gpu, now)
        gpu = sort_processes(gpu, owners)
        gpus.append(drain(gpu, now, drain_s))
    return replace(places, gpus=tuple(gpus), broken=broken)


def judge_health(gpu: GpuPlace, now: float) -> GpuPlace:
    """Whether it can be read, and whether it was lost a short while ago."""
    reading = gpu.reading
    if reading.lost:
        return replace(gpu, lost=reading.error, well_since=None, out=reading.error)
    if reading.error:
        return replace(gpu, well_since=None, out=gpu.lost or f"it cannot be read: {reading.error}")
    since = now if gpu.well_since is None else gpu.well_since
    if gpu.lost and now - since < RETURN_S:
        return replace(gpu, well_since=since, out=f"it was lost and is watched: {gpu.lost}")
    return replace(gpu, lost="", well_since=since, out="")


def sort_processes(gpu: GpuPlace, owners: Mapping[int, str]) -> GpuPlace:
    """Tell the attempt's own processes from those of others."""
    if gpu.reading.error:
        return gpu
    processes = gpu.reading.processes
    own = {
        (p.pid, p.started)
        for p in processes
        if (owners.get(p.pid) == gpu.attempt if gpu.held else p.pid in gpu.pids)
    }
    seen = gpu.seen | own
    others = [p for p in processes if (p.pid, p.started) not in seen]
    intruders = tuple(p for p in others if p.pid not in owners and matters(p))
    return replace(
        gpu,
        seen=seen,
        pids=frozenset(),
        intruders=intruders,
        strays=tuple(sorted({owners[p.pid] for p in others if p.pid in owners})),
    )


def matters(process: GpuProcess) -> bool:
    """Whether somebody else's process keeps a GPU from being used."""
    return not process.graphics or process.memory >= GRAPHICS_IGNORED_BELOW


def drain(gpu: GpuPlace, now: float, drain_s: float) -> GpuPlace:
    """After an attempt: free it when nothing of the attempt is left, give it up when that stays."""
    if gpu.draining_since is None:
        return gpu
    if not gpu.reading.error and not holds_memory(gpu):
        return replace(gpu, attempt="", seen=frozenset(), baseline=None, draining_since=None)
    if gpu.out or now - gpu.draining_since < drain_s:
        return gpu
    left = ", ".join(map(str, gpu.left_behind())) or "no process that can be seen"
    return replace(gpu, out=f"memory of {gpu.attempt} stays held by {left}")


def holds_memory(gpu: GpuPlace) -> bool:
    if gpu.left_behind():
        return True
    if gpu.baseline is None or gpu.intruders:
        return False
    return unexplained(gpu.reading) > gpu.baseline + UNEXPLAINED_IGNORED_BELOW


def unexplained(reading: Reading) -> int:
    """Memory of a GPU that none of the listed processes holds."""
    return max(0, reading.memory_used - sum(p.memory for p in reading.processes))
