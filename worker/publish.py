"""What happens after a process has ended: its results go to the drive, and the task ends there.

One thread, in the order in which the processes ended, retried for as long as the drive is away. An
attempt's folder stays on this node's disk until its end is published, so nothing is lost in
between; the next task does not wait for any of it.
"""

from __future__ import annotations

import logging
import queue as fifo
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress

from ludwig import errors, layout, queue, states
from ludwig.drive import Drive
from ludwig.model import Done, Event, Failure, File
from ludwig.worker.foreman import Foreman
from ludwig.worker.held import Bench, Held
from ludwig.worker.prepare import Preparer, make_storable
from ludwig.worker.runner import Exit
from ludwig.worker.stream import Events, Streamer

__all__ = ["Publisher"]

log = logging.getLogger(__name__)


class Publisher:
    """`put` hands it an attempt whose process has ended."""

    def __init__(
        self,
        drive: Drive,
        *,
        host: str,
        clock: Callable[[], str],
        foreman: Foreman,
        bench: Bench,
        preparer: Preparer,
        streamer: Streamer,
        events: Events,
    ) -> None:
        self._drive, self._host, self._clock = drive, host, clock
        self._foreman, self._bench, self._preparer = foreman, bench, preparer
        self._streamer, self._events = streamer, events
        self._queue: fifo.SimpleQueue[Held | None] = fifo.SimpleQueue()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)
        self.trouble = ""
        """Why results cannot be published just now."""

    def start(self) -> None:
        self._thread.start()

    def put(self, held: Held) -> None:
        self._queue.put(held)

    def stop(self) -> None:
        """Stop after the attempt at hand. What is left is published by the next agent."""
        self._stopping.set()
        self._queue.put(None)
        self._thread.join(timeout=20)

    def _run(self) -> None:
        while not self._stopping.is_set():
            held = self._queue.get()
            if held is None:
                return
            self._see_through(held)

    def _see_through(self, held: Held) -> None:
        """Try until it is done. Whatever happens, the results stay on our disk until then."""
        pause = 0.1
        while not self._stopping.is_set():
            try:
                self.publish(held)
                self.trouble = ""
                return
            except errors.DriveError as error:
                if str(error) != self.trouble:
                    log.warning("cannot publish %s: %s", held.name, error)
                self.trouble = f"{held.name} cannot be published: {error}"
            except Exception:
                log.exception("publishing %s", held.name)
                self.trouble = f"{held.name} cannot be published: see the agent's log"
            self._stopping.wait(pause)
            pause = min(pause * 2, 10.0)

    def publish(self, held: Held) -> None:
        """Bring one attempt to its end. May be repeated."""
        with suppress(errors.NotFound):  # the job's folder is gone: nobody wants the log
            self._streamer.ship(held, final=True)
        done = held.decided()
        if done is None:
            done = self._decide(held)
            if done is None:
                return
            held.decide(done)
        self._end(held, done)

    # --- what it was -----------------------------------------------------------------------------

    def _decide(self, held: Held) -> Done | None:
        """How the task ends. None when it does not: it is tried again, here or elsewhere."""
        ending = held.exit
        if held.stop_wanted:
            return self._done(held, "stopped", why=f"cancelled while on {self._host}")
        if held.cause or ending is None or ending.vanished:
            why = held.cause or "its process vanished (was the machine switched off?)"
            self._foreman.release(held, why)
            return None
        if ending.exit_code == 0:
            return self._success(held)
        return self._failure(held, ending)

    def _success(self, held: Held) -> Done:
        folders = self._preparer.result_folders(held)
        for folder in folders:
            for note in make_storable(folder):
                self._events.note(
                    held.open_job,
                    Event(what="note", task=held.task.task, attempt=held.attempt, why=note),
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
        listed = [_files_below(self._drive, target) for target in targets]
        if all(found is None for found in listed):
            return None
        folders = self._preparer.result_folders(held)
        for run, target, folder in zip(held.task.runs, targets, folders, strict=True):
            queue.ensure_param(
                self._drive, job.project, run.param_name, held.open_job.params[run.param_name]
            )
            self._drive.upload(folder, target)
        return tuple(tuple(_files_below(self._drive, target) or ()) for target in targets)

    def _failure(self, held: Held, ending: Exit) -> Done | None:
        why = _why_failed(held, ending)
        failure = Failure(attempt=held.attempt, host=self._host, why=why)
        failures = (*held.claim.failures, failure)
        others = self._foreman.others_serve(held.open_job)
        verdict = states.after_failure(held.open_job.job, failures, self._host, others=others)
        log.info("%s failed (%s): %s", held.name, verdict, why)
        if verdict == "give up":
            return self._done(held, "failed", why=why, failures=failures)
        if verdict == "retry" and not self._foreman.closed():
            self._foreman.claim_again(held, failures)
        self._events.note(
            held.open_job,
            Event(what="failed", task=held.task.task, attempt=held.attempt, why=why),
        )
        self._events.ship(held.open_job)
        self._bench.drop(held)
        self._foreman.wake()
        return None

    def _done(
        self,
        held: Held,
        outcome: str,
        *,
        why: str = "",
        failures: tuple[Failure, ...] = (),
        files: tuple[tuple[File, ...], ...] = (),
        moved: bool = True,
    ) -> Done:
        ending = held.exit
        job = held.open_job.job
        return Done(
            task=held.task.task,
            attempt=held.attempt,
            outcome=outcome,  # type: ignore[arg-type]
            host=self._host,
            nonce=secrets.token_hex(8),
            why=why,
            exit_code=ending.exit_code if ending else None,
            signal=ending.signal if ending else None,
            seconds=ending.seconds if ending else 0.0,
            cpu_seconds=ending.cpu_seconds if ending else 0.0,
            memory_max=ending.memory_max if ending else 0,
            started=held.started,
            ended=self._clock(),
            files=files,
            moved=moved,
            gpu=held.recorder.summary() if held.recorder else None,
            failures=failures or held.claim.failures,
            log_path=layout.job_files(job.project, job.job).log_of(held.task.task, held.attempt),
        )

    # --- to the drive ----------------------------------------------------------------------------

    def _end(self, held: Held, done: Done) -> None:
        opened = held.open_job
        won = queue.finish(
            self._drive,
            opened.job,
            held.task,
            done,
            folders=self._preparer.result_folders(held),
            params=opened.params,
        )
        opened.view.done.add(done.task)
        if won:
            ended = Event(what="ended", task=done.task, attempt=done.attempt, done=done)
            self._events.note(opened, ended)
            log.info("%s ended: %s", held.name, done.outcome)
        else:
            log.info("%s had been ended by another node", held.name)
        self._bench.drop(held)
        self._foreman.wake()


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
    how = f"signal {ending.signal}" if ending.signal else f"exit code {ending.exit_code}"
    if ending.signal == 9:
        how += " (killed: out of memory?)"
    last = ending.error or _last_line(held)
    return f"{how}: {last}" if last else how


def _last_line(held: Held) -> str:
    """The last line a job printed: most often the exception."""
    try:
        with (held.folder / "log").open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - 4096))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return next((line.strip()[:500] for line in reversed(lines) if line.strip()), "")
