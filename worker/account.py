"""Which account of this machine runs the jobs. Jobs never run as root unless a test says so."""

from __future__ import annotations

import functools
import os
import pwd
from dataclasses import dataclass
from pathlib import Path

from ludwig.errors import ConfigError

__all__ = ["Account", "job_account"]


@dataclass(frozen=True, slots=True)
class Account:
    """An account, and whether the agent has to change to it."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: Path
    switch: bool
    """The agent is root: files are handed over, processes change to the account."""

    def owns(self, folder: Path) -> bool:
        try:
            return folder.is_dir() and folder.stat().st_uid == self.uid
        except OSError:
            return False

    def give(self, path: Path | int) -> None:
        """Make the account the owner of a file or folder (a link itself, not what it names)."""
        if self.switch:
            if isinstance(path, int):
                os.chown(path, self.uid, self.gid)
            else:
                os.chown(path, self.uid, self.gid, follow_symlinks=False)


@functools.lru_cache
def job_account(user: str | None, *, allow_root: bool = False) -> Account:
    """The account for `user` of worker.toml, or `ConfigError` when jobs cannot be run so."""
    agent = os.geteuid()
    try:
        entry = pwd.getpwnam(user) if user else pwd.getpwuid(agent)
    except KeyError:
        if user:
            raise ConfigError(
                f"user = {user!r}: this machine has no such account. "
                f"Create one: useradd --system --create-home {user}"
            ) from None
        name, home = str(agent), Path("/nonexistent")
        return Account(name, agent, os.getegid(), (), home, switch=False)
    if entry.pw_uid == 0 and not allow_root:
        raise ConfigError(
            "The agent runs as root, and jobs must not. Name an unprivileged account for them "
            "in worker.toml: user = 'ludwig-jobs'"
        )
    if agent not in (0, entry.pw_uid):
        raise ConfigError(
            f"user = {user!r}: only an agent that runs as root can run jobs as somebody else."
        )
    switch = agent == 0 and entry.pw_uid != 0
    groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid)) if switch else ()
    home = Path(entry.pw_dir)
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid, groups, home, switch=switch)
