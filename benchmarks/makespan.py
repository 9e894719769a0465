"""A heavy-tailed sweep on unequal nodes: how much longer than the optimum?

    python -m benchmarks.makespan [--tasks 800] [--mean 0.5] [--seeds 2]

Real agents with 1 to 4 slots, the fastest four times as fast as the slowest; a task only sleeps,
for a lognormal time (sigma 1). The optimum is a lower bound that knows all durations: all slots
busy to the end, or the longest task on the fastest node. "greedy" is what nobody who does not know
them can be expected to beat: whatever slot is free takes the next task, at no cost. Beside them
fixed chunks as in the seed: each node works through its share, and nobody helps
(`balance=False`). Time counts from the first process to the last one's end, interpreters included.
"""

from __future__ import annotations

import argparse
import heapq
import random
import sys
import tempfile
from pathlib import Path

from benchmarks import measure
from benchmarks.tasks import bare_python
from tests.lab import Lab

NODES = {"hebb": (1, 0.5), "hinton": (2, 1.0), "hopfield": (2, 1.5), "hoff": (4, 2.0)}
"""Slots, and how fast each is."""
RUN = """
import os, time

def mark(param2val, what):
    target = os.open(param2val["mark"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(target, f"{what} {time.monotonic()}\\n".encode())
    os.close(target)

def main(param2val):
    mark(param2val, "begin")
    speeds = param2val["speeds"].items()
    speed = next(speed for host, speed in speeds if f"/{host}/" in os.environ["LUDWIG_STOP"])
    time.sleep(param2val["seconds"] / speed)
    mark(param2val, "end")
"""


def durations(number: int, mean: float, seed: int) -> list[float]:
    chance = random.Random(seed)
    drawn = [chance.lognormvariate(0.0, 1.0) for _ in range(number)]
    return [round(value * mean * number / sum(drawn), 3) for value in drawn]


def optimum(seconds: list[float]) -> float:
    capacity = sum(slots * speed for slots, speed in NODES.values())
    return max(sum(seconds) / capacity, max(seconds) / max(speed for _, speed in NODES.values()))


def greedy(seconds: list[float]) -> float:
    free = [(0.0, speed) for slots, speed in NODES.values() for _ in range(slots)]
    heapq.heapify(free)
    last = 0.0
    for each in seconds:
        at, speed = heapq.heappop(free)
        last = max(last, at + each / speed)
        heapq.heappush(free, (at + each / speed, speed))
    return last


def sweep(lab: Lab, seconds: list[float], mark: Path, *, balance: bool) -> float:
    speeds = {host: speed for host, (_, speed) in NODES.items()}
    params = [
        {"seconds": each, "mark": str(mark), "number": index, "speeds": speeds}
        for index, each in enumerate(seconds)
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
    parser.add_argument("--tasks", type=int, default=800)
    parser.add_argument("--mean", type=float, default=0.5, help="seconds")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--python", default=bare_python())
    given = parser.parse_args()
    measure.adopt_orphans()
    rows = []
    try:
        with tempfile.TemporaryDirectory(prefix="ludwig-bench-") as name:
            lab = Lab(Path(name), hosts=tuple(NODES), silent_s=60, python=given.python)
            for host, (slots, _) in NODES.items():
                lab[host].configure(slots=slots, python=given.python)
            with lab:
                lab.start()
                for seed in range(given.seeds):
                    seconds = durations(given.tasks, given.mean, seed)
                    best, ideal = optimum(seconds), greedy(seconds)
                    times = {
                        balance: sweep(
                            lab, seconds, Path(name, f"{seed}{balance}"), balance=balance
                        )
                        for balance in (True, False)
                    }
                    cells = [f"{best:.1f} s", f"{ideal / best:.2f}"]
                    cells += [f"{times[True]:.1f} s", f"{times[True] / best:.2f}"]
                    cells += [f"{times[False]:.1f} s", f"{times[False] / best:.2f}"]
                    rows.append([f"seed {seed}, longest {max(seconds):.1f} s", *cells])
        slots = sum(slots for slots, _ in NODES.values())
        print(f"{given.tasks} tasks, {slots} slots on 4 nodes; {measure.load()}\n")
        print(measure.table(["", "optimum", "greedy ×", "Ludwig", "×", "fixed chunks", "×"], rows))
    finally:
        for process in measure.end_family():
            print(f"was still running: {process}", file=sys.stderr)


if __name__ == "__main__":
    main()
