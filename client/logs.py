"""Reading the logs of tasks, also while they grow.

A log on a mounted drive may show NUL bytes where new ones are on their way (DESIGN §7): they mean
"not yet", until they have stayed for so long that the program must have printed them. Bytes that
are not UTF-8 are shown as replacement characters; nothing here raises for what a program prints.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ludwig import errors, layout
from ludwig.drive import Drive

__all__ = ["Follower", "LogLine", "Tail", "list_attempts", "read_log", "read_tail"]

NUL_PATIENCE_S = 5.0
_PIECE = 1 << 20
_TAIL_PIECE = 64 << 10


class LogLine(NamedTuple):
    """One line of a task's output. `str()` puts the task in front."""

    task: int
    attempt: int
    text: str

    def __str__(self) -> str:
        again = f".{self.attempt}" if self.attempt > 1 else ""
        return f"{layout.task_name(self.task)}{again} | {self.text}"


@dataclass
class Tail:
    """Reads one growing log from where it left off. Survives a drive that is away."""

    path: str
    offset: int = 0
    _nul_at: int = -1
    _nul_since: float = 0.0
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )
    _rest: str = ""

    def read(self, drive: Drive, now: float, *, final: bool = False) -> list[str]:
        """The lines that are new and complete. With `final`, also a last one without an end.

        Raises `DriveAway`; the next call goes on where this one was.
        """
        lines: list[str] = []
        while data := self._next(drive, now, final=final):
            self.offset += len(data)
            lines += self._split(self._decoder.decode(data))
        if final:
            left = self._rest + self._decoder.decode(b"", final=True)
            self._decoder.reset()
            self._rest = ""
            lines += [_shown(left)] if left else []
        return lines

    def _next(self, drive: Drive, now: float, *, final: bool) -> bytes:
        try:
            data = drive.read(self.path, offset=self.offset, limit=_PIECE)
        except errors.NotFound:
            return b""
        nul = data.find(b"\0")
        if nul < 0 or final:
            return data
        if self._nul_at != self.offset + nul:
            self._nul_at, self._nul_since = self.offset + nul, now
        elif now - self._nul_since >= NUL_PATIENCE_S:
            end = nul
            while end < len(data) and data[end] == 0:
                end += 1
            return data[:end]
        return data[:nul]

    def _split(self, text: str) -> list[str]:
        *complete, self._rest = (self._rest + text).split("\n")
        return [_shown(line) for line in complete]


def _shown(line: str) -> str:
    """As a terminal would show it: what came after the last carriage return; no NUL."""
    return line.rstrip("\r").rpartition("\r")[2].replace("\0", "")


def read_log(drive: Drive, path: str) -> str:
    """A whole log as text. `NotFound` if there is none."""
    data = drive.read(path)
    return data.rstrip(b"\0").replace(b"\0", b"").decode("utf-8", "replace")


def read_tail(drive: Drive, path: str, *, lines: int = 20) -> str:
    """The last lines of a log, without reading all of a large one; "" if there is none."""
    try:
        data = drive.read(path, limit=_TAIL_PIECE)
        if len(data) == _TAIL_PIECE:
            end = _end_of(drive, path, _TAIL_PIECE)
            data = drive.read(path, offset=max(0, end - _TAIL_PIECE), limit=_TAIL_PIECE)
    except (errors.NotFound, errors.WrongKind):
        return ""
    text = data.replace(b"\0", b"").decode("utf-8", "replace").rstrip()
    return "\n".join(_shown(line) for line in text.split("\n")[-lines:])


def _end_of(drive: Drive, path: str, known: int) -> int:
    """The size of a file, by reading single bytes: sizes in a listing lag."""
    step = known
    while drive.read(path, offset=known + step, limit=1):
        known += step
        step *= 2
    while step > 1:
        step //= 2
        if drive.read(path, offset=known + step, limit=1):
            known += step
    return known + 1


def list_attempts(
    drive: Drive, files: layout.JobFiles, tasks: Iterable[int]
) -> dict[int, list[int]]:
    """The attempts of each of these tasks that have written a log."""
    wanted = set(tasks)
    found: dict[int, list[int]] = {}
    for bucket in sorted(set(map(layout.bucket_of, wanted))):
        for name in _names(drive, files.logs_in(bucket)):
            key = layout.parse_attempt(name.removesuffix(".log"))
            if name.endswith(".log") and key and key[0] in wanted:
                found.setdefault(key[0], []).append(key[1])
    return {task: sorted(attempts) for task, attempts in found.items()}


def _names(drive: Drive, folder: str) -> list[str]:
    try:
        return drive.list(folder)
    except errors.NotFound:
        return []


class Follower:
    """The logs of several tasks at once, each attempt after the one before."""

    def __init__(self, drive: Drive, files: layout.JobFiles) -> None:
        self._drive, self._files = drive, files
        self._tails: dict[tuple[int, int], Tail] = {}
        self._ended: set[tuple[int, int]] = set()

    def skip(self, tasks: Iterable[int]) -> None:
        """Do not show what these tasks have written so far in attempts that are over."""
        for task, attempts in list_attempts(self._drive, self._files, tasks).items():
            self._ended |= {(task, attempt) for attempt in attempts}

    def read(
        self, tasks: Iterable[int], now: float, *, over: frozenset[int] = frozenset()
    ) -> Iterator[LogLine]:
        """What is new in the logs of these tasks; those in `over` will not grow any more."""
        tasks = sorted(tasks)
        attempts = list_attempts(self._drive, self._files, tasks)
        for task in tasks:
            known = attempts.get(task, [])
            for attempt in known:
                key = (task, attempt)
                if key in self._ended:
                    continue
                final = task in over or attempt < known[-1]
                path = self._files.log_of(task, attempt)
                tail = self._tails.setdefault(key, Tail(path))
                for text in tail.read(self._drive, now, final=final):
                    yield LogLine(task, attempt, text)
                if final:
                    self._ended.add(key)
