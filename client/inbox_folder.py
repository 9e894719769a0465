"""An inbox that is a folder of this machine: for trying things out, and for a lab of one.

Same names and the same guarantees as over SFTP; see `connections.Inbox`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from ludwig import layout
from ludwig.errors import NodeError

__all__ = ["FolderInbox", "pieces"]

PIECE = 1 << 20


class FolderInbox:
    """See `connections.Inbox`."""

    def __init__(self, label: str, folder: Path) -> None:
        self._label = label
        self._folder = folder

    @classmethod
    async def open(cls, label: str, folder: Path) -> FolderInbox:
        """The inbox in a folder, which must be there."""
        if not folder.is_dir():
            raise NodeError(f"{label}: there is no folder '{folder}' on this machine.")
        return cls(label, folder)

    async def prepare(self) -> None:
        for name in (layout.SOURCES, layout.TICKETS):
            try:
                (self._folder / name).mkdir(exist_ok=True)
            except OSError as error:
                raise self._error("making", name, error) from error

    async def size(self, path: str) -> int | None:
        try:
            return (self._folder / path).stat().st_size
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._error("looking at", path, error) from error

    async def put(self, path: str, data: bytes | Path, sent: Callable[[int], None]) -> None:
        await asyncio.to_thread(self._put, self._folder / path, data, sent)

    async def names(self, folder: str) -> list[str]:
        try:
            names = [entry.name for entry in (self._folder / folder).iterdir()]
        except OSError as error:
            raise self._error("listing", folder, error) from error
        return sorted(name for name in names if not name.startswith(layout.TEMPORARY))

    async def close(self) -> None:
        return None

    def _put(self, path: Path, data: bytes | Path, sent: Callable[[int], None]) -> None:
        temporary = path.with_name(layout.TEMPORARY + secrets.token_hex(8))
        try:
            try:
                with temporary.open("xb") as file:
                    for piece in pieces(data, PIECE):
                        file.write(piece)
                        sent(len(piece))
                    file.flush()
                    os.fsync(file.fileno())
                readable = stat.S_IMODE(path.parent.stat().st_mode) & 0o044
                temporary.chmod(0o600 | readable)
                temporary.replace(path)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    temporary.unlink()
        except OSError as error:
            raise self._error("writing", str(path.relative_to(self._folder)), error) from error

    def _error(self, doing: str, path: str, error: OSError) -> NodeError:
        return NodeError(
            f"{self._label}: {doing} '{self._folder / path}': {error.strerror or error}."
        )


def pieces(data: bytes | Path, size: int) -> Iterator[bytes]:
    """Bytes, or what is in a file, a piece at a time."""
    if isinstance(data, bytes):
        for start in range(0, len(data), size):
            yield data[start : start + size]
        return
    with data.open("rb") as file:
        while piece := file.read(size):
            yield piece
