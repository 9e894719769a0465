"""Interpreters that are kept warm, for jobs whose tasks come thick and fast.

Starting Python takes longer than many a task; a fork of an interpreter that has just started takes
a fraction. So when a task of a job was over at once and the next follows, one interpreter of that
job (its Python, its environment, its account) is kept waiting, and tasks are forks of it
(`warm.py`). It has loaded nothing but itself and serves for a minute at most, so that what is
installed or changed meanwhile is soon seen. Whatever is unusual is started the ordinary way.

Belongs to the agent's loop. Linux only; never waits for an interpreter that is not ready.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ludwig.worker import processes
from ludwig.worker.journal import note

__all__ = ["Kind", "Nursery"]

log = logging.getLogger(__name__)

SHORT_S = 2.0
"""What took no longer, and was followed by the next no later, is worth a warm interpreter."""
SERVES_S = 60.0
COMES_UP_S = 20.0
ANSWER_S = 2.0
ROOM = 4096


@dataclass(frozen=True)
class Kind:
    """What attempts must have in common to be started from one interpreter."""

    job: str
    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    uid: int


@dataclass(eq=False)
class Warm:
    """One interpreter that waits, or is about to."""

    process: subprocess.Popen[bytes]
    channel: socket.socket
    born: float
    used: float
    ready: bool = False

    def is_ready(self) -> bool:
        if not self.ready:
            with contextlib.suppress(OSError):
                self.ready = self.channel.recv(16, socket.MSG_DONTWAIT) == b"ready"
        return self.ready

    def is_over(self, now: float) -> bool:
        """Whether it has served long enough, waits in vain, or never came up."""
        if not self.is_ready():
            return now - self.born > COMES_UP_S or self.process.poll() is not None
        return now - self.born > SERVES_S or now - self.used > SHORT_S

    def fork(self, request: bytes, descriptor: int) -> int:
        """The pid of the new process. Whatever goes wrong is an `OSError`."""
        socket.send_fds(self.channel, [request], [descriptor])
        answer = self.channel.recv(256).decode("utf-8", "replace")
        if not answer.isdecimal():
            raise OSError(answer or "it has ended")
        pid = int(answer)
        # The job's own user could answer in its place: no pid but that of a child is believed.
        # Zero: it has ended already, as short tasks do.
        if processes.parent(pid) not in (self.process.pid, 0):
            raise OSError(f"it answered with {pid}, which is no child of it")
        return pid

    def end(self) -> None:
        """Let it go; what it started goes on."""
        self.channel.close()

    def kill(self) -> None:
        self.channel.close()
        self.process.kill()
        self.process.wait()


class Nursery:
    def __init__(self) -> None:
        self._warm: dict[Kind, Warm] = {}
        self._short: dict[str, float] = {}
        """When a short attempt of a job last ended here."""
        self._hopeless: dict[Kind, float] = {}
        """Since when it is known that an interpreter cannot be kept warm."""
        self._ending: list[subprocess.Popen[bytes]] = []

    def start(
        self,
        kind: Kind,
        how: Mapping[str, Any],
        *,
        folder: Path,
        mark: tuple[str, str],
        variables: Mapping[str, str],
        log_file: int,
    ) -> int | None:
        """Start an attempt from a warm interpreter, if there is one. Its pid, or None.

        `how` says to `subprocess` which account it is to run as; `mark` is the variable by which
        the attempt's processes are known. `OSError`: it may have been started all the same, and
        if so its processes bear the mark.
        """
        now = time.monotonic()
        self.tidy(now)
        if not sys.platform.startswith("linux") or len(os.fsencode(mark[1])) > ROOM:
            return None
        warm = self._warm.get(kind)
        if warm is None:
            if kind.job in self._short and kind not in self._hopeless:
                self._hatch(kind, how, mark[0], now)
            return None
        if not warm.is_ready():
            return None
        warm.used = now
        request = {"folder": str(folder), "variables": dict(variables), "mark": mark[1]}
        try:
            return warm.fork(msgspec.json.encode(request), log_file)
        except OSError as error:
            note(log, "warm-start-failed", level=logging.WARNING, job=kind.job, why=error)
            del self._warm[kind]
            self._hopeless[kind] = now
            warm.kill()
            raise

    def ended(self, job: str, seconds: float, now: float) -> None:
        """An attempt of a job came to its end by itself. Only short ones are worth anything."""
        if seconds <= SHORT_S:
            self._short[job] = now

    def _hatch(self, kind: Kind, how: Mapping[str, Any], name: str, now: float) -> None:
        """Start an interpreter that waits. Should it not come up, attempts start without it."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(ANSWER_S)
        # Room for the mark of an attempt: see `warm.Mark`.
        env = {**dict(kind.environment), name: "-" * ROOM, "LUDWIG_WARM": name}
        try:
            process = subprocess.Popen(
                [*kind.command, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=env,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                **how,
            )
        except OSError:
            ours.close()
            return
        finally:
            theirs.close()
        self._warm[kind] = Warm(process, ours, born=now, used=now)

    def tidy(self, now: float) -> None:
        """End what has served long enough, or waits in vain."""
        for kind, warm in list(self._warm.items()):
            if warm.is_over(now):
                if not warm.ready:
                    self._hopeless[kind] = now
                del self._warm[kind]
                self._end(warm)
        self._short = {job: at for job, at in self._short.items() if now - at <= SHORT_S}
        self._hopeless = {k: at for k, at in self._hopeless.items() if now - at <= SERVES_S}
        self._ending = [process for process in self._ending if process.poll() is None]

    def _end(self, warm: Warm) -> None:
        warm.end()
        self._ending.append(warm.process)

    def close(self) -> None:
        for warm in self._warm.values():
            self._end(warm)
        self._warm.clear()
        for process in self._ending:
            try:
                process.wait(timeout=1)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._ending.clear()
