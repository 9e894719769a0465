"""A lab on this machine alone: a folder as the drive, and an agent of its own. For debugging.

What `Client(…, local=True)` and `ludwig submit --local` use: everything after it is the same code
as with a real lab. Its folder is `.ludwig/` of the folder one works in, so runs stay there.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from ludwig import errors, queue
from ludwig.client.embedded import EmbeddedLab
from ludwig.client.lab import Lab
from ludwig.model import Stop
from ludwig.view import JobView

__all__ = ["LOCAL_FOLDER", "LOCAL_HOST", "open_local_lab"]

LOCAL_FOLDER = ".ludwig"
LOCAL_HOST = "local"
STOP_S = 10.0


def open_local_lab(project: str, *, folder: Path | None = None) -> Lab:
    """A `Lab` whose `closing` cancels what still runs, and ends the agent."""
    place = (folder or Path.cwd()) / LOCAL_FOLDER
    embedded = EmbeddedLab(place, [LOCAL_HOST], slots="gpus")
    lab = embedded.start()
    lab.closing.append(lambda: _cancel_open_jobs(lab, project))
    return lab


def _cancel_open_jobs(lab: Lab, project: str) -> None:
    """A local lab does not outlive the program that opened it, and neither do its tasks."""
    with suppress(errors.DriveError):
        views = [
            view
            for number in queue.list_jobs(lab.drive, project)
            if (view := _open(lab, project, number))
        ]
        for view in views:
            queue.stop(lab.drive, view.job, Stop(user="", host=LOCAL_HOST))
        deadline = time.monotonic() + STOP_S
        while any(_running(view) for view in views) and time.monotonic() < deadline:
            time.sleep(0.1)


def _open(lab: Lab, project: str, number: int) -> JobView | None:
    try:
        view = JobView(lab.drive, queue.read_job(lab.drive, project, number))
    except (errors.NotFound, errors.Malformed):
        return None
    view.refresh()
    return None if view.over() else view


def _running(view: JobView) -> bool:
    view.refresh()
    return bool(set(view.claims) - view.done)
