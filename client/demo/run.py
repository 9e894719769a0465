"""The demo's story: set up a lab, submit, kill a node, show the results.

Everything lies in one folder, and every process that is started is ended again, also on Ctrl-C.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ludwig.client.client import Client
from ludwig.client.job import Job
from ludwig.client.lab import Lab
from ludwig.client.lookout import Lookout
from ludwig.client.moments import Moment
from ludwig.client.progress import Display, make_display
from ludwig.client.status import NodeStatus
from ludwig.client.sweep import grid

if TYPE_CHECKING:
    import pandas

__all__ = ["HOSTS", "DemoLab", "Story", "run_demo"]

HOSTS = ("hoff", "hebb")
PROJECT = "spirals"
REPS = 3
SWEEP = grid(lr=[0.003, 0.03], hidden=[4, 16], epochs=1500)


class DemoLab(Protocol):
    """A lab that can be brought up, hurt, and taken down."""

    def start(self) -> Lab: ...

    def kill_node(self, host: str) -> None:
        """Everything of that node dies at once, as in a power cut."""

    def close(self) -> None: ...


class Story:
    """What is told on the way; the command line draws it."""

    def say(self, text: str) -> None: ...

    def nodes(self, rows: list[NodeStatus]) -> None: ...

    def results(self, frame: pandas.DataFrame) -> None: ...


def run_demo(folder: Path, lab: DemoLab, story: Story, *, progress: bool | None = True) -> Path:
    """Tell the story once. Returns where the plot is."""
    source = folder / "project"
    shutil.copytree(Path(__file__).with_name("project"), source, dirs_exist_ok=True)
    try:
        opened = lab.start()
        with Client(PROJECT, lab=opened) as client:
            return _tell(folder, source, client, lab, story, progress)
    finally:
        lab.close()


def _tell(
    folder: Path,
    source: Path,
    client: Client,
    lab: DemoLab,
    story: Story,
    progress: bool | None,
) -> Path:
    runs = len(SWEEP) * REPS
    story.say(
        f"A lab of two nodes, {' and '.join(HOSTS)}, is up. Submitting {len(SWEEP)} "
        f"configurations × {REPS} replications = {runs} tasks:"
    )
    job = client.submit(
        src_ps=[source / "spirals"], root=source, param2val_list=SWEEP, reps=REPS, progress=False
    )
    display = make_display(progress)
    try:
        _watch(job, display, lambda: lab.kill_node(HOSTS[1]))
    finally:
        display.close()
    story.say("All tasks have ended. The nodes, as `ludwig nodes` shows them:")
    story.nodes(Lookout(client.lab).nodes())
    story.say("The last values, as `ludwig results` shows them:")
    frame = job.results()
    story.results(frame)
    from ludwig.client.plot import save_plot

    return save_plot(frame, folder / "learning_curves.png")


def _watch(job: Job, display: Display, kill: Callable[[], None]) -> None:
    """Follow the job; kill the second node as soon as it is busy and something is done."""
    killed = False
    for moment in job.moments(poll_s=0.5):
        display.show(moment)
        if not killed and _is_busy(moment, HOSTS[1]):
            kill()
            killed = True
            display.say(
                f"Now {HOSTS[1]} loses its power, on purpose: its agent and the task it was "
                f"running are gone. Watch {HOSTS[0]} take over."
            )


def _is_busy(moment: Moment, host: str) -> bool:
    if moment.status is None:
        return False
    tasks = moment.status.tasks
    done = sum(task.state == "done" for task in tasks)
    return done >= 2 and any(task.state == "running" and task.node == host for task in tasks)
