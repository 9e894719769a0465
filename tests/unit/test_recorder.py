"""`worker/recorder.py`: what is kept of the readings of an attempt's GPUs."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from ludwig.worker.gpu import Reading, Recorder
from ludwig.worker.reading import GpuProcess
from tests.nvml import GIB


def a_reading(uuid: str = "GPU-a", **values: object) -> Reading:
    usual = Reading(uuid, 0, utilization=50.0, memory_used=GIB, temperature=60.0, power=100.0)
    return replace(usual, **values)  # type: ignore[arg-type]


def lines(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_a_line_per_sample_and_gpu(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "gpu.csv", ["GPU-a", "GPU-b"])
    mine, other = GpuProcess(7, 300), GpuProcess(8, 500)
    readings = [
        a_reading(processes=(mine, other)),
        a_reading("GPU-b", index=1, power=None, temperature=None),
        a_reading("GPU-c", index=2),
    ]
    recorder.sample(readings, {7}, 1.0)
    assert lines(recorder.path) == [
        {
            "seconds": "1.00",
            "gpu": "0",
            "uuid": "GPU-a",
            "utilization": "50",
            "memory_used": str(GIB),
            "memory_own": "300",
            "temperature": "60",
            "power": "100",
        },
        {
            "seconds": "1.00",
            "gpu": "1",
            "uuid": "GPU-b",
            "utilization": "50",
            "memory_used": str(GIB),
            "memory_own": "0",
            "temperature": "",
            "power": "",
        },
    ]


def test_the_summary(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "gpu.csv", ["GPU-a"])
    for second, power in ((1.0, 100.0), (2.0, 200.0), (4.0, 300.0)):
        percent = power / 10
        reading = a_reading(power=power, utilization=percent, temperature=percent)
        recorder.sample([reading], (), second)
    summary = recorder.summary()
    assert (summary.gpus, summary.samples) == (("GPU-a",), 3)
    assert (summary.utilization_mean, summary.utilization_max) == (20.0, 30.0)
    assert (summary.memory_mean, summary.memory_max) == (GIB, GIB)
    assert (summary.temperature_max, summary.power_mean) == (30.0, 200.0)
    assert summary.energy == 150 + 2 * 250


def test_energy_is_of_all_gpus_together(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "gpu.csv", ["GPU-a", "GPU-b"])
    for second in (0.0, 10.0):
        recorder.sample([a_reading(), a_reading("GPU-b", index=1)], (), second)
    assert (recorder.summary().power_mean, recorder.summary().energy) == (200.0, 2000.0)


def test_without_samples_there_is_a_header_and_an_empty_summary(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "gpu.csv", [])
    recorder.sample([a_reading()], (), 1.0)
    assert recorder.path.read_text().startswith("seconds,gpu,uuid,")
    assert recorder.summary().samples == 0


def test_a_lost_gpu_leaves_empty_cells(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "gpu.csv", ["GPU-a"])
    recorder.sample([a_reading()], (), 1.0)
    recorder.sample([Reading("GPU-a", 0, error="lost", lost=True)], (), 2.0)
    assert recorder.path.read_text().splitlines()[-1] == "2.00,0,GPU-a,,,,,"
    summary = recorder.summary()
    assert (summary.samples, summary.utilization_mean, summary.energy) == (2, 50.0, 0.0)


@pytest.mark.parametrize("torn", ["", "3.00,0,GPU", "\n"])
def test_it_goes_on_after_a_restart(tmp_path: Path, torn: str) -> None:
    whole, restarted = tmp_path / "whole.csv", tmp_path / "restarted.csv"
    one = Recorder(whole, ["GPU-a", "GPU-b"])
    two = Recorder(restarted, ["GPU-a", "GPU-b"])
    for step in range(6):
        if step == 3:
            with restarted.open("a") as file:
                file.write(torn)
            two = Recorder(restarted, ["GPU-a", "GPU-b"])
        for recorder in (one, two):
            first = a_reading(power=100.123 + step, utilization=float(step))
            second = a_reading("GPU-b", index=1, power=17.5)
            recorder.sample([first, second], (), step * 1.0171)
    assert one.summary() == two.summary()
    assert lines(whole) == lines(restarted)


def test_a_file_that_cannot_be_written_costs_samples_and_nothing_else(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "nowhere" / "gpu.csv", ["GPU-a"])
    recorder.sample([a_reading()], (), 1.0)
    assert recorder.summary().samples == 1


def test_a_link_in_place_of_the_samples_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("private")
    (tmp_path / "gpu.csv").symlink_to(tmp_path / "secret")
    Recorder(tmp_path / "gpu.csv", ["GPU-a"])
    assert (tmp_path / "secret").read_text() == "private"
    assert (tmp_path / "gpu.csv").read_text().startswith("seconds,")
