"""Source archives from an inbox, which anybody with a key may have written.

Owns the check of an archive and its unpacked, read-only master copy `sources/<sha256>`. Nothing of
an archive is looked at before its SHA-256 is known to be right; nothing that it holds can be
written outside of its own folder, become a device or a link that leads out, or fill the disk.
"""

from __future__ import annotations

import contextlib
import ctypes
import gzip
import hashlib
import os
import posixpath
import shutil
import stat
import tarfile
import tempfile
import zlib
from pathlib import Path
from typing import IO, BinaryIO, cast

from ludwig.errors import TicketRefused

__all__ = ["MAX_BYTES", "MAX_FILES", "unpack"]

MAX_ARCHIVE = 2 << 30
MAX_BYTES = 8 << 30
MAX_FILES = 100_000
MAX_DEPTH = 50
SPARE_BYTES = 256 << 20
"""What unpacking must leave free on the disk."""
BLOCK = 1 << 20

# Python's own filter is a second opinion, not the only one: it has had holes, and the Python 3.11.2
# of Debian 12 does not have it. What is refused here is refused without it too.
_python_refuses = getattr(tarfile, "data_filter", None)


def unpack(
    archive: Path,
    sha256: str,
    sources: Path,
    *,
    max_bytes: int = MAX_BYTES,
    max_files: int = MAX_FILES,
) -> Path:
    """The verified, unpacked, read-only source `sources/<sha256>`; made if it is not there yet.

    Any number of callers may do this at once. `TicketRefused` says why an archive is not taken.
    """
    target = sources / sha256
    if target.is_dir():
        return target
    sources.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=sources) as copy:
        # A copy, since whoever owns the archive could change it between the check and the use.
        _copy_verified(archive, sha256, copy)
        limit = min(max_bytes, shutil.disk_usage(sources).free - SPARE_BYTES)
        temporary = Path(tempfile.mkdtemp(dir=sources, prefix=".new-"))
        try:
            _Unpacking(temporary, limit=limit, max_files=max_files).run(copy)
            _sync(temporary)
            temporary.rename(target)
        except OSError as error:
            if not target.is_dir():  # else somebody else was first
                raise TicketRefused(f"its source cannot be unpacked: {error}") from error
        finally:
            remove(temporary)
    return target


def _copy_verified(archive: Path, sha256: str, copy: IO[bytes]) -> None:
    try:
        descriptor = os.open(archive, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise TicketRefused(
            f"its source {archive.name} cannot be read here: {error.strerror}. Submit again."
        ) from error
    digest = hashlib.sha256()
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise TicketRefused(f"its source {archive.name} is not a file.")
        size = 0
        while block := file.read(BLOCK):
            size += len(block)
            if size > MAX_ARCHIVE:
                raise TicketRefused(
                    f"its source is larger than {MAX_ARCHIVE:,} bytes. "
                    "Send data with data_ps=, which goes to the drive."
                )
            digest.update(block)
            copy.write(block)
    if digest.hexdigest() != sha256:
        raise TicketRefused(
            f"its source {archive.name} is damaged (sha256 {digest.hexdigest()[:12]}…, not "
            f"{sha256[:12]}…). Submit again."
        )
    copy.seek(0)


class _Unpacking:
    """One archive on its way into one empty folder."""

    def __init__(self, folder: Path, *, limit: int, max_files: int) -> None:
        self._folder = folder
        self._limit = limit
        self._max_files = max_files
        self._kinds: dict[str, str] = {"": "folder"}

    def run(self, archive: IO[bytes]) -> None:
        try:
            with gzip.GzipFile(fileobj=archive) as unzipped:
                stream = cast(BinaryIO, _Capped(unzipped, self._limit + self._max_files * 4096))
                with tarfile.open(fileobj=stream, mode="r|", format=tarfile.PAX_FORMAT) as tar:
                    for member in tar:
                        self._add(tar, member)
        except (tarfile.TarError, zlib.error, EOFError, gzip.BadGzipFile) as error:
            raise TicketRefused(f"its source is not an archive that is taken: {error}") from error
        except (ValueError, UnicodeError, RecursionError) as error:
            raise TicketRefused(f"its source is a malformed archive: {error}") from error
        for path, kind in sorted(self._kinds.items(), reverse=True):
            if kind == "folder":
                (self._folder / path).chmod(0o555)

    def _add(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        path = self._checked_path(member.name)
        if path == "" and member.isdir():
            return
        if len(self._kinds) > self._max_files:
            raise TicketRefused(f"its source holds more than {self._max_files:,} files.")
        if path in self._kinds and not (member.isdir() and self._kinds[path] == "folder"):
            raise TicketRefused(f"its source holds '{path}' twice.")
        if _python_refuses is not None:
            _python_refuses(member, str(self._folder))
        self._make_folders(posixpath.dirname(path))
        target = self._folder / path
        if member.isdir():
            self._make_folders(path)
        elif member.issym():
            self._link(path, member.linkname, target)
        elif member.islnk():
            self._copy_member(member, path, target)
        elif member.isreg() and not member.issparse():
            self._file(tar, member, target)
            self._kinds[path] = "file"
        else:
            raise TicketRefused(f"its source holds '{path}', which is neither file nor folder.")

    def _checked_path(self, name: str) -> str:
        """Relative, without `..`, below folders only."""
        parts = [part for part in name.rstrip("/").split("/") if part != "."]
        if name.startswith("/") or ".." in parts or "" in parts[:-1] or "\0" in name:
            raise TicketRefused(f"its source holds {name!r}, which leads out of its folder.")
        if len(parts) > MAX_DEPTH:
            raise TicketRefused(f"its source holds {name[:80]!r}…, nested too deep.")
        return "/".join(parts)

    def _make_folders(self, path: str) -> None:
        missing = []
        while path not in self._kinds:
            missing.append(path)
            path = posixpath.dirname(path)
        if self._kinds[path] != "folder":
            raise TicketRefused(f"its source holds files below '{path}', which is not a folder.")
        for folder in reversed(missing):
            (self._folder / folder).mkdir(mode=0o755)
            self._kinds[folder] = "folder"

    def _file(self, tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
        self._limit -= member.size
        if self._limit < 0 or member.size < 0:
            raise TicketRefused(
                "its source is too large for this node's disk or for a source at all. "
                "Send data with data_ps=, which goes to the drive."
            )
        content = tar.extractfile(member)
        if content is None:
            raise TicketRefused(f"its source holds '{member.name}' without content.")
        with target.open("xb") as file:
            shutil.copyfileobj(content, file, BLOCK)
        self._settle(target, executable=bool(member.mode & 0o111), mtime=member.mtime)

    def _copy_member(self, member: tarfile.TarInfo, path: str, target: Path) -> None:
        """A second name of a file in the archive becomes a file of its own."""
        first = self._checked_path(member.linkname)
        if self._kinds.get(first) != "file":
            raise TicketRefused(f"its source holds '{path}', a hard link to what is not there.")
        origin = self._folder / first
        self._limit -= origin.stat().st_size
        if self._limit < 0:
            raise TicketRefused("its source is too large.")
        shutil.copyfile(origin, target)
        mode = origin.stat().st_mode
        self._settle(target, executable=bool(mode & 0o111), mtime=origin.stat().st_mtime)
        self._kinds[path] = "file"

    def _link(self, path: str, goal: str, target: Path) -> None:
        """Links may point to what is in the archive. Checked as text: nothing is followed."""
        landing = posixpath.normpath(posixpath.join(posixpath.dirname(path), goal))
        if goal.startswith("/") or landing.split("/")[0] == ".." or "\0" in goal:
            raise TicketRefused(f"its source holds '{path}', a link that leads out of its folder.")
        target.symlink_to(goal)
        self._kinds[path] = "link"

    def _settle(self, path: Path, *, executable: bool, mtime: float) -> None:
        os.utime(path, (mtime, mtime))
        path.chmod(0o555 if executable else 0o444)


class _Capped:
    """A stream that ends with an error instead of unpacking for ever."""

    def __init__(self, stream: gzip.GzipFile, limit: int) -> None:
        self._stream = stream
        self._left = limit

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size if 0 <= size < self._left + 1 else self._left + 1)
        self._left -= len(data)
        if self._left < 0:
            raise TicketRefused("its source unpacks to more than this node takes.")
        return data


def _sync(folder: Path) -> None:
    """After a power cut, a folder that is there is whole."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(AttributeError, OSError):
            ctypes.CDLL(None).syncfs(descriptor)
    finally:
        os.close(descriptor)


def remove(folder: Path) -> None:
    """Remove a folder, read-only folders in it too; as far as possible. No error if it is gone."""
    if os.geteuid() != 0:
        for path, _, _ in os.walk(folder):
            with contextlib.suppress(OSError):
                Path(path).chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)
