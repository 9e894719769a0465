"""What the end of an attempt's process means for its task: done, stopped, tried again, given up.

Reads the drive where it must (is there another node? did the script write to `runs/` itself?), and
gives the record that `publish.py` then publishes.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Callable

from ludwig import errors, layout, queue, states
from ludwig.drive import Drive
from ludwig.model import Done, Event, Failure, File, Outcome
from ludwig.worker import workspace
from ludwig.worker.attempt import Exit
from ludwig.worker.claims import Claims
from ludwig.worker.held import Held
from ludwig.worker.journal import note
from ludwig.worker.prepare import Preparer, make_storable
from ludwig.worker.stream import Events

__all__ = ["Failed", "Released", "Verdicts", "never_ran", "was_lost"]

log = logging.getLogger(__name__)


class Released:
    """No fault of the task's: it goes back, and its next attempt does not count as a retry."""

    def __init__(self, why: str) -> None:
        self.why = why


class Failed:
    """It failed, and there is another attempt to come, here or elsewhere."""

    def __init__(self, why: str) -> None:
        self.why = why


def was_lost(held: Held) -> bool:
    """Whether it ended through no fault of its code, and nobody knows how it would have ended."""
    ending = held.exit
    return bool(held.cause) or ending is None or (ending.vanished and not never_ran(ending))


def never_ran(ending: Exit) -> bool:
    """Its interpreter could not even be started: that is a failure, and trying for ever is vain."""
    return ending.vanished and not ending.user_code_started


class Verdicts:
    """Called by the publisher's thread only. Raises `DriveError`s; may be asked again."""

    def __init__(
        self,
        drive: Drive,
        *,
        host: str,
        clock: Callable[[], str],
        claims: Claims,
        preparer: Preparer,
        events: Events,
    ) -> None:
        self._drive, self._host, self._clock = drive, host, clock
        self._claims, self._preparer, self._events = claims, preparer, events

    def on(self, held: Held) -> Done | Released | Failed:
        """How the task ends, or why it does not."""
        ending = held.exit
        finished = ending is not None and ending.ok
        if held.stop_wanted and (held.stop_asked is not None or not finished):
            return self._done(held, "stopped", why=f"cancelled while on {self._host}")
        if ending is None or was_lost(held):
            return Released(held.cause or (ending.error if ending else "") or "it vanished")
        return self._success(held) if finished else self._failure(held, ending)

    # --- it went well ----------------------------------------------------------------------------

    def _success(self, held: Held) -> Done:
        folders = self._preparer.result_folders(held)
        workspace.take_back(held.folder, folders)
        for folder in folders:
            for renamed in make_storable(folder):
                self._events.note(
                    held.open_job,
                    Event(what="note", task=held.task.task, attempt=held.attempt, why=renamed),
                )
        itself = self._written_by_script(held)
        if itself is not None:
            return self._done(held, "done", files=itself, moved=False)
        return self._done(held, "done", files=queue.manifest(folders))

    def _written_by_script(self, held: Held) -> tuple[tuple[File, ...], ...] | None:
        """The runs that a script put into `runs/` by itself; None if it did not."""
        job = held.open_job.job
        if job.contract != "script":
            return None
        files = layout.project_files(job.project)
        targets = [files.run(run.param_name, run.job_name) for run in held.task.runs]
        if all(_files_below(self._drive, target) is None for target in targets):
            return None
        if queue.read_done(self._drive, job, held.task.task) is not None:
            return None  # what is there is the winner's: nothing of ours may get in
        folders = self._preparer.result_folders(held)
        for run, target, folder in zip(held.task.runs, targets, folders, strict=True):
            queue.ensure_param(
                self._drive, job.project, run.param_name, held.open_job.params[run.param_name]
            )
            self._drive.upload(folder, target)
        return tuple(tuple(_files_below(self._drive, target) or ()) for target in targets)

    # --- it did not ------------------------------------------------------------------------------

    def _failure(self, held: Held, ending: Exit) -> Done | Failed:
        opened = held.open_job
        why = _why_failed(held, ending)
        failure = Failure(attempt=held.attempt, host=self._host, why=why)
        failures = (*held.claim.failures, failure)
        others = self._claims.others_serve(opened)
        verdict = states.after_failure(opened.job, failures, self._host, others=others)
        note(log, "failed", **held.facts, then=verdict, why=why)
        if verdict == "give up":
            return self._done(held, "failed", why=why, failures=failures)
        if verdict == "retry":
            # Claimed before anybody hears of the failure: the same node tries again.
            self._claims.claim_again(opened, held.task, held.attempt + 1, failures)
        return Failed(why)

    def _done(
        self,
        held: Held,
        outcome: Outcome,
        *,
        why: str = "",
        failures: tuple[Failure, ...] = (),
        files: tuple[tuple[File, ...], ...] = (),
        moved: bool = True,
    ) -> Done:
        ending = held.exit or Exit()
        job = held.open_job.job
        return Done(
            task=held.task.task,
            attempt=held.attempt,
            outcome=outcome,
            host=self._host,
            nonce=secrets.token_hex(8),
            why=why,
            exit_code=ending.exit_code,
            signal=ending.signal,
            seconds=ending.seconds,
            cpu_seconds=ending.cpu_seconds,
            memory_max=ending.memory_max,
            started=held.started,
            ended=self._clock(),
            files=files,
            moved=moved,
            gpu=held.recorder.summary() if held.recorder else None,
            failures=failures or held.claim.failures,
            log_path=layout.job_files(job.project, job.job).log_of(held.task.task, held.attempt),
        )


def _files_below(drive: Drive, folder: str, prefix: str = "") -> list[File] | None:
    """The files of a folder on the drive; None if there is no such folder."""
    try:
        entries = drive.scan(folder)
    except errors.NotFound:
        return None
    found: list[File] = []
    for entry in sorted(entries):
        if entry.is_folder:
            path = f"{folder}/{entry.name}"
            found += _files_below(drive, path, f"{prefix}{entry.name}/") or []
        else:
            found.append(File(f"{prefix}{entry.name}", entry.size))
    return found


def _why_failed(held: Held, ending: Exit) -> str:
    if never_ran(ending):
        how = ending.error
    elif ending.signal:
        how = f"signal {ending.signal}" + (" (out of memory?)" if ending.signal == 9 else "")
    else:
        how = f"exit code {ending.exit_code}"
    last = "" if ending.error == how else ending.error
    last = last or _last_line(held)
    return f"{how}: {last}" if last else how


def _last_line(held: Held) -> str:
    """The last line a job printed: most often the exception."""
    try:
        descriptor = os.open(held.folder / "log", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - 4096))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return next((line.strip()[:500] for line in reversed(lines) if line.strip()), "")
