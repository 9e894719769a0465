"""GPUs: slots, samples, strangers, leftovers and losses, over the stub driver."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ludwig.model import Beat
from tests.e2e.test_agent_tasks import gate
from tests.lab import Lab
from tests.nvml import GIB, VARIABLE, StubNvml

SHOW = """
import os, time
def main(param2val):
    print("gpu", os.environ["CUDA_VISIBLE_DEVICES"], os.environ["CUDA_DEVICE_ORDER"])
    print("pid", os.getpid(), flush=True)
    {wait}
"""


def gpu_env(nvml: StubNvml) -> dict[str, str]:
    env = nvml.env()
    return {name: env[name] for name in ("LD_LIBRARY_PATH", VARIABLE)}


def make_lab(tmp_path: Path, nvml: StubNvml, **settings: object) -> Lab:
    return Lab(tmp_path, env=gpu_env(nvml), slots="gpus", **settings)  # type: ignore[arg-type]


def beat_of(lab: Lab, host: str = "hoff") -> Beat:
    beat = lab.beat(host)
    assert beat is not None
    return beat


def pid_of(lab: Lab, job: object, task: int, attempt: int = 1) -> int:
    text = lab.log(job, task, attempt)  # type: ignore[arg-type]
    assert "pid " in text
    return int(text.split("pid ")[1].split()[0])


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """Somebody else's process."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        yield process
        process.kill()


def test_each_task_has_a_gpu_of_its_own_and_is_recorded(tmp_path: Path, nvml: StubNvml) -> None:
    cards = [nvml.add(utilization=50, power=100_000, memory_used=GIB), nvml.add(utilization=90)]
    with make_lab(tmp_path, nvml) as lab:
        lab.start()
        run = SHOW.format(wait=gate(tmp_path))
        job = lab.submit(run, [{"lr": n} for n in range(3)])
        lab.until(lambda: pid_of(lab, job, 1) and pid_of(lab, job, 2), "two to run")
        lab.until(lambda: beat_of(lab).state == "busy", "a beat that says so")
        lab.until(lambda: {g.state for g in beat_of(lab).gpus} == {"busy"}, "both GPUs busy")
        cards[0].set(compute={pid_of(lab, job, 1): GIB})
        samples = lab.job_folder(job) / "gpu" / "0000" / "0001.1.csv"
        lab.until(lambda: len(samples.read_text().splitlines()) >= 3, "samples on the drive")
        cards[0].set(compute={})
        (tmp_path / "open").touch()
        ends = lab.wait(job)
        assert [done.outcome for done in ends.values()] == ["done"] * 3
        used = {lab.log(job, task).split()[1] for task in (1, 2)}
        assert used == {card.uuid for card in cards}
        assert "PCI_BUS_ID" in lab.log(job, 1)
        summary = ends[1].gpu
        assert summary is not None and summary.samples >= 2
        assert summary.utilization_max in (50, 90) and summary.energy > 0
        rows = list(csv.DictReader(samples.read_text().splitlines()))
        assert rows[0]["uuid"] == lab.log(job, 1).split()[1]
        assert 0 <= float(rows[0]["seconds"]) < 30
        assert not any("gpu.csv" in file.path for file in ends[1].files[0])


def test_a_restarted_agent_goes_on_with_the_samples(tmp_path: Path, nvml: StubNvml) -> None:
    nvml.add(utilization=50, power=100_000)
    with make_lab(tmp_path, nvml) as lab:
        lab.start()
        job = lab.submit(SHOW.format(wait=gate(tmp_path)), [{"lr": 1}, {"lr": 2}])
        samples = lab.job_folder(job) / "gpu" / "0000" / "0001.1.csv"
        lab.until(lambda: len(samples.read_text().splitlines()) >= 3, "samples")
        lab["hoff"].kill_alone()
        lab.start()
        before = len(samples.read_text().splitlines())
        lab.until(lambda: len(samples.read_text().splitlines()) >= before + 2, "more samples")
        assert len(lab["hoff"].lines("started")) == 1, "the GPU is still taken"
        (tmp_path / "open").touch()
        ends = lab.wait(job)
        rows = list(csv.DictReader(samples.read_text().splitlines()))
        seconds = [float(row["seconds"]) for row in rows]
        assert seconds == sorted(seconds) and seconds[-1] < 60
        assert ends[1].gpu is not None and ends[1].gpu.samples == len(rows)


def test_more_gpus_none_and_too_many(tmp_path: Path, nvml: StubNvml) -> None:
    cards = [nvml.add(), nvml.add()]
    with make_lab(tmp_path, nvml, cpu_slots=1) as lab:
        lab.start()
        run = SHOW.format(wait="pass")
        both = lab.submit(run, [{"lr": 1}], gpus=2)
        none = lab.submit(run, [{"lr": 2}], gpus=0)
        three = lab.submit(run, [{"lr": 3}], gpus=3)
        lab.wait(both)
        lab.wait(none)
        assert lab.log(both, 1).split()[1] == ",".join(card.uuid for card in cards)
        assert lab.log(none, 1).startswith("gpu  PCI")
        lab.until((lab.job_folder(three) / "refused" / "hoff.json").exists, "the refusal")
        assert "3 GPUs" in three.status().tasks[0].why
        slots = beat_of(lab).slots
        assert (slots.gpus, slots.cpus) == (2, 1)


def test_a_gpu_that_somebody_else_uses_is_left_alone(
    tmp_path: Path, nvml: StubNvml, sleeper: subprocess.Popen[bytes]
) -> None:
    card = nvml.add(compute={sleeper.pid: 2 * GIB})
    with make_lab(tmp_path, nvml) as lab:
        lab.start()
        job = lab.submit(SHOW.format(wait="pass"), [{"lr": n} for n in range(9)])
        lab.until(lambda: lab["hoff"].lines("accepted"), "the ticket")

        def told() -> bool:
            (gpu,) = beat_of(lab).gpus
            return gpu.state == "foreign" and str(sleeper.pid) in gpu.why

        lab.until(told, "the heartbeat to say who")
        assert lab.claims(job) == [], "nothing is claimed for a GPU that is not ours"
        card.set(compute={})
        assert len(lab.wait(job)) == 9


def test_memory_that_stays_held_after_a_task_is_freed(tmp_path: Path, nvml: StubNvml) -> None:
    card = nvml.add()
    # Leaves its session, its parent and its environment behind, so that only the GPU tells on it.
    run = f"""
    import os, subprocess, sys, time
    def main(param2val):
        code = "import os, time; os.setsid(); time.sleep(600)"
        if param2val["lr"] == 1:
            child = subprocess.Popen([sys.executable, "-c", code])
            print("pid", child.pid, flush=True)
            {gate(tmp_path)}
    """
    with make_lab(tmp_path, nvml) as lab:
        lab.start()
        job = lab.submit(run, [{"lr": 1}])
        pid = lab.until(lambda: pid_of(lab, job, 1), "it to run")
        card.set(compute={pid: 3 * GIB})
        samples = lab.job_folder(job) / "gpu" / "0000" / "0001.1.csv"
        lab.until(lambda: str(3 * GIB) in samples.read_text(), "it to be seen on the GPU")
        (tmp_path / "open").touch()
        lab.until(lambda: not lab.processes(), "what was left behind to be ended")
        lab.wait(job)
        # The driver still lists it: the GPU is not given away, and the node says why.
        after = lab.submit(run, [{"lr": 2}])
        lab.until(lambda: lab["hoff"].lines("accepted")[1:], "the second ticket")
        assert lab.claims(after) == []
        lab.until(lambda: "task 1 attempt 1" in beat_of(lab).gpus[0].why, "the beat to say why")
        card.set(compute={})
        assert [done.outcome for done in lab.wait(after).values()] == ["done"]


def test_a_lost_gpu_ends_only_its_own_task(tmp_path: Path, nvml: StubNvml) -> None:
    nvml.add()
    nvml.add()
    with make_lab(tmp_path, nvml, hosts=("hoff",)) as lab:
        lab.start()
        job = lab.submit(SHOW.format(wait=gate(tmp_path)), [{"lr": 1}, {"lr": 2}])
        pids = lab.until(lambda: [pid_of(lab, job, 1), pid_of(lab, job, 2)], "both to run")
        uuid = lab.log(job, 2).split()[1]
        card = next(card for card in nvml.gpus if card.uuid == uuid)
        card.lose()
        lab.until(lambda: lab.events(job, "released"), "the attempt to be given back")
        (event,) = lab.events(job, "released")
        assert event.task == 2 and "GPU" in event.why
        os.kill(pids[0], 0)  # the other lives
        lab.until(lambda: "out" in {g.state for g in beat_of(lab).gpus}, "the beat to say so")
        (tmp_path / "open").touch()
        ends = lab.wait(job)
        assert [(d.outcome, d.attempt) for d in ends.values()] == [("done", 1), ("done", 2)]
        assert ends[2].failures == (), "no fault of the task's"
        assert lab.log(job, 2, 2).split()[1] != uuid


def test_without_nvml_the_node_serves_cpu_slots(tmp_path: Path) -> None:
    with Lab(tmp_path, slots="gpus", env={VARIABLE: str(tmp_path / "none")}) as lab:
        lab.start()
        job = lab.submit(SHOW.format(wait="pass"))
        lab.wait(job)
        slots = beat_of(lab).slots
        assert slots.gpus == 0 and slots.cpus == (os.cpu_count() or 1)
        assert lab["hoff"].terminate() == 0
