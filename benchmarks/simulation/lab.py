"""Nodes that claim, run and end tasks over the simulated drive, in simulated time.

What is claimed next, who is silent and what is taken over is decided by the functions that agents
use (`queue`, `view`, `states`, `shares`, `nodes`, `looks`); when they look, beat and claim ahead is
copied from `worker/`. A task is only a duration. Everything a node does in one round happens at
once as far as the others are concerned.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import cast

from benchmarks.simulation.drive import Server, SimDrive
from ludwig import codec, job_records, layout, nodes, queue, states
from ludwig.drive import Drive
from ludwig.model import Beat, Claim, Done, Event, Job, RunningAttempt, Slots, Task
from ludwig.nodes import Observer
from ludwig.shares import Shares
from ludwig.tasks import Tasks
from ludwig.view import JobView
from ludwig.worker import looks

__all__ = ["Node", "Simulation"]

NEVER = float("-inf")
NO_TASK = Task(1, 0, 1, "0" * 64, ())
"""What a task is makes no difference here."""

SILENT_S = 60.0
BEAT_S = SILENT_S / 4
HELP_CHOICE = 8
MISSES = 8
SHIP_S = 0.5

# The same names and records are read by every node: decoded once, they are as good.
layout.parse_beat = functools.lru_cache(maxsize=100_000)(layout.parse_beat)
layout.parse_attempt = functools.lru_cache(maxsize=2_000_000)(layout.parse_attempt)
codec.decode = functools.lru_cache(maxsize=100_000)(codec.decode)  # type: ignore[assignment]


@dataclass
class Node:
    host: str
    lab: Simulation
    slots: int
    speed: float
    alive: bool = True
    counter: int = 0
    waiting: deque[tuple[int, int]] = field(default_factory=deque)
    running: dict[int, int] = field(default_factory=dict)
    publishing: dict[int, int] = field(default_factory=dict)
    publisher: float = 0.0
    unsent: bytes = b""
    sent: int = 0
    ship_due: bool = False
    claims_seen: float = NEVER
    refreshed: float = NEVER
    helping: str = ""
    silent: frozenset[str] = frozenset()
    patience: float = 1.0

    def __post_init__(self) -> None:
        self.drive = SimDrive(self.lab.server)
        as_drive = cast(Drive, self.drive)
        self.job = self.lab.job
        self.view = JobView(as_drive, self.job)
        self.shares = Shares(self.view)
        self.observer = Observer(as_drive, silent_s=SILENT_S)
        self.lot = self.lab.chance.random()

    # --- how often -----------------------------------------------------------------------------

    @property
    def glance_s(self) -> float:
        return looks.glance_s(SILENT_S, len(self.job.chunks))

    def boot(self) -> None:
        self.drive.other("read", "read", "read")  # job.json, our table, params.json
        self.beat()
        self.note(Event(what="accepted"))
        self.count_beats()
        self.view.refresh_for(self.host, first=True)
        self.looked()
        self.claim_ahead()

    def beat(self) -> None:
        held = [*self.waiting, *self.running.items(), *self.publishing.items()]
        project, job = self.job.project, self.job.job
        self.counter += 1
        beat = Beat(
            host=self.host,
            boot="boot",
            counter=self.counter,
            state="busy" if self.running else "idle",
            slots=Slots(cpus=self.slots, cpus_free=self.slots - len(self.running)),
            running=tuple(
                RunningAttempt(project=project, job=job, task=task, attempt=attempt)
                for task, attempt in held
            ),
        )
        nodes.write_beat(cast(Drive, self.drive), beat)

    def beat_due(self) -> None:
        self.beat()
        self.lab.at(self.drive.now + BEAT_S, self, self.beat_due)

    def look_due(self) -> None:
        """`Foreman.look_at_jobs`."""
        if self.watches():
            self.count_beats()
        if self.is_due():
            self.observer.read(self.job.chunks)
            self.view.refresh_for(self.host)
            self.looked()
            self.take_over()
        else:
            self.glance()
        self.claim_ahead()
        self.lab.at(self.drive.now + self.glance_s, self, self.look_due)

    def count_beats(self) -> None:
        self.observer.first_look(self.job.chunks, self.drive.now)
        self.observer.count(self.drive.now)

    def watches(self) -> bool:
        """`Claims.watches`."""
        return self.lot < looks.watching(len(self.job.chunks)) or self.has_room() or self.is_time()

    def has_room(self) -> bool:
        return self.wants_more() or not (self.waiting or self.running or self.publishing)

    def is_due(self) -> bool:
        """`Claims.is_due`."""
        chosen = self.lab.chance.random() < looks.chance(len(self.job.chunks))
        left = chosen and self._silent() - self.silent
        return bool(left and self.wants_more(lost=True)) or self.is_time()

    def is_time(self) -> bool:
        pause = looks.whole_s(SILENT_S, len(self.job.chunks), room=self.has_room())
        return self.drive.now - self.refreshed >= pause * self.patience

    def _silent(self) -> frozenset[str]:
        now = self.drive.now
        return frozenset(host for host in self.job.chunks if self.observer.silent(host, now))

    def looked(self) -> None:
        self.refreshed = self.claims_seen = self.drive.now
        self.silent = self._silent()
        if len(self.job.chunks) > looks.LOOKERS:
            self.patience = self.lab.chance.expovariate(1.0)

    def glance(self) -> None:
        """`Claims.glance`."""
        self.view.look_at_stops()
        for _ in range(MISSES):
            task = self.shares.of(self.host).last()
            if task is None or not self.view.look_at_claim(task):
                return
        self.view.look_at_shares([self.host])

    # --- claiming ------------------------------------------------------------------------------

    def wants_more(self, *, lost: bool = False) -> bool:
        """`Appetite.wants_more`."""
        if len(self.waiting) < self.slots - len(self.running):
            return True
        ahead = min(len(self.running), self.slots)
        if lost:
            return ahead > 0 and len(self.waiting) <= ahead
        return len(self.waiting) < ahead and self._plentiful()

    def _plentiful(self) -> bool:
        share = self.shares.of(self.host)
        if share.exhausted():
            share = self.shares.of(self.helping)
        elif not share.helped():
            return share.left() > 2 * self.slots
        beats = (self.observer.beat(host) for host in self.job.chunks)
        return share.left() > 2 * sum(b.slots.cpus if b else self.slots for b in beats)

    def claim_ahead(self) -> None:
        while self.wants_more() and any(self._claim(task, 1) for task in self._unclaimed()):
            self.view.look_at_stops()

    def _unclaimed(self) -> Iterator[int]:
        """`Claims._unclaimed`."""
        yield from self._one_by_one(self.host, self.shares.of(self.host).first)
        if not self.job.balance:
            yield from list(states.left_over(self.view, self.observer, self.host, self.drive.now))
            return
        while home := self._whom_to_help():
            yield from self._one_by_one(home, self.shares.of(home).last)

    def _one_by_one(self, home: str, following: Callable[[], int | None]) -> Iterator[int]:
        """`Claims._one_by_one`."""
        missed = 0
        while (task := following()) is not None:
            yield task
            missed += 1
            if missed % MISSES == 0:
                self.look_at_share(home)

    def look_at_share(self, home: str) -> None:
        self.view.look_at_shares([home])
        self.claims_seen = self.drive.now

    def _whom_to_help(self) -> str:
        """`Claims._whom_to_help`."""
        if self.shares.of(self.helping).exhausted():
            self.helping = self._fullest_of_some()
        elif self.drive.now - self.claims_seen >= looks.help_s(len(self.job.chunks)):
            self.look_at_share(self.helping)
        return self.helping

    def _fullest_of_some(self) -> str:
        """`Claims._fullest_of_some`."""
        others, sample = self.shares.others(self.host), self.lab.chance.sample
        listed: set[int] = set()
        found: list[str] = []
        for home in sample(others, min(HELP_CHOICE, len(others))):
            if listed.issuperset(self.view.buckets_of(home)):
                continue
            self.look_at_share(home)
            listed.update(self.view.buckets_of(home))
            homes, of = self.view.homes_in(listed), self.shares.of
            found = [one for one in homes if one != self.host and not of(one).exhausted()]
            if found and len(homes) >= HELP_CHOICE:
                break
        return self.shares.fullest(sample(found, min(HELP_CHOICE, len(found))))

    def _claim(self, task: int, attempt: int, why: str = "") -> bool:
        claim = Claim(
            host=self.host, boot="boot", beat=self.counter, nonce=f"{self.host}-{task}", why=why
        )
        won = queue.claim(cast(Drive, self.drive), self.job, task, attempt, claim)
        self.view.note_claim(task, attempt)
        if not won:
            return False
        self.drive.other("read")  # the task's bytes
        self.note(Event(what="claimed", task=task, attempt=attempt, why=why))
        self.waiting.append((task, attempt))
        self.start_what_fits()
        return True

    def take_over(self) -> None:
        now = self.drive.now
        found = list(states.retakes(self.view, self.observer, self.host, now))
        if found:
            self.view.look_at_buckets({layout.bucket_of(retake.task) for retake in found})
            found = list(states.retakes(self.view, self.observer, self.host, now))
        for retake in found:
            held = retake.task in self.running or retake.task in self.publishing
            if not held and self.wants_more(lost=True):
                self._retake(retake)

    def _retake(self, retake: states.Retake) -> None:
        if self._claim(retake.task, retake.attempt, retake.why):
            self.lab.taken_over.append((self.drive.now, retake.task))

    # --- running -------------------------------------------------------------------------------

    def start_what_fits(self) -> None:
        while self.waiting and len(self.running) < self.slots:
            task, attempt = self.waiting.popleft()
            self.running[task] = attempt
            self.lab.begun(task)
            self.note(Event(what="started", task=task, attempt=attempt))
            took = self.lab.durations[task] / self.speed
            self.lab.at(self.drive.now + took, self, functools.partial(self.ended, task))

    def ended(self, task: int) -> None:
        self.publishing[task] = self.running.pop(task)
        self.start_what_fits()
        self.lab.at(max(self.drive.now, self.publisher), self, lambda: self.publish(task))
        if self.lab.waiting:
            self.claim_ahead()

    def publish(self, task: int) -> None:
        """`Publisher.publish`, on its own thread: `queue.finish` with one small file."""
        here, self.drive.now = self.drive.now, max(self.drive.now, self.publisher)
        attempt = self.publishing[task]
        self.drive.other("append", "make_folders", "publish, exists", "exists", "upload", "move")
        done = Done(
            task=task,
            attempt=attempt,
            outcome="done",
            host=self.host,
            nonce=f"{self.host}-{task}",
            moved=False,
        )
        won = queue.finish(cast(Drive, self.drive), self.job, NO_TASK, done, folders=[], params={})
        self.drive.other("move", "remove_folder")
        self.view.note_end(task)
        if won:
            self.lab.finished[task] = self.drive.now
            self.note(Event(what="ended", task=task, attempt=attempt, done=done))
        del self.publishing[task]
        self.publisher, self.drive.now = self.drive.now, here

    # --- events --------------------------------------------------------------------------------

    def note(self, event: Event) -> None:
        self.unsent += codec.encode(event)
        if not self.ship_due:
            self.ship_due = True
            self.lab.at(self.drive.now + SHIP_S, self, self.ship)

    def ship(self) -> None:
        self.ship_due = False
        path = layout.job_files(self.job.project, self.job.job).events_of(self.host, "boot")
        self.drive.append(path, self.unsent, at=self.sent)
        self.sent, self.unsent = self.sent + len(self.unsent), b""


class AllTasks(Tasks):
    """Numbered in a row, as clients do: to know one, nobody need search."""

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and 0 < number <= len(self)


class Simulation:
    """A lab with one job. `run` goes on until every task has ended, or until a time."""

    def __init__(
        self,
        server: Server,
        job: Job,
        durations: Mapping[int, float],
        *,
        machines: Mapping[str, tuple[int, float]],
    ) -> None:
        self.server, self.job, self.durations = server, job, durations
        self.chance = random.Random(3)
        tasks = AllTasks(job, lambda host: ())
        job_records.tasks_of = lambda drive, job: tasks  # nodes need not have a copy each
        self.slots = sum(slots for slots, _ in machines.values())
        self.finished: dict[int, float] = {}
        self.waiting = set(durations)
        """Tasks that run nowhere yet."""
        self.last_begun = 0.0
        self.taken_over: list[tuple[float, int]] = []
        self.now = 0.0
        self._ticket = itertools.count()
        self._agenda: list[tuple[float, int, Node, Callable[[], None]]] = []
        self.nodes = {
            host: Node(host, self, slots=slots, speed=speed)
            for host, (slots, speed) in machines.items()
        }

    def at(self, when: float, node: Node, what: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (when, next(self._ticket), node, what))

    def begun(self, task: int) -> None:
        if task in self.waiting:
            self.waiting.remove(task)
            self.last_begun = self.now

    def dies(self, nodes: Iterable[Node]) -> set[int]:
        """Returns what they held, which has to run again."""
        held: set[int] = set()
        for node in nodes:
            node.alive = False
            held |= {task for task, _ in node.waiting} | set(node.running) | set(node.publishing)
        self.waiting |= held
        return held

    def start(self) -> None:
        """Every node at its own moment of the first seconds, as tickets arrive."""
        number = len(self.nodes)
        for index, node in enumerate(self.nodes.values()):
            begin = 2.0 * index / number
            self.at(begin, node, node.boot)
            self.at(begin + BEAT_S * (index + 1) / number, node, node.beat_due)
            self.at(begin + node.glance_s * (index + 1) / number, node, node.look_due)

    def run(self, until: float = float("inf"), *, stop_when_done: bool = True) -> float:
        """Returns the time. Events of dead nodes are dropped. Once everything runs or has ended,
        looking changes nothing any more: who waits for the end of the job need not simulate it."""
        while self._agenda and self._agenda[0][0] <= until:
            if stop_when_done and len(self.finished) == len(self.durations):
                return max(self.finished.values())
            when, _, node, what = heapq.heappop(self._agenda)
            self.now = when
            idles = stop_when_done and not self.waiting
            if node.alive and not (idles and what in (node.look_due, node.beat_due)):
                node.drive.now = max(node.drive.now, when)
                self.server.begin_round(when)
                what()
        self.now = until if until != float("inf") else self.now
        return self.now
