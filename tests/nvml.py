"""GPUs for tests: the real `pynvml` over a stub `libnvidia-ml.so.1` that a test scripts.

    def test_something(nvml):
        card = nvml.add(memory_used=3 << 30)       # two calls: two GPUs
        card.set(utilization=80, compute={4711: 2 << 30})
        Gpus().readings()                          # here, or in a process started with nvml.env()

What a test sets is what the next NVML call of any process answers. See nvml_stub.c for the rest.

In this process the stub is loaded by its path: after that, the dynamic loader finds its soname for
whoever asks for it. It cannot be unloaded, so without a state file it says that it is not there.
"""

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.tools import program, require

VARIABLE = "LUDWIG_NVML_STUB"
SONAME = "libnvidia-ml.so.1"
SOURCE = Path(__file__).parent / "nvml_stub" / "nvml_stub.c"
GIB = 1 << 30

# What NVML functions return; the names are those of nvml.h without NVML_ERROR_.
UNINITIALIZED = 1
NOT_SUPPORTED = 3
NO_PERMISSION = 4
DRIVER_NOT_LOADED = 9
TIMEOUT = 10
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
VERSION_MISMATCH = 18
UNKNOWN = 999


@functools.cache
def library_folder() -> Path:
    """The folder with the compiled stub: made once per version of its source, on this machine."""
    flags = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    flags.append(f"-Wl,-soname,{SONAME}")
    version = hashlib.sha256(SOURCE.read_bytes() + repr(flags).encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"ludwig-nvml-stub-{os.getuid()}-{version}"
    # Not 0700: agents in tests run jobs, and themselves, as other users.
    folder.mkdir(mode=0o755, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to somebody else")
    if not (folder / SONAME).exists():
        own = folder / f"{SONAME}.{os.getpid()}"
        subprocess.run([program("gcc"), *flags, "-o", own, SOURCE], check=True)
        own.rename(folder / SONAME)  # Test processes side by side may all do this.
    return folder


class StubGpu:
    """One GPU of a `StubNvml`. Keys as in nvml_stub.c; processes as a dict of pid to bytes."""

    def __init__(self, nvml: "StubNvml", index: int) -> None:
        self._nvml = nvml
        self.index = index
        self.uuid = f"GPU-{index:08x}-0000-4000-8000-000000000000"

    def set(self, **values: object) -> None:
        """Change what the next calls answer: `set(utilization=80, compute={4711: 2 << 30})`."""
        self._nvml.set({f"{self.index}.{key}": value for key, value in values.items()})

    def fail(self, function: str, code: int) -> None:
        """Let one NVML function fail on this GPU: `fail("nvmlDeviceGetPowerUsage", 3)`."""
        self._nvml.set({f"{self.index}.error.{function}": code})

    def lose(self) -> None:
        """It falls off the bus."""
        self.set(lost=1)


class StubNvml:
    """The state file and its GPUs. Every change is written at once, in one piece."""

    def __init__(self, folder: Path) -> None:
        self.library = library_folder() / SONAME
        self.state = folder / "nvml"
        self.gpus: list[StubGpu] = []
        self._values: dict[str, object] = {}
        self._write()

    def add(self, **values: object) -> StubGpu:
        """One more GPU: an idle one with 24 GiB, unless told otherwise."""
        gpu = StubGpu(self, len(self.gpus))
        self.gpus.append(gpu)
        usual: dict[str, Any] = {
            "name": "NVIDIA Stub 4090",
            "uuid": gpu.uuid,
            "bus": f"00000000:{gpu.index + 1:02X}:00.0",
            "memory_total": 24 * GIB,
            "temperature": 40,
            "power": 20_000,
        }
        gpu.set(**{**usual, **values})
        self.set({"count": len(self.gpus)})
        return gpu

    def set(self, values: Mapping[str, object]) -> None:
        """Change lines of the state file: `set({"init": 18})`, `set({"load": 2})`."""
        self._values.update(values)
        self._write()

    def env(self) -> dict[str, str]:
        """This process's environment, with which a subprocess finds the stub."""
        paths = [str(self.library.parent), os.environ.get("LD_LIBRARY_PATH", "")]
        found = {"LD_LIBRARY_PATH": ":".join(filter(None, paths)), VARIABLE: str(self.state)}
        return {**os.environ, **found}

    def _write(self) -> None:
        lines = [f"{key}={as_text(value)}\n" for key, value in self._values.items()]
        temporary = self.state.with_name(f"{self.state.name}.new")
        temporary.write_text("".join(lines))
        temporary.rename(self.state)


def as_text(value: object) -> str:
    if isinstance(value, Mapping):
        return ",".join(f"{pid}:{'-' if size is None else size}" for pid, size in value.items())
    return str(value)


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StubNvml]:
    """NVML with no GPU yet, for this process and those started with `nvml.env()`."""
    require("gcc")
    folder = tmp_path / "nvml-stub"
    folder.mkdir()
    stub = StubNvml(folder)
    ctypes.CDLL(str(stub.library))
    monkeypatch.setenv(VARIABLE, str(stub.state))
    yield stub
    shutil.rmtree(folder, ignore_errors=True)
