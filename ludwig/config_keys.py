"""The keys of the two configuration files: what each means, may be, and is by default.

Owns nothing but these declarations and the spelling of addresses; `config.py` finds and reads the
files, `settings.py` checks the values.
"""
# ruff: noqa: RUF009 – `key` makes a dataclass field, as `dataclasses.field` does.

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from ludwig import settings
from ludwig.errors import ConfigError
from ludwig.layout import check_host, check_project
from ludwig.settings import key

__all__ = [
    "DriveConfig",
    "LabConfig",
    "NodeConfig",
    "WorkerConfig",
    "short_hostname",
    "split_address",
]


def _drive_url(value: object, folder: Path) -> str:
    text: str = settings.TEXT.check(value, folder)
    if "://" not in text:
        return str(settings.expand(text, folder))
    parts = urlsplit(text)
    if parts.scheme != "smb":
        raise ValueError("must be smb://host[:port]/share[/folder] or the path of a folder.")
    if parts.username or parts.password:
        raise ValueError("put the user under `user`, and the password in LUDWIG_SMB_PASSWORD.")
    try:
        port = parts.port
    except ValueError:
        raise ValueError("the port is not a number from 1 to 65535.") from None
    if port == 0 or parts.query or parts.fragment:
        raise ValueError("must be smb://host[:port]/share[/folder].")
    if not parts.hostname or not parts.path.strip("/"):
        raise ValueError("names no share: smb://host[:port]/share[/folder].")
    return text.rstrip("/")


def _address(value: object, folder: Path) -> str:
    text: str = settings.TEXT.check(value, folder).strip()
    if text.startswith("folder:"):
        return f"folder:{settings.expand(text.removeprefix('folder:'), folder)}"
    if "@" in text:
        raise ValueError("put the user under `user`.")
    split_address(text)
    return text


def split_address(address: str) -> tuple[str, int | None]:
    """(host, port) of `host`, `host:port`, `[v6 address]:port` or a bare v6 address."""
    match = re.fullmatch(r"\[([0-9A-Fa-f:.%\w]+)\](?::(\d+))?", address)
    match = match or re.fullmatch(r"([^\s:\[\]/\\]+)(?::(\d+))?", address)
    if match is None:
        if address.count(":") > 1 and re.fullmatch(r"[0-9A-Fa-f:.]+(%\w+)?", address):
            return address, None
        raise ValueError("must be a Host of ~/.ssh/config, a name, host:port, or folder:PATH.")
    if match[2] and not 0 < int(match[2]) < 65536:
        raise ValueError("the port is not a number from 1 to 65535.")
    return match[1], int(match[2]) if match[2] else None


def short_hostname() -> str:
    return socket.gethostname().split(".")[0]


@dataclass(frozen=True, kw_only=True)
class DriveConfig:
    """`[drive]`, in both files."""

    url: str = key(
        settings.Kind("smb://host[:port]/share[/folder], or a path", _drive_url),
        about="where the lab's shared drive is",
        env="LUDWIG_DRIVE_URL",
    )
    mount: Path | None = key(
        settings.PATH,
        about="where the drive is mounted, on machines that mount it",
        env="LUDWIG_DRIVE_MOUNT",
        default=None,
        shown="a url that is a path; none for smb://",
    )
    user: str | None = key(
        settings.TEXT,
        about="user on the file server; the password comes from LUDWIG_SMB_PASSWORD, else the "
        "system keyring, else it is asked for",
        env="LUDWIG_DRIVE_USER",
        default=None,
        shown="the user's login name",
    )
    node_silent_s: float = key(
        settings.number(0.2, 86_400),
        about="how many seconds a node may be silent before others take over its tasks; the same "
        "in every file of the lab",
        env="LUDWIG_DRIVE_NODE_SILENT_S",
        default=60.0,
    )
    encrypt: bool = key(
        settings.FLAG,
        about="encrypt what is sent to an SMB server; it is always signed",
        env="LUDWIG_DRIVE_ENCRYPT",
        default=False,
    )


@dataclass(frozen=True, kw_only=True)
class NodeConfig:
    """`[nodes.NAME]`: how to reach one node's inbox. NAME is the agent's `hostname`."""

    address: str = key(
        settings.Kind("an address", _address),
        about="a Host of ~/.ssh/config, a name, host:port, or folder:PATH for an inbox on this "
        "machine",
        env="LUDWIG_NODE_<NAME>_ADDRESS",
        shown="the node's name",
    )
    user: str | None = key(
        settings.TEXT,
        about="SFTP user; wins over ssh's configuration",
        env="LUDWIG_NODE_<NAME>_USER",
        default=None,
        shown="what ~/.ssh/config says, else the login name",
    )
    inbox: str = key(
        settings.TEXT,
        about="the inbox inside the jail",
        env="LUDWIG_NODE_<NAME>_INBOX",
        default=".",
    )
    groups: tuple[str, ...] = key(
        settings.NAMES,
        about="groups that the node belongs to; `ludwig -g GROUP` submits to one",
        env="LUDWIG_NODE_<NAME>_GROUPS",
        default=(),
    )

    @property
    def folder(self) -> Path | None:
        """The inbox as a folder of this machine, for a `folder:` address."""
        if not self.address.startswith("folder:"):
            return None
        return Path(self.address.removeprefix("folder:")) / self.inbox

    @property
    def host_and_port(self) -> tuple[str, int | None]:
        """Of an address that is not a folder's."""
        return split_address(self.address)


@dataclass(frozen=True, kw_only=True)
class LabConfig:
    """A lab's `ludwig.toml`: where its drive and its nodes are."""

    project: str | None = key(
        settings.checked("a project's name", check_project),
        about="the project of this folder",
        env="LUDWIG_PROJECT",
        default=None,
        shown="the folder's name",
    )
    drive: DriveConfig
    nodes: Mapping[str, NodeConfig] = field(default_factory=dict)
    path: Path | None = None
    """The file that [drive] and [nodes] came from; None when all is from the environment."""


@dataclass(frozen=True, kw_only=True)
class WorkerConfig:
    """An agent's `worker.toml`."""

    hostname: str = key(
        settings.checked("a host's name", check_host),
        about="this node's name in ludwig.toml and on the drive",
        env="LUDWIG_WORKER_HOSTNAME",
        factory=short_hostname,
        shown="the machine's short name",
    )
    inbox: Path = key(
        settings.PATH,
        about="the jailed SFTP folder",
        env="LUDWIG_WORKER_INBOX",
        default=Path("/var/sftp/ludwig"),
    )
    work: Path = key(
        settings.PATH,
        about="workspaces, caches and the agent's own state; on a local disk",
        env="LUDWIG_WORKER_WORK",
        default=Path("/var/lib/ludwig"),
    )
    python: Path = key(
        settings.PROGRAM,
        about="the interpreter that runs jobs, from Python 3.8 on",
        env="LUDWIG_WORKER_PYTHON",
        factory=lambda: Path(sys.executable),
        shown="the agent's own",
    )
    slots: Literal["gpus"] | int = key(
        settings.word_or_whole("gpus", 1, 10_000),
        about='"gpus": one task per GPU; a number for a machine without: that many at once',
        env="LUDWIG_WORKER_SLOTS",
        default="gpus",
    )
    cpu_slots: int = key(
        settings.whole(0, 10_000),
        about='with slots = "gpus": how many tasks that want no GPU run at once beside the others',
        env="LUDWIG_WORKER_CPU_SLOTS",
        factory=lambda: max(1, (os.cpu_count() or 1) // 2),
        shown="half the processor's cores",
    )
    user: str | None = key(
        settings.TEXT,
        about="the unprivileged user that jobs run as when the agent runs as root",
        env="LUDWIG_WORKER_USER",
        default=None,
        shown="none: an agent that is root refuses jobs",
    )
    allow_users: tuple[str, ...] | None = key(
        settings.NAMES,
        about="the only users whose tickets are accepted",
        env="LUDWIG_WORKER_ALLOW_USERS",
        default=None,
        shown="everybody with a key for the inbox",
    )
    grace_s: float = key(
        settings.number(0, 3600),
        about="seconds between asking a job to stop and killing it",
        env="LUDWIG_WORKER_GRACE_S",
        default=10.0,
    )
    disk_max_percent: float = key(
        settings.number(1, 100),
        about="no task starts while the drive is fuller than this",
        env="LUDWIG_WORKER_DISK_MAX_PERCENT",
        default=90.0,
    )
    disk_free_min_gb: float = key(
        settings.number(0, 1_000_000),
        about="no task starts while the disk of `work` has less room than this",
        env="LUDWIG_WORKER_DISK_FREE_MIN_GB",
        default=1.0,
    )
    keep_days: float = key(
        settings.number(0, 36_500),
        about="how long unused sources, finished tickets and workspaces of failed tasks are kept",
        env="LUDWIG_WORKER_KEEP_DAYS",
        default=14.0,
    )
    log_max_mb: float = key(
        settings.number(0.001, 100_000),
        about="how much of a task's output is kept: its beginning and its end",
        env="LUDWIG_WORKER_LOG_MAX_MB",
        default=16.0,
    )
    beat_s: float = key(
        settings.number(0.05, 3600),
        about="seconds between heartbeats; at most half of node_silent_s",
        env="LUDWIG_WORKER_BEAT_S",
        default=0.0,
        shown="a quarter of node_silent_s",
    )
    drive: DriveConfig
    path: Path | None = None
    """The file this came from; None when all is from the environment."""

    def __post_init__(self) -> None:
        if not self.beat_s:
            object.__setattr__(self, "beat_s", self.drive.node_silent_s / 4)
        elif self.beat_s > self.drive.node_silent_s / 2:
            raise ConfigError(
                f"{f'{self.path}: ' if self.path else ''}beat_s = {self.beat_s:g}: must be at most "
                f"half of [drive] node_silent_s ({self.drive.node_silent_s:g}), or others take "
                "this node for dead."
            )
