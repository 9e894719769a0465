"""What must hold when the adversary of `chaos.py` has gone and everything is healed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from ludwig import job_records, layout
from ludwig.client.job import Job
from ludwig.view import JobView
from tests.chaos_eyes import Eyes
from tests.harness import wait_until
from tests.lab import Lab

__all__ = ["Report", "judge"]


@dataclass
class Report:
    """What was done and what came of it."""

    seed: int
    deeds: list[str] = field(default_factory=list)
    tasks: int = 0
    cancelled: int = 0
    attempts: int = 0
    seen: int = 0
    """How many things that went wrong a user could see."""
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kinds: dict[str, int] = {}
        for deed in self.deeds:
            kinds[deed.split()[0]] = kinds.get(deed.split()[0], 0) + 1
        deeds = ", ".join(f"{count} × {kind}" for kind, count in sorted(kinds.items()))
        verdict = "\n  ".join(["PROBLEMS:", *self.problems]) if self.problems else "all held"
        return (
            f"seed {self.seed}: {self.tasks} tasks, {self.cancelled} cancelled, {self.attempts} "
            f"attempts, {self.seen} troubles shown, {self.seconds:.0f} s\n  {deeds}\n  {verdict}"
        )


def judge(
    report: Report,
    lab: Lab,
    drive: Path,
    *,
    jobs: Sequence[Job],
    eyes: Eyes,
) -> None:
    """Fill in a report. `drive` is where the file server keeps its files; the first job counts."""
    _judge_tasks(report, lab, drive, jobs[0])
    for job in jobs:
        eyes.judge(job)
    report.seen = eyes.seen
    report.problems += _of_agents(lab)


def _judge_tasks(report: Report, lab: Lab, drive: Path, job: Job) -> None:
    say = report.problems.append
    record = job_records.read_job(lab.drive, job.project, job.id)
    view = JobView(lab.drive, record)
    view.refresh()
    report.tasks = len(view.tasks)
    report.attempts = sum(view.claims.values())
    files = layout.project_files(job.project)
    for number, (_, task) in sorted(view.tasks.items()):
        done = view.end_of(number)
        if done is None and view.left_results(number):
            done = view.ended[number]
        (run,) = task.runs
        folder = drive / files.run(run.param_name, run.job_name)
        if view.stopped(number) and (done is None or done.outcome == "stopped"):
            report.cancelled += 1
            if folder.exists():
                say(f"task {number} was stopped and has results")
        elif done is None or done.outcome != "done":
            say(f"task {number} ended as {done.outcome if done else None}: {done and done.why}")
        elif not _whole(folder):
            say(f"task {number}: its shard is not whole")
    runs = list((drive / job.project / "runs").glob("param_*/*num*"))
    if len(runs) != report.tasks - report.cancelled:
        say(f"{len(runs)} runs for {report.tasks - report.cancelled} tasks")


def _of_agents(lab: Lab) -> Iterator[str]:
    for host, agent in lab.agents.items():
        if agent.poll() is not None:
            yield f"the agent {host} is dead"
        for line in _stumbles(agent.log):
            yield f"the agent {host} stumbled: {line}"
    try:
        wait_until(lambda: not _left(lab), timeout=30, interval=0.1)
    except AssertionError:
        yield f"processes are left: {_left(lab)}"


def _left(lab: Lab) -> list[str]:
    """Of attempts, cancelled or not, and of agents that were killed: whatever names this lab and
    does not belong to an agent that lives."""
    agents = [psutil.Process(agent.pid) for agent in lab.agents.values()]
    family = {os.getpid(), *(agent.pid for agent in agents)}
    attempts = lab.processes()
    for agent in agents:
        family |= {child.pid for child in agent.children(recursive=True)} - attempts
    found = []
    for process in psutil.process_iter(["pid", "cmdline"]):
        named = any(str(lab.folder) in word for word in process.info["cmdline"] or [])
        if process.pid in attempts or (named and process.pid not in family):
            found.append(f"{process.pid} {' '.join(process.info['cmdline'] or [])[:200]}")
    return found


def _whole(folder: Path) -> bool:
    try:
        data = (folder / "saves" / "shard.bin").read_bytes()
        return hashlib.sha256(data).hexdigest() == (folder / "saves/shard.sha256").read_text()
    except OSError:
        return False


def _stumbles(log: Path) -> Iterator[str]:
    lines = log.read_text("utf-8", "replace").splitlines() if log.exists() else []
    for number, line in enumerate(lines):
        if line.startswith("Traceback"):
            yield f"{lines[max(0, number - 1)]} … {lines[min(len(lines) - 1, number + 12)]}"
