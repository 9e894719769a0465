"""Owns the system users whose SFTP jails the tests write into. Needs root.

Users are named after the process that made them, used again by later tests of that process, and
removed when it ends. Those of a test run that was killed are removed by the next one.
"""

import atexit
import contextlib
import fcntl
import os
import pwd
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil

from tests.tools import program

_NAME = re.compile(r"ludwigt(\d+)n\d+")
_idle: list[str] = []
_made: list[str] = []


def take() -> str:
    """The name of a user nobody else uses; give it back with `give_back`."""
    if _idle:
        return _idle.pop()
    with _user_database():
        if not _made:
            _remove_forgotten()
        name = f"ludwigt{os.getpid()}n{len(_made) + 1}"
        command = [program("useradd"), "--system", "--no-create-home", "--home-dir", "/"]
        command += ["--shell", "/usr/sbin/nologin", "--no-user-group", "--gid", "nogroup", name]
        subprocess.run(command, check=True, capture_output=True)
        # No password will do, but without PAM a locked account could not use its key either.
        subprocess.run([program("usermod"), "-p", "*", name], check=True, capture_output=True)
    _made.append(name)
    return name


def give_back(name: str) -> None:
    _idle.append(name)


@atexit.register
def remove_all() -> None:
    """Remove the users this process made."""
    if not _made or os.getpid() != int(_owner(_made[0]) or 0):
        return  # A forked child has inherited the list, not the users.
    with _user_database():
        for name in _made:
            _remove(name)
    _made.clear()
    _idle.clear()


def _remove_forgotten() -> None:
    for entry in pwd.getpwall():
        owner = _owner(entry.pw_name)
        if owner is not None and not psutil.pid_exists(owner):
            _remove(entry.pw_name)


def _owner(name: str) -> int | None:
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


def _remove(name: str) -> None:
    subprocess.run([program("userdel"), "--force", name], check=False, capture_output=True)


@contextlib.contextmanager
def _user_database() -> Iterator[None]:
    """One at a time: useradd gives up when another one holds its lock."""
    folder = os.open(Path("/etc"), os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)
