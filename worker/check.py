"""A preflight for a node: everything an agent needs, tried without changing anything that stays.

Owns the words in which a node's troubles are told. Never raises for what it finds.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import secrets
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ludwig import errors, layout
from ludwig.config import WorkerConfig
from ludwig.drive import Drive
from ludwig.drives import check_format
from ludwig.worker import launch, runner
from ludwig.worker.account import job_account
from ludwig.worker.gpu import Gpus

__all__ = ["Finding", "check_node"]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    good: bool
    said: str
    remedy: str = ""


def check_node(config: WorkerConfig, drive: Drive) -> list[Finding]:
    """All findings, good and bad."""
    checks: list[Callable[[WorkerConfig, Drive], Iterator[Finding]]] = [
        _drive,
        _inbox,
        _work,
        _account,
        _python,
        _isolation,
        _gpus,
    ]
    return [finding for check in checks for finding in check(config, drive)]


def _drive(config: WorkerConfig, drive: Drive) -> Iterator[Finding]:
    try:
        check_format(drive)
        usage = drive.usage()
    except errors.LudwigError as error:
        yield Finding(
            "drive", False, str(error), f"[drive] url in worker.toml is {config.drive.url!r}."
        )
        return
    yield Finding(
        "drive",
        usage.percent_full < 90,
        f"{drive.where}, {usage.percent_full:.0f} % full",
        "Remove old runs or data: no job is accepted above 90 %.",
    )
    yield _publishes(drive)


def _publishes(drive: Drive) -> Finding:
    """Whether exclusive creation and hard links work: everything rests on them."""
    folder = layout.FORMAT.rpartition("/")[0]
    path = f"{folder}/{layout.TEMPORARY}check-{secrets.token_hex(6)}"
    try:
        drive.publish(path, b"one")
        try:
            drive.publish(path, b"two")
        except errors.Exists:
            return Finding("atomic", True, "creates exclusively and makes hard links")
        return Finding(
            "atomic", False, "two writers both won", "This drive cannot be used: see PROTOCOL.md."
        )
    except errors.DriveError as error:
        return Finding("atomic", False, str(error), "The node needs write access to the drive.")
    finally:
        with contextlib.suppress(errors.DriveError):
            drive.remove(path)


def _inbox(config: WorkerConfig, drive: Drive) -> Iterator[Finding]:
    try:
        facts = config.inbox.stat()
        if not stat.S_ISDIR(facts.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, "it is not a folder")
    except OSError as error:
        yield Finding(
            "inbox",
            False,
            f"{config.inbox}: {error.strerror}",
            "Create it (deploy/install-node.sh does), or set `inbox` in worker.toml.",
        )
        return
    readable = os.access(config.inbox, os.R_OK | os.X_OK)
    open_to_all = bool(facts.st_mode & stat.S_IWOTH)
    yield Finding(
        "inbox",
        readable and not open_to_all,
        f"{config.inbox}, mode {stat.S_IMODE(facts.st_mode):o}, of {_owner(facts.st_uid)}",
        "Everybody on this machine could order work: chmod o-w it."
        if open_to_all
        else "The agent's user must be able to read it.",
    )
    if not readable:
        return
    for root in (config.inbox, *(p for p in sorted(config.inbox.iterdir()) if p.is_dir())):
        for folder in (root / layout.TICKETS, root / layout.SOURCES):
            if folder.is_dir() and folder.stat().st_mode & stat.S_IWOTH:
                why = "Everybody on this machine could order work there: chmod o-w it."
                yield Finding("inbox", False, f"{folder} is open to everybody", why)


def _owner(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _work(config: WorkerConfig, drive: Drive) -> Iterator[Finding]:
    folder = config.work
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        said = f"{config.work}: {folder} is not a folder"
        yield Finding("work", False, said, "Remove that file, or set `work` in worker.toml.")
        return
    usage = shutil.disk_usage(folder)
    percent = 100.0 * usage.used / max(1, usage.used + usage.free)
    writable = os.access(folder, os.W_OK)
    enough = usage.free >= config.disk_free_min_gb * 1e9
    yield Finding(
        "work",
        writable and enough and percent <= config.disk_max_percent,
        f"{config.work}, {usage.free / 1e9:.1f} GB free, {percent:.0f} % full",
        "The agent's user must be able to write there, on a local disk with room.",
    )


def _account(config: WorkerConfig, drive: Drive) -> Iterator[Finding]:
    try:
        account = job_account(config.user, allow_root=config.user == "root")
    except errors.ConfigError as error:
        yield Finding("user", False, str(error))
        return
    yield Finding("user", True, f"jobs run as {account.name}")


def _python(config: WorkerConfig, drive: Drive) -> Iterator[Finding]:
    """The interpreter, started as jobs will be: by their user."""
    program = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        account = job_account(config.user, allow_root=config.user == "root")
    except errors.ConfigError:
        return  # said already
    try:
        answer = subprocess.run(
            [str(config.python), "-I", "-c", program],
            capture_output=True,
            timeout=60,
            text=True,
            check=True,
            cwd="/",
            **launch.switched(account),
        )
        version = tuple(int(part) for part in answer.stdout.strip().split("."))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        yield Finding(
            "python",
            False,
            f"{config.python}, as {account.name}: {error}",
            f"Set `python` in worker.toml to an interpreter that {account.name} can start.",
        )
        return
    yield Finding(
        "python",
        version >= (3, 8),
        f"{config.python} is Python {answer.stdout.strip()}",
        "Jobs need Python 3.8 or newer.",
    )


def _isolation(config: WorkerConfig, drive: Drive) -> Iterator[Finding]:
    """Good to have, not needed."""
    if drive.mount is None:
        yield Finding("scripts", True, "refused: the drive is not mounted here, only main() works")
        return
    with contextlib.suppress(errors.ConfigError):
        isolates = runner.can_isolate(config.user, allow_root=config.user == "root")
        said = (
            "each sees a verified copy of its own chunk"
            if isolates
            else "they take turns, and read their chunk from the drive: no private mounts here"
        )
        yield Finding("scripts", True, said)


def _gpus(config: WorkerConfig, drive: Drive) -> Iterator[Finding]:
    if config.slots != "gpus":
        yield Finding("gpus", True, f"not used: {config.slots} CPU slots")
        return
    gpus = Gpus()
    readings = gpus.readings()
    if gpus.broken:
        yield Finding(
            "gpus", False, gpus.problem, "Try nvidia-smi; reload or reinstall the driver."
        )
        return
    if not readings:
        yield Finding(
            "gpus", True, f"none ({gpus.problem or 'no NVIDIA GPU'}): CPU slots are served"
        )
        return
    for reading in readings:
        yield Finding("gpus", not reading.error, f"{reading.name} {reading.error}".strip())
