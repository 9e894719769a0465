"""One picture of a frame of results: learning curves, one panel per file.

A colour for each configuration, the mean as a line and a band of one standard error over its
replications; the legend names only the parameters that differ. Draws into a figure of its own and
leaves matplotlib's global state alone; imports matplotlib only when asked to draw.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ludwig import errors
from ludwig.client.plot_words import differing, labels, shared

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_results", "save_plot"]

_COLOURS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#8c6bb1",
    "#b8860b",
    "#56b4e9",
    "#7f7f7f",
    "#222222",
    "#8b4513",
    "#a6c83c",
    "#e7298a",
)
"""Told apart also by people who do not see all colours; more configurations get a colour map."""
_INK, _QUIET, _GRID = "#222222", "#6b6b6b", "#e6e6e6"
_PANEL = (5.2, 3.4)
_LEGEND_LINES = 24


def save_plot(frame: pd.DataFrame, path: Path | str, **options: Any) -> Path:
    """Draw and write a picture; its ending (.png, .pdf, .svg) says which kind."""
    target = Path(path)
    figure = plot_results(frame, **options)
    try:
        figure.savefig(target, dpi=160)
    except ValueError as error:
        raise errors.UsageError(f"{target.name}: {error}") from error
    return target


def plot_results(
    frame: pd.DataFrame,
    *,
    columns: Sequence[str] | None = None,
    title: str | None = None,
) -> Figure:
    """The curves of a frame of `read_results`. `columns` chooses values; normally all numbers.

    `UsageError` if there is nothing to draw.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = _panels(frame, columns)
    names = list(dict.fromkeys(frame["param_name"].astype(str)))
    different = differing(frame)
    words = labels(frame, names, different)
    across = 1 if len(panels) == 1 else 2 if len(panels) in (2, 4) else min(3, len(panels))
    down = math.ceil(len(panels) / across)
    show_legend = len(names) > 1
    legend_width = _legend_width(words) if show_legend else 0.0
    width, height = across * _PANEL[0] + legend_width, down * _PANEL[1] + 0.6
    if show_legend:
        height = max(height, 0.21 * min(len(names), _LEGEND_LINES) + 1.3)
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.subplots(down, across, squeeze=False).ravel()
    colours = _colours(len(names))
    for axis, (column, index) in zip(axes, panels, strict=False):
        _draw(axis, frame, column, index=index, names=names, colours=colours)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    points = all(_is_single_point(frame, column, index) for column, index in panels)
    _explain(figure, frame, title=title, names=names, mark="bar" if points else "band")
    if show_legend:
        _legend(figure, words, colours, different[0] if len(different) == 1 else "")
    return figure


def _panels(frame: pd.DataFrame, columns: Sequence[str] | None) -> list[tuple[str, str | None]]:
    """What to draw, each with its index column; values that are not numbers have no curve."""
    shown = [name for names in frame.attrs.get("files", {}).values() for name in names]
    for name in columns or ():
        if name not in shown:
            raise errors.UsageError(f"There are no values {name!r}. There are: {', '.join(shown)}.")
    panels = []
    for name in columns or shown:
        if name in frame and pd.api.types.is_numeric_dtype(frame[name]):
            panels.append((name, _index_of(frame, name)))
    if not panels:
        raise errors.UsageError("There is nothing to draw: no numbers in these results yet.")
    return panels


def _index_of(frame: pd.DataFrame, column: str) -> str | None:
    """The index on which a column has its values; None if it is not numbers."""
    there = frame[column].notna()
    for name in frame.attrs.get("index", ()):
        if name in frame and frame.loc[there, name].notna().any():
            return name if pd.api.types.is_numeric_dtype(frame[name]) else None
    return None


def _draw(
    axis: Axes,
    frame: pd.DataFrame,
    column: str,
    *,
    index: str | None,
    names: Sequence[str],
    colours: Sequence[Any],
) -> None:
    single = _is_single_point(frame, column, index)
    many = len(names) > 8
    for number, (name, colour) in enumerate(zip(names, colours, strict=True)):
        rows = frame[(frame["param_name"] == name) & frame[column].notna()]
        if single:
            _draw_points(axis, rows[column].astype(float), number, colour)
            continue
        values = rows[column].astype(float)
        at = rows[index] if index else _row_numbers(rows)
        groups = values.groupby(at.to_numpy())
        mean, error = groups.mean(), groups.sem().fillna(0.0)
        marker = "o" if len(mean) <= 12 else ""
        width = 1.4 if many else 1.9
        axis.plot(mean.index, mean, color=colour, linewidth=width, marker=marker, markersize=4)
        if (error > 0).any():
            low, high = mean - error, mean + error
            alpha = 0.10 if many else 0.18
            axis.fill_between(mean.index, low, high, color=colour, alpha=alpha, linewidth=0)
    _dress(axis, column, index="" if single else index or "row")
    if single:
        axis.set_xticks([])
        axis.set_xlim(-0.6, len(names) - 0.4)


def _row_numbers(rows: pd.DataFrame) -> pd.Series:
    by = "job_name" if "job_name" in rows else "param_name"
    return rows.groupby(by, observed=True).cumcount()


def _is_single_point(frame: pd.DataFrame, column: str, index: str | None) -> bool:
    there = frame[frame[column].notna()]
    most = there.groupby("job_name", observed=True).size().max() if "job_name" in there else None
    if most is None:
        most = there[index].nunique() if index else len(there)
    return bool(most <= 1)


def _draw_points(axis: Axes, values: pd.Series[float], number: int, colour: Any) -> None:
    """One value per run: all of them, side by side, and their mean."""
    if values.empty:
        return
    spread = np.linspace(-0.16, 0.16, len(values)) if len(values) > 1 else np.zeros(1)
    axis.plot(number + spread, values, "o", color=colour, alpha=0.45, markersize=5, mew=0)
    error = float(values.std()) / len(values) ** 0.5 if len(values) > 1 else 0.0
    axis.errorbar(
        [number],
        [float(values.mean())],
        yerr=[error],
        fmt="_",
        color=colour,
        markersize=20,
        mew=2.4,
    )


def _dress(axis: Axes, column: str, *, index: str) -> None:
    axis.set_title(column, loc="left", fontsize=11, color=_INK, fontweight="bold")
    axis.set_xlabel(index, fontsize=9, color=_QUIET)
    axis.grid(True, color=_GRID, linewidth=0.8)
    axis.set_axisbelow(True)
    axis.tick_params(labelsize=8.5, colors=_QUIET, length=0)
    axis.margins(x=0.02, y=0.08)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    axis.spines["bottom"].set_color("#bbbbbb")


def _explain(
    figure: Figure, frame: pd.DataFrame, *, title: str | None, names: Sequence[str], mark: str
) -> None:
    parts = [title] if title else []
    if len(names) == 1 and (same := shared(frame)):
        parts.append(same)
    if "job_name" in frame:
        pairs = frame[["param_name", "job_name"]].drop_duplicates()
        counts = pairs.groupby("param_name", observed=True).size()
        low, high = int(counts.min()), int(counts.max())
        runs = f"{low}" if low == high else f"{low}–{high}"
        words = f"{runs} {'run' if high == 1 else 'runs'}{' each' if len(names) > 1 else ''}"
        parts.append(f"{words}, {mark}: ±1 standard error" if high > 1 else words)
    figure.suptitle("  ·  ".join(parts), fontsize=9.5, color=_QUIET, x=0.01, ha="left")


def _legend(figure: Figure, words: Sequence[str], colours: Sequence[Any], heading: str) -> None:
    from matplotlib.lines import Line2D

    lines = [Line2D([], [], color=colour, linewidth=2.6) for colour in colours]
    shown = list(words)
    if len(shown) > _LEGEND_LINES:
        left = len(shown) - _LEGEND_LINES + 1
        lines, shown = lines[: _LEGEND_LINES - 1], shown[: _LEGEND_LINES - 1]
        lines.append(Line2D([], [], linewidth=0))
        shown.append(f"… and {left} more")
    legend = figure.legend(
        lines,
        shown,
        loc="outside right upper",
        title=heading,
        fontsize=8.5,
        title_fontsize=8.5,
        frameon=False,
        labelcolor=_INK,
        alignment="left",
        handlelength=1.4,
    )
    legend.get_title().set_color(_QUIET)


def _legend_width(words: Sequence[str]) -> float:
    return 0.7 + 0.066 * max(len(line) for word in words for line in word.split("\n"))


def _colours(count: int) -> list[Any]:
    if count <= len(_COLOURS):
        return list(_COLOURS[:count])
    from matplotlib import colormaps

    # From dark to light, but never so light that a line is lost on white.
    return [colormaps["turbo"](x) for x in np.linspace(0.04, 0.96, count)]
