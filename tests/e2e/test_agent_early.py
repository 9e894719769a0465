"""What a node claims early of short tasks, when something then takes long or is cancelled."""

from __future__ import annotations

from pathlib import Path

from tests.lab import Lab

EACH, SLOTS = 60, 2
LONG = (30, 31)
"""Which of hoff's tasks go on until they are let go: by then it knows that all were short."""
RUN = """
import os, time

def main(param2val):
    number = (int(os.environ["LUDWIG_TASK"]) - 1) % {each}
    if "_hoff_" not in param2val["job_name"]:
        time.sleep(0.05)
    elif number in {long}:
        while not os.path.exists({gate!r}):
            time.sleep(0.02)
"""


def run_with_gate(gate: Path) -> str:
    return RUN.format(each=EACH, long=LONG, gate=str(gate))


def test_what_waits_behind_a_long_task_goes_to_another_node(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with Lab(tmp_path, hosts=("hoff", "hebb")) as lab:
        lab.start()
        job = lab.submit(run_with_gate(gate), [{"lr": 0.1}], reps=2 * EACH)
        ends = lab.job_folder(job) / "done"
        # Of any job one waits for each slot, and one more of what was given back.
        expected = 2 * EACH - len(LONG) - SLOTS - 1
        lab.until(lambda: len(list(ends.glob("*/[0-9]*"))) >= expected, "the others to end")
        gate.touch()
        done = lab.wait(job)
        assert {one.outcome for one in done.values()} == {"done"}
        assert all(len(folders) == 1 for folders in lab.runs(job).values())


def test_what_was_claimed_early_never_starts_once_cancelled(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with Lab(tmp_path) as lab:
        lab.start()
        job = lab.submit(run_with_gate(gate), [{"lr": 0.1}], reps=EACH)
        hoff = lab["hoff"]
        lab.until(lambda: len(hoff.lines("started")) == LONG[-1] + 1, "the long ones to run")
        lab.until(lambda: len(hoff.lines("claimed")) > LONG[-1] + 1, "more to be claimed")
        job.cancel()
        lab.until(lambda: job.status().finished, "the end of the job")
        assert len(hoff.lines("started")) == LONG[-1] + 1
        ended = {done.task for done in lab.ends(job).values()}
        assert {int(name.partition(".")[0]) for name in lab.claims(job)} == ended
        assert {done.outcome for done in lab.ends(job).values()} == {"done", "stopped"}
