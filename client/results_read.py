"""The contents of result files: from the cache, else from the drive, many at a time.

Checks what comes from the drive against the manifest. Knows nothing of parameters or frames.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import pandas as pd

from ludwig import codec, errors
from ludwig.client.results_cache import KEY_BYTES, ResultsCache, file_key
from ludwig.client.results_parse import Block, parse
from ludwig.client.results_runs import in_parallel
from ludwig.drive import Drive
from ludwig.model import File

__all__ = ["Contents", "Source", "read_files", "source"]

BATCH_FILES = 1024
BATCH_BYTES = 32 << 20
_RAW = ("\0csv",)
"""The names of a cached block that holds files as they are: of types the cache does not know."""


class Source(NamedTuple):
    """One file of a run. Its key is its content's, if somebody computed the `sha256`."""

    path: str
    size: int
    key: bytes
    sha256: str


def source(path: str, file: File, stamp: str) -> Source:
    """The source of a file in a manifest; `stamp` changes when the run is another."""
    if len(file.sha256) == 64:
        with suppress(ValueError):
            return Source(path, file.size, bytes.fromhex(file.sha256)[:KEY_BYTES], file.sha256)
    return Source(path, file.size, file_key(path, file.size, f"{file.sha256}\0{stamp}"), "")


@dataclass
class Contents:
    """Where each file's rows are, by key; and what is not there."""

    places: dict[bytes, tuple[Block, int]] = field(default_factory=dict)
    failed: dict[bytes, str] = field(default_factory=dict)
    """Cannot be parsed, and why."""
    unreadable: dict[str, str] = field(default_factory=dict)
    """Paths that the drive does not give, and why."""
    missing: set[str] = field(default_factory=set)
    """Paths that are not there."""
    changed: dict[str, bytes] = field(default_factory=dict)
    """Paths whose content is not what the task published, with the key of what is there now."""

    def add(self, blocks: Iterable[Block], failed: dict[bytes, str]) -> None:
        for block in blocks:
            self.places.update((key, (block, i)) for i, key in enumerate(block.keys))
        self.failed.update(failed)

    def place(self, source: Source) -> tuple[Block, int] | None:
        return self.places.get(self.changed.get(source.path, source.key))

    def trouble(self, source: Source) -> str | None:
        if source.path in self.unreadable:
            return self.unreadable[source.path]
        return self.failed.get(self.changed.get(source.path, source.key))


def read_files(drive: Drive, sources: Sequence[Source], cache: ResultsCache | None) -> Contents:
    """Read and parse these files. `DriveAway` if the drive does not answer; else never raises."""
    contents = Contents()
    if cache is not None:
        kept = cache.load()
        contents.add([block for block in kept if block.names != _RAW], {})
        _parse_kept(kept, contents)
    wanted = [s for s in sources if s.key not in contents.places]
    fresh: list[Block] = []
    for batch in _batches(wanted):
        files = _read_batch(drive, batch, contents)
        blocks, failed = parse(files)
        contents.add(blocks, failed)
        fresh += _keepable(blocks, dict(files))
    if cache is not None:
        cache.add(fresh)
    return contents


def _parse_kept(kept: Iterable[Block], contents: Contents) -> None:
    files = [
        (key, str(text).encode())
        for block in kept
        if block.names == _RAW
        for key, text in zip(block.keys, block.columns[0], strict=True)
    ]
    if files:
        contents.add(*parse(files))


def _batches(sources: Sequence[Source]) -> Iterator[list[Source]]:
    """Few enough at a time that the bytes do not outweigh the frame."""
    batch: list[Source] = []
    size = 0
    for source in sources:
        batch.append(source)
        size += source.size
        if len(batch) >= BATCH_FILES or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _read_batch(
    drive: Drive, batch: Sequence[Source], contents: Contents
) -> list[tuple[bytes, bytes]]:
    files = []
    for source, data in zip(batch, _read_many(drive, [s.path for s in batch]), strict=True):
        if isinstance(data, errors.NotFound):
            contents.missing.add(source.path)
        elif isinstance(data, errors.LudwigError):
            contents.unreadable[source.path] = getattr(data, "reason", str(data))
        else:
            key = source.key
            if source.sha256 and (actual := codec.sha256(data)) != source.sha256:
                key = contents.changed[source.path] = bytes.fromhex(actual)[:KEY_BYTES]
            files.append((key, data))
    return files


@runtime_checkable
class ReadsMany(Protocol):
    """What a drive may offer in addition: the bytes of many files, or the error of each."""

    def read_many(self, paths: Sequence[str]) -> Sequence[bytes | errors.LudwigError]: ...


def _read_many(drive: Drive, paths: Sequence[str]) -> Sequence[bytes | errors.LudwigError]:
    """Many requests under way where the drive can do that, else in threads."""
    if isinstance(drive, ReadsMany):
        return drive.read_many(paths)

    def one(path: str) -> bytes | errors.LudwigError:
        try:
            return drive.read(path)
        except errors.DriveAway:
            raise
        except (errors.DriveError, errors.NameNotAllowed) as error:
            return error

    return in_parallel(one, paths)


def _keepable(blocks: Iterable[Block], files: dict[bytes, bytes]) -> Iterator[Block]:
    for block in blocks:
        if any(_is_unusual(column) for column in block.columns):
            texts = pd.array([files[key].decode() for key in block.keys], dtype="str")
            yield Block(block.keys, np.arange(len(block.keys) + 1), _RAW, [texts])
        else:
            yield block


def _is_unusual(column: Any) -> bool:
    if isinstance(column.dtype, pd.StringDtype):
        return False
    return column.dtype not in (np.int64, np.float64, np.bool_)
