"""The local log of an attempt in parts for the drive: the beginning while it runs, the end after.

Owns what is left out of a log that is too long, and gives the disk its space back meanwhile. Knows
nothing of drives. The log belongs to the job's user, so it is never followed if it became a link.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

__all__ = ["LogTail", "Part"]

PART_BYTES = 1 << 20
PUNCH_EVERY = 16 << 20
PAGE = 4096
KEEP_SIZE_AND_PUNCH_HOLE = 0x01 | 0x02


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes to be appended to the drive's copy, which is `at` bytes long before."""

    data: bytes
    at: int


class LogTail:
    """What of a log still has to be sent. `sent`, the length of the drive's copy, is all its state.

    The first `head_limit` bytes are sent as they come; of the rest only the last `tail_limit`, once
    the attempt has ended. Asking again before `sent_to` gives the same place again, and at least
    the same bytes, so that what went wrong can be repeated.
    """

    def __init__(self, path: Path, head_limit: int, tail_limit: int, *, sent: int = 0) -> None:
        self.path = path
        self.head_limit = head_limit
        self.tail_limit = tail_limit
        self.sent = sent
        self._punched = 0

    def next_bytes(self) -> Part | None:
        """The next part of the beginning, None when there is no more of it for now."""
        with self._open() as file:
            if file is None:
                return None
            if self.sent < self.head_limit:
                file.seek(self.sent)
                data = file.read(min(PART_BYTES, self.head_limit - self.sent))
                return self._part(data)
            self._punch(file)
        return None

    def final_bytes(self) -> Part | None:
        """The end, after the attempt has ended and `next_bytes` gave None. None if all is sent."""
        with self._open() as file:
            if file is None or self.sent > self.head_limit:
                return None
            size = os.fstat(file.fileno()).st_size
            start = max(self.sent, size - self.tail_limit)
            file.seek(start)
            data = file.read(size - start)
        if start == self.sent:
            return self._part(data)
        # The first line is most likely half a line.
        newline = data.find(b"\n", 0, PAGE)
        data = data[newline + 1 :]
        omitted = size - len(data) - self.sent
        return self._part(f"\n… ludwig left out {omitted:,} bytes here …\n".encode() + data)

    def sent_to(self, part: Part) -> None:
        """The part is on the drive."""
        self.sent = max(self.sent, part.at + len(part.data))

    def _part(self, data: bytes) -> Part | None:
        # On the drive, a NUL byte means that the rest has not arrived yet.
        return Part(data.replace(b"\0", b" "), self.sent) if data else None

    @contextlib.contextmanager
    def _open(self) -> Iterator[BinaryIO | None]:
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(self.path, flags)
        except OSError:
            yield None
            return
        with os.fdopen(descriptor, "rb") as file:
            yield file if stat.S_ISREG(os.fstat(descriptor).st_mode) else None

    def _punch(self, file: BinaryIO) -> None:
        """Free the disk of what will never be sent. Where that cannot be done, it stays."""
        # Twice the tail stays, since the log goes on growing while its end is read.
        end = (os.fstat(file.fileno()).st_size - 2 * self.tail_limit) // PAGE * PAGE
        begin = max(self._punched, -(-self.head_limit // PAGE) * PAGE)
        if end - begin < PUNCH_EVERY:
            return
        self._punched = end
        with contextlib.suppress(OSError, AttributeError):
            libc = ctypes.CDLL(None, use_errno=True)
            length = ctypes.c_int64(end - begin)
            offset = ctypes.c_int64(begin)
            libc.fallocate64(file.fileno(), KEEP_SIZE_AND_PUNCH_HOLE, offset, length)
