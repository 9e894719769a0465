"""`worker/gpu.py`: the real pynvml over a stub driver."""

import getpass
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from ludwig.worker.gpu import Gpus, Reading
from ludwig.worker.reading import GpuProcess
from tests import nvml as stub
from tests.harness import wait_until
from tests.nvml import GIB, StubNvml

pytestmark = pytest.mark.needs_gcc


class Clock:
    """Time that passes when told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def read_one(gpus: Gpus) -> Reading:
    (reading,) = gpus.readings()
    return reading


def test_what_a_gpu_does(nvml: StubNvml) -> None:
    card = nvml.add(utilization=37, memory_used=3 * GIB, memory_reserved=GIB, power=215_500)
    reading = read_one(Gpus())
    assert reading == Reading(
        uuid=card.uuid,
        index=0,
        name="NVIDIA Stub 4090",
        bus="00000000:01:00.0",
        utilization=37.0,
        memory_used=3 * GIB,
        memory_total=24 * GIB,
        temperature=40.0,
        power=215.5,
    )


def test_every_reading_is_fresh(nvml: StubNvml) -> None:
    card, gpus = nvml.add(), Gpus()
    for percent in (0, 50, 100):
        card.set(utilization=percent)
        assert read_one(gpus).utilization == percent


def test_gpus_come_in_the_order_of_their_index(nvml: StubNvml) -> None:
    uuids = [nvml.add().uuid for _ in range(4)]
    assert [reading.uuid for reading in Gpus().readings()] == uuids


def test_whose_process_it_is_and_since_when(nvml: StubNvml) -> None:
    nvml.add(compute={os.getpid(): 2 * GIB})
    (process,) = read_one(Gpus()).processes
    me = psutil.Process()
    assert process == GpuProcess(
        os.getpid(), 2 * GIB, False, me.name(), getpass.getuser(), me.create_time()
    )
    assert f"of {getpass.getuser()} (pid {os.getpid()}, 2.0 GiB, since 20" in str(process)


def test_a_process_that_cannot_be_seen_is_still_one(nvml: StubNvml) -> None:
    nvml.add(compute={2**22 + 1: None})
    (process,) = read_one(Gpus()).processes
    assert process == GpuProcess(2**22 + 1, 0)
    assert str(process) == f"a process of somebody (pid {2**22 + 1}, 0.0 GiB)"


def test_a_process_that_computes_and_draws_is_listed_once(nvml: StubNvml) -> None:
    nvml.add(compute={5_000_001: 100, 5_000_003: 7}, graphics={5_000_001: 300, 5_000_002: 50})
    processes = read_one(Gpus()).processes
    assert [(p.pid, p.memory, p.graphics) for p in processes] == [
        (5_000_001, 300, True),
        (5_000_002, 50, True),
        (5_000_003, 7, False),
    ]


def test_more_processes_than_any_buffer_holds(nvml: StubNvml) -> None:
    many = {5_000_000 + number: number for number in range(3000)}
    nvml.add(compute=many)
    assert {p.pid: p.memory for p in read_one(Gpus()).processes} == many


@pytest.mark.parametrize("code", [stub.NOT_SUPPORTED, stub.UNKNOWN, stub.NO_PERMISSION])
def test_a_value_that_a_gpu_does_not_have_is_none(nvml: StubNvml, code: int) -> None:
    card = nvml.add()
    for function in (
        "nvmlDeviceGetUtilizationRates",
        "nvmlDeviceGetTemperatureV",
        "nvmlDeviceGetTemperature",
        "nvmlDeviceGetPowerUsage",
    ):
        card.fail(function, code)
    reading = read_one(Gpus())
    assert (reading.utilization, reading.temperature, reading.power) == (None, None, None)
    assert (reading.memory_total, reading.error) == (24 * GIB, "")


def test_an_old_driver_without_the_newer_functions(nvml: StubNvml) -> None:
    card = nvml.add(memory_used=GIB, temperature=66)
    for function in ("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetTemperatureV"):
        card.fail(function, stub.FUNCTION_NOT_FOUND)
    for function in ("Compute", "Graphics"):
        card.fail(f"nvmlDeviceGet{function}RunningProcesses_v3", stub.FUNCTION_NOT_FOUND)
    reading = read_one(Gpus())
    assert (reading.memory_used, reading.temperature, reading.error) == (GIB, 66.0, "")


def test_a_gpu_that_falls_off_the_bus_is_known_by_name(nvml: StubNvml) -> None:
    first, second, gpus = nvml.add(), nvml.add(), Gpus()
    gpus.readings()
    second.lose()
    well, lost = gpus.readings()
    assert (well.uuid, well.error) == (first.uuid, "")
    assert (lost.uuid, lost.index, lost.lost) == (second.uuid, 1, True)
    assert lost.error == "it fell off the bus; restart the machine"
    assert not gpus.problem


def test_a_gpu_that_was_lost_before_we_looked(nvml: StubNvml) -> None:
    nvml.add(lost=1)
    reading = read_one(Gpus())
    assert (reading.uuid, reading.name, reading.lost) == ("unknown-0", "GPU 0", True)


def test_a_gpu_that_was_reset_comes_back(nvml: StubNvml) -> None:
    card, clock = nvml.add(), Clock()
    gpus = Gpus(clock=clock)
    gpus.readings()
    card.set(lost=1)
    assert read_one(gpus).lost
    card.set(lost=0)
    assert not read_one(gpus).lost
    nvml.set({"count": 0, "load": 2})
    assert read_one(gpus).error == "the driver no longer lists it"
    nvml.set({"count": 1})
    clock.now += 61
    assert not read_one(gpus).error


def test_a_gpu_that_does_not_answer_is_not_lost(nvml: StubNvml) -> None:
    card = nvml.add()
    card.fail("nvmlDeviceGetMemoryInfo_v2", stub.TIMEOUT)
    reading = read_one(Gpus())
    assert (reading.error, reading.lost) == ("it does not answer in time", False)


def test_a_reloaded_driver_is_noticed_at_once(nvml: StubNvml) -> None:
    card, gpus = nvml.add(), Gpus()
    gpus.readings()
    nvml.set({"load": 2})
    card.set(utilization=5)
    assert read_one(gpus).utilization == 5
    assert not gpus.problem


def test_a_driver_that_is_unloaded_and_loaded_again(nvml: StubNvml) -> None:
    nvml.add()
    clock = Clock()
    gpus = Gpus(clock=clock)
    gpus.readings()
    nvml.set({"load": 2, "init": stub.DRIVER_NOT_LOADED})
    for _ in range(3):
        reading = read_one(gpus)
        assert (reading.error, reading.lost) == ("the NVIDIA driver is not loaded", False)
        assert gpus.broken
    nvml.set({"init": 0})
    assert read_one(gpus).error, "asked again only after a while"
    clock.now += 6
    assert not read_one(gpus).error
    assert (gpus.problem, gpus.broken) == ("", False)


def test_counting_that_fails_is_tried_again(nvml: StubNvml) -> None:
    nvml.add()
    clock = Clock()
    gpus = Gpus(clock=clock)
    nvml.set({"error.nvmlDeviceGetCount_v2": stub.UNKNOWN})
    assert gpus.readings() == []
    assert (gpus.problem, gpus.broken) == ("NVML reports error 999", True)
    nvml.set({"error.nvmlDeviceGetCount_v2": 0})
    clock.now += 6
    assert len(gpus.readings()) == 1


def test_no_gpu_and_a_driver_package_all_the_same(nvml: StubNvml, tmp_path: Path) -> None:
    nvml.set({"init": stub.DRIVER_NOT_LOADED})
    gpus = Gpus(pci_devices=tmp_path)
    assert gpus.readings() == []
    assert (gpus.problem, gpus.broken) == ("the NVIDIA driver is not loaded", False)


def test_a_gpu_without_its_driver(nvml: StubNvml, tmp_path: Path) -> None:
    device = tmp_path / "0000:01:00.0"
    device.mkdir()
    (device / "vendor").write_text("0x10de\n")
    (device / "class").write_text("0x030000\n")
    nvml.set({"init": stub.DRIVER_NOT_LOADED})
    gpus = Gpus(pci_devices=tmp_path)
    assert gpus.readings() == []
    assert gpus.broken


def test_a_driver_that_was_updated_under_our_feet(nvml: StubNvml) -> None:
    nvml.set({"init": stub.VERSION_MISMATCH})
    gpus = Gpus()
    assert gpus.readings() == []
    assert "restart the machine" in gpus.problem
    assert gpus.broken


def test_without_the_python_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    gpus = Gpus()
    for _ in range(2):
        assert gpus.readings() == []
        assert gpus.problem == "the Python package nvidia-ml-py is not installed"
        assert not gpus.broken


def test_a_driver_that_hangs_does_not_hang_us(nvml: StubNvml) -> None:
    nvml.add()
    gpus = Gpus(answer_s=0.5)
    assert not read_one(gpus).error
    nvml.set({"delay_ms": 700})
    started = time.monotonic()
    for _ in range(3):
        reading = read_one(gpus)
        assert (reading.error, reading.lost) == ("the NVIDIA driver hangs", False)
    assert gpus.broken
    assert time.monotonic() - started < 1.2, "only the first time is waited for"
    nvml.set({"delay_ms": 0})
    wait_until(lambda: not read_one(gpus).error, what="the driver to answer again")
    assert not gpus.problem


def test_a_reading_is_cheap(nvml: StubNvml) -> None:
    for _ in range(4):
        nvml.add(compute={os.getpid(): GIB})
    gpus = Gpus()
    gpus.readings()
    started = time.process_time()
    for _ in range(20):
        gpus.readings()
    assert (time.process_time() - started) / 20 < 0.02


PROGRAM = """
import json
from ludwig.worker.gpu import Gpus
gpus = Gpus()
names = [reading.name for reading in gpus.readings()]
print(json.dumps([names, gpus.problem, gpus.broken]))
"""


def in_a_process(env: dict[str, str]) -> object:
    run = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, check=True)
    return json.loads(run.stdout)


def test_another_process_finds_the_stub(nvml: StubNvml) -> None:
    nvml.add(name="Another Card")
    assert in_a_process(nvml.env()) == [["Another Card"], "", False]


@pytest.mark.skipif(Path("/proc/driver/nvidia").exists(), reason="there is a driver here")
def test_without_a_driver() -> None:
    env = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
    assert in_a_process(env) == [[], "no NVIDIA driver is installed", False]


# ---- Recorder
