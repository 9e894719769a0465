"""Archives of source trees, kept on this machine: an unchanged tree is not read and packed again.

A tree is known by what its files are called and what the file system says of them: size, times and
inode. As in git's index, a time is trusted only once it is some seconds old: a file that was
written just before it was packed can be written again without another time. Owns
`<cache>/sources/<state>-<sha256>.tar.gz`; every archive is checked against its hash before it is
used. A cache that cannot be read or written is no cache.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import sys
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ludwig.client.snapshot import FORMAT, Source, Tree, pack_tree

__all__ = ["SourceCache"]

SETTLED_S = 3.0
"""How old the newest time of a tree must be: FAT counts in steps of two seconds."""
LARGEST = 200_000_000
TOTAL = 500_000_000

_PIECE = 1 << 20


@dataclass(frozen=True)
class _State:
    """A tree as the file system tells it."""

    digest: str
    newest: float
    """The latest time of any file."""


class SourceCache:
    """Packs trees, or finds them packed."""

    def __init__(self, folder: Path | None = None, *, now: Callable[[], float] = time.time) -> None:
        self._folder = (folder or _cache_folder()) / "sources"
        self._now = now

    def pack(self, tree: Tree, *, out: Path) -> Source:
        """As `pack_tree`: the archive is a file of its own, in `out`."""
        begun, before = self._now(), _state(tree)
        if before is not None:
            with suppress(OSError):
                if (kept := self._find(before, out)) is not None:
                    return tree.packed_as(kept.name.removesuffix(".tar.gz"), kept)
        source = pack_tree(tree, out=out)
        settled = before is not None and before.newest < begun - SETTLED_S
        if settled and before is not None and before == _state(tree):
            with suppress(OSError):
                self._keep(before, source)
        return source

    def _find(self, state: _State, out: Path) -> Path | None:
        """A copy of the kept archive, if it is what it was."""
        for path in self._folder.glob(f"{state.digest}-*.tar.gz"):
            sha256 = path.name.partition("-")[2].removesuffix(".tar.gz")
            copy = out / f"{sha256}.tar.gz"
            if _copied(path, copy) == sha256:
                with suppress(OSError):
                    os.utime(path)
                return copy
            copy.unlink()
            path.unlink()
        return None

    def _keep(self, state: _State, source: Source) -> None:
        size = source.archive.stat().st_size
        if size > LARGEST:
            return
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._make_room(size)
        temporary = self._folder / f".{os.getpid()}-{secrets.token_hex(8)}"
        try:
            _copied(source.archive, temporary)
            temporary.replace(self._folder / f"{state.digest}-{source.sha256}.tar.gz")
        finally:
            temporary.unlink(missing_ok=True)

    def _make_room(self, size: int) -> None:
        """Remove what was used longest ago; also what a killed process left behind."""
        found = sorted(
            ((path.stat().st_mtime, path.stat().st_size, path) for path in self._folder.iterdir()),
            reverse=True,
        )
        total = size
        for used, length, path in found:
            total += length
            if total > TOTAL or (path.name.startswith(".") and used < time.time() - 3600):
                path.unlink(missing_ok=True)


def _state(tree: Tree) -> _State | None:
    """None if a file is gone."""
    # The same files give other bytes with another packer.
    packer = (FORMAT, sys.version_info[:2], zlib.ZLIB_RUNTIME_VERSION)
    digest = hashlib.sha256(repr(packer).encode())
    newest = 0.0
    for name in tree.files:
        path = tree.paths[name]
        try:
            facts = path.stat()
        except OSError:
            return None
        known = (
            name,
            os.fspath(path),
            facts.st_size,
            facts.st_mtime_ns,
            facts.st_ctime_ns,
            facts.st_ino,
            facts.st_mode & 0o100,
        )
        digest.update(repr(known).encode("utf-8", "surrogatepass"))
        newest = max(newest, facts.st_mtime, facts.st_ctime)
    return _State(digest.hexdigest()[:32], newest)


def _copied(path: Path, copy: Path) -> str:
    """The hash of what was copied."""
    digest = hashlib.sha256()
    with path.open("rb") as given, copy.open("wb") as file:
        while piece := given.read(_PIECE):
            digest.update(piece)
            file.write(piece)
    return digest.hexdigest()


def _cache_folder() -> Path:
    if chosen := os.environ.get("LUDWIG_CACHE"):
        return Path(chosen)
    from platformdirs import user_cache_path

    return user_cache_path("ludwig")
