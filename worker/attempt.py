"""One attempt as processes of this machine: find it again, ask it to stop, kill it, learn its end.

Owns an attempt's `stop`, and reads `process.json` and `exit.json`, which `child.py` writes; the
folder they are in is drawn in `runner.py`, which starts attempts. The supervisor outlives the agent
that started it: any later agent takes the attempt up from its folder alone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import subprocess
import time
from pathlib import Path
from typing import TypeVar

import msgspec

from ludwig.worker import processes

__all__ = ["MARKER", "Exit", "Process", "children", "find", "reap"]

MARKER = "LUDWIG_STOP"
"""The environment variable by which a process of an attempt is known: it names the attempt."""
KILL_S = 0.5
MAX_RECORD = 64 * 1024

T = TypeVar("T")

children: list[subprocess.Popen[bytes]] = []
"""What this process started: somebody has to take notice of their end."""


def reap() -> None:
    """Take notice of those that have ended."""
    children[:] = [child for child in children if child.poll() is None]


class Exit(msgspec.Struct, frozen=True, kw_only=True):
    """How an attempt ended. Either `exit_code` or `signal` is set, unless it vanished."""

    exit_code: int | None = None
    signal: int | None = None
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    memory_max: int = 0
    """Bytes, of the largest process."""
    user_code_started: bool = False
    """False: the node's or the submission's fault, not the code's."""
    error: str = ""
    """The last line of the traceback, or what Ludwig has to say."""
    left_behind: int = 0
    """Processes that outlived the job and were ended."""
    synced: bool = False
    boot: str = ""
    vanished: bool = False
    """The supervisor is gone and nobody knows how it ended: a reboot, or it was killed."""

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and not self.vanished


class ProcessRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`process.json`."""

    pid: int
    start: int
    group: int
    boot: str


def find(folder: Path) -> Process | None:
    """What an earlier agent started in this folder, running or ended. None: nothing was."""
    process = Process(folder)
    if process.ended_as_written() is not None or process.record() is not None:
        return process
    # The agent may have died before the supervisor could say who it is.
    marked = processes.marked(MARKER, str(folder / "stop"))
    return Process(folder, launcher=min(marked)) if marked else None


class Process:
    """The processes of one attempt. From `start` and `find`; any number may name the same one."""

    def __init__(self, folder: Path, *, launcher: int | None = None) -> None:
        self.folder = folder
        self._launcher = launcher
        self._launcher_start = processes.start_time(launcher) if launcher else None
        self._record: ProcessRecord | None = None
        self._exit: Exit | None = None

    @property
    def pid(self) -> int | None:
        """The process whose end is the attempt's end, dead or alive: wait for it with a pidfd."""
        record = self.record()
        return record.pid if record is not None else self._launcher

    def exit(self) -> Exit | None:
        """How it ended, None while it runs. Once it has ended, no process of it is left."""
        if self._exit is None:
            reap()
            alive = self.alive()
            self._exit = self.ended_as_written()
            if self._exit is None and not alive:
                self.kill()
                self._exit = self._vanished()
        return self._exit

    def alive(self) -> bool:
        """Whether the supervisor lives (or is about to)."""
        record = self.record()
        if record is not None:
            if record.boot != processes.boot_id():
                return False
            return processes.start_time(record.pid) == record.start
        if self._launcher is None or self._launcher_start is None:
            return False
        return processes.start_time(self._launcher) == self._launcher_start

    def ask_to_stop(self) -> None:
        """Touch the stop file, then SIGTERM for the job's process group. May be repeated."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with contextlib.suppress(FileExistsError, FileNotFoundError):
            os.close(os.open(self.folder / "stop", flags, 0o644))
        record = self.record()
        # Without a record the supervisor is still starting: it looks for the file after that.
        if record is not None and self.alive() and self.ended_as_written() is None:
            try:
                os.killpg(record.group, signal.SIGTERM)
            except ProcessLookupError:
                processes.send(record.group, signal.SIGTERM)
            except PermissionError:
                pass

    def kill(self) -> None:
        """SIGKILL for every process of the attempt, wherever it hid; the supervisor stays to tell.

        Waits until they are gone, at most half a second: what hangs in a driver may take longer.
        """
        deadline = time.monotonic() + KILL_S
        while True:
            spared = self._supervisors()
            targets = self._all() - spared
            for pid in targets:
                processes.send(pid, signal.SIGKILL)
            reap()
            if not targets or time.monotonic() > deadline:
                return
            time.sleep(0.005)

    def pids(self) -> set[int]:
        """Every live process of the job, without the supervisor. Cheap enough for once a second."""
        record = self.record()
        if record is None or not self.alive():
            return set() if self._exit else self._all() - self._supervisors()
        return processes.below(record.pid)

    def record(self) -> ProcessRecord | None:
        if self._record is None:
            self._record = _read(self.folder / "process.json", ProcessRecord)
        return self._record

    def ended_as_written(self) -> Exit | None:
        """What `exit.json` says, unless a power cut may have taken the results it speaks of."""
        written = _read(self.folder / "exit.json", Exit)
        if written is None or written.vanished:
            return None
        return written if written.synced or written.boot == processes.boot_id() else None

    def _all(self) -> set[int]:
        found = processes.marked(MARKER, str(self.folder / "stop"))
        record = self.record()
        if record is not None and self.alive():
            found |= processes.below(record.pid)
        return found

    def _supervisors(self) -> set[int]:
        """Who must live to write `exit.json`. Before it knows its job, it need not."""
        record = self.record()
        if record is None or not self.alive():
            return set()
        return {record.pid, processes.parent(record.pid)}

    def _vanished(self) -> Exit:
        record = self.record()
        if record is None:
            why = "its interpreter could not be started: see the end of the log"
        elif record.boot != processes.boot_id():
            why = "the node was restarted meanwhile"
        else:
            why = "its supervisor was killed"
        started = record is not None
        return Exit(vanished=True, error=why, user_code_started=started)


def _read(path: Path, kind: type[T]) -> T | None:
    """A record that the job's user could have written: no links, no surprises. None if none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        try:
            return msgspec.json.decode(file.read(MAX_RECORD), type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None
