"""One attempt as a process of this machine: start it, find it again, ask it to stop, kill it.

Owns an attempt's `order.json`, `process.json`, `exit.json`, `stop` and `log`. Nothing here waits:
the supervisor (`child.py`) is in a session of its own, writes the log itself, outlives the agent.
Knows no drive and no GPU.

    work/attempts/<project>-<job>-<task>-<attempt>/
        order.json     what child.py is to do
        chunk.pkl      the bytes of the task
        tree/<project> the attempt's own copy of the source, its working directory
        tmp            TMPDIR, under a shorter name
        log            stdout and stderr, in order
        process.json   who runs it; written by child.py
        exit.json      how it ended; written by child.py
        stop           there when a stop is wanted
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ludwig import layout
from ludwig.errors import NameNotAllowed
from ludwig.model import Contract, Run
from ludwig.worker import launch, processes
from ludwig.worker.account import Account, job_account
from ludwig.worker.nursery import Kind, Nursery
from ludwig.worker.workspace import hand_over, temporary_folder

__all__ = ["Exit", "Order", "Process", "can_isolate", "find", "result_folder", "start"]

MARKER = "LUDWIG_STOP"
"""The environment variable by which a process of an attempt is known: it names the attempt."""
NO_HOME = "/nonexistent"
KILL_S = 0.5
MAX_RECORD = 64 * 1024

T = TypeVar("T")


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that distinguishes one attempt from another."""

    project: str
    job: int
    task: int
    attempt: int
    contract: Contract
    entry: str
    """Relative to the source: `run.py`, `package/job.py`."""
    source_name: str
    """`<src>` of the relative save_path `<src>_runs/<param_name>/<job_name>/saves`."""
    runs: tuple[Run, ...]
    project_path: str
    """The project's folder on the mounted drive; empty where it is not mounted."""
    env: dict[str, str] = {}
    """The job's own variables. Ludwig's names win."""
    gpus: tuple[str, ...] = ()
    chunk_target: str = ""
    """Show the chunk read-only at this path, to this attempt only. It must exist by then."""


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


def start(
    order: Order,
    folder: Path,
    *,
    python: Path,
    user: str | None = None,
    allow_root: bool = False,
    nursery: Nursery | None = None,
) -> Process:
    """Start an attempt in its prepared folder (`workspace.prepare`) and come back at once.

    With a `nursery`, from an interpreter that is kept warm, if there is one for its job.
    `ConfigError` when jobs may not run so on this node, `NameNotAllowed` for an order that points
    out of the folder, `OSError` when the machine cannot start it. Nothing runs after an error.
    """
    account = job_account(user, allow_root=allow_root)
    _check(order)
    _reap()
    # Absolute, but not resolved: a virtual environment is known by its link.
    python = Path(os.path.abspath(python))  # noqa: PTH100
    workspace = folder / "tree" / order.project
    hand_over(folder, account)
    for name in ("process.json", "exit.json"):
        (folder / name).unlink(missing_ok=True)
    instructions = {
        "contract": order.contract,
        "entry": order.entry,
        "workspace": str(workspace),
        "project_path": order.project_path,
        "source_name": order.source_name,
        "runs": order.runs,
    }
    _write(folder / "order.json", msgspec.json.encode(instructions), account)
    staged = launch.stage(folder.parent.parent)
    command = [str(python), str(staged), str(folder)]
    base = base_environment(order, account, python=python)
    own = own_environment(order, folder, base, temporary=temporary_folder(folder, account))
    if order.chunk_target:
        how = launch.isolated(
            command,
            {**base, **own},
            account,
            source=folder / "chunk.pkl",
            target=Path(order.chunk_target),
        )
    else:
        how = {"args": command, "env": {**base, **own}, **launch.switched(account)}
        if nursery is not None:
            kind = Kind(
                job=f"{order.project}/{order.job}",
                command=(str(python), str(staged.with_name("start_warm.py"))),
                environment=tuple(base.items()),
                uid=account.uid,
            )
            if (warm := _start_warm(nursery, kind, account, folder, own)) is not None:
                return warm
    return Process(folder, launcher=_spawn(folder, how))


def _start_warm(
    nursery: Nursery, kind: Kind, account: Account, folder: Path, own: dict[str, str]
) -> Process | None:
    log = _open_log(folder)
    try:
        pid = nursery.start(
            kind,
            launch.switched(account),
            folder=folder,
            mark=(MARKER, own[MARKER]),
            variables=own,
            log_file=log,
        )
    except OSError:
        return find(folder)
    finally:
        os.close(log)
    return Process(folder, launcher=pid) if pid is not None else None


def _open_log(folder: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(folder / "log", flags, 0o640)


def _spawn(folder: Path, how: dict[str, Any]) -> int:
    log = _open_log(folder)
    try:
        child = subprocess.Popen(
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
            start_new_session=True,
            **how,
        )
    finally:
        os.close(log)
        for descriptor in how.get("pass_fds", ()):
            os.close(descriptor)
    _children.append(child)
    return child.pid


_children: list[subprocess.Popen[bytes]] = []
"""What this process started: somebody has to take notice of their end."""


def _reap() -> None:
    _children[:] = [child for child in _children if child.poll() is None]


def base_environment(order: Order, account: Account, *, python: Path) -> dict[str, str]:
    """What the attempts of a job have in common; nothing of the agent's own but the locale."""
    base = launch.base_environment(account, python)
    if not account.owns(account.home):
        base["HOME"] = NO_HOME
    return {**base, **order.env}


def own_environment(
    order: Order, folder: Path, base: Mapping[str, str], *, temporary: Path
) -> dict[str, str]:
    """What is this attempt's alone. Wins over what the job asks for."""
    saves = folder / "tree" / order.project / result_folder(order, order.runs[0]) / "saves"
    # Libraries keep caches there: better a home that goes with the attempt than an error.
    home = {"HOME": str(folder / "tmp")} if base["HOME"] == NO_HOME else {}
    return {
        **home,
        "TMPDIR": str(temporary),
        "LUDWIG_PROJECT": order.project,
        "LUDWIG_PROJECT_PATH": order.project_path,
        "LUDWIG_JOB": str(order.job),
        "LUDWIG_TASK": str(order.task),
        "LUDWIG_ATTEMPT": str(order.attempt),
        "LUDWIG_CHUNK": str(folder / "chunk.pkl"),
        "LUDWIG_SAVE_PATH": str(saves),
        MARKER: str(folder / "stop"),
        "CUDA_VISIBLE_DEVICES": ",".join(order.gpus),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }


def result_folder(order: Order, run: Run) -> str:
    """Where the files of a run gather, relative to the attempt's working directory."""
    return f"{order.source_name}_runs/{run.param_name}/{run.job_name}"


def can_isolate(user: str | None = None, *, allow_root: bool = False) -> bool:
    """Whether `Order.chunk_target` works here. Tried once, then remembered."""
    return launch.can_isolate(job_account(user, allow_root=allow_root))


def _check(order: Order) -> None:
    """What becomes a path stays in the attempt's folder; what becomes a variable is one."""
    layout.check_project(order.project)
    layout.check_relative(order.entry, what="entry")
    if not order.entry.endswith(".py"):
        raise NameNotAllowed(f"entry {order.entry!r} is not a Python file.")
    if not order.runs:
        raise NameNotAllowed("an attempt without runs.")
    for part in (order.source_name, *(name for run in order.runs for name in _names(run))):
        layout.check_relative(part, what="name")
        if "/" in part:
            raise NameNotAllowed(f"{part!r} is not a single name.")
    for name, value in order.env.items():
        if not name or "=" in name or "\0" in name + value:
            raise NameNotAllowed(f"environment variable {name!r} cannot be set.")


def _names(run: Run) -> tuple[str, str]:
    return run.param_name, run.job_name


def _write(path: Path, data: bytes, account: Account) -> None:
    """Readable by the job, writable only by the agent."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        if account.switch:
            os.chown(descriptor, -1, account.gid)
    temporary.replace(path)


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
            _reap()
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
            _reap()
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
