"""Local trees of files: what an upload walks and what a download writes. Owned by the drives."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from ludwig.layout import TEMPORARY

__all__ = ["copy_file", "local_files", "same_file", "same_time"]


def local_files(tree: Path) -> Iterator[str]:
    """The regular files below a folder, as relative paths with forward slashes, in a fixed order.

    Links are not followed: what they point to may lie outside.
    """
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
        here, there = source.stat(), target.stat()
    except OSError:
        return False
    return here.st_size == there.st_size and same_time(here.st_mtime, there.st_mtime)


def copy_file(source: Path, target: Path, *, whole: bool) -> None:
    """Copy a file; with `whole`, it appears complete and with its time, or not at all."""
    if not whole:
        shutil.copyfile(source, target)
        return
    temporary = target.with_name(f"{TEMPORARY}{secrets.token_hex(8)}")
    try:
        shutil.copyfile(source, temporary)
        facts = source.stat()
        os.utime(temporary, ns=(facts.st_atime_ns, facts.st_mtime_ns))
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
