"""The folders an attempt lives in, and the room on the disk.

Owns `sources/` and `attempts/` under the agent's work folder: a master copy of each source, a copy
of it for each attempt, and what is removed when. Processes are `runner.py`'s business.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ludwig import layout
from ludwig.worker.account import Account, job_account
from ludwig.worker.archive import remove, unpack

__all__ = [
    "Kept",
    "copy_tree",
    "hand_over",
    "prepare",
    "remove",
    "stale",
    "sweep",
    "take_back",
    "temporary_folder",
    "unpack",
    "used_percent",
]

FICLONE = 0x40049409
SMALL = 128 * 1024
"""Up to here, one read and one write beat everything cleverer."""


# --- one attempt's folder --------------------------------------------------------------------


def prepare(
    folder: Path,
    *,
    source: Path,
    project: str,
    chunk: bytes,
    user: str | None = None,
    allow_root: bool = False,
    take_spare: Callable[[Path, Path], bool] | None = None,
) -> None:
    """Make an attempt's folder: its chunk, and its own copy of the source, owned by the job's user.

    `take_spare` puts a copy of the source that was made before at a path, if it has one. Begins
    anew if an earlier try was interrupted. The folder itself stays the agent's: the job may add
    files to it, but neither change nor replace its chunk, its order and its log.
    """
    account = job_account(user, allow_root=allow_root)
    folder.mkdir(parents=True, exist_ok=True)
    remove(folder / "tree")
    (folder / "tree").mkdir()
    target = folder / "tree" / layout.check_project(project)
    if take_spare is None or not take_spare(source, target):
        copy_tree(source, target, account=account)
    account.give(folder / "tree")  # last: what is in it has been given
    temporary = folder / ".chunk.pkl.new"
    temporary.unlink(missing_ok=True)
    temporary.write_bytes(chunk)
    temporary.replace(folder / "chunk.pkl")
    with contextlib.suppress(OSError):
        os.utime(source)  # used today: `sweep` lets it live
    hand_over(folder, account)


def hand_over(folder: Path, account: Account) -> None:
    """Let the job's account work in an attempt's folder. Quick when that was done before."""
    folder.chmod(0o1770)
    (folder / "chunk.pkl").chmod(0o440)
    if not account.switch:
        return
    # Others must be able to pass through, not to look around.
    folder.parent.chmod(0o711)
    os.chown(folder, -1, account.gid)
    os.chown(folder / "chunk.pkl", -1, account.gid)
    tree = folder / "tree"
    if tree.stat(follow_symlinks=False).st_uid == account.uid:
        return
    for path, folders, names in os.walk(tree, topdown=False):
        for name in (*folders, *names):
            account.give(Path(path, name))
    account.give(tree)


def temporary_folder(folder: Path, account: Account) -> Path:
    """A TMPDIR for the attempt: inside its folder, but by a short name.

    The path of a socket can have 108 bytes, and `multiprocessing` makes sockets in TMPDIR.
    """
    inside = folder / "tmp"
    inside.mkdir(mode=0o700, exist_ok=True)
    account.give(inside)
    links = folder.parent.parent / "tmp"
    links.mkdir(mode=0o711, exist_ok=True)
    name = hashlib.sha256(folder.name.encode()).hexdigest()
    link = next(links / name[:n] for n in range(6, 64) if _points(links / name[:n], inside))
    return link if len(str(link)) < len(str(inside)) else inside


def _points(link: Path, goal: Path) -> bool:
    """Whether the link leads there, after making it if there was none."""
    try:
        link.symlink_to(goal)
    except FileExistsError:
        return link.is_symlink() and link.readlink() == goal
    return True


def copy_tree(master: Path, target: Path, *, account: Account | None = None) -> None:
    """A copy of a master that its owner can change without changing the master.

    Blocks are shared where the file system can (btrfs, XFS). Never hard links: a job that opens one
    of its files for writing would change it for every attempt after it.
    """
    target.mkdir()
    _copy_folder(os.fspath(master), os.fspath(target), _Copier(account))
    if account:
        account.give(target)


def _copy_folder(master: str, target: str, copier: _Copier) -> None:
    with os.scandir(master) as entries:
        for entry in entries:
            path = f"{target}/{entry.name}"
            if entry.is_symlink():
                Path(path).symlink_to(Path(entry.path).readlink())
            elif entry.is_dir():
                Path(path).mkdir(mode=0o755)
                _copy_folder(entry.path, path, copier)
            else:
                copier.copy(entry.path, path)
                continue
            if copier.account:
                copier.account.give(Path(path))


class _Copier:
    """Copies files, and remembers what this file system cannot do."""

    def __init__(self, account: Account | None) -> None:
        self.account = account
        self._clones = True
        self._ranges = True

    def copy(self, master: str, target: str) -> None:
        source = os.open(master, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            status = os.fstat(source)
            mode = stat.S_IMODE(status.st_mode) | 0o200
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            copy = os.open(target, flags, mode)
            try:
                self._content(source, copy, status.st_size)
                # Compiled modules are known by the time of their source.
                os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))
                if self.account:
                    self.account.give(copy)
            finally:
                os.close(copy)
        finally:
            os.close(source)

    def _content(self, source: int, copy: int, size: int) -> None:
        if size <= SMALL:
            os.write(copy, os.read(source, SMALL + 1))
            return
        if self._clones:
            try:
                fcntl.ioctl(copy, FICLONE, source)
                return
            except OSError:
                self._clones = False
        done = 0
        while self._ranges and done < size:
            try:
                done += os.copy_file_range(source, copy, size - done) or size
            except OSError as error:
                if error.errno == errno.ENOSPC or done:
                    raise
                self._ranges = False
        while done < size:
            done += os.sendfile(copy, source, done, size - done) or size


# --- what an attempt left --------------------------------------------------------------------


def take_back(folder: Path, results: Iterable[Path]) -> None:
    """After an attempt has ended: its folder is the agent's alone, its results lie in folders.

    The job's user owned the way to them and may have put a link to anything there, and the agent
    may be root: it would publish whatever the link leads to. What is no folder is removed.
    """
    folder.chmod(0o700)
    for result in results:
        here = folder
        for part in result.relative_to(folder).parts:
            here = here / part
            if here.is_symlink() or not here.is_dir():
                here.unlink(missing_ok=True)
                here.mkdir()


# --- room on the disk ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Kept:
    """A folder that could be removed, and when it was last used (by this machine's clock)."""

    path: Path
    used: float


def used_percent(path: Path) -> float:
    """How full the disk is, as `df` shows it."""
    usage = shutil.disk_usage(path)
    return 100.0 * usage.used / max(1, usage.used + usage.free)


def stale(kept: Iterable[Kept], *, keep_days: float, now: float) -> tuple[list[Kept], list[Kept]]:
    """(what is too old, what is not), both oldest first."""
    ordered = sorted(kept, key=lambda one: (one.used, one.path))
    limit = now - keep_days * 86_400
    return [one for one in ordered if one.used < limit], [o for o in ordered if o.used >= limit]


def sweep(
    work: Path,
    *,
    in_use: Collection[Path],
    keep_days: float,
    disk_max_percent: float,
    now: float,
) -> list[Path]:
    """Remove attempts and sources that are old, and more, oldest first, while the disk is too full.

    What is in `in_use` (attempts whose results are not published, sources of open jobs) stays.
    Returns what was removed.
    """
    protected = set(in_use)
    kept = [one for one in _kept(work) if one.path not in protected]
    old, young = stale(kept, keep_days=keep_days, now=now)
    removed = []
    for one in old:
        remove(one.path)
        removed.append(one.path)
    for one in young:
        if used_percent(work) <= disk_max_percent:
            break
        if one.path.name.startswith("."):
            continue  # somebody is unpacking it
        remove(one.path)
        removed.append(one.path)
    with contextlib.suppress(FileNotFoundError):
        for link in (work / "tmp").iterdir():
            if link.is_symlink() and not link.exists():
                link.unlink(missing_ok=True)
    return removed


def _kept(work: Path) -> Iterator[Kept]:
    for kind in ("attempts", "sources"):
        with contextlib.suppress(FileNotFoundError):
            for path in (work / kind).iterdir():
                with contextlib.suppress(OSError):
                    yield Kept(path, path.stat(follow_symlinks=False).st_mtime)
