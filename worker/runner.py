"""Starting one attempt as a process of this machine.

Owns an attempt's `order.json`, and the environment it gets; `attempt.py` has what comes after.
Nothing here waits: the supervisor (`child.py`) is in a session of its own, writes the log itself,
outlives the agent. Knows no drive and no GPU.

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

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from ludwig import layout
from ludwig.errors import NameNotAllowed
from ludwig.model import Contract, Run
from ludwig.worker import launch
from ludwig.worker.account import Account, job_account
from ludwig.worker.attempt import MARKER, Exit, Process, children, find, reap
from ludwig.worker.nursery import Kind, Nursery
from ludwig.worker.workspace import hand_over, temporary_folder

__all__ = ["Exit", "Order", "can_isolate", "result_folder", "start"]

NO_HOME = "/nonexistent"


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
    reap()
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
    children.append(child)
    return child.pid


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
