"""The attempts this node holds, in memory and on its own disk.

An attempt is held from the moment it is about to be claimed until its end is on the drive; every
heartbeat lists all of them. What must survive the agent's death is in the attempt's folder:
`held.json` (what it is), `done.json` (how it ended, the very bytes that are published). The rest of
the folder belongs to `runner.py`.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from ludwig import codec, errors
from ludwig.model import Claim, Done, Job, RunningAttempt, Task, Ticket
from ludwig.view import JobView
from ludwig.worker.logtail import LogTail
from ludwig.worker.recorder import Recorder
from ludwig.worker.runner import Exit, Process
from ludwig.worker.slots import Assignment

__all__ = ["Bench", "Held", "HeldRecord", "OpenJob", "attempt_folder", "write_whole"]

Phase = Literal["waiting", "running", "publishing"]


@dataclass
class OpenJob:
    """A job this node has accepted, and what it knows of it."""

    job: Job
    ticket: Ticket
    view: JobView
    params: dict[str, dict[str, object]]
    source: Path
    user: str
    order: int
    """Position in the order of acceptance."""
    refreshed: float = float("-inf")
    """When (monotonic) the view was last looked at as a whole."""

    def __post_init__(self) -> None:
        self.tasks = self.job.tasks()

    @property
    def key(self) -> str:
        return f"{self.job.project}/{self.job.job}"


class HeldRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`held.json`: enough to go on after a restart."""

    project: str
    job: int
    task: int
    attempt: int
    claim: Claim
    started: str = ""
    gpus: tuple[str, ...] = ()
    stop_asked: bool = False
    log_sent: int = 0
    gpu_sent: int = 0


@dataclass
class Held:
    """One attempt that this node holds. Guarded by the bench's lock but for `shipping`."""

    open_job: OpenJob
    task: Task
    attempt: int
    claim: Claim
    folder: Path
    phase: Phase = "waiting"
    prepared: bool = False
    """Its folder is complete: it can start as soon as a slot is free."""
    placed: bool = False
    """The script contract's chunk is where the script looks for it."""
    process: Process | None = None
    assignment: Assignment | None = None
    exit: Exit | None = None
    started: str = ""
    started_at: float = 0.0
    stop_wanted: bool = False
    """Its job or task is cancelled."""
    stop_asked: float | None = None
    cause: str = ""
    """Why the agent itself ends it (a GPU lost), when it does."""
    recorder: Recorder | None = None
    tail: LogTail | None = None
    gpu_sent: int = 0
    shipping: threading.Lock = field(default_factory=threading.Lock)
    """Held by whoever appends to the attempt's files on the drive."""

    @property
    def key(self) -> tuple[str, int, int, int]:
        job = self.open_job.job
        return job.project, job.job, self.task.task, self.attempt

    @property
    def name(self) -> str:
        project, job, task, attempt = self.key
        return f"{project}/{job} task {task} attempt {attempt}"

    def listed(self) -> RunningAttempt:
        project, job, task, attempt = self.key
        return RunningAttempt(
            project=project,
            job=job,
            task=task,
            attempt=attempt,
            phase=self.phase,
            user=self.open_job.job.origin.user,
            since=self.started,
            gpus=self.assignment.gpus if self.assignment else (),
        )

    def save(self) -> None:
        """Write `held.json` anew, whole."""
        project, job, task, attempt = self.key
        record = HeldRecord(
            project=project,
            job=job,
            task=task,
            attempt=attempt,
            claim=self.claim,
            started=self.started,
            gpus=self.assignment.gpus if self.assignment else (),
            stop_asked=self.stop_wanted,
            log_sent=self.tail.sent if self.tail else 0,
            gpu_sent=self.gpu_sent,
        )
        write_whole(self.folder / "held.json", codec.encode(record))

    def decided(self) -> Done | None:
        """How it ended, if that was decided before the agent was restarted."""
        try:
            data = (self.folder / "done.json").read_bytes()
            return codec.decode(Done, data, str(self.folder / "done.json"))
        except (OSError, errors.Malformed):
            return None

    def decide(self, done: Done) -> None:
        write_whole(self.folder / "done.json", codec.encode(done))


def write_whole(path: Path, data: bytes) -> None:
    """A local file, whole or not at all."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    temporary.replace(path)


def attempt_folder(attempts: Path, job: Job, task: int, attempt: int) -> Path:
    return attempts / f"{job.project}-{job.job}-{task}-{attempt}"


class Bench:
    """All held attempts, and the lock that guards them."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._held: dict[tuple[str, int, int, int], Held] = {}
        self._intents: dict[tuple[str, int, int, int], RunningAttempt] = {}

    def __iter__(self) -> Iterator[Held]:
        with self.lock:
            return iter(list(self._held.values()))

    def __len__(self) -> int:
        return len(self._held)

    @contextlib.contextmanager
    def intend(self, job: Job, task: int, attempt: int) -> Iterator[None]:
        """List an attempt in heartbeats while it is being claimed: see `Claim.beat`."""
        key = (job.project, job.job, task, attempt)
        with self.lock:
            self._intents[key] = RunningAttempt(
                project=job.project, job=job.job, task=task, attempt=attempt, phase="waiting"
            )
        try:
            yield
        finally:
            with self.lock:
                self._intents.pop(key, None)

    def add(self, held: Held) -> None:
        with self.lock:
            self._held[held.key] = held

    def drop(self, held: Held) -> None:
        """Forget an attempt that has ended, and its folder."""
        with self.lock:
            self._held.pop(held.key, None)
        # Without held.json a restarted agent does not take it up again; the rest may take a while.
        (held.folder / "held.json").unlink(missing_ok=True)
        shutil.rmtree(held.folder, ignore_errors=True)

    def listed(self) -> tuple[RunningAttempt, ...]:
        with self.lock:
            known = [held.listed() for held in self._held.values()]
            return (*known, *(i for key, i in self._intents.items() if key not in self._held))

    def of(self, wanted: Callable[[Held], bool]) -> list[Held]:
        with self.lock:
            return [held for held in self._held.values() if wanted(held)]

    def of_job(self, open_job: OpenJob) -> list[Held]:
        return self.of(lambda held: held.open_job is open_job)
