"""How long one waits: for the first process, the next one, a stop, another node, a log.

    python -m benchmarks.latency [--tries 10] [--gaps 200] [--only folder,SMB]

Real agents over a folder drive and over a real smbd; tasks write down the (machine-wide) monotonic
time at which their `main` began and ended. Beside "free slot to next process" stands the same for a
loop of `subprocess.run`: most of it is the interpreter that starts. A node is silent after
`node_silent_s`; what is told of its death is what comes on top of that.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import measure
from benchmarks.tasks import bare_python
from ludwig.client.job import Job
from tests.harness import SmbServer
from tests.lab import Lab

SILENT_S = 4.0
RUN = """
import os, time

def mark(param2val, what):
    line = f"{what} {time.monotonic()} {os.getpid()}\\n".encode()
    target = os.open(param2val["mark"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(target, line)
    os.close(target)

def main(param2val):
    mark(param2val, "begin")
    end = time.monotonic() + param2val["seconds"]
    while time.monotonic() < end:
        time.sleep(0.02)
        if param2val["talks"]:
            print("at", time.monotonic())
    mark(param2val, "end")
"""


class Marks:
    """What tasks wrote down: (what, when, pid)."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, what: str) -> list[tuple[float, int]]:
        if not self.path.exists():
            return []
        lines = [line.split() for line in self.path.read_text().splitlines()]
        return [(float(line[1]), int(line[2])) for line in lines if line[0] == what]

    def first(self, what: str, lab: Lab, number: int = 1) -> tuple[float, int]:
        lab.until(lambda: len(self.read(what)) >= number, f"{number} × {what}", timeout=120)
        return self.read(what)[number - 1]


class Bench:
    """One lab, and what to do with it."""

    def __init__(self, folder: Path, smb: SmbServer | None, python: str) -> None:
        self.folder, self.count = folder, 0
        self.lab = Lab(
            folder, hosts=("hoff", "hebb"), smb=smb, silent_s=SILENT_S, slots=1, python=python
        )
        self.lab.start()

    def submit(
        self, *, seconds: float, talks: bool = False, reps: int = 1, **more: object
    ) -> tuple[Job, Marks]:
        self.count += 1
        marks = Marks(self.folder / f"marks{self.count}")
        params = {"mark": str(marks.path), "seconds": seconds, "talks": talks}
        return self.lab.submit(RUN, [params], reps=reps, **more), marks

    # --- what is measured ------------------------------------------------------------------------

    def first_process(self) -> float:
        begun = time.monotonic()
        job, marks = self.submit(seconds=0)
        at, _ = marks.first("begin", self.lab)
        self.lab.wait(job)
        return at - begun

    def gaps(self, number: int) -> list[float]:
        job, marks = self.submit(seconds=0, reps=number, nodes=["hoff"])
        self.lab.wait(job, timeout=600)
        begins, ends = marks.read("begin"), marks.read("end")
        return [later[0] - earlier[0] for earlier, later in zip(ends, begins[1:], strict=False)]

    def stop(self) -> float:
        job, marks = self.submit(seconds=600)
        _, pid = marks.first("begin", self.lab)
        process = os.pidfd_open(pid)
        begun = time.monotonic()
        job.cancel()
        select.select([process], [], [], 60)
        took = time.monotonic() - begun
        os.close(process)
        self.lab.wait(job)
        return took

    def death(self) -> float:
        job, marks = self.submit(seconds=30)
        marks.first("begin", self.lab)
        host = self.lab.until(lambda: self._runs(job.id), "a heartbeat that lists it")
        begun = time.monotonic()
        self.lab[host].kill()
        at, _ = marks.first("begin", self.lab, 2)
        job.cancel()
        self.lab.start(host)
        self.lab.wait(job)
        return at - begun - SILENT_S

    def _runs(self, job: int) -> str:
        """Who says that it works on a job; empty if nobody does yet."""
        for host in self.lab.agents:
            beat = self.lab.beat(host)
            if beat is not None and any(running.job == job for running in beat.running):
                return host
        return ""

    def restart(self) -> float:
        job, marks = self.submit(seconds=600, talks=True, nodes=["hoff"])
        marks.first("begin", self.lab)
        self.lab.until(lambda: "at" in self.lab.log(job, 1), "a log")
        agent = self.lab["hoff"]
        agent.kill_alone()
        begun = time.monotonic()
        agent.start()

        def streamed() -> bool:
            lines = [line for line in self.lab.log(job, 1).splitlines() if line.startswith("at ")]
            return any(float(line[3:]) > begun for line in lines[-2:-1])

        self.lab.until(streamed, "the log to go on")
        took = time.monotonic() - begun
        job.cancel()
        self.lab.wait(job)
        return took


def bare_gaps(folder: Path, python: str, number: int) -> list[float]:
    """The same script, started by a loop."""
    script, marks = folder / "bare.py", Marks(folder / "bare-marks")
    params = {"mark": str(marks.path), "seconds": 0, "talks": False}
    script.write_text(RUN + f"\nmain({params!r})\n")
    for _ in range(number):
        subprocess.run([python, script], check=True)
    begins, ends = marks.read("begin"), marks.read("end")
    return [later[0] - earlier[0] for earlier, later in zip(ends, begins[1:], strict=False)]


def rows(kind: str, folder: Path, *, python: str, tries: int, gaps: int) -> Iterator[list[str]]:
    with contextlib.ExitStack() as stack:
        smb = stack.enter_context(SmbServer()) if kind == "SMB" else None
        bench = Bench(folder, smb, python)
        stack.callback(bench.lab.close)
        bench.first_process()

        def several(what: str, once: Callable[[], float], times: int) -> list[str]:
            found = [once() for _ in range(times)]
            return row(kind, what, found)

        yield several("submit to first process", bench.first_process, tries)
        yield row(kind, "free slot to next process", bench.gaps(gaps))
        yield several("stop to dead process", bench.stop, tries)
        yield several("agent restart to log streaming", bench.restart, max(3, tries // 3))
        yield several("silent node to running elsewhere", bench.death, max(3, tries // 3))


def row(kind: str, what: str, found: list[float]) -> list[str]:
    middle, late = measure.percentile(found, 0.5), measure.percentile(found, 0.99)
    return [f"{what}, {kind}", f"{1e3 * middle:,.0f}", f"{1e3 * late:,.0f}", f"{len(found)}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tries", type=int, default=10)
    parser.add_argument("--gaps", type=int, default=200)
    parser.add_argument("--python", default=bare_python())
    parser.add_argument("--only", default="folder,SMB")
    given = parser.parse_args()
    measure.adopt_orphans()
    found = []
    try:
        with tempfile.TemporaryDirectory(prefix="ludwig-bench-") as name:
            bare = bare_gaps(Path(name), given.python, given.gaps)
            found.append(row("subprocess.run", "end to next begin", bare))
            for kind in given.only.split(","):
                options = {"python": given.python, "tries": given.tries, "gaps": given.gaps}
                found += rows(kind, Path(name, kind), **options)
        print(f"{given.python}; {measure.load()}\n")
        print(measure.table(["", "p50 ms", "p99 ms", "of"], found))
    finally:
        for process in measure.end_family():
            print(f"was still running: {process}", file=sys.stderr)


if __name__ == "__main__":
    main()
