"""`make bench`: every benchmark in turn, and one table of what they say.

    python -m benchmarks.bench [--quick] [--only tasks,latency,…]

Each runs in a process of its own and can be run alone (`python -m benchmarks.<name> --help`); what
it printed is kept in `.cache/bench/<name>.txt`. A benchmark that fails is a line that says so.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks import measure

KEPT = Path(__file__).resolve().parents[1] / ".cache" / "bench"
TIMEOUT_S = 3600


class Row(NamedTuple):
    what: str
    figure: str
    against: str
    target: str = ""


def columns(text: str) -> Iterator[list[str]]:
    """The rows of a table: cells are two or more spaces apart."""
    for line in text.splitlines():
        cells = re.split(r"\s{2,}", line.strip())
        if len(cells) > 2:
            yield cells


def of_tasks(text: str) -> Iterator[Row]:
    targets = {"Ludwig, folder drive": "≥ 0.90", "Ludwig, SMB drive": "≥ 0.75"}
    for name, rate, share, cpu, times in (c for c in columns(text) if len(c) == 5):
        against = f"{share} of the limit; {cpu} ms CPU, {times} ×"
        yield Row(f"tasks/s: {name}", rate, against, targets.get(name, ""))
    for line in text.splitlines():
        if line.startswith("skipped: "):
            yield Row(f"tasks/s: {line}", "", "")


def of_latency(text: str) -> Iterator[Row]:
    for name, middle, late, number in (c for c in columns(text) if len(c) == 4):
        if number.isdigit():
            yield Row(name, f"{middle} ms", f"p99 {late} ms of {number}")


def of_makespan(text: str) -> Iterator[Row]:
    for name, _, greedy, took, times, _, fixed in (c for c in columns(text) if len(c) == 7):
        against = f"{times} × optimum; greedy {greedy} ×, fixed chunks {fixed} ×"
        yield Row(f"makespan: {name}", took, against, "≤ 1.1 ×")


def of_results(text: str) -> Iterator[Row]:
    targets = {"first call": "≥ 3×; ≤ 2×", "second call": "≥ 20×; ≤ 2×"}
    pattern = r"(folder|smb) +(.+?) +([\d.]+ s) +([\d.]+×).*? ([\d.]+×)"
    for drive, what, took, ratio, memory in re.findall(pattern, text):
        against = f"{ratio} as fast as the obvious loop; memory {memory} the frame"
        yield Row(f"results: {what}, {drive}", took, against, targets.get(what, ""))


def of_submit(text: str) -> Iterator[Row]:
    for name, cold, times, unchanged, ratio in (c for c in columns(text) if len(c) == 5):
        if name.startswith("submitting"):
            continue
        yield Row(f"submit {name}, cold", f"{cold} s", f"{times} × serial sftp", "≤ 1.5 ×")
        yield Row(f"submit {name}, unchanged", f"{unchanged} s", f"{ratio} × cold", "≤ 0.33 ×")
    for middle, worst in re.findall(r"first line of the task: median (\d+ ms).*: (\d+ ms)", text):
        yield Row("submit() → first line of the task", middle, f"worst {worst}", "≤ 100 ms")


def of_idle(text: str) -> Iterator[Row]:
    for what, rest in re.findall(r"(?m)^(processor|memory|requests|threads) +(.+)$", text):
        figure, _, limit = rest.partition("(limit ")
        yield Row(f"idle: {what}", figure.strip(), "", limit.rstrip(")"))


def of_drive(text: str) -> Iterator[Row]:
    """The drive beside the first that can do the same: a cell of one that cannot is empty."""
    kind, heads = "folder", dict[int, str]()
    pattern = (
        r"(create|publish|read|append|list 10,000) +([\d.,]+) +[\d.]+x +\S+ +([\d.,]+) +([\d.]+)"
    )
    for line in text.splitlines():
        kind = "SMB" if line.startswith("SMB drive") else kind
        if "cpu µs" in line:
            heads = {head.end(): head[1] for head in re.finditer(r"(\S+)/s", line)}
        elif found := re.match(pattern, line):
            against = f"{found[4]} × {heads.get(found.end(3), '?')}"
            yield Row(f"{found[1]}, {kind} drive", f"{found[2]}/s", against)


def of_simulate(text: str) -> Iterator[Row]:
    for cells in columns(text):
        if len(cells) >= 4 and cells[0].isdigit() and "%" in cells[-1] + cells[-2]:
            share = next(cell for cell in cells if "%" in cell)
            what = ", ".join(cells[: cells.index(share) - 1])
            yield Row(
                f"simulated: {what}", f"{cells[cells.index(share) - 1]} req/s", f"{share} busy"
            )
        elif len(cells) == 9 and cells[0].isdigit():
            against = f"fixed {cells[4]} ×; a tenth dies: {cells[6]} ×, back in {cells[5]}"
            what = f"simulated makespan, {cells[0]} nodes"
            yield Row(what, f"{cells[3]} × optimum", against, "≤ 1.1 ×")


class Benchmark(NamedTuple):
    name: str
    read: Callable[[str], Iterator[Row]]
    options: tuple[str, ...] = ()
    quick: tuple[str, ...] = ()


BENCHMARKS = (
    Benchmark("tasks", of_tasks, quick=("--tasks", "100", "--rounds", "2")),
    Benchmark("latency", of_latency, quick=("--tries", "3", "--gaps", "40")),
    Benchmark("makespan", of_makespan, quick=("--seeds", "1", "--tasks", "100")),
    Benchmark("results", of_results, quick=("--runs", "1000", "--repeat", "1")),
    Benchmark("submit", of_submit, quick=("--largest", "1000", "--rounds", "1")),
    Benchmark("idle", of_idle, quick=("20",)),
    Benchmark("drive", of_drive, quick=("--rounds", "2")),
    Benchmark("simulate", of_simulate, quick=("--quick",)),
)


def run(benchmark: Benchmark, *, quick: bool) -> list[Row]:
    options = benchmark.quick if quick else benchmark.options
    command = [sys.executable, "-m", f"benchmarks.{benchmark.name}", *options]
    print(f"… {' '.join(command[2:])}", file=sys.stderr, flush=True)
    KEPT.mkdir(parents=True, exist_ok=True)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return [Row(f"{benchmark.name}: took more than an hour", "", "")]
    (KEPT / f"{benchmark.name}.txt").write_text(done.stdout + "\n" + done.stderr)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["?"])[-1]
        return [Row(f"{benchmark.name}: failed: {last[:80]}", "", "")]
    return list(benchmark.read(done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a few minutes, rougher figures")
    parser.add_argument("--only", default="", help="some of them: tasks,latency,…")
    given = parser.parse_args()
    wanted = set(filter(None, given.only.split(",")))
    rows: list[Row] = []
    for benchmark in BENCHMARKS:
        if not wanted or benchmark.name in wanted:
            rows += run(benchmark, quick=given.quick)
    print(measure.table(("", "figure", "against", "target"), rows))
    print(f"\n{measure.load()}; details in {KEPT}")


if __name__ == "__main__":
    main()
