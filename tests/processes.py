"""Owns the processes that tests start: starting, waiting for, pausing and ending them.

Every process is ended by its id, with its descendants. Nothing outlives the test run.
"""

import atexit
import contextlib
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import psutil

T = TypeVar("T")


class Watched(Protocol):
    """A process that may end: `subprocess.Popen`, or a `Daemon`."""

    def poll(self) -> int | None: ...


def wait_until(
    predicate: Callable[[], T],
    *,
    timeout: float = 10.0,
    what: str = "",
    alive: Sequence[Watched] = (),
    interval: float = 0.01,
) -> T:
    """Call `predicate` until it gives something true, and give that back.

    An `AssertionError` or `OSError` in it means "not yet". Fails with the last thing seen when
    the time is over, and at once when one of the processes in `alive` has ended.
    """
    wanted = what or getattr(predicate, "__name__", "the condition")
    deadline = time.monotonic() + timeout
    while True:
        # Looked up first: what a process did just before it ended still counts.
        ended = [process for process in alive if process.poll() is not None]
        try:
            value = predicate()
            if value:
                return value
            last_seen = repr(value)
        except (AssertionError, OSError) as error:
            last_seen = f"{type(error).__name__}: {error}"
        if ended:
            why = "; ".join(obituary(process) for process in ended)
            raise AssertionError(f"waited for {wanted}, but {why}\nlast seen: {last_seen}")
        if time.monotonic() >= deadline:
            raise AssertionError(
                f"waited {timeout:g} s in vain for {wanted}\nlast seen: {last_seen}"
            )
        time.sleep(interval)


def obituary(process: Watched) -> str:
    if isinstance(process, Daemon):
        return f"{process.name} ended with {process.poll()}; its log ends:\n{process.log_tail()}"
    return f"{getattr(process, 'args', process)!r} ended with {process.poll()}"


# A port is ours as long as we hold the abstract socket of the same number: the kernel frees it,
# and it keeps test runs that happen side by side apart. Below the range of outgoing connections.
PORTS = range(15_000, 32_000)
_held: dict[int, socket.socket] = {}


def reserve_port() -> int:
    """A free TCP port of 127.0.0.1 that no other test process is given meanwhile."""
    for port in random.sample(PORTS, 1000):
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claim.bind(f"\0ludwig-test-port-{port}")
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
        except OSError:
            claim.close()
            continue
        _held[port] = claim
        return port
    raise RuntimeError("no free port on 127.0.0.1")


def release_port(port: int) -> None:
    claim = _held.pop(port, None)
    if claim is not None:
        claim.close()


def accepts_connections(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), timeout=1):
        return True


class Daemon:
    """One background process and its descendants, in a session of their own."""

    running: "set[Daemon]" = set()  # noqa: RUF012 - shared on purpose: what is left is ended at exit

    def __init__(
        self, command: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self.command = list(command)
        self.name = Path(self.command[0]).name
        self.log = log
        self._env = dict(env) if env is not None else None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError(f"{self.name} was not started")
        return self._process.pid

    def start(self) -> None:
        if self._process is not None and self._process.poll() is None:
            raise RuntimeError(f"{self.name} is running already")
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._env,
                start_new_session=True,
            )
        self.running.add(self)

    def poll(self) -> int | None:
        """The exit status, or None while it runs (or before it is started)."""
        return None if self._process is None else self._process.poll()

    def log_tail(self, lines: int = 20) -> str:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def suspend(self) -> None:
        """Stop the clock for all of it: connections stay open, nobody answers."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal_all(signal.SIGCONT)

    def stop(self, timeout: float = 3.0) -> None:
        """Ask it to end; what has not ended after `timeout` is killed. Waits until all is gone."""
        family = self._family()
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self.resume()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout)
        self._end(family)

    def kill(self) -> None:
        """SIGKILL for all of it at once, as in a power cut."""
        if self._process is not None and self._process.poll() is None:
            # A stopped parent has no new children.
            os.kill(self._process.pid, signal.SIGSTOP)
        self._end(self._family())

    def _signal_all(self, number: signal.Signals) -> None:
        for process in self._family():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def _family(self) -> list[psutil.Process]:
        """The process, its descendants, and whatever else is in its session."""
        if self._process is None:
            return []
        family: dict[int, psutil.Process] = {}
        with contextlib.suppress(psutil.NoSuchProcess):
            parent = psutil.Process(self._process.pid)
            family = {p.pid: p for p in (parent, *parent.children(recursive=True))}
        for pid in psutil.pids():
            with contextlib.suppress(OSError, psutil.NoSuchProcess):
                if pid not in family and os.getsid(pid) == self._process.pid:
                    family[pid] = psutil.Process(pid)
        return list(family.values())

    def _end(self, family: list[psutil.Process]) -> None:
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        if self._process is not None:
            self._process.wait()
        deadline = time.monotonic() + 5
        while not all(has_ended(process) for process in family):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} cannot be ended: {family}")
            time.sleep(0.002)
        self.running.discard(self)


def has_ended(process: psutil.Process) -> bool:
    """Gone, or dead and waiting for whoever adopted it to take notice."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


_owner = os.getpid()


@atexit.register
def end_all() -> None:
    """End what this process started. A forked child has inherited the list, not the processes."""
    if os.getpid() == _owner:
        for daemon in list(Daemon.running):
            daemon.kill()


def make_state_folder(kind: str, parent: Path | None = None) -> Path:
    """A short path (sockets allow 107 bytes) that says which process it belongs to."""
    parent = parent or Path(tempfile.gettempdir())
    return Path(tempfile.mkdtemp(prefix=f"ludwig-{kind}-{os.getpid()}-", dir=parent))


def clear_forgotten(parent: Path) -> None:
    """End the servers, and remove the folders, of test runs that were killed."""
    for folder in parent.glob("ludwig-*-*-*"):
        match = re.fullmatch(r"ludwig-[a-z]+-(\d+)-[^-]+", folder.name)
        if match is None or psutil.pid_exists(int(match[1])):
            continue
        for process in psutil.process_iter(["cmdline"]):
            arguments = process.info["cmdline"] or []
            if any(argument.startswith(f"{folder}/") for argument in arguments):
                with contextlib.suppress(psutil.Error):
                    process.kill()
        shutil.rmtree(folder, ignore_errors=True)
