"""Labs with an agent of their own on this machine: for debugging, and for want of other nodes.

Everything after opening one is the same code as with a real lab. Such a lab does not outlive the
program that opened it, and neither do its tasks.

`open_local_lab` keeps its drive in `.ludwig/` here (`local=True`, `ludwig submit --local`);
`open_isolated_lab` takes the folder above as the drive, so that this one is the project
(`ludwig -i`); `open_guest_lab` lends this machine to the lab (`ludwig -l`).
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ludwig import errors, job_records, layout, queue
from ludwig.client.embedded import EmbeddedLab
from ludwig.client.lab import Lab, check_drive, open_config_drive, this_user
from ludwig.config import LabConfig
from ludwig.config_keys import short_hostname
from ludwig.drive import Drive
from ludwig.model import Stop
from ludwig.view import JobView

__all__ = [
    "LOCAL_FOLDER",
    "LOCAL_HOST",
    "open_guest_lab",
    "open_isolated_lab",
    "open_local_lab",
]

LOCAL_FOLDER = ".ludwig"
LOCAL_HOST = "local"
STOP_S = 10.0


def open_local_lab(project: str, *, folder: Path | None = None) -> Lab:
    """A `Lab` whose `closing` cancels what still runs, and ends the agent."""
    place = (folder or Path.cwd()) / LOCAL_FOLDER
    return _start(EmbeddedLab(place, [LOCAL_HOST], slots="gpus"), project)


def open_isolated_lab(folder: Path) -> Lab:
    """A lab without a file server in which `folder` itself is the project.

    So data is found where it lies, and runs end up in `runs/` of the folder.
    """
    return _start(_Isolated(folder.resolve()), folder.resolve().name)


def open_guest_lab(config: LabConfig, project: str) -> Lab:
    """The lab, with this machine as its only node for as long as the `Lab` is open."""
    drive = open_config_drive(config)
    check_drive(Lab(config, drive))
    guest = _Guest(config, drive, Path.cwd() / LOCAL_FOLDER)
    lab = _start(guest, project)
    lab.closing.insert(0, guest.leave)
    return lab


class _Isolated(EmbeddedLab):
    def __init__(self, project: Path) -> None:
        super().__init__(project / LOCAL_FOLDER, [LOCAL_HOST], slots="gpus")
        self._above = project.parent
        self._was_drive = (self._above / layout.FORMAT).exists()

    @property
    def drive_folder(self) -> Path:
        return self._above

    def close(self) -> None:
        """Leaves the folder above as it was."""
        super().close()
        if not self._was_drive:
            with suppress(errors.DriveError):
                self.open_drive().remove_folder(layout.FORMAT.partition("/")[0])


class _Guest(EmbeddedLab):
    def __init__(self, config: LabConfig, drive: Drive, folder: Path) -> None:
        host = f"{short_hostname()}-local"
        silent_s = config.drive.node_silent_s
        super().__init__(folder, [host], slots="gpus", node_silent_s=silent_s)
        self._settings, self._drive = config.drive, drive

    def drive_keys(self) -> Mapping[str, object]:
        given = self._settings
        keys: dict[str, object] = {"url": given.url, "node_silent_s": given.node_silent_s}
        if given.mount is not None:
            keys["mount"] = str(given.mount)
        return {**keys, "user": given.user or this_user()}

    def open_drive(self) -> Drive:
        return self._drive

    def agent_environment(self) -> dict[str, str]:
        kept = ("LUDWIG_SMB_PASSWORD",)
        more = {name: os.environ[name] for name in kept if name in os.environ}
        if self._settings.encrypt:
            more["LUDWIG_DRIVE_ENCRYPT"] = "true"
        return {**super().agent_environment(), **more}

    def leave(self) -> None:
        """Nobody shall wait for a node that was here for an hour."""
        with suppress(errors.DriveError):
            for name in self._drive.list(layout.NODES):
                beat = layout.parse_beat(name)
                if beat is not None and beat[0] in self.hosts:
                    self._drive.remove(f"{layout.NODES}/{name}")


def _start(embedded: EmbeddedLab, project: str) -> Lab:
    lab = embedded.start()
    lab.closing.append(lambda: _cancel_open_jobs(lab, project, set(embedded.hosts)))
    atexit.register(lab.close)  # few scripts close their client, least of all those that fail
    return lab


def _cancel_open_jobs(lab: Lab, project: str, hosts: set[str]) -> None:
    """Stop what runs on these hosts alone."""
    with suppress(errors.DriveError):
        views = [
            view
            for number in job_records.list_jobs(lab.drive, project)
            if (view := _open(lab, project, number)) and hosts.issuperset(view.job.chunks)
        ]
        for view in views:
            queue.stop(lab.drive, view.job, Stop(user="", host=LOCAL_HOST))
        deadline = time.monotonic() + STOP_S
        while any(_running(view) for view in views) and time.monotonic() < deadline:
            time.sleep(0.1)


def _open(lab: Lab, project: str, number: int) -> JobView | None:
    try:
        view = JobView(lab.drive, job_records.read_job(lab.drive, project, number))
    except (errors.NotFound, errors.Malformed):
        return None
    view.refresh()
    return None if view.over() else view


def _running(view: JobView) -> bool:
    view.refresh()
    return bool(set(view.claims) - view.done)
