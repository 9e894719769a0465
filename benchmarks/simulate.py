"""What does not fit on one machine: 8 to 1,000 nodes, up to a million tasks, in simulated time.

    python -m benchmarks.simulate [--quick] [--measure] [--cores 4]

The functions that agents use, over a file server in memory that charges what a real smbd took (see
`simulation/costs.py`; `--measure` takes that anew). Three questions:

1. How many requests a second reach the file server, idle and busy, and how much of its processors
   do they use? (a window of simulated time in the middle of a job)
2. How long does a heavy-tailed sweep take on unequal nodes, beside the optimum, fixed chunks and a
   greedy schedule at no cost? How late the last task *begins* is Ludwig's doing; how long it then
   takes is luck, since nobody knows beforehand which tasks are long.
3. How long until everything that a tenth of the nodes held runs elsewhere?
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import random
import statistics
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

from benchmarks import measure as common
from benchmarks.simulation import costs
from benchmarks.simulation.drive import Server
from benchmarks.simulation.lab import BEAT_S, Simulation
from ludwig import codec, job_records, layout
from ludwig.client.sweep import shares
from ludwig.model import Chunk, Job, Origin, Run, Table, Task, TaskTable


def make_job(number: int, lab: dict[str, tuple[int, float]], *, balance: bool = True) -> Job:
    """Tasks dealt out by slots, as clients do. They are in tables, which nobody reads here."""
    zeros = "0" * 64
    dealt = shares(number, {host: slots for host, (slots, _) in lab.items()})
    ends = itertools.accumulate(dealt.values())
    chunks = {
        host: Chunk(table=Table(sha256=zeros, first=end - count + 1, count=count))
        if count
        else Chunk()
        for (host, count), end in zip(dealt.items(), ends, strict=True)
    }
    return Job(
        project="trees",
        job=1,
        nonce="simulated",
        stamp="2026-11-18-10-00-00",
        contract="function",
        entry="run.py",
        source=zeros,
        params_sha256=zeros,
        chunks=chunks,
        origin=Origin(user="ana", host="laptop"),
        balance=balance,
    )


def machines(number: int, chance: random.Random) -> dict[str, tuple[int, float]]:
    """Unequal: one to four slots, and a factor of four between the slowest and the fastest."""
    return {
        f"node{i:04d}": (chance.choice((1, 2, 2, 4)), 2.0 ** chance.uniform(-1, 1))
        for i in range(number)
    }


def heavy_tailed(number: int, chance: random.Random, *, mean: float) -> dict[int, float]:
    """Lognormal with sigma 1: the longest of 1,000 takes about 13 times the mean."""
    drawn = [chance.lognormvariate(0.0, 1.0) for _ in range(number)]
    scale = mean * number / sum(drawn)
    return {i + 1: value * scale for i, value in enumerate(drawn)}


def optimum(durations: dict[int, float], lab: dict[str, tuple[int, float]]) -> float:
    """No schedule is shorter: all slots busy to the end, or the longest task on the fastest."""
    capacity = sum(slots * speed for slots, speed in lab.values())
    fastest = max(speed for _, speed in lab.values())
    return max(sum(durations.values()) / capacity, max(durations.values()) / fastest)


ENDING = 0.97
"""Of the job: by then fast nodes have done their share, and help."""


def advance(lab: Simulation, share: float) -> None:
    """Pretend that the first part of the job was done before, fast nodes having done more of their
    chunks. Its events were read long ago."""
    files = layout.job_files("trees", 1)
    fastest = max(node.speed * node.slots for node in lab.nodes.values())
    for host, chunk in lab.job.chunks.items():
        node = lab.nodes[host]
        part = 1 - (1 - share) * 2 * (1 - node.speed * node.slots / fastest)
        for number in chunk.numbers[: int(min(1.0, max(0.0, part)) * len(chunk.numbers))]:
            lab.nodes[host].drive._put(files.claim_of(number, 1), b"{}")
            lab.nodes[host].drive._put(files.done_of(number), b"{}")
            lab.finished[number] = 0.0
            lab.waiting.discard(number)


def window(
    number: int, tasks: int, *, done: float, server: Server, mean: float, seconds: float
) -> tuple[float, float]:
    """(requests a second, share of the server's processors) when so much of a job is done.

    Nobody waits for the server here: so the figure is what it is asked for, also where that is
    more than it can do.
    """
    server.hurries = True
    chance = random.Random(1)
    lab_machines = machines(number, chance)
    lab = Simulation(
        server,
        make_job(tasks, lab_machines),
        heavy_tailed(tasks, chance, mean=mean),
        machines=lab_machines,
    )
    advance(lab, done)
    lab.start()
    begun = 20.0
    lab.run(begun, stop_when_done=False)
    before, busy = server.requests, server.served
    lab.run(begun + seconds, stop_when_done=False)
    share = (server.served - busy) / seconds / server.cores
    return (server.requests - before) / seconds, share


def idle(number: int, server: Server) -> tuple[float, float]:
    """Heartbeats and nothing else."""
    beats = number / BEAT_S
    publish, remove = server.costs["publish"], server.costs["remove"]
    requests = beats * (publish.requests + remove.requests)
    return requests, beats * (publish.serve + remove.serve) / server.cores


def greedy(durations: dict[int, float], lab: dict[str, tuple[int, float]]) -> Spans:
    """Whatever slot is free takes the next task of the same order, at no cost."""
    speeds = [speed for slots, speed in lab.values() for _ in range(slots)]
    free = [(0.0, index) for index in range(len(speeds))]
    begun = ended = 0.0
    for seconds in durations.values():
        begun, index = heapq.heappop(free)
        ended = max(ended, begun + seconds / speeds[index])
        heapq.heappush(free, (begun + seconds / speeds[index], index))
    return Spans(begun, ended)


class Spans(NamedTuple):
    """When the last task began and when the last ended; both by the optimum in a table."""

    begun: float
    ended: float


class Sweep:
    """One heavy-tailed sweep on unequal nodes, run in several ways."""

    def __init__(self, number: int, tasks: int, make: ServerMaker, *, seed: int) -> None:
        chance = random.Random(seed)
        self._make = make
        self.machines = machines(number, chance)
        self.durations = heavy_tailed(tasks, chance, mean=60.0)
        self.best = optimum(self.durations, self.machines)

    def _lab(self, *, balance: bool = True) -> Simulation:
        job = make_job(len(self.durations), self.machines, balance=balance)
        lab = Simulation(self._make(), job, self.durations, machines=self.machines)
        lab.start()
        return lab

    def greedy(self) -> Spans:
        return greedy(self.durations, self.machines)

    def ludwig(self) -> Spans:
        lab = self._lab()
        return Spans(ended=lab.run(), begun=lab.last_begun)

    def fixed(self) -> float:
        """Each node works through its share, and nobody helps: no request decides anything."""
        order, longest = iter(self.durations.values()), 0.0
        for host, chunk in make_job(len(self.durations), self.machines).chunks.items():
            share = dict(enumerate(itertools.islice(order, len(chunk.numbers))))
            longest = max(longest, greedy(share, {host: self.machines[host]}).ended)
        return longest

    def hurt(self) -> tuple[float, float]:
        """A tenth of the nodes die half-way: makespan, and after how long all they held is again
        somebody's."""
        lab = self._lab()
        lab.run(0.5 * self.best)
        held = lab.dies(list(lab.nodes.values())[::10][: max(1, len(lab.nodes) // 10)])
        took = lab.run()
        taken = {task: when for when, task in lab.taken_over}
        return took, max((taken[task] for task in held), default=lab.now) - 0.5 * self.best


def rates(sizes: list[tuple[int, int]], make: ServerMaker, seconds: float) -> Iterator[list[str]]:
    for number, tasks in sizes:
        begun = time.perf_counter()
        rest, _ = idle(number, make())
        cells = [f"{number:,}", f"{tasks:,}", f"{rest:,.0f}"]
        for done in (0.5, ENDING):
            requests, share = window(
                number, tasks, done=done, server=make(), mean=60.0, seconds=seconds
            )
            cells += [f"{requests:,.0f}", f"{share:.1%}"]
        took = f"(simulated in {time.perf_counter() - begun:.0f} s)"
        print(*cells, took, file=sys.stderr, flush=True)
        yield cells


class ServerMaker:
    def __init__(self, table: dict[str, costs.Cost], cores: int) -> None:
        self._table, self._cores = table, cores

    def __call__(self) -> Server:
        return Server(self._table, cores=self._cores)


def sizes_of_a_million() -> str:
    """What a million tasks mean before anybody lists anything."""
    hosts = [f"node{i:04d}" for i in range(100)]
    record = len(codec.encode(make_job(1_000_000, dict.fromkeys(hosts, (1, 1.0)))))
    tasks = tuple(
        Task(n, 100 * n, 100, "0" * 64, (Run("param_001", f"2026-11-18-10-00-00_node0000_num{n}"),))
        for n in range(1, 10_001)
    )
    data = codec.encode(TaskTable(host=hosts[0], tasks=tasks))
    begun = time.process_time()
    codec.sha256(data)
    table = codec.decode.__wrapped__(TaskTable, data, "table")  # type: ignore[attr-defined]
    job_records.check_tasks(table.tasks, "trees", "table")
    took = time.process_time() - begun
    return (
        f"a million tasks on 100 nodes: job.json {record / 1e3:.0f} kB, a node's own table "
        f"{len(data) / 1e6:.1f} MB (read and checked in {1e3 * took:.0f} ms of processor)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small labs only: seconds")
    parser.add_argument("--measure", action="store_true", help="take the costs from a real smbd")
    parser.add_argument("--cores", type=int, default=4, help="processors of the file server")
    given = parser.parse_args()
    table = costs.measure() if given.measure else costs.MEASURED
    if given.measure:
        for name, cost in table.items():
            print(
                f"{name:18}{cost.requests:6.1f}{1e3 * cost.wait:10.3f}{1e3 * cost.serve:10.3f} ms"
            )
    make = ServerMaker(table, given.cores)
    sizes = [(8, 1_000), (32, 10_000)]
    sweeps = [(8, 800, 15), (32, 3_200, 3)]
    if not given.quick:
        sizes += [(100, 10_000), (100, 100_000), (300, 10_000), (300, 100_000)]
        sizes += [(1_000, 10_000), (1_000, 100_000), (1_000, 1_000_000)]
        sweeps += [(100, 10_000, 1), (300, 9_000, 1), (1_000, 10_000, 1)]
    head = ["nodes", "tasks", "idle/s", "busy/s", "server", "ending/s", "server"]
    print("\nrequests at the file server, tasks of 60 s\n")
    print(common.table(head, rates(sizes, make, 30.0)), flush=True)
    print(f"\n{sizes_of_a_million()}")
    print("\nmakespan of a heavy-tailed sweep on unequal nodes, and the loss of a tenth of them\n")
    print(
        "median of the seeds, by the optimum: when the last task began, and when the last ended\n"
    )
    head = ["nodes", "tasks", "seeds", "greedy: begun", "ended", "Ludwig: begun", "ended"]
    head += ["fixed", "a tenth dies: ended", "all of theirs again after"]
    print(common.table(head, (spans(*sweep, make) for sweep in sweeps)))


def spans(number: int, tasks: int, seeds: int, make: ServerMaker) -> list[str]:
    """A row of makespans."""
    clock, found = time.perf_counter(), []
    for seed in range(seeds):
        sweep = Sweep(number, tasks, make, seed=seed)
        hurt, back = sweep.hurt()
        times = [*sweep.greedy(), *sweep.ludwig(), sweep.fixed(), hurt]
        found.append([*(each / sweep.best for each in times), back])
    *ratios, back = (statistics.median(column) for column in zip(*found, strict=True))
    row = [f"{number:,}", f"{tasks:,}", f"{seeds}", *(f"{each:.2f}" for each in ratios)]
    took = f"(simulated in {time.perf_counter() - clock:.0f} s)"
    print(*row, f"{back:.0f} s", took, file=sys.stderr, flush=True)
    return [*row, f"{back:.0f} s"]


if __name__ == "__main__":
    main()
