"""What a user is told about a job, a project's jobs and the nodes. Data only; reads nothing.

`lookout.py` fills these from the drive; the words about tasks come from `ludwig.states`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ludwig import model
from ludwig.client.hints import command
from ludwig.errors import JobFailed
from ludwig.model import NodeState, TaskState
from ludwig.states import TaskStatus

__all__ = ["Failed", "JobStatus", "JobSummary", "NodeStatus", "TaskStatus", "in_words"]


def in_words(counts: Mapping[TaskState, int]) -> str:
    """`3 running, 12 done, 1 failed`; what is not there is not said."""
    order: tuple[TaskState, ...] = ("running", "queued", "done", "failed", "lost", "stopped")
    return ", ".join(f"{counts[state]} {state}" for state in order if counts.get(state))


@dataclass(frozen=True)
class Failed:
    """A task that ended badly, with what is needed to find out why."""

    task: int
    outcome: str
    node: str
    attempt: int
    why: str
    log_path: str
    """On the drive; a full path where the drive is a folder of this machine. May be empty."""
    log_tail: str = ""
    """The last lines of its log: with Python, the traceback."""

    def __str__(self) -> str:
        where = f" on {self.node}" if self.node else ""
        text = f"task {self.task} {self.outcome}{where} (attempt {self.attempt}): {self.why}"
        if self.log_tail:
            text += "\n" + "\n".join(f"    {line}" for line in self.log_tail.splitlines())
        return text + (f"\n  whole log: {self.log_path}" if self.log_path else "")


@dataclass(frozen=True)
class JobSummary:
    """One line of `ludwig status`. Of a finished job it never changes."""

    project: str
    job: int
    state: TaskState
    counts: Mapping[TaskState, int]
    user: str = ""
    when: str = ""
    finished: bool = False
    """Every task has its end on the drive."""

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def as_json(self) -> dict[str, Any]:
        return {"job": self.job, "state": self.state, "counts": dict(self.counts)}


@dataclass(frozen=True)
class JobStatus:
    """A job at one moment. `str()` says it in a line; `check()` raises if something failed."""

    record: model.Job
    """What was submitted: provenance, nodes, options."""
    state: TaskState
    counts: Mapping[TaskState, int]
    tasks: tuple[TaskStatus, ...]
    over: frozenset[int]
    """The tasks that ended for good, or were cancelled before they started."""
    final: bool = False
    """Every task has its end on the drive, so nothing of this can change any more."""
    failed: tuple[Failed, ...] = ()
    """The first few tasks that failed or were lost, each with the end of its log."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Nodes that will not work on this job, and why."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """What is wrong on the drive, and how: files that make no sense or are gone, a full drive."""
    seconds: tuple[float, ...] = ()
    """How long each task took that is done."""

    @property
    def project(self) -> str:
        return self.record.project

    @property
    def job(self) -> int:
        return self.record.job

    @property
    def total(self) -> int:
        return len(self.tasks)

    @property
    def finished(self) -> bool:
        """Nothing is left to wait for."""
        return len(self.over) == self.total

    @property
    def first_open(self) -> int:
        """The first task that is not over; 0 if all are."""
        return next((row.task for row in self.tasks if row.task not in self.over), 0)

    @property
    def failed_tasks(self) -> tuple[TaskStatus, ...]:
        """All tasks that failed, or were lost for good."""
        return tuple(
            row for row in self.tasks if row.task in self.over and row.state in ("failed", "lost")
        )

    @property
    def ok(self) -> bool:
        """Whether every task is done."""
        return self.counts["done"] == self.total

    def check(self, *, hints: bool = True) -> None:
        """`JobFailed` if a task failed or was lost: with the end of its log, and where it is."""
        if self.failed_tasks:
            raise JobFailed(self.explain(hints=hints))

    def explain(self, *, most: int = 1, hints: bool = True) -> str:
        """What went wrong, for a person: the first failures in full, the rest counted.

        With `hints`, also what to type next.
        """
        bad = self.failed_tasks
        lines = [f"job {self.job} of {self.project}: {len(bad)} of {self.total} tasks failed."]
        lines += [str(one) for one in self.failed[:most]]
        if len(bad) > most:
            rest = ", ".join(str(row.task) for row in bad[most : most + 12])
            more = " …" if len(bad) > most + 12 else ""
            also = "Also failed" if most else "Failed"
            see = f" See `{self._command('logs', 'TASK')}`." if hints else ""
            lines.append(f"{also}: {rest}{more}.{see}")
        if hints:
            lines.append(f"`{self._command('retry')}` runs them again.")
        return "\n".join(lines)

    def _command(self, name: str, *words: str) -> str:
        return command(" ".join((name, str(self.job), *words)), self.project)

    def summary(self) -> JobSummary:
        return JobSummary(
            project=self.project,
            job=self.job,
            state=self.state,
            counts=self.counts,
            user=self.record.origin.user,
            when=self.record.origin.when or self.record.stamp,
            finished=self.final,
        )

    def as_json(self) -> dict[str, Any]:
        """What `ludwig status JOB --json` prints of a job."""
        names = ("task", "state", "node", "attempt", "param_name", "job_name", "why")
        tasks = [{name: getattr(row, name) for name in names} for row in self.tasks]
        trouble = {"refused": dict(self.refused), "problems": dict(self.problems)}
        return {**self.summary().as_json(), "tasks": tasks, **trouble}

    def __str__(self) -> str:
        return f"job {self.job} of {self.project}: {in_words(self.counts) or 'no tasks'}"

    __repr__ = __str__


@dataclass(frozen=True)
class NodeStatus:
    """One node: what its last heartbeat said, and whether it still speaks."""

    host: str
    state: NodeState
    why: str = ""
    beat: model.Beat | None = None
    """None for a node that was never heard of."""
    silent_s: float = 0.0
    """How long ago its heartbeat last changed."""

    def as_json(self) -> dict[str, Any]:
        """What `ludwig nodes --json` prints of a node."""
        gpus = self.beat.gpus if self.beat else ()
        running = self.beat.running if self.beat else ()
        facts = ("name", "utilization", "memory_used", "memory_total", "temperature", "power")
        keys = ("project", "job", "task", "attempt")
        return {
            "host": self.host,
            "state": self.state,
            "why": self.why,
            "gpus": [{name: getattr(gpu, name) for name in facts} for gpu in gpus],
            "running": [{name: getattr(one, name) for name in keys} for one in running],
        }
