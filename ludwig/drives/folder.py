"""A drive that is a folder: local, or the mount of a share.

Owns what a kernel CIFS mount does to programs (DESIGN §7): a name once not found stays so for a
second, sizes lag, an operation that failed may have happened, and after a hard link the new name
opens only once the temporary one is gone. So nothing here tries names to see whether they are
there (it lists), trusts a size (it reads to the end), or lets `rename` decide anything.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import os
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from ludwig import errors
from ludwig.drive import Drive, Entry, Progress, Usage, Watch
from ludwig.drives.folder_errors import translate
from ludwig.drives.polling import PollingWatch
from ludwig.drives.trees import (
    STILL_OPEN_S,
    copy_file,
    join,
    local_files,
    open_file,
    same_file,
)
from ludwig.layout import TEMPORARY

__all__ = ["FolderDrive"]

_NO_LINKS = {errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_BINARY = getattr(os, "O_BINARY", 0)
_NETWORK = {"cifs", "smb3", "nfs", "nfs4", "9p", "fuse.sshfs"}


class FolderDrive(Drive):
    """The folder must exist: a drive that is not mounted must not fill the disk below it."""

    def __init__(self, folder: Path | str, *, poll_s: float = 0.25) -> None:
        self._root = Path(folder)
        self._poll_s = poll_s
        self._real_root: str | None = None
        self._remote = _is_network(self._root)

    @property
    def where(self) -> str:
        return str(self._root)

    @property
    def mount(self) -> Path | None:
        return self._root

    def create(self, path: str, data: bytes) -> None:
        with translate("creating", path):
            try:
                _write_new(self._real(path), data, durable=self._remote)
                return
            except FileExistsError:
                pass
        if not self._holds(path, data):
            raise errors.Exists("creating", path)

    def publish(self, path: str, data: bytes) -> None:
        with translate("publishing", path):
            final = self._real(path)
            temporary = _beside(final)
            try:
                _write_new(temporary, data, durable=True)
                os.link(temporary, final, follow_symlinks=False)
                return
            except FileExistsError:
                pass
            except OSError as error:
                if error.errno in _NO_LINKS or (error.errno == errno.EPERM and self._writable()):
                    raise errors.NotAtomic("publishing", path) from error
                raise
            finally:
                # At once, and before anybody opens `path`: on CIFS the linked name cannot be
                # opened while the temporary one is known.
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
        if not self._holds(path, data):
            raise errors.Exists("publishing", path)

    def append(self, path: str, data: bytes, *, at: int) -> None:
        with translate("appending to", path):
            descriptor = open_file(self._real(path), os.O_WRONLY | os.O_CREAT | _NOFOLLOW)
            try:
                os.lseek(descriptor, at, os.SEEK_SET)
                _write_all(descriptor, data)
                if self._remote:  # readers would see NUL bytes in place of what is only cached
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def replace(self, path: str, data: bytes) -> None:
        with translate("writing", path):
            final = self._real(path)
            temporary = _beside(final)
            try:
                _write_new(temporary, data, durable=self._remote)
                os.replace(temporary, final)
            except OSError:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise

    def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        with translate("reading", path):
            flags = os.O_RDONLY | _NOFOLLOW | getattr(os, "O_NONBLOCK", 0)
            descriptor = open_file(self._real(path), flags)
            with os.fdopen(descriptor, "rb", buffering=0) as file:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise errors.WrongKind("reading", path, "it is not a file")
                if offset:
                    file.seek(offset)
                if limit is None:
                    return file.readall()
                return _read_exactly(file, limit)

    def list(self, path: str) -> builtins.list[str]:
        with translate("listing", path):
            return [n for n in os.listdir(self._real_folder(path)) if not n.startswith(TEMPORARY)]

    def scan(self, path: str) -> builtins.list[Entry]:
        entries = []
        with translate("listing", path), os.scandir(self._real_folder(path)) as found:
            for item in found:
                if item.name.startswith(TEMPORARY):
                    continue
                try:
                    facts = item.stat(follow_symlinks=False)
                except FileNotFoundError:  # removed since it was listed
                    continue
                folder = stat.S_ISDIR(facts.st_mode)
                entries.append(Entry(item.name, folder, facts.st_size, facts.st_mtime))
        return entries

    def exists(self, path: str) -> bool:
        with translate("looking for", path):
            return os.path.lexists(self._real(path))

    def mkdir(self, path: str) -> None:
        with translate("making folder", path):
            os.mkdir(self._real(path))

    def make_folders(self, *paths: str) -> None:
        for path in paths:
            self._make_folder(path)

    def _make_folder(self, path: str) -> None:
        if not path:
            return
        with translate("making folder", path):
            self._check_mounted()
            try:
                os.mkdir(self._real(path))
                return
            except FileExistsError:
                if os.path.isdir(self._real(path)):
                    return
                raise errors.WrongKind("making folder", path, "a file has that name") from None
            except FileNotFoundError:
                pass
        self._make_folder(path.rpartition("/")[0])
        with contextlib.suppress(errors.Exists):
            self.mkdir(path)

    def move(self, source: str, target: str) -> None:
        with translate("moving", source):
            real_source, real_target = self._real(source), self._real(target)
            # rename() replaces an empty folder silently; a look is enough, since only the winner
            # of something else calls this.
            if os.path.lexists(real_target):
                raise errors.Exists("moving", target)
            try:
                os.rename(real_source, real_target)
            except OSError as error:
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                    raise errors.Exists("moving", target) from error
                raise

    def remove(self, path: str) -> None:
        with translate("removing", path), contextlib.suppress(FileNotFoundError):
            os.unlink(self._real(path))

    def remove_folder(self, path: str) -> None:
        with translate("removing", path):
            real = self._real(path)
            for pause in (*STILL_OPEN_S, None):
                try:
                    shutil.rmtree(real)
                    return
                except FileNotFoundError:
                    # It, or something in it, is gone. On CIFS also: is listed still, because
                    # somebody has it open.
                    if not os.path.lexists(real):
                        return
                except OSError as error:
                    if error.errno != errno.ENOTEMPTY:  # somebody adds to it
                        raise
                if pause is None:
                    break
                time.sleep(pause)
            raise errors.DriveAway("removing", path, "somebody has a file in it open, or adds some")

    def watch(self, path: str) -> Watch:
        return PollingWatch(self, path, self._poll_s)

    def usage(self) -> Usage:
        with translate("measuring", ""):
            self._check_mounted()
            total, _, free = shutil.disk_usage(self._root)
            return Usage(total, free)

    def upload(
        self,
        tree: Path,
        path: str,
        *,
        files: Sequence[str] | None = None,
        progress: Progress | None = None,
        skip_same: bool = False,
    ) -> None:
        self.make_folders(path)
        made = {""}
        for name in files if files is not None else local_files(tree):
            target = join(path, name)
            self._real(target)  # refuses what must not be a path
            folder = name.rpartition("/")[0]
            if folder not in made:
                self.make_folders(join(path, folder))
                made.add(folder)
            with translate("uploading", target):
                source, copied = tree / name, _telling(progress, name)
                if skip_same and same_file(source, Path(self._real(target))):
                    if copied is not None:
                        copied(source.stat().st_size)
                else:
                    copy_file(source, Path(self._real(target)), whole=skip_same, copied=copied)

    def download(
        self,
        path: str,
        tree: Path,
        *,
        files: Iterable[str] | None = None,
        progress: Progress | None = None,
    ) -> None:
        tree.mkdir(parents=True, exist_ok=True)
        for name in files if files is not None else self._files_below(path):
            with translate("downloading", join(path, name)):
                self._real(name)  # refuses what must not be a path here either
                source, target = Path(self._real(join(path, name))), tree / name
                target.parent.mkdir(parents=True, exist_ok=True)
                copy_file(source, target, whole=False, copied=_telling(progress, name))

    def close(self) -> None:
        self._real_root = None

    def _files_below(self, path: str) -> Iterator[str]:
        with translate("listing", path):
            folder = self._real_folder(path)
            if not os.path.isdir(folder):
                raise errors.NotFound("listing", path)
            yield from local_files(Path(folder))

    def _real(self, path: str) -> str:
        """The file-system path. No `..` and no link leads out of the drive."""
        if self._real_root is None:
            self._real_root = os.path.realpath(self._root)
        if not path:
            return self._real_root
        parts = path.split("/")
        if any(part in ("", ".", "..") or "\\" in part or "\0" in part for part in parts):
            raise errors.NameNotAllowed(f"{path!r} is not a path on the drive.")
        parent = os.path.join(self._real_root, *parts[:-1])
        if os.path.realpath(parent) != os.path.normpath(parent):
            raise errors.NoPermission("following a link in", path, "links are not followed")
        return os.path.join(parent, parts[-1])

    def _real_folder(self, path: str) -> str:
        """As `_real`, for what will be listed: not a link itself either."""
        real = self._real(path)
        if os.path.islink(real):
            raise errors.NoPermission("following a link in", path, "links are not followed")
        return real

    def _holds(self, path: str, data: bytes) -> bool:
        """Whether a file that is in the way is our own, from a call whose answer was lost."""
        try:
            return self.read(path, limit=len(data) + 1) == data
        except (errors.NotFound, errors.WrongKind, errors.NoPermission):
            return False

    def _check_mounted(self) -> None:
        if not os.path.isdir(self._root):
            reason = f"there is no folder {self._root}. Is the drive mounted?"
            raise errors.DriveAway("opening", "", reason)

    def _writable(self) -> bool:
        return os.access(self._root, os.W_OK)


def _telling(progress: Progress | None, name: str) -> Callable[[int], None] | None:
    return partial(progress, name) if progress is not None else None


def _beside(final: str) -> str:
    """A new temporary name in the folder of a file."""
    return os.path.join(os.path.dirname(final), f"{TEMPORARY}{secrets.token_hex(8)}")


def _write_new(real: str, data: bytes, *, durable: bool) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW | _BINARY
    descriptor = os.open(real, flags, 0o666)
    try:
        _write_all(descriptor, data)
        if durable:
            os.fsync(descriptor)
    except OSError:
        with contextlib.suppress(OSError):  # nobody else can have made it
            os.unlink(real)
        raise
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _read_exactly(file: object, limit: int) -> bytes:
    read = file.read  # type: ignore[attr-defined]
    parts = []
    while limit > 0 and (part := read(limit)):
        parts.append(part)
        limit -= len(part)
    return b"".join(parts)


def _is_network(folder: Path) -> bool:
    """Whether a folder lies on a network file system (Linux; elsewhere: assume it does)."""
    if not sys.platform.startswith("linux"):
        return True
    best, kind = "", ""
    target = os.path.realpath(folder)
    try:
        lines = Path("/proc/self/mounts").read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return True
    for line in lines:
        _, point, fstype, *_ = line.split(" ")
        point = point.encode().decode("unicode_escape") if "\\" in point else point
        inside = target == point or target.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, fstype
    return kind in _NETWORK
