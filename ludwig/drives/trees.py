"""Local trees of files: what an upload walks and what a download writes. Owned by the drives."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ludwig.errors import NotFound
from ludwig.layout import TEMPORARY

__all__ = [
    "STILL_OPEN_S",
    "copy_file",
    "join",
    "local_files",
    "open_file",
    "same_file",
    "same_time",
]

STILL_OPEN_S = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.5, 0.5)
"""Pauses before trying again what a mount refuses while a file is open: the kernel keeps files
open for a second after they were closed, on other machines too."""

_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_BINARY = getattr(os, "O_BINARY", 0)
_PART = 1 << 20


def join(folder: str, name: str) -> str:
    """A path on the drive. Changes nothing else, so that a wrong name stays one."""
    return f"{folder}/{name}" if folder else name


def local_files(tree: Path) -> Iterator[str]:
    """The regular files below a folder, as relative paths with forward slashes, in a fixed order.

    Links are not followed: what they point to may lie outside.
    """
    if not tree.is_dir():
        raise NotFound("copying", str(tree), "there is no such folder on this machine")
    for folder, subfolders, names in os.walk(tree):
        subfolders.sort()
        for name in sorted(names):
            path = Path(folder, name)
            if path.is_file() and not path.is_symlink() and not name.startswith(TEMPORARY):
                yield path.relative_to(tree).as_posix()


def same_time(one: float, other: float) -> bool:
    """Whether two modification times are the same as far as every file system can tell."""
    return abs(one - other) <= 2.0


def same_file(source: Path, target: Path) -> bool:
    try:
        here, there = source.stat(), target.lstat()
    except OSError:
        return False
    return stat.S_ISREG(there.st_mode) and (
        here.st_size == there.st_size and same_time(here.st_mtime, there.st_mtime)
    )


def open_file(path: Path | str, flags: int) -> int:
    """`os.open`, with patience for a CIFS mount.

    Its kernel knows files by their number, and says EINVAL while it has the same one open under
    another name: a hard link's temporary name or, it seems, a removed file whose number was
    given again.
    """
    for pause in STILL_OPEN_S:
        try:
            return os.open(path, flags | _BINARY, 0o666)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
        time.sleep(pause)
    try:
        return os.open(path, flags | _BINARY, 0o666)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        reason = "this machine has it open under another name, and cannot open it yet"
        raise OSError(errno.EAGAIN, reason) from error


def copy_file(
    source: Path, target: Path, *, whole: bool, copied: Callable[[int], None] | None = None
) -> None:
    """Copy a file; with `whole`, it appears complete and with its time, or not at all.

    `copied` is told the number of bytes after each part, also if that is nothing.
    """
    if not whole:
        _copy(source, target, os.O_TRUNC, copied)
        return
    temporary = target.with_name(f"{TEMPORARY}{secrets.token_hex(8)}")
    try:
        facts = source.stat()
        _copy(source, temporary, os.O_EXCL, copied)
        os.utime(temporary, ns=(facts.st_atime_ns, facts.st_mtime_ns))
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _copy(source: Path, target: Path, how: int, copied: Callable[[int], None] | None) -> None:
    """Neither end may be a link: whoever made it decides what it points to."""
    incoming = open_file(source, os.O_RDONLY | _NOFOLLOW)
    with os.fdopen(incoming, "rb", buffering=0) as content:
        flags = os.O_WRONLY | os.O_CREAT | how | _NOFOLLOW
        with os.fdopen(open_file(target, flags), "wb") as copy:  # buffered: writes all
            part = None
            while part != b"":
                part = content.read(_PART)
                copy.write(part)
                if copied is not None:
                    copied(len(part))
