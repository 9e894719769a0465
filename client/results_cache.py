"""Parsed results on this machine, so that the second look reads from the drive only what is new.

One folder per drive and project; in it files of many parsed results each, written once under a
random name and put in place whole. So any number of programs may read and write at a time. A file
is believed only if its checksum holds; anything else is removed and forgotten. Never raises: a
cache that cannot be used is no cache. `LUDWIG_CACHE` names another place, and
`LUDWIG_CACHE_BYTES` how much all of it may take (2 GB).
"""

from __future__ import annotations

import hashlib
import mmap
import os
import secrets
import struct
import time
import zlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import platformdirs

from ludwig.client.results_parse import Block, concatenate

__all__ = ["ResultsCache", "cache_folder", "file_key"]

KEY_BYTES = 16
DEFAULT_BYTES = 2 << 30
_MAGIC = b"LUDWIGR1"
_FRAME = struct.Struct("<8sQI")  # magic, length of the header, checksum of everything after this
_ENDING = ".results"
_TEMPORARY = ".writing"
_MANY = 8
"""More files than this in one project are written as one."""
_PLAIN = {"int64": "<i8", "float64": "<f8", "bool": "|b1"}


class _Column(msgspec.Struct, array_like=True):
    kind: str  # int64, float64, bool or str
    buffers: list[tuple[int, int]]  # (offset, length)


class _Header(msgspec.Struct):
    names: list[str]
    columns: list[_Column]
    keys: tuple[int, int]
    ends: tuple[int, int]


def cache_folder() -> Path:
    chosen = os.environ.get("LUDWIG_CACHE")
    return Path(chosen) if chosen else platformdirs.user_cache_path("ludwig")


def file_key(path: str, size: int, stamp: str) -> bytes:
    """The key of one file: other content has another stamp (its hash), hence another key."""
    text = f"{path}\0{size}\0{stamp}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=KEY_BYTES).digest()


class ResultsCache:
    """The cache of one project on one drive."""

    def __init__(self, where: str, project: str, *, folder: Path | None = None) -> None:
        self._root = (folder or cache_folder()) / "results"
        name = hashlib.sha256(f"{where}\0{project}".encode()).hexdigest()[:24]
        self.folder = self._root / name
        self._files: list[Path] = []
        self._loaded: list[Block] = []

    def load(self) -> list[Block]:
        """Everything that is kept of this project."""
        self._files, self._loaded = [], []
        try:
            paths = sorted(self.folder.glob(f"*{_ENDING}"))
        except OSError:
            return []
        for path in paths:
            try:
                block = _decode(path)
            except FileNotFoundError:  # somebody merged it with others just now
                continue
            except (OSError, ValueError, KeyError, IndexError, OverflowError, msgspec.MsgspecError):
                with suppress(OSError):
                    path.unlink()
                continue
            self._files.append(path)
            self._loaded.append(block)
            with suppress(OSError):
                os.utime(path)  # what is used is not the oldest
        return list(self._loaded)

    def add(self, blocks: Iterable[Block]) -> None:
        """Keep these too."""
        kept = [block for block in blocks if _can_keep(block)]
        if not kept:
            return
        with suppress(OSError, ValueError):
            self.folder.mkdir(parents=True, exist_ok=True)
            alike: dict[object, list[Block]] = {}
            for block in kept:
                alike.setdefault(_shape(block), []).append(block)
            merge = len(self._files) + len(alike) > _MANY
            if merge:
                for block in self._loaded:
                    alike.setdefault(_shape(block), []).append(block)
            for group in alike.values():
                self._write(_unique(group))
            if merge:
                self._remove(self._files)
            self._keep_small()

    def _write(self, block: Block) -> None:
        temporary = self.folder / f"{secrets.token_hex(8)}{_TEMPORARY}"
        try:
            with temporary.open("wb") as file:
                for part in _encode(block):
                    file.write(part)
            temporary.replace(temporary.with_suffix(_ENDING))
        except OSError:
            temporary.unlink(missing_ok=True)
            raise

    def _remove(self, paths: Iterable[Path]) -> None:
        for path in paths:
            with suppress(OSError):
                path.unlink()

    def _keep_small(self) -> None:
        """Remove what was not used for longest, and what dead writers left."""
        limit = int(os.environ.get("LUDWIG_CACHE_BYTES") or DEFAULT_BYTES)
        facts = []
        for path in self._root.glob("*/*"):
            with suppress(OSError):
                found = path.stat()
                facts.append((found.st_mtime, found.st_size, path))
        hour_ago = time.time() - 3600
        self._remove(p for when, _, p in facts if p.suffix == _TEMPORARY and when < hour_ago)
        total = sum(size for _, size, _ in facts)
        for _, size, path in sorted(facts, key=lambda fact: fact[0]):
            if total <= limit:
                return
            self._remove([path])
            total -= size


def _can_keep(block: Block) -> bool:
    return all(
        str(column.dtype) in _PLAIN or isinstance(column.dtype, pd.StringDtype)
        for column in block.columns
    )


def _shape(block: Block) -> tuple[object, ...]:
    return block.names, tuple(str(column.dtype) for column in block.columns)


def _unique(blocks: list[Block]) -> Block:
    """One block of several of one shape, each file once."""
    seen: set[bytes] = set()
    keys: list[bytes] = []
    counts: list[int] = []
    pieces: list[list[Any]] = [[] for _ in blocks[0].columns]
    for block in blocks:
        if seen.isdisjoint(block.keys):
            spans: Iterable[tuple[int, int]] = [(0, len(block.keys))]
        else:
            spans = ((i, i + 1) for i, key in enumerate(block.keys) if key not in seen)
        for first, last in spans:
            keys += block.keys[first:last]
            counts += np.diff(block.ends[first : last + 1]).tolist()
            for piece, column in zip(pieces, block.columns, strict=True):
                piece.append(column[block.ends[first] : block.ends[last]])
        seen.update(block.keys)
    ends = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    return Block(keys, ends, blocks[0].names, [concatenate(piece) for piece in pieces])


# --- one file ----------------------------------------------------------------------------------


def _encode(block: Block) -> list[bytes | memoryview]:
    """The parts of a file. Columns are not copied: they are most of what there is."""
    buffers: list[bytes | memoryview] = []
    size = 0

    def put(data: bytes | memoryview) -> tuple[int, int]:
        nonlocal size
        padding = -len(data) % 8
        buffers.extend((data, bytes(padding)))
        place = (size, len(data))
        size += len(data) + padding
        return place

    columns = []
    for column in block.columns:
        if str(column.dtype) in _PLAIN:
            kind = str(column.dtype)
            plain = np.ascontiguousarray(column, dtype=_PLAIN[kind])
            columns.append(_Column(kind, [put(plain.view(np.uint8).data)]))
        else:
            columns.append(_Column("str", [put(part) for part in _words_to_bytes(column)]))
    header = _Header(
        names=list(block.names),
        columns=columns,
        keys=put(b"".join(block.keys)),
        ends=put(block.ends.astype("<i8").tobytes()),
    )
    text = msgspec.json.encode(header)
    text += b" " * (-(len(text) + _FRAME.size) % 8)
    checksum = zlib.crc32(text)
    for data in buffers:
        checksum = zlib.crc32(data, checksum)
    return [_FRAME.pack(_MAGIC, len(text), checksum), text, *buffers]


def _decode(path: Path) -> Block:
    with path.open("rb") as file:
        # Mapped, not read: the frame's own columns are then the only copy in memory.
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    magic, length, checksum = _FRAME.unpack(data[: _FRAME.size])
    if magic != _MAGIC or zlib.crc32(data[_FRAME.size :]) != checksum:
        raise ValueError("damaged")
    header = msgspec.json.decode(data[_FRAME.size : _FRAME.size + length], type=_Header)
    body = data[_FRAME.size + length :]
    raw_keys = bytes(_part(body, header.keys))
    ends = np.frombuffer(_part(body, header.ends), dtype="<i8")
    keys = [raw_keys[i : i + KEY_BYTES] for i in range(0, len(raw_keys), KEY_BYTES)]
    columns: list[Any] = []
    for column in header.columns:
        parts = [_part(body, place) for place in column.buffers]
        if column.kind == "str":
            columns.append(_words_from_bytes(parts))
        else:
            columns.append(np.frombuffer(parts[0], dtype=_PLAIN[column.kind]))
    if len(ends) != len(keys) + 1 or any(len(column) != ends[-1] for column in columns):
        raise ValueError("damaged")
    return Block(keys, ends, tuple(header.names), columns)


def _part(body: memoryview, place: tuple[int, int]) -> memoryview:
    return body[place[0] : place[0] + place[1]]


def _words_to_bytes(column: Any) -> list[bytes]:
    """Each different word once, and for each row which one (-1: missing)."""
    codes, words = pd.factorize(column)
    text = msgspec.json.encode([str(word) for word in words])
    return [codes.astype("<i4").tobytes(), text]


def _words_from_bytes(parts: list[memoryview]) -> Any:
    codes = np.frombuffer(parts[0], dtype="<i4")
    words = pd.array(msgspec.json.decode(parts[1], type=list[str]), dtype="str")
    return words.take(codes, allow_fill=True)
