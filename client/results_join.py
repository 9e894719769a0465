"""Columns of many files to one table: a row for each run and index value.

Files of one run are joined on their index. Indices of different names have nothing to do with each
other: their rows follow one another. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ludwig.client.results_parse import UNNAMED_INDEX, Block, concatenate

__all__ = ["Joined", "Placed", "join"]

Array = Any


@dataclass(frozen=True)
class Placed:
    """One file: of which run it is, and where its rows are."""

    run: int
    file: str
    block: Block
    position: int


@dataclass
class Table:
    """The files of one name and header, in the order of their runs."""

    file: str
    index_name: str
    runs: Array
    index: Array
    values: dict[str, Array]


@dataclass
class Joined:
    runs: Array
    """For each row the number of its run."""
    indices: dict[str, Array]
    values: dict[tuple[str, str], Array]
    """By file and column."""


def join(files: Sequence[Placed]) -> Joined:
    groups: dict[tuple[str, tuple[str, ...]], list[Placed]] = {}
    for file in files:
        groups.setdefault((file.file, file.block.names), []).append(file)
    by_index: dict[str, list[Table]] = {}
    for group in groups.values():
        table = _table(group)
        by_index.setdefault(table.index_name, []).append(table)
    parts = [_join_tables(tables) for tables in by_index.values()]
    return parts[0] if len(parts) == 1 else _stack(parts)


def _table(files: list[Placed]) -> Table:
    block = files[0].block
    spans = _spans(files)
    columns = [
        concatenate([b.columns[i][b.ends[first] : b.ends[last]] for b, first, last in spans])
        for i in range(len(block.names))
    ]
    counts = np.concatenate([np.diff(b.ends[first : last + 1]) for b, first, last in spans])
    runs = np.repeat(np.array([file.run for file in files], dtype=np.int32), counts)
    names = block.names
    if len(names) == 1:  # values alone: their line numbers are the index
        starts = np.cumsum(counts) - counts
        index = np.arange(len(runs)) - np.repeat(starts, counts)
        return Table(files[0].file, UNNAMED_INDEX, runs, index, {names[0]: columns[0]})
    values = dict(zip(names[1:], columns[1:], strict=True))
    return Table(files[0].file, names[0], runs, columns[0], values)


def _spans(files: list[Placed]) -> list[tuple[Block, int, int]]:
    """Runs of neighbours in one block: (block, first file, last file + 1)."""
    spans: list[tuple[Block, int, int]] = []
    for file in files:
        if spans and spans[-1][0] is file.block and spans[-1][2] == file.position:
            spans[-1] = (file.block, spans[-1][1], file.position + 1)
        else:
            spans.append((file.block, file.position, file.position + 1))
    return spans


def _join_tables(tables: list[Table]) -> Joined:
    first = tables[0]
    if all(_same_rows(first, other) for other in tables[1:]):
        values = {(t.file, name): v for t in tables for name, v in t.values.items()}
        return Joined(first.runs, {first.index_name: first.index}, values)
    codes, different = pd.factorize(concatenate([t.index for t in tables]))
    codes = _in_order(codes, different)
    runs = np.concatenate([t.runs for t in tables]).astype(np.int64)
    sizes = [len(t.runs) for t in tables]
    # The n-th time a value comes in a file of a run meets the n-th time in its other files.
    again = np.concatenate(
        [_occurrence(r, c) for r, c in zip(_split(runs, sizes), _split(codes, sizes), strict=True)]
    )
    keys = runs * (len(different) + 1) + codes + 1
    if again.any():
        keys = keys * (int(again.max()) + 1) + again
    rows, origin, where = np.unique(keys, return_index=True, return_inverse=True)
    index = concatenate([t.index for t in tables])[origin]
    values = _scatter(tables, _split(where, sizes), len(rows))
    return Joined(runs[origin].astype(np.int32), {first.index_name: index}, values)


def _same_rows(one: Table, other: Table) -> bool:
    if one.file == other.file or len(one.runs) != len(other.runs):
        return False
    if not np.array_equal(one.runs, other.runs) or one.index.dtype != other.index.dtype:
        return False
    return bool(pd.Series(one.index).equals(pd.Series(other.index)))


def _in_order(codes: Array, different: Array) -> Array:
    """Numbers ascending; anything else as it first came."""
    if getattr(different, "dtype", None) not in (np.int64, np.float64):
        return codes
    rank = np.empty(len(different) + 1, dtype=np.int64)
    rank[np.argsort(different, kind="stable")] = np.arange(len(different))
    rank[-1] = -1
    return rank[codes]


def _occurrence(runs: Array, codes: Array) -> Array:
    pairs = pd.DataFrame({"run": runs, "code": codes})
    if not pairs.duplicated().any():
        return np.zeros(len(runs), dtype=np.int64)
    return pairs.groupby(["run", "code"], sort=False).cumcount().to_numpy()


def _split(array: Array, sizes: list[int]) -> list[Array]:
    return np.split(array, np.cumsum(sizes)[:-1])


def _scatter(tables: list[Table], where: list[Array], length: int) -> dict[tuple[str, str], Array]:
    """Values to their rows; where a run has none, they are missing."""
    parts: dict[tuple[str, str], list[tuple[Array, Array]]] = {}
    for table, rows in zip(tables, where, strict=True):
        for name, values in table.values.items():
            parts.setdefault((table.file, name), []).append((rows, values))
    scattered = {}
    for key, pieces in parts.items():
        rows = np.concatenate([rows for rows, _ in pieces])
        source = np.full(length, -1, dtype=np.int64)
        source[rows] = np.arange(len(rows))
        scattered[key] = take(concatenate([values for _, values in pieces]), source)
    return scattered


def take(values: Array, rows: Array) -> Array:
    """The values of these rows; -1 is missing. Whole numbers become fractions only then."""
    if not len(rows) or rows.min() >= 0:
        return values[rows]
    series = pd.Series(values, copy=False)
    taken = series.reindex(pd.Index(rows))
    return taken.to_numpy() if isinstance(taken.dtype, np.dtype) else taken.array


def _stack(parts: list[Joined]) -> Joined:
    runs = np.concatenate([part.runs for part in parts])
    order = np.argsort(runs, kind="stable")
    starts = np.cumsum([0, *(len(part.runs) for part in parts)])
    indices: dict[str, Array] = {}
    values: dict[tuple[str, str], list[tuple[int, Array]]] = {}
    for number, part in enumerate(parts):
        for name, index in part.indices.items():
            indices[name] = take(index, _rows_of(starts, number)[order])
        for key, column in part.values.items():
            values.setdefault(key, []).append((number, column))
    return Joined(
        runs[order],
        indices,
        {key: _stack_column(pieces, starts)[order] for key, pieces in values.items()},
    )


def _rows_of(starts: Array, number: int) -> Array:
    rows = np.full(starts[-1], -1, dtype=np.int64)
    size = starts[number + 1] - starts[number]
    rows[starts[number] : starts[number + 1]] = np.arange(size)
    return rows


def _stack_column(pieces: list[tuple[int, Array]], starts: Array) -> Array:
    rows = np.full(starts[-1], -1, dtype=np.int64)
    done = 0
    for number, column in pieces:
        rows[starts[number] : starts[number + 1]] = np.arange(done, done + len(column))
        done += len(column)
    return take(concatenate([column for _, column in pieces]), rows)
