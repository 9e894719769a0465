"""One attempt that this node holds, in memory and on its own disk.

An attempt is held from the moment it is about to be claimed until its end is on the drive; every
heartbeat lists all of them. What must survive the agent's death is in the attempt's folder:
`held.json` (what it is) and `done.json` (how it ended, the very bytes that are published). The rest
of the folder belongs to `runner.py` and `attempt.py`.

What was sent to the drive of its log is not written down: a later agent sends the log again from
the beginning, the same bytes to the same place.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from ludwig import codec, errors
from ludwig.model import Claim, Done, Job, RunningAttempt, Task, Ticket
from ludwig.shares import Shares
from ludwig.view import JobView
from ludwig.worker.attempt import Exit, Process
from ludwig.worker.logtail import LogTail
from ludwig.worker.recorder import Recorder
from ludwig.worker.slots import Assignment

__all__ = [
    "HELD",
    "KEPT",
    "Held",
    "HeldRecord",
    "Key",
    "OpenJob",
    "Phase",
    "attempt_folder",
    "write_whole",
]

HELD = "held.json"
KEPT = "kept.json"
"""In place of held.json: a failed attempt's folder, left for a while for whoever wants to look."""

Phase = Literal["waiting", "running", "publishing"]
Key = tuple[str, int, int, int]
"""project, job, task, attempt."""
NEVER = float("-inf")


@dataclass(eq=False)
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
    opened_at: float = field(default_factory=time.monotonic)
    refreshed: float = NEVER
    """When (monotonic) the view was last looked at as a whole. Until then nothing is claimed."""
    glanced: float = NEVER
    """When its stops, and who is silent, were last looked at."""
    claims_seen: float = NEVER
    """When the share that we help with was last looked at."""
    helping: str = ""
    """The node whose share we work on, our own being exhausted."""
    silent: frozenset[str] = frozenset()
    """The nodes that were silent at the last look at the whole."""
    patience: float = 1.0
    """By how much this node's turn to look at the whole comes later, or sooner, than usual."""
    rests_until: float = NEVER
    """After an error that concerns this job alone: the others need not wait for it."""
    gone: bool = False
    """Somebody has removed the job from the drive."""
    pace: float = 1.0
    """How many seconds an attempt takes here: a maximum that fades. The loop's to change."""
    params_seen: set[str] = field(default_factory=set)
    """Configurations whose parameters are known to be in `runs/`. The publisher's."""

    def __post_init__(self) -> None:
        self.tasks = self.view.tasks
        self.shares = Shares(self.view)

    @property
    def key(self) -> str:
        return f"{self.job.project}/{self.job.job}"

    def ended_after(self, seconds: float) -> None:
        """An attempt ended here. One that took long counts for many that did not."""
        self.pace = max(seconds, 0.8 * self.pace)

    def look_soon(self) -> None:
        """What is known of it is out of date."""
        self.refreshed = min(self.refreshed, 0.0)
        self.glanced = min(self.glanced, 0.0)


class HeldRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`held.json`: enough to go on after a restart."""

    project: str
    job: int
    task: int
    attempt: int
    spec: Task
    """What the task is: a table of tasks may be out of reach when it is needed."""
    claim: Claim
    started: str = ""
    gpus: tuple[str, ...] = ()
    stop_asked: bool = False
    cause: str = ""


@dataclass(eq=False)
class Held:
    """One attempt that this node holds. `phase` changes by `Bench.move` only."""

    open_job: OpenJob
    task: Task
    attempt: int
    claim: Claim
    folder: Path
    phase: Phase = "waiting"
    claimed_at: float = 0.0
    trial: bool = False
    """Claimed to see whether this node still does harm: see `suspicion.py`."""
    early: bool = False
    """Claimed because what runs is over soon: given back if it is not. See `appetite.py`."""
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
    """When its process was told."""
    cause: str = ""
    """Why the agent itself ends it (a GPU lost), when it does: no fault of the task."""
    pids: frozenset[int] = frozenset()
    """The processes it had when the GPUs were last looked at."""
    recorder: Recorder | None = None
    tail: LogTail | None = None
    gpu_sent: int = 0
    shipping: threading.Lock = field(default_factory=threading.Lock)
    """Held by whoever appends to the attempt's files on the drive."""

    @property
    def key(self) -> Key:
        job = self.open_job.job
        return job.project, job.job, self.task.task, self.attempt

    @property
    def name(self) -> str:
        project, job, task, attempt = self.key
        return f"{project}/{job} task {task} attempt {attempt}"

    @property
    def facts(self) -> dict[str, Any]:
        """For the agent's log."""
        return {"job": self.open_job.key, "task": self.task.task, "attempt": self.attempt}

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
            spec=self.task,
            claim=self.claim,
            started=self.started,
            gpus=self.assignment.gpus if self.assignment else (),
            stop_asked=self.stop_asked is not None and self.stop_wanted,
            cause=self.cause,
        )
        write_whole(self.folder / HELD, codec.encode(record))

    def let_go(self, *, keep: bool) -> None:
        """From now on no agent takes it up."""
        with contextlib.suppress(OSError):
            if keep:
                (self.folder / HELD).rename(self.folder / KEPT)
            else:
                (self.folder / HELD).unlink(missing_ok=True)

    def decided(self) -> Done | None:
        """How it ended, if that was decided before, be it by an agent that died since.

        The job may write to the folder too: only the agent's own word counts.
        """
        path = self.folder / "done.json"
        try:
            facts = path.lstat()
            if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.geteuid():
                return None
            return codec.decode(Done, path.read_bytes(), str(path))
        except (OSError, errors.Malformed):
            return None

    def decide(self, done: Done) -> None:
        """Write down the end: it is published with these very bytes, however often that takes."""
        write_whole(self.folder / "done.json", codec.encode(done))


def write_whole(path: Path, data: bytes) -> None:
    """A local file, whole or not at all as far as a killed agent is concerned.

    Not synced: what a power cut takes, the drive tells again (a claim nobody lists is taken over).
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    temporary.replace(path)


def attempt_folder(attempts: Path, job: Job, task: int, attempt: int) -> Path:
    return attempts / f"{job.project}-{job.job}-{task}-{attempt}"
