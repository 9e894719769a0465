"""Bytes of CSV files to columns: many files with the same header in one call of pandas.

Owns the promise that this gives the frame of `pd.read_csv` file by file and `pd.concat`. Where a
file's own types would not be those of all files together (numbers in one, words in another), or
its lines cannot be counted without parsing (quotes, blank lines), each file is parsed by itself.
Touches neither drive nor cache.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

__all__ = ["UNNAMED_INDEX", "Block", "parse"]

UNNAMED_INDEX = "index"
"""What the first column is called when its header is empty, as pandas writes an unnamed index."""

Column = Any  # a numpy array or a pandas extension array


@dataclass(frozen=True)
class Block:
    """Files with the same columns, one after the other. File i is rows `ends[i]` to `ends[i+1]`."""

    keys: list[bytes]
    ends: np.ndarray[Any, np.dtype[np.int64]]
    names: tuple[str, ...]
    columns: list[Column]


def parse(files: Sequence[tuple[bytes, bytes]]) -> tuple[list[Block], dict[bytes, str]]:
    """Parse (key, content) pairs. Returns the columns, and for files that fail what is wrong."""
    groups: dict[bytes, list[tuple[bytes, bytes]]] = {}
    single: list[tuple[bytes, bytes]] = []
    for key, data in files:
        if _lines_can_be_counted(data):
            groups.setdefault(data[: data.index(b"\n") + 1], []).append((key, data))
        else:
            single.append((key, data))
    blocks: list[Block] = []
    for header, group in groups.items():
        together = _parse_together(header, group)
        if together is None:
            single += group
        else:
            blocks.append(together)
    failed: dict[bytes, str] = {}
    blocks += _merged(_parse_each(single, failed))
    return blocks, failed


def _lines_can_be_counted(data: bytes) -> bool:
    return (
        b"\n" in data
        and data[:1] != b"\n"
        and b'"' not in data
        and b"\r" not in data
        and b"\n\n" not in data
        and b"\0" not in data
        and not data.startswith(b"\xef\xbb\xbf")
    )


def _parse_together(header: bytes, group: Sequence[tuple[bytes, bytes]]) -> Block | None:
    """All files of one header at once, or None where that could differ from one by one."""
    start = len(header)
    parts = [header]
    counts = np.empty(len(group), dtype=np.int64)
    for i, (_, data) in enumerate(group):
        rows = data.count(b"\n") - 1
        parts.append(data[start:])
        if data[-1:] != b"\n":
            parts.append(b"\n")
            rows += 1
        counts[i] = rows
    try:
        frame = _read(b"".join(parts))
    except (ValueError, OverflowError):  # ParserError and UnicodeDecodeError are ValueErrors
        return None
    ends = np.concatenate(([0], np.cumsum(counts)))
    if len(frame) != ends[-1] or (len(frame) == 0 and len(group) > 1):
        return None
    columns = [_plain(frame[name]) for name in frame.columns]
    if not all(_same_one_by_one(column, ends) for column in columns):
        return None
    return Block([key for key, _ in group], ends, _names(frame), columns)


def _read(data: bytes) -> pd.DataFrame:
    with warnings.catch_warnings():
        # Lines longer than the header: pandas would drop a field, or take the first for an index.
        warnings.simplefilter("error", pd.errors.ParserWarning)
        try:
            # Not in chunks (low_memory): they would have types of their own.
            return pd.read_csv(io.BytesIO(data), low_memory=False, index_col=False)
        except pd.errors.ParserWarning as error:
            raise ValueError("a line has more fields than the header") from error


def _names(frame: pd.DataFrame) -> tuple[str, ...]:
    names = [str(name) for name in frame.columns]
    if names and names[0] == "Unnamed: 0" and UNNAMED_INDEX not in names:
        names[0] = UNNAMED_INDEX
    return tuple(names)


def _plain(column: pd.Series) -> Column:
    return column.to_numpy() if isinstance(column.dtype, np.dtype) else column.array


def _same_one_by_one(column: Column, ends: np.ndarray[Any, Any]) -> bool:
    """Whether each file alone would have given the same values.

    Always so for whole numbers, fractions and pure truth values; for words, if every file holds
    one that is neither a number nor a truth value nor missing.
    """
    if column.dtype in (np.int64, np.float64, np.bool_):
        return True
    if not isinstance(column.dtype, pd.StringDtype):
        return False
    codes, words = pd.factorize(column)
    is_word = np.array([_is_word(str(word)) for word in words] + [False])[codes]
    starts = ends[:-1][np.diff(ends) > 0]
    return bool(np.logical_or.reduceat(is_word, starts).all())


def _is_word(text: str) -> bool:
    if text.strip().lower() in ("true", "false"):
        return False
    try:
        float(text)
    except ValueError:
        return True
    return False


def _parse_each(files: Iterable[tuple[bytes, bytes]], failed: dict[bytes, str]) -> Iterable[Block]:
    for key, data in files:
        try:
            frame = _read(data)
        except (ValueError, OverflowError) as error:
            failed[key] = _reason(error)
            continue
        columns = [_plain(frame[name]) for name in frame.columns]
        yield Block([key], np.array([0, len(frame)]), _names(frame), columns)


def _reason(error: Exception) -> str:
    if isinstance(error, pd.errors.EmptyDataError):
        return "it is empty"
    return " ".join(str(error).split())


def _merged(blocks: Iterable[Block]) -> list[Block]:
    """Blocks of equal names and types joined: thousands of small ones would be slow later."""
    alike: dict[tuple[object, ...], list[Block]] = {}
    for block in blocks:
        kinds = tuple(str(column.dtype) for column in block.columns)
        alike.setdefault((block.names, kinds), []).append(block)
    return [_merge(group) for group in alike.values()]


def _merge(blocks: list[Block]) -> Block:
    if len(blocks) == 1:
        return blocks[0]
    counts = np.concatenate([np.diff(block.ends) for block in blocks])
    columns = [concatenate(list(parts)) for parts in zip(*(b.columns for b in blocks), strict=True)]
    keys = [key for block in blocks for key in block.keys]
    return Block(keys, np.concatenate(([0], np.cumsum(counts))), blocks[0].names, columns)


def concatenate(parts: list[Column]) -> Column:
    """As `pd.concat`, and faster for numbers."""
    if len(parts) == 1:
        return parts[0]
    if all(part.dtype in (np.int64, np.float64) for part in parts) or (
        len({part.dtype for part in parts}) == 1 and isinstance(parts[0].dtype, np.dtype)
    ):
        return np.concatenate(parts)
    series = [pd.Series(part, copy=False) for part in parts if len(part)]
    return _plain(pd.concat(series or [pd.Series(parts[0])], ignore_index=True))
