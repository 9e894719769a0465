"""What the files of the drive and of an inbox hold, as types.

Owns the shape of every JSON file that Ludwig writes; `codec.py` turns bytes into these and back,
`PROTOCOL.md` shows an example of each. Nothing here touches a drive or a clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

import msgspec

__all__ = [
    "ATTEMPT_LIMIT",
    "VERSION",
    "Beat",
    "Chunk",
    "Claim",
    "Contract",
    "Done",
    "Event",
    "Failure",
    "File",
    "Format",
    "Git",
    "Gpu",
    "GpuSummary",
    "Job",
    "NodeState",
    "Origin",
    "Outcome",
    "Plan",
    "Refusal",
    "Run",
    "RunningAttempt",
    "Slots",
    "Stop",
    "Table",
    "Task",
    "TaskState",
    "TaskTable",
    "Ticket",
]

VERSION = 1
ATTEMPT_LIMIT = 20
"""A task that was claimed this often and never ended is given up as `lost`."""

Natural = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=2**53)]
SHORT_LIMIT = 1000
TEXT_LIMIT = 20_000
Short = Annotated[str, msgspec.Meta(max_length=SHORT_LIMIT)]
Text = Annotated[str, msgspec.Meta(max_length=TEXT_LIMIT)]
Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
Nonce = Annotated[str, msgspec.Meta(min_length=8, max_length=64)]

Contract = Literal["script", "function"]
Outcome = Literal["done", "failed", "lost", "stopped"]
TaskState = Literal["queued", "running", "done", "failed", "lost", "stopped"]
NodeState = Literal["idle", "busy", "draining", "quarantined", "silent"]


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """Base of every file: immutable, fields by name. Unknown fields are passed over."""


class Format(Record, frozen=True, kw_only=True):
    """`.ludwig/format.json`: what wrote this drive."""

    version: Positive


class Run(msgspec.Struct, frozen=True, array_like=True):
    """One param2val of a task: its folder is `runs/<param_name>/<job_name>`."""

    param_name: Short
    job_name: Short


class Task(msgspec.Struct, frozen=True, array_like=True):
    """One slice of a host's chunk file: what is claimed and run as a whole."""

    task: Positive
    offset: Natural
    length: Positive
    sha256: Sha256
    runs: tuple[Run, ...]


class Table(Record, frozen=True, kw_only=True):
    """That the tasks of a host are in `chunks/<host>.json`, and which these are."""

    sha256: Sha256
    first: Positive
    count: Positive


class TaskTable(Record, frozen=True, kw_only=True):
    """`chunks/<host>.json`: the tasks of one host of a large job, numbered in a row."""

    version: Positive = VERSION
    host: Short
    tasks: tuple[Task, ...]


class Chunk(Record, frozen=True, kw_only=True):
    """What one host works through from the front: its tasks, or where the table of them is."""

    tasks: tuple[Task, ...] = ()
    table: Table | None = None

    @property
    def numbers(self) -> Sequence[int]:
        """The numbers of its tasks, in order."""
        if self.table is not None:
            return range(self.table.first, self.table.first + self.table.count)
        return tuple(task.task for task in self.tasks)


class Git(Record, frozen=True, kw_only=True):
    """The state of the repository a job was submitted from."""

    commit: Short
    dirty: bool
    ref: Short = ""
    """`refs/ludwig/17`: exactly what was sent. Empty when no snapshot could be made."""
    branch: Short = ""


class Origin(Record, frozen=True, kw_only=True):
    """Who submitted a job, from where, and with what. For people; nothing depends on it."""

    user: Short
    host: Short
    folder: Short = ""
    ludwig: Short = ""
    python: Short = ""
    system: Short = ""
    when: Short = ""
    git: Git | None = None


class Job(Record, frozen=True, kw_only=True):
    """`job.json`: published last. Everything an agent needs to know but the tasks' own bytes."""

    version: Positive = VERSION
    project: Short
    job: Positive
    nonce: Nonce
    stamp: Short
    """Local time of the submitter, `2026-11-18-10-00-00`: part of every job_name, for people."""
    contract: Contract
    entry: Short
    """The file that is run, relative to the unpacked source: `run.py`, `package/job.py`."""
    package: Short = "src"
    """Name of the source folder: results gather in `<package>_runs/` of the working folder."""
    source: Sha256
    params_sha256: Sha256
    chunks: dict[Short, Chunk]
    """By host. Every host that got a ticket is here, if only with an empty chunk."""
    per: Literal["task", "chunk"] = "task"
    retries: Natural = 1
    gpus: Natural | None = None
    python: Short | None = None
    balance: bool = True
    env_names: tuple[Short, ...] = ()
    """Names only: the values travel in the ticket, since the drive is read by everybody."""
    origin: Origin
    retry_of: Positive | None = None
    abandoned: bool = False
    """Published in place of a job whose submission died half-way: it never gets any task."""

    def numbers(self) -> Iterator[int]:
        """Of every task, host by host."""
        return (number for chunk in self.chunks.values() for number in chunk.numbers)


class Plan(Record, frozen=True, kw_only=True):
    """`.ludwig/params/<n>.json`: what one submission decided, in the order of submissions.

    Only one plan can be published under a number, and whoever publishes it has read all before
    it: so names are given once, and two submissions at the same moment do not double the work.
    """

    version: Positive = VERSION
    nonce: Nonce
    job: Natural = 0
    """The job this plan is for; 0 for one that only gives names."""
    names: dict[Short, Sha256] = {}
    """New configurations: param_name → hash. Goes on where the plan before ended."""
    runs: dict[Short, Natural] = {}
    """How many replications of each configuration the job will run."""
    by: Short = ""
    """Host, process and its start, so that a submitter on the same machine knows if it is dead."""


class Ticket(Record, frozen=True, kw_only=True):
    """`tickets/<project>-<job>.json` in an inbox: the order to work on a job."""

    version: Positive = VERSION
    project: Short
    job: Positive
    sha256: Sha256
    """Of the bytes of `job.json`."""
    env: dict[Short, Text] = {}


class Failure(Record, frozen=True, kw_only=True):
    """One attempt that did not end well."""

    attempt: Positive
    host: Short
    why: Text


class Claim(Record, frozen=True, kw_only=True):
    """`claims/<task>.<attempt>`: this host runs it."""

    version: Positive = VERSION
    host: Short
    boot: Short
    beat: Natural
    """The host's latest heartbeat when it decided to claim: every later one lists the attempt."""
    nonce: Nonce
    why: Short = ""
    """Why there is another attempt: shown to the user."""
    failures: tuple[Failure, ...] = ()
    """The attempts before this one that failed, so that nobody has to look for them."""


class File(msgspec.Struct, frozen=True, array_like=True):
    """One file of a run, relative to `runs/<param_name>/<job_name>/`."""

    path: Short
    size: Natural
    sha256: str = ""


class GpuSummary(Record, frozen=True, kw_only=True):
    """What the GPUs of an attempt did. Percent, bytes, degrees Celsius, watts, joules."""

    gpus: tuple[Short, ...] = ()
    samples: Natural = 0
    utilization_mean: float = 0.0
    utilization_max: float = 0.0
    memory_mean: float = 0.0
    memory_max: Natural = 0
    temperature_max: float = 0.0
    power_mean: float = 0.0
    energy: float = 0.0


class Done(Record, frozen=True, kw_only=True):
    """`done/<task>`: the end of a task. Only one can be published."""

    version: Positive = VERSION
    task: Positive
    attempt: Natural
    """0 when the task was ended without being started."""
    outcome: Outcome
    host: Short
    nonce: Nonce
    why: Text = ""
    exit_code: int | None = None
    signal: int | None = None
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    memory_max: Natural = 0
    started: Short = ""
    """By the node's clock: for people."""
    ended: Short = ""
    files: tuple[tuple[File, ...], ...] = ()
    """The manifest, one list per run of the task. A run whose list is here has a folder."""
    moved: bool = True
    """False when the script itself wrote to `runs/`: then there is nothing to move."""
    gpu: GpuSummary | None = None
    failures: tuple[Failure, ...] = ()
    log_path: Short = ""


class Event(Record, frozen=True, kw_only=True):
    """One line of `events/<host>.<boot>.jsonl`."""

    what: Literal["accepted", "claimed", "started", "failed", "released", "ended", "note"]
    at: Short = ""
    """By the node's clock: for people."""
    task: Natural = 0
    attempt: Natural = 0
    why: Text = ""
    done: Done | None = None
    """With `ended`: what was published, so that nobody has to read `done/` task by task."""


class Stop(Record, frozen=True, kw_only=True):
    """`stop`, `stop.<task>`: who cancelled. An empty file stops just as well."""

    version: Positive = VERSION
    user: Short = ""
    host: Short = ""
    nonce: str = ""


class Refusal(Record, frozen=True, kw_only=True):
    """`refused/<host>.json`: this node will not work on the job."""

    version: Positive = VERSION
    host: Short
    why: Text
    nonce: str = ""


class Gpu(Record, frozen=True, kw_only=True):
    """One GPU in a heartbeat. Bytes, percent, degrees, watts."""

    name: Short
    uuid: Short = ""
    utilization: float = 0.0
    memory_used: Natural = 0
    memory_total: Natural = 0
    temperature: float = 0.0
    power: float = 0.0
    state: Literal["free", "busy", "foreign", "out"] = "free"
    """busy: ours; foreign: somebody else's process sits on it; out: taken out of service."""
    why: Text = ""


class Slots(Record, frozen=True, kw_only=True):
    """How many tasks a node can run at once, and how many places are free."""

    gpus: Natural = 0
    gpus_free: Natural = 0
    cpus: Natural = 0
    cpus_free: Natural = 0


class RunningAttempt(Record, frozen=True, kw_only=True):
    """An attempt that a node holds: claimed, running, or on its way to the drive."""

    project: Short
    job: Positive
    task: Positive
    attempt: Positive
    phase: Literal["waiting", "running", "publishing"] = "running"
    user: Short = ""
    since: Short = ""
    gpus: tuple[Short, ...] = ()


class Beat(Record, frozen=True, kw_only=True):
    """`.ludwig/nodes/<host>.<counter>.json`: that a node lives, and how it is."""

    version: Positive = VERSION
    host: Short
    boot: Short
    counter: Positive
    state: NodeState
    why: Text = ""
    every_s: float = 15.0
    silent_s: float = 0.0
    """How long others wait for a beat until they act: its `node_silent_s`. 0: it did not say."""
    ludwig: Short = ""
    mounted: bool = True
    """Whether the drive is a folder on the node: the script contract needs that."""
    slots: Slots = Slots()
    gpus: tuple[Gpu, ...] = ()
    running: tuple[RunningAttempt, ...] = ()
    set_aside: tuple[Short, ...] = ()
    """Jobs (`project/17`) whose tasks all died at once here: left to other nodes for a while."""
    at: Short = ""
    disk_free: Natural = 0
    extra: dict[str, Any] = {}
