"""Results for other programs and for the terminal: CSV, Parquet, and a short table.

What is written can be read with a bare `pd.read_csv`: a tuple or a list is written as Python writes
it, and nothing needs an option to be parsed.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from ludwig import errors
from ludwig.client.plot_words import differing, short
from ludwig.client.results_frame import keep_last

__all__ = ["LastValues", "export_results", "last_values_table"]

_LOWER_IS_BETTER = (
    "loss", "error", "err", "perplexity", "ppl", "mse", "rmse", "mae", "nll", "xe",
    "cross_entropy", "entropy", "distance", "divergence", "wer", "cer", "seconds", "time",
)  # fmt: skip
ENDINGS = (".csv", ".csv.gz", ".parquet")


def export_results(frame: pd.DataFrame, path: Path | str) -> Path:
    """Write a frame of results; the ending says how. The file is there whole or not at all."""
    target = Path(path)
    ending = next((e for e in ENDINGS if target.name.lower().endswith(e)), None)
    if ending is None:
        raise errors.UsageError(
            f"{target.name}: results are written as {', '.join(ENDINGS)}. Use one of these endings."
        )
    plain = _plain(frame)
    temporary = target.with_name(f".{secrets.token_hex(6)}{ending}")
    try:
        if ending == ".parquet":
            plain.to_parquet(temporary, index=False)
        else:
            plain.to_csv(temporary, index=False)
        temporary.replace(target)
    except ImportError as error:
        raise errors.UsageError(
            f"{target.name}: Parquet needs pyarrow: pip install 'ludwigcluster[fast]'."
        ) from error
    except OSError as error:
        raise errors.UsageError(f"{target} cannot be written: {error.strerror}.") from error
    finally:
        temporary.unlink(missing_ok=True)
    return target


def _plain(frame: pd.DataFrame) -> pd.DataFrame:
    """Numbers, truth values and text only."""
    columns = {}
    for name in frame.columns:
        column = frame[name]
        if isinstance(column.dtype, pd.CategoricalDtype):
            column = column.astype("str")
        elif column.dtype == object:
            column = column.map(_text).astype("str")
        columns[name] = column
    return pd.DataFrame(columns)


def _text(value: object) -> object:
    if isinstance(value, float) and value != value:
        return None  # missing; None itself is written as None
    return value if isinstance(value, str) else str(value)


class LastValues(NamedTuple):
    """A table for the terminal: text only, best row first."""

    columns: list[str]
    rows: list[list[str]]
    sorted_by: str
    lowest_first: bool
    more: int
    """How many rows were left out."""


def last_values_table(
    frame: pd.DataFrame,
    *,
    by: str | None = None,
    lowest_first: bool | None = None,
    limit: int = 20,
) -> LastValues:
    """One row per configuration: the parameters that differ, and the last values of its runs.

    Values are means over runs, ± the standard error. Sorted `by` a column of values (the first one
    with numbers); whether low is good is told from its name (loss, error, …) unless given.
    """
    if frame.empty or not frame.attrs.get("files"):
        return LastValues([], [], "", False, 0)
    last = keep_last(frame) if "job_name" in frame else _last_rows(frame)
    values = [
        name
        for names in frame.attrs["files"].values()
        for name in names
        if name in last and pd.api.types.is_numeric_dtype(last[name])
    ]
    if by is not None and by not in values:
        raise errors.UsageError(f"There are no values {by!r}. There are: {', '.join(values)}.")
    shown = differing(frame)
    by_name = {str(name): rows for name, rows in last.groupby("param_name", observed=True)}
    order = list(dict.fromkeys(last["param_name"].astype(str)))
    key = by or (values[0] if values else "")
    low = lower_is_better(key) if lowest_first is None else lowest_first
    if key:
        order.sort(key=lambda name: _rank(by_name[name][key].mean(), low))
    rows = [
        [
            name,
            *(short(by_name[name][parameter].iloc[0]) for parameter in shown),
            str(by_name[name]["n"].max() if "n" in last else len(by_name[name])),
            *(_with_error(by_name[name][value]) for value in values),
        ]
        for name in order[:limit]
    ]
    columns = ["param_name", *shown, "n", *values]
    return LastValues(columns, rows, key, low, max(0, len(order) - limit))


def lower_is_better(name: str) -> bool:
    """Told from a name: `valid_loss` yes, `accuracy` no."""
    words = name.lower().replace("-", "_").replace(".", "_").replace(" ", "_")
    parts = words.split("_")
    return any(word in parts or ("_" in word and word in words) for word in _LOWER_IS_BETTER)


def _last_rows(frame: pd.DataFrame) -> pd.DataFrame:
    rows = frame.groupby("param_name", observed=True, sort=False).tail(1)
    rows.attrs = dict(frame.attrs)
    return rows


def _rank(mean: float, low: bool) -> tuple[bool, float]:
    """Missing values come last, whichever way round."""
    return mean != mean, mean if low else -mean


def _with_error(values: pd.Series[float]) -> str:
    mean = float(values.mean())
    if mean != mean:
        return "–"
    error = float(values.astype(float).std(ddof=1)) / max(1, values.count()) ** 0.5
    if error != error or error == 0:
        return f"{mean:.4g}"
    return f"{mean:.4g} ± {error:.2g}"
