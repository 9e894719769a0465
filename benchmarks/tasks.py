"""Trivial tasks, a fresh Python process each, on two slots: Ludwig, its limit, and its peers.

    python -m benchmarks.tasks [--tasks 1000] [--rounds 4] [--python PATH] [--only ludwig,bare]

The limit is `subprocess` in two threads, running the same interpreter and an equivalent script (it
unpickles its param2val and calls `main`, as a sweep's script does): nothing is remembered, nothing
survives. "our child" is the same two threads running what Ludwig's agent runs (the supervisor, its
fork, the user's `main`): what is left above it is the agent. "an empty script" shows what the
interpreter alone takes.

Contenders take turns in blocks, the best block of each counts, and ratios are within one run: the
machine may be busy with other things. Each block goes from handing the work over to the end of the
last task. "CPU" is the processor time per task of everything involved (daemons and file server
included): unlike tasks/s it hardly depends on what else the machine does. Ludwig has by then a
claim, a log, events and a published end of every task on the drive.

The default interpreter is the bare one of this machine, the hardest case: one with a few packages
takes twice as long to start, and hides twice as much.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from benchmarks import measure
from benchmarks.measure import Block
from benchmarks.peers.contenders import (
    Bare,
    Contender,
    Inside,
    Parallel,
    SlurmArray,
    Spooler,
)
from benchmarks.peers.gridengine import GridEngineArray
from benchmarks.peers.packages import Missing
from ludwig.worker import launch
from tests.harness import SmbServer
from tests.lab import Lab

RUN = "def main(param2val):\n    return None\n"
SCRIPT = f"""import pickle, sys

{RUN}

with open(sys.argv[1], "rb") as file:
    for param2val in pickle.load(file):
        main(param2val)
"""
PARAMS = pickle.dumps([{"lr": 0.1}])


class Ludwig:
    """One agent with two slots; a job per block, over a folder or a real SMB server."""

    share = 1.0

    def __init__(self, kind: str, folder: Path, python: str) -> None:
        self.name = f"Ludwig, {kind} drive"
        self._smb = SmbServer() if kind == "SMB" else None
        if self._smb is not None:
            self._smb.start()
        self._lab = Lab(folder / kind, smb=self._smb, silent_s=60, slots=2, python=python)
        self._lab.start()
        self._blocks = 0

    def run(self, number: int) -> None:
        self._blocks += 1
        job = self._lab.submit(RUN, [{"block": self._blocks}], reps=number)
        ends = self._lab.job_folder(job) / "done"
        while sum(map(_published, ends.iterdir())) < number:
            time.sleep(0.05)

    def close(self) -> None:
        self._lab.close()
        if self._smb is not None:
            self._smb.close()


def _published(folder: Path) -> int:
    return sum(not name.startswith(".") for name in os.listdir(folder))  # noqa: PTH208


def child_commands(folder: Path, python: str, number: int = 8) -> list[list[str]]:
    """What the agent executes, for attempts that are prepared already."""
    entry = launch.stage(folder)
    commands = []
    for index in range(number):
        attempt = folder / "attempts" / str(index)
        workspace = attempt / "tree" / "trees"
        workspace.mkdir(parents=True)
        (workspace / "run.py").write_text(RUN)
        (attempt / "chunk.pkl").write_bytes(PARAMS)
        order = {
            "contract": "function",
            "entry": "run.py",
            "workspace": str(workspace),
            "project_path": "",
            "source_name": "src",
            "runs": [["param_001", f"2026-11-18-10-00-00_hoff_num{index}"]],
        }
        (attempt / "order.json").write_bytes(msgspec.json.encode(order))
        commands.append([python, str(entry), str(attempt)])
    return commands


def contenders(folder: Path, python: str) -> Iterator[tuple[str, Callable[[], Contender]]]:
    """Short names for `--only`, and how each is set up."""
    script, empty, params = (folder / name for name in ("task.py", "empty.py", "params.pkl"))
    script.write_text(SCRIPT)
    empty.touch()
    params.write_bytes(PARAMS)
    task = (python, str(script), str(params))

    def inside(name: str, package: str, *more: str, share: float = 1.0) -> Callable[[], Inside]:
        return lambda: Inside(name, package, *more, task=task, folder=folder, share=share)

    yield "bare", lambda: Bare("subprocess in two threads (the limit)", [task])
    yield "empty", lambda: Bare("… running an empty script", [(python, str(empty))])
    yield "child", lambda: Bare("… running our child", child_commands(folder / "child", python))
    yield "folder", lambda: Ludwig("folder", folder, python)
    yield "smb", lambda: Ludwig("SMB", folder, python)
    yield "parallel", lambda: Parallel(task, folder)
    yield "tsp", lambda: Spooler(task, folder)
    yield "hyperqueue", inside("HyperQueue", "hyperqueue")
    yield "slurm", lambda: SlurmArray(task, folder)
    yield "gridengine", lambda: GridEngineArray(task, folder)
    yield "submitit", inside("submitit, local", "submitit", share=0.1)
    yield "dask", inside("dask, 2 worker processes", "dask", "dask")


def measure_all(
    folder: Path, *, python: str, tasks: int, rounds: int, only: set[str]
) -> tuple[list[tuple[str, Block]], list[str]]:
    """The best block of each, per task; and what could not be had."""
    blocks: dict[str, list[Block]] = {}
    skipped: list[str] = []
    with contextlib.ExitStack() as stack:
        ready: list[Contender] = []
        for short, make in contenders(folder, python):
            if only and short not in only:
                continue
            try:
                contender = make()
            except Missing as error:
                skipped.append(f"{short}: {error}")
                continue
            stack.callback(contender.close)
            ready.append(contender)
        for turn in range(rounds + 1):
            for contender in list(ready):
                number = max(4, int(contender.share * tasks / rounds))
                number = max(4, number // 5) if turn == 0 else number
                try:
                    with measure.measured() as block:
                        contender.run(number)
                except Missing as error:
                    skipped.append(f"{contender.name}: {error}")
                    ready.remove(contender)
                    continue
                if turn > 0:  # the first warms up
                    each = Block(block.seconds / number, block.cpu / number)
                    blocks.setdefault(contender.name, []).append(each)
                    print(
                        f"  {contender.name}: {1 / each.seconds:.1f} tasks/s, "
                        f"{1e3 * each.cpu:.1f} ms CPU a task; {measure.load()}",
                        file=sys.stderr,
                    )
    best = [
        (name, Block(min(b.seconds for b in found), min(b.cpu for b in found)))
        for name, found in blocks.items()
    ]
    return best, skipped


def report(best: list[tuple[str, Block]], skipped: list[str]) -> str:
    limit = best[0][1]
    rows = [
        (
            name,
            f"{1 / block.seconds:.1f}",
            f"{limit.seconds / block.seconds:.2f}",
            f"{1e3 * block.cpu:.1f}",
            f"{block.cpu / limit.cpu:.2f}",
        )
        for name, block in best
    ]
    head = ("", "tasks/s", "of the limit", "CPU ms/task", "× the limit's")
    lines = [measure.table(head, rows)]
    lines += [f"skipped: {why}" for why in skipped]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tasks", type=int, default=1000, help="per contender, in all its blocks")
    parser.add_argument("--rounds", type=int, default=4, help="blocks that count")
    parser.add_argument("--python", default=bare_python(), help="what runs the tasks")
    parser.add_argument("--only", default="", help="short names, the limit first: bare,folder,…")
    given = parser.parse_args()
    measure.adopt_orphans()
    try:
        with tempfile.TemporaryDirectory(prefix="ludwig-bench-") as name:
            best, skipped = measure_all(
                Path(name),
                python=given.python,
                tasks=given.tasks,
                rounds=given.rounds,
                only=set(filter(None, given.only.split(","))),
            )
            print(f"{given.tasks} trivial tasks, 2 slots, {given.python}; best of {given.rounds} ")
            print(f"blocks in turns; {measure.load()}\n")
            print(report(best, skipped))
    finally:
        for process in measure.end_family():
            print(f"was still running: {process}", file=sys.stderr)


def bare_python() -> str:
    """The system's, which loads nothing but itself; else what this environment was made from."""
    system = Path("/usr/bin/python3")
    return str(system if system.exists() else Path(sys.executable).resolve())


if __name__ == "__main__":
    main()
