"""From a claim to a folder that can be started: the task's bytes, the source, the order.

Fetches and verifies what the drive gives; everything after that is local. Starts nothing.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from ludwig import errors, layout, queue
from ludwig.config import WorkerConfig
from ludwig.drive import Drive
from ludwig.model import Claim, Task
from ludwig.worker import workspace
from ludwig.worker.held import Held, OpenJob, attempt_folder
from ludwig.worker.logtail import LogTail
from ludwig.worker.slices import Slices
from ludwig.worker.stockroom import Stockroom

__all__ = ["Preparer"]


class Preparer:
    """Owns `work/attempts/`."""

    def __init__(self, config: WorkerConfig, drive: Drive, stockroom: Stockroom) -> None:
        self._config, self._drive, self._stockroom = config, drive, stockroom
        self._slices = Slices(drive)
        self.attempts = config.work / "attempts"
        self.attempts.mkdir(mode=0o711, parents=True, exist_ok=True)

    def take_in(self, opened: OpenJob, task: Task, attempt: int, claim: Claim) -> Held:
        """Note on our own disk that this attempt is ours."""
        folder = attempt_folder(self.attempts, opened.job, task.task, attempt)
        try:
            folder.mkdir(mode=0o711)
        except FileExistsError:  # of another drive, or of one that was made anew
            workspace.remove(folder)
            folder.mkdir(mode=0o711)
        held = Held(
            open_job=opened,
            task=task,
            attempt=attempt,
            claim=claim,
            folder=folder,
            claimed_at=time.monotonic(),
        )
        held.tail = self.tail(folder)
        held.save()
        return held

    def tail(self, folder: Path) -> LogTail:
        half = int(self._config.log_max_mb * 1e6 / 2)
        return LogTail(folder / "log", half, half)

    def prepare(self, held: Held) -> None:
        """Make the folder complete. `Malformed` when the drive gives other bytes than promised.

        For the foreman's thread.
        """
        opened, task = held.open_job, held.task
        home = opened.tasks.home(task.task) or self._config.hostname
        workspace.prepare(
            held.folder,
            source=opened.source,
            project=opened.job.project,
            chunk=self._slices.read(opened.job, home, task),
            user=self._config.user,
            allow_root=self._config.user == "root",
            take_spare=self._stockroom.take,
        )
        held.prepared = True

    def workspace(self, held: Held) -> Path:
        """The attempt's own copy of the source: its working folder."""
        return held.folder / "tree" / held.open_job.job.project

    def result_folders(self, held: Held) -> list[Path]:
        """Where each run of the task gathers its results."""
        top = self.workspace(held) / f"{held.open_job.job.package}_runs"
        return [top / run.param_name / run.job_name for run in held.task.runs]

    def place_chunk(self, held: Held, *, isolated: bool) -> None:
        """Put the task where the script contract looks for it, on the mounted drive.

        An isolated attempt sees its own copy bound over that file, whatever is in it. The file must
        be there, and must not be replaced: that would take the view from those that run already.
        """
        job = held.open_job.job
        self._clear_earlier_runs(held)
        path = layout.project_files(job.project).seed_chunk(self._config.hostname)
        if not isolated or not self._drive.exists(path):
            self._drive.replace(path, (held.folder / "chunk.pkl").read_bytes())

    def _clear_earlier_runs(self, held: Held) -> None:
        """What an earlier attempt wrote to `runs/` by itself may be half of it."""
        job = held.open_job.job
        if held.attempt == 1 or queue.read_done(self._drive, job, held.task.task) is not None:
            return
        self._remove_runs(held)

    def clear_half_run(self, held: Held) -> None:
        """Remove what a script wrote to `runs/` before it failed or was cancelled.

        Of a whole chunk nobody knows which runs are complete: there, all stay.
        """
        if held.open_job.job.contract == "script" and len(held.task.runs) == 1:
            self._remove_runs(held)

    def _remove_runs(self, held: Held) -> None:
        files = layout.project_files(held.open_job.job.project)
        for run in held.task.runs:
            self._drive.remove_folder(files.run(run.param_name, run.job_name))

    def seed_chunk(self, held: Held) -> Path:
        """Where a script looks for its chunk, on the mounted drive."""
        files = layout.project_files(held.open_job.job.project)
        return Path(self.project_path(held)).parent / files.seed_chunk(self._config.hostname)

    def project_path(self, held: Held) -> str:
        mount = self._drive.mount
        return str(mount / held.open_job.job.project) if mount is not None else ""


def make_storable(folder: Path) -> list[str]:
    """Rename results whose names the drive could not store. Returns what was renamed.

    Better another name than a lost run: a drive may be a Windows share, where two names must not
    differ by case alone and some characters cannot be.
    """
    notes: list[str] = []
    for parent, folders, names in os.walk(folder, topdown=False):
        there = {name.lower() for name in (*folders, *names)}
        taken: set[str] = set()
        for name in sorted([*folders, *names]):
            if _is_storable(name) and name.lower() not in taken:
                taken.add(name.lower())
                continue
            fitting = _fitting(name, there | taken)
            taken.add(fitting.lower())
            Path(parent, name).rename(Path(parent, fitting))
            notes.append(f"{name!r} is kept as {fitting!r}")
    return notes


def _is_storable(name: str) -> bool:
    try:
        layout.check_relative(name)
    except errors.NameNotAllowed:
        return False
    return True


def _fitting(name: str, taken: set[str]) -> str:
    """A name that can be stored and that nobody has: renaming must not replace another result."""
    fitting = name
    if not _is_storable(name):
        kept = "".join(c if c.isalnum() or c in "._- " else "_" for c in name)
        fitting = kept.strip(". ")[:150] or "_"
        if not _is_storable(fitting):  # a device of Windows, or still too long
            fitting = f"_{fitting[:40]}"
    stem, dot, ending = fitting.partition(".")
    number = 2
    while fitting.lower() in taken:
        fitting = f"{stem}-{number}{dot}{ending}"
        number += 1
    return fitting
