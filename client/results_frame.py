"""From joined columns to the tidy frame: parameters, facts about the task, names; and summaries.

Pure: what is read, and from where, is decided before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pandas as pd

from ludwig.client.results_join import Joined
from ludwig.client.results_runs import FoundRun

__all__ = ["FACTS", "build", "keep_last", "summarize"]

Array = Any

_GPU: dict[str, str] = {
    "gpu_utilization": "utilization_mean",
    "gpu_memory": "memory_max",
    "gpu_temperature": "temperature_max",
    "gpu_power": "power_mean",
    "gpu_energy": "energy",
}

FACTS: dict[str, Callable[[FoundRun], object]] = {
    "job": lambda run: run.job,
    "task": lambda run: run.task,
    "attempt": lambda run: run.done.attempt if run.done else 0,
    "node": lambda run: run.done.host if run.done else "",
    "state": lambda run: run.done.outcome if run.done else "done",
    "duration": lambda run: run.done.seconds if run.done else np.nan,
    "cpu_seconds": lambda run: run.done.cpu_seconds if run.done else np.nan,
    "memory_max": lambda run: float(run.done.memory_max) if run.done else np.nan,
    "gpu": lambda run: ", ".join(run.done.gpu.gpus) if run.done and run.done.gpu else "",
    **{
        name: lambda run, key=key: (  # type: ignore[misc]
            float(getattr(run.done.gpu, key)) if run.done and run.done.gpu else np.nan
        )
        for name, key in _GPU.items()
    },
}
"""Columns that are there only when asked for; `gpu` brings all that begin with it. Seconds, bytes,
percent, degrees Celsius, watts, joules."""


def build(
    joined: Joined | None,
    runs: Sequence[FoundRun],
    params: Mapping[str, Mapping[str, object]],
    *,
    show_params: Iterable[str] | None,
    facts: Sequence[str],
) -> pd.DataFrame:
    """One row for each row of `joined`. `attrs` says which columns are what."""
    rows = joined.runs if joined else np.zeros(0, dtype=np.int32)
    names = sorted({run.param_name for run in runs}, key=list(params).index)
    numbers = {name: i for i, name in enumerate(names)}
    of_run = np.array([numbers[run.param_name] for run in runs], dtype=np.int32)
    of_row = of_run[rows] if len(rows) else np.zeros(0, dtype=np.int32)
    columns: dict[str, Array] = {}
    shown = _parameter_names((params[name] for name in names), show_params)
    for name in shown:
        columns[name] = _rows(_column([params[p].get(name, np.nan) for p in names]), of_row)
    columns["param_name"] = _labels(names, of_row)
    columns["job_name"] = _labels([run.job_name for run in runs], rows)
    taken = set(columns)
    for fact in _all_facts(facts):
        values = [FACTS[fact](run) for run in runs]
        columns[_free(fact, "task", taken)] = _fact_column(values, rows)
    indices: list[str] = []
    files: dict[str, list[str]] = {}
    if joined is not None:
        for name, index in joined.indices.items():
            indices.append(_free(name, "index", taken))
            columns[indices[-1]] = index
        _add_values(joined, columns, taken, files)
    frame = pd.DataFrame(columns, copy=False)
    frame.attrs = {"params": shown, "index": indices, "files": files}
    return frame


def _add_values(
    joined: Joined, columns: dict[str, Array], taken: set[str], files: dict[str, list[str]]
) -> None:
    often = Counter(name for _, name in joined.values)
    for file, name in sorted(joined.values, key=lambda key: key[0]):
        stem = str(PurePosixPath(file).with_suffix(""))
        unique = name if often[name] == 1 else f"{stem}.{name}"
        unique = _free(unique, stem, taken)
        columns[unique] = joined.values[file, name]
        files.setdefault(file, []).append(unique)


def _free(name: str, owner: str, taken: set[str]) -> str:
    """A name that no other column has: parameters keep theirs, others say whose they are."""
    while name in taken:
        name = f"{owner}.{name}"
    taken.add(name)
    return name


def _parameter_names(
    configurations: Iterable[Mapping[str, object]], chosen: Iterable[str] | None
) -> list[str]:
    names = dict.fromkeys(name for params in configurations for name in params)
    return list(names) if chosen is None else [name for name in chosen if name in names]


def _column(values: list[object]) -> Array:
    """An array of the values' own type, if they share one; else of the values themselves."""
    kinds = {type(value) for value in values}
    if kinds == {bool}:
        return np.array(values, dtype=bool)
    if kinds <= {int, float} and kinds:
        if kinds == {int} and all(-(2**63) <= v < 2**63 for v in values):  # type: ignore[operator]
            return np.array(values, dtype=np.int64)
        if float in kinds and not _loses(values):
            return np.array(values, dtype=np.float64)
    if kinds == {str}:
        return pd.array([str(value) for value in values], dtype="str")
    column = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):  # one by one: numpy would take tuples apart
        column[i] = value
    return column


def _loses(values: list[object]) -> bool:
    """Whether a whole number would not survive as a fraction, or would be one for being missing."""
    whole = [value for value in values if isinstance(value, int)]
    missing = any(value != value for value in values)
    return bool(whole) and (missing or any(abs(value) > 2**53 for value in whole))


def _rows(values: Array, rows: Array) -> Array:
    taken = values[rows]
    # A bare object array of strings and None would be taken for text, and None for missing.
    return pd.Series(taken, dtype=object, copy=False) if taken.dtype == object else taken


def _labels(names: Sequence[str], codes: Array) -> pd.Categorical:
    """Names that repeat for thousands of rows: each is stored once."""
    unique = list(dict.fromkeys(names))
    if len(unique) != len(names):
        position = {name: i for i, name in enumerate(unique)}
        codes = np.array([position[name] for name in names], dtype=np.int32)[codes]
    return pd.Categorical.from_codes(codes, pd.Index(unique, dtype="str"), validate=False)


def _all_facts(facts: Sequence[str]) -> list[str]:
    wanted = []
    for fact in facts:
        wanted += ["gpu", *_GPU] if fact == "gpu" else [fact]
    return list(dict.fromkeys(wanted))


def _fact_column(values: list[object], rows: Array) -> Array:
    if all(isinstance(value, str) for value in values):
        return _labels([str(value) for value in values], rows)
    return np.array(values)[rows] if values else np.zeros(0)


# --- shorter frames ----------------------------------------------------------------------------


def keep_last(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per run: the last value of each column that has one."""
    groups = frame.groupby(["param_name", "job_name"], observed=True, sort=False)
    values = [name for names in frame.attrs["files"].values() for name in names]
    last = groups[[*frame.attrs["index"], *values]].last()
    short = groups.head(1).set_index(["param_name", "job_name"], drop=False)
    for name in last.columns:
        short[name] = last[name].reindex(short.index)
    short = short.reset_index(drop=True)
    short.attrs = dict(frame.attrs)
    return short


def summarize(
    frame: pd.DataFrame, how: Sequence[str], *, rename: bool, per_index: bool
) -> pd.DataFrame:
    """One row per configuration and index value: statistics over its replications, and `n`.

    With `rename`, columns are called `loss_mean`, `loss_std`. Words and truth values are left out.
    """
    attrs = dict(frame.attrs)
    numeric = {
        file: [n for n in names if pd.api.types.is_numeric_dtype(frame[n])]
        for file, names in attrs["files"].items()
    }
    values = [n for names in numeric.values() for n in names if frame[n].dtype != bool]
    indices = list(attrs["index"]) if per_index else []
    keys = ["param_name", *indices]
    groups = frame.groupby(keys, observed=True, sort=False, dropna=False)
    counted = groups["job_name"].nunique().rename("n")
    parts = [_statistic(groups[values], one, rename) for one in how] if values else []
    table = pd.concat([counted, *parts], axis=1).reset_index()
    configurations = frame.drop_duplicates("param_name")[["param_name", *attrs["params"]]]
    position = {name: i for i, name in enumerate(configurations["param_name"])}
    rows = np.array([position[name] for name in table["param_name"]], dtype=np.int64)
    columns = {
        name: configurations[name].iloc[rows].reset_index(drop=True) for name in attrs["params"]
    }
    for name in table.columns:
        columns[str(name)] = table[name]
    result = pd.DataFrame(columns, copy=False)
    shown = {
        file: [_renamed(n, one, rename) for n in names if n in values for one in how]
        for file, names in numeric.items()
    }
    result.attrs = {**attrs, "index": indices, "files": {f: n for f, n in shown.items() if n}}
    return result


def _renamed(name: str, how: str, rename: bool) -> str:
    return f"{name}_{how}" if rename else name


def _statistic(groups: Any, how: str, rename: bool) -> pd.DataFrame:
    table: pd.DataFrame = groups.agg(how)
    return table.rename(columns={n: _renamed(n, how, rename) for n in table.columns})
