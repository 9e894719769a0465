"""The demo's story: set up a lab, submit, kill a node, show the results.

Everything lies in one folder, and every process that is started is ended again, whatever happens.
Knows neither terminals nor servers: it tells a `Story`, in a `DemoLab`.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ludwig.client.client import Client
from ludwig.client.job import Job
from ludwig.client.lab import Lab
from ludwig.client.lookout import Lookout
from ludwig.client.moments import Moment
from ludwig.client.progress import Display, make_display
from ludwig.client.status import JobStatus, NodeStatus
from ludwig.client.sweep import grid

if TYPE_CHECKING:
    import pandas

__all__ = ["COMMAND", "HOSTS", "PROJECT", "DemoLab", "Story", "run_demo"]

HOSTS = ("hoff", "hebb")
SURVIVOR, VICTIM = HOSTS
PROJECT = "spirals"
REPS = 3
QUIET_S = 3.0
SWEEP = grid(lr=[0.003, 0.03], hidden=[6, 16], epochs=600)
COMMAND = "ludwig submit spirals -g lr=0.003,0.03 -g hidden=6,16 -s epochs=600 -r 3"
"""What a user of a real lab would type for the same sweep."""


class DemoLab(Protocol):
    """A lab that can be brought up, hurt, and taken down."""

    def start(self) -> Lab: ...

    def kill_node(self, host: str) -> None:
        """Everything of that node dies at once, as in a power cut."""

    def kill(self) -> None:
        """Everything of the lab dies at once; also in the middle of `start`."""

    def close(self) -> None: ...


class Story(Protocol):
    """What is told on the way; the command line draws it."""

    def say(self, text: str) -> None: ...

    def typed(self, command: str) -> None:
        """What a user would have typed to see what comes next."""

    def nodes(self, rows: list[NodeStatus]) -> None: ...

    def results(self, frame: pandas.DataFrame) -> None: ...


def run_demo(folder: Path, lab: DemoLab, story: Story, *, progress: bool | None = True) -> Path:
    """Tell the story once. Returns where the plot is. Nothing runs any more afterwards."""
    source = folder / "project"
    shutil.copytree(
        Path(__file__).with_name("project"),
        source,
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    # The lab ignores its whole folder, for the repository it may be in; this is sent all the same.
    (source / ".ludwigignore").write_text("!*\n")
    opened = lab.start()
    with Client(PROJECT, lab=opened) as client:
        job = _submit(client, source, story)
        status = _watch(job, make_display(progress), lambda: lab.kill_node(VICTIM))
        story.say(_what_happened(status))
        story.typed("ludwig nodes")
        story.nodes(_quiet_nodes(opened))
        story.typed("ludwig results")
        frame = job.results(cache=False)
        story.results(frame)
    # Imported last: it takes a second, and nobody waits for it while the nodes are at work.
    from ludwig.client.plot import save_plot

    return save_plot(frame, folder / "learning_curves.png", title="Two spirals, told apart")


def _submit(client: Client, source: Path, story: Story) -> Job:
    story.typed(COMMAND)
    job = client.submit(
        src_ps=[source / "spirals"],
        root=source,
        param2val_list=SWEEP,
        reps=REPS,
        env={"OMP_NUM_THREADS": "1"},  # the nodes share this machine's cores
        progress=False,
    )
    runs = len(SWEEP) * REPS
    story.say(
        f"Job {job.id}: {len(SWEEP)} configurations × {REPS} replications = {runs} tasks, each a "
        "small neural network that learns to tell two spirals apart."
    )
    return job


def _watch(job: Job, display: Display, kill: Callable[[], None]) -> JobStatus:
    """Follow the job; kill the second node when it has just started a task."""
    killed = False
    before: set[int] = set()
    try:
        for moment in job.moments(poll_s=0.3):
            display.show(moment)
            if moment.status is None or killed:
                continue
            running = _running_on(moment, VICTIM)
            if moment.status.counts["done"] >= 2 and running - before:
                kill()
                killed = True
                display.say(f"\n{_obituary(running)}\n")
            before = running
    finally:
        display.close()
    if moment.status is None:
        raise RuntimeError("the job ended without a status")
    return moment.status


def _running_on(moment: Moment, host: str) -> set[int]:
    tasks = moment.status.tasks if moment.status else ()
    return {task.task for task in tasks if task.state == "running" and task.node == host}


def _obituary(running: set[int]) -> str:
    tasks = " and ".join(map(str, sorted(running)))
    noun = "task" if len(running) == 1 else "tasks"
    return (
        f"{VICTIM} loses its power, on purpose: its agent and what it was at ({noun} {tasks}) are "
        f"gone.\nNobody tells {SURVIVOR}: it sees {VICTIM}'s heartbeat stand still, and takes over."
    )


def _what_happened(status: JobStatus) -> str:
    text = f"{status.counts['done']} of {status.total} tasks are done, each exactly once."
    if again := [task for task in status.tasks if task.attempt > 1]:
        names = " and ".join(str(task.task) for task in again)
        one = len(again) == 1
        text += f" {'Task' if one else 'Tasks'} {names} died with {VICTIM}"
        text += f" and {'was' if one else 'were'} run again on {again[0].node}."
    return text


def _quiet_nodes(lab: Lab) -> list[NodeStatus]:
    """The nodes, once the last heartbeat tells that the work is over."""
    lookout = Lookout(lab)
    deadline = time.monotonic() + QUIET_S
    while True:
        rows = lookout.nodes()
        at_work = [row for row in rows if row.state != "silent" and row.beat and row.beat.running]
        if not at_work or time.monotonic() > deadline:
            return rows
        time.sleep(0.2)
