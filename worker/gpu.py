"""What the GPUs of this node do: the one module that imports `pynvml`, and only when asked.

Nothing here raises out: no driver, no package, a GPU that fell off the bus and a driver that hangs
are all data. Nothing here decides anything either; that is `slots.py`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import psutil

from ludwig.worker.reading import GpuProcess, Reading, gone
from ludwig.worker.recorder import Recorder

__all__ = ["GpuProcess", "Gpus", "Reading", "Recorder"]

ANSWER_S = 2.0
"""How long `readings` waits for the driver: a dying GPU can block NVML for ever."""
DRIVER_AGAIN_S = 5.0
"""How often a driver that does not answer is asked again."""
GPU_AGAIN_S = 60.0
"""How often NVML is initialised anew because of a single GPU, which may have been reset."""
SAME_START_S = 5.0
PCI_DEVICES = Path("/sys/bus/pci/devices")

# Codes of nvml.h, so that they can be named before `pynvml` is there.
UNINITIALIZED, DRIVER_NOT_LOADED, TIMEOUT, LIBRARY_NOT_FOUND = 1, 9, 10, 12
GPU_IS_LOST, RESET_REQUIRED, VERSION_MISMATCH, GPU_NOT_FOUND = 15, 16, 18, 28
UNKNOWN = 999
LOST = frozenset({GPU_IS_LOST, RESET_REQUIRED, GPU_NOT_FOUND})
DRIVER_GONE = frozenset({UNINITIALIZED, DRIVER_NOT_LOADED, VERSION_MISMATCH})
NO_ANSWER = frozenset({TIMEOUT, UNKNOWN})


class Unreadable(Exception):
    """NVML says that a GPU, or all of it, cannot be read."""

    def __init__(self, code: int, why: str = "") -> None:
        super().__init__(why or words(code))
        self.code = code


class Gpus:
    """The GPUs of this node. Every GPU seen once is in all later readings, if only as lost.

    Call `readings` from one thread. It costs about a millisecond per GPU, and at most `answer_s`
    the first time that the driver hangs. A driver that is loaded, unloaded or reloaded meanwhile
    is noticed.
    """

    def __init__(
        self,
        *,
        answer_s: float = ANSWER_S,
        clock: Callable[[], float] = time.monotonic,
        pci_devices: Path = PCI_DEVICES,
    ) -> None:
        self._answer_s = answer_s
        self._clock = clock
        self._pci_devices = pci_devices
        self._nvml: Any = None
        self._initialised = False
        self._again = float("-inf")
        self._failure = LIBRARY_NOT_FOUND, ""
        self._handles: dict[int, tuple[Any, Reading]] = {}
        self._known: dict[str, Reading] = {}
        self._owners: dict[int, tuple[str, str, float]] = {}
        self._reader: threading.Thread | None = None
        self._latest: list[Reading] = []
        self.problem = ""
        """Why there are no readings, in words; empty when NVML works."""
        self.broken = False
        """There is a GPU, but no driver that answers: not the same as a node without GPUs."""

    def readings(self) -> list[Reading]:
        """Every GPU, by index. Empty without GPUs, and without NVML (`problem` says why)."""
        patience = 0.0
        if self._reader is None or not self._reader.is_alive():
            # A thread, because a call into a hanging driver cannot be interrupted.
            self._reader = threading.Thread(target=self._read, name="nvml", daemon=True)
            self._reader.start()
            patience = self._answer_s
        self._reader.join(patience)
        if self._reader.is_alive():
            self.problem, self.broken = "the NVIDIA driver hangs", True
            return self._unreadable(self.problem)
        return self._latest

    def _read(self) -> None:
        try:
            self._latest = self._read_all()
            self.problem, self.broken = "", False
        except Unreadable as error:
            self._fail(error)
        except Exception as error:
            self._fail(Unreadable(UNKNOWN, f"the NVIDIA driver cannot be read: {error!r}"))

    def _fail(self, failure: Unreadable) -> None:
        self._close()
        self._failure = failure.code, str(failure)
        self._again = min(self._again, self._clock() + DRIVER_AGAIN_S)
        none_here = failure.code == LIBRARY_NOT_FOUND or (
            failure.code == DRIVER_NOT_LOADED and not has_nvidia_device(self._pci_devices)
        )
        self.problem, self.broken = str(failure), bool(self._known) or not none_here
        self._latest = self._unreadable(self.problem)

    def _unreadable(self, why: str) -> list[Reading]:
        return by_index(gone(reading, why) for reading in list(self._known.values()))

    def _read_all(self) -> list[Reading]:
        fresh = self._open()
        try:
            return self._read_each()
        except Unreadable as error:
            if fresh or error.code not in DRIVER_GONE:
                raise
        # The driver was reloaded: what was initialised is worth nothing.
        self._close()
        self._again = float("-inf")
        self._open()
        return self._read_each()

    def _open(self) -> bool:
        """Initialise NVML if need be; whether that was done."""
        now = self._clock()
        if now < self._again:
            if self._initialised:
                return False
            raise Unreadable(*self._failure)
        self._close()
        self._again = now + DRIVER_AGAIN_S
        self._initialise()
        self._initialised, self._again = True, float("inf")
        return True

    def _initialise(self) -> None:
        try:
            import pynvml  # Here: a node without GPUs need not have it.
        except ImportError as error:
            missing = "the Python package nvidia-ml-py is not installed"
            raise Unreadable(LIBRARY_NOT_FOUND, missing) from error
        self._nvml = pynvml
        self._call("nvmlInit")

    def _close(self) -> None:
        self._handles.clear()
        if self._initialised:
            self._initialised = False
            with contextlib.suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()

    def _read_each(self) -> list[Reading]:
        found = [self._read_gpu(index) for index in range(self._call("nvmlDeviceGetCount"))]
        listed = {reading.uuid for reading in found}
        for uuid, reading in self._known.items():
            if uuid not in listed:
                found.append(gone(reading, "the driver no longer lists it", lost=True))
        self._known.update((r.uuid, r) for r in found if not r.error)
        if any(reading.error for reading in found):
            self._again = min(self._again, self._clock() + GPU_AGAIN_S)
        else:
            self._again = float("inf")
        self._forget_owners(found)
        return by_index(found)

    def _read_gpu(self, index: int) -> Reading:
        try:
            return self._ask(index)
        except Unreadable as error:
            if error.code in DRIVER_GONE:
                raise
            self._handles.pop(index, None)
            before = [known for known in self._known.values() if known.index == index]
            who = before[-1] if before else Reading(f"unknown-{index}", index, f"GPU {index}")
            return gone(who, str(error), lost=error.code in LOST)

    def _ask(self, index: int) -> Reading:
        if index not in self._handles:
            self._handles[index] = self._identify(index)
        handle, who = self._handles[index]
        memory = self._memory(handle)
        utilization = self._value("nvmlDeviceGetUtilizationRates", handle)
        power = self._value("nvmlDeviceGetPowerUsage", handle)
        return dataclasses.replace(
            who,
            utilization=None if utilization is None else float(utilization.gpu),
            memory_used=int(memory.used) if memory else 0,
            memory_total=int(memory.total) if memory else 0,
            temperature=self._temperature(handle),
            power=None if power is None else power / 1000,
            processes=self._processes(handle),
        )

    def _identify(self, index: int) -> tuple[Any, Reading]:
        handle = self._call("nvmlDeviceGetHandleByIndex", index)
        uuid = str(self._call("nvmlDeviceGetUUID", handle))
        name = str(self._value("nvmlDeviceGetName", handle) or f"GPU {index}")
        pci = self._value("nvmlDeviceGetPciInfo_v3", handle)
        bus = pci.busId if pci else ""
        bus = bus.decode() if isinstance(bus, bytes) else str(bus)
        return handle, Reading(uuid, index, name, bus)

    def _memory(self, handle: Any) -> Any:
        """The second version does not count what the driver keeps for itself as used."""
        version = self._nvml.nvmlMemory_v2
        memory = self._value("nvmlDeviceGetMemoryInfo", handle, version, fatal=NO_ANSWER)
        return memory or self._value("nvmlDeviceGetMemoryInfo", handle, fatal=NO_ANSWER)

    def _temperature(self, handle: Any) -> float | None:
        sensor = self._nvml.NVML_TEMPERATURE_GPU
        value = self._value("nvmlDeviceGetTemperatureV", handle, sensor)
        if value is None:  # Drivers before 570 know only the older call.
            value = self._value("nvmlDeviceGetTemperature", handle, sensor)
        return None if value is None else float(value)

    def _processes(self, handle: Any) -> tuple[GpuProcess, ...]:
        """Each process once: one that computes and draws is listed in both places."""
        compute = self._process_list("nvmlDeviceGetComputeRunningProcesses", handle)
        graphics = self._process_list("nvmlDeviceGetGraphicsRunningProcesses", handle)
        memory = {**compute, **graphics}
        for pid in compute.keys() & graphics.keys():
            memory[pid] = max(compute[pid], graphics[pid])
        return tuple(self._describe(pid, memory[pid], pid in graphics) for pid in sorted(memory))

    def _process_list(self, function: str, handle: Any) -> dict[int, int]:
        for version in ("_v3", "_v3", "_v3", "_v2"):
            # None: the driver is too old for it, or there were so many new ones that they did
            # not fit. Then once more.
            found = self._value(function + version, handle, fatal=NO_ANSWER)
            if found is not None:
                return {int(item.pid): int(item.usedGpuMemory or 0) for item in found}
        return {}

    def _describe(self, pid: int, memory: int, graphics: bool) -> GpuProcess:
        try:
            process = psutil.Process(pid)
            started = process.create_time()
            owner = self._owners.get(pid)
            # The start of a process moves a little when the clock is set.
            if owner is None or abs(owner[2] - started) > SAME_START_S:
                # Kept: asking a directory server for a user's name can take long.
                owner = self._owners[pid] = process.name(), process.username(), started
        except (psutil.Error, OSError):
            return GpuProcess(pid, memory, graphics)
        return GpuProcess(pid, memory, graphics, *owner)

    def _forget_owners(self, found: Collection[Reading]) -> None:
        there = {process.pid for reading in found for process in reading.processes}
        for pid in self._owners.keys() - there:
            del self._owners[pid]

    def _call(self, function: str, *arguments: Any) -> Any:
        try:
            return getattr(self._nvml, function)(*arguments)
        except self._nvml.NVMLError as error:
            raise Unreadable(int(error.value)) from error

    def _value(
        self, function: str, *arguments: Any, fatal: Collection[int] = frozenset()
    ) -> Any | None:
        """What this GPU answers; None for what it cannot tell. Only a GPU that is gone raises."""
        try:
            return self._call(function, *arguments)
        except Unreadable as error:
            if error.code in LOST or error.code in DRIVER_GONE or error.code in fatal:
                raise
            return None


def by_index(readings: Iterable[Reading]) -> list[Reading]:
    return sorted(readings, key=lambda reading: (reading.index, reading.uuid))


def has_nvidia_device(pci_devices: Path) -> bool:
    """Whether there is an NVIDIA display controller on the bus, driver or not."""
    with contextlib.suppress(OSError):
        for device in pci_devices.iterdir():
            with contextlib.suppress(OSError):
                vendor = (device / "vendor").read_text().strip()
                if vendor == "0x10de" and (device / "class").read_text().startswith("0x03"):
                    return True
    return False


def words(code: int) -> str:
    """What an NVML error means for whoever looks after the node."""
    known = {
        LIBRARY_NOT_FOUND: "no NVIDIA driver is installed",
        DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded",
        VERSION_MISMATCH: "the NVIDIA driver was updated while in use; restart the machine",
        GPU_IS_LOST: "it fell off the bus; restart the machine",
        RESET_REQUIRED: "it must be reset: nvidia-smi --gpu-reset, or restart the machine",
        GPU_NOT_FOUND: "the driver no longer finds it",
        UNINITIALIZED: "the NVIDIA driver was unloaded",
        TIMEOUT: "it does not answer in time",
    }
    return known.get(code) or f"NVML reports error {code}"
