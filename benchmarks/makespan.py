"""A heavy-tailed sweep on unequal nodes: how much longer than the optimum?

    python -m benchmarks.makespan [--tasks 120] [--mean 1] [--seeds 2]

Real agents with 1, 2, 3 and 4 slots; a task only sleeps, for a lognormal time (sigma 1). The
optimum is a lower bound that knows all durations: all slots busy to the end, or the longest task.
Beside it fixed chunks as in the seed: each node works through its share (`balance=False`), dealt in
turn. Time counts from the first process to the last one's end, interpreters included.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from benchmarks import measure
from benchmarks.tasks import bare_python
from tests.lab import Lab

SLOTS = {"hebb": 1, "hinton": 2, "hopfield": 3, "hoff": 4}
RUN = """
import os, time

def mark(param2val, what):
    target = os.open(param2val["mark"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(target, f"{what} {time.monotonic()}\\n".encode())
    os.close(target)

def main(param2val):
    mark(param2val, "begin")
    time.sleep(param2val["seconds"])
    mark(param2val, "end")
"""


def durations(number: int, mean: float, seed: int) -> list[float]:
    chance = random.Random(seed)
    drawn = [chance.lognormvariate(0.0, 1.0) for _ in range(number)]
    return [round(value * mean * number / sum(drawn), 3) for value in drawn]


def sweep(lab: Lab, seconds: list[float], mark: Path, *, balance: bool) -> float:
    params = [
        {"seconds": each, "mark": str(mark), "number": index} for index, each in enumerate(seconds)
    ]
    job = lab.submit(RUN, params, balance=balance)
    lab.wait(job, timeout=900)
    lines = [line.split() for line in mark.read_text().splitlines()]
    begins = [float(at) for what, at in lines if what == "begin"]
    ends = [float(at) for what, at in lines if what == "end"]
    assert len(ends) == len(seconds), lines
    return max(ends) - min(begins)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tasks", type=int, default=120)
    parser.add_argument("--mean", type=float, default=1.0, help="seconds")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--python", default=bare_python())
    given = parser.parse_args()
    measure.adopt_orphans()
    rows = []
    try:
        with tempfile.TemporaryDirectory(prefix="ludwig-bench-") as name:
            lab = Lab(Path(name), hosts=tuple(SLOTS), silent_s=60, python=given.python)
            for host, slots in SLOTS.items():
                lab[host].configure(slots=slots, python=given.python)
            with lab:
                lab.start()
                for seed in range(given.seeds):
                    seconds = durations(given.tasks, given.mean, seed)
                    total = sum(seconds) / sum(SLOTS.values())
                    best = max(total, max(seconds))
                    times = {
                        balance: sweep(
                            lab, seconds, Path(name, f"{seed}{balance}"), balance=balance
                        )
                        for balance in (True, False)
                    }
                    cells = [f"{best:.1f} s", f"{times[True]:.1f} s", f"{times[True] / best:.2f}"]
                    cells += [f"{times[False]:.1f} s", f"{times[False] / best:.2f}"]
                    rows.append([f"seed {seed}, longest {max(seconds):.1f} s", *cells])
        print(f"{given.tasks} tasks, {sum(SLOTS.values())} slots on 4 nodes; {measure.load()}\n")
        print(measure.table(["", "optimum", "Ludwig", "×", "fixed chunks", "×"], rows))
    finally:
        for process in measure.end_family():
            print(f"was still running: {process}", file=sys.stderr)


if __name__ == "__main__":
    main()
