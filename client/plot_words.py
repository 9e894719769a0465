"""What tells configurations apart, in few words. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

__all__ = ["differing", "labels", "shared", "short"]

_VALUE = 28
_LABEL = 56


def short(value: object, limit: int = _VALUE) -> str:
    """A value as people write it; the middle of a long one is left out."""
    if isinstance(value, float):
        text = f"{value:.4g}"
    elif isinstance(value, tuple):
        text = "(" + ", ".join(short(item, limit) for item in value) + ")"
    else:
        text = str(value)
    if len(text) <= limit:
        return text
    half = (limit - 1) // 2
    return f"{text[:half]}…{text[-half:]}"


def _configurations(frame: pd.DataFrame) -> pd.DataFrame:
    params = [name for name in frame.attrs.get("params", ()) if name in frame]
    return frame.drop_duplicates("param_name")[["param_name", *params]]


def differing(frame: pd.DataFrame) -> list[str]:
    """The parameters that have more than one value in a frame of results."""
    table = _configurations(frame)
    return [name for name in table.columns[1:] if len({repr(value) for value in table[name]}) > 1]


def labels(frame: pd.DataFrame, names: Sequence[str], different: Sequence[str]) -> list[str]:
    """For each param_name the values of the parameters that differ, in the order given.

    Values alone where one parameter differs (the heading says which); no two labels are the same.
    """
    table = _configurations(frame).set_index("param_name")
    words = []
    for name in names:
        row = table.loc[name]
        values = [short(row[key]) for key in different]
        if len(different) == 1:
            words.append(values[0])
        else:
            words.append(_wrap([f"{k}={v}" for k, v in zip(different, values, strict=True)]))
    return [
        word if word and words.count(word) == 1 else f"{word} [{name}]".strip()
        for word, name in zip(words, names, strict=True)
    ]


def _wrap(parts: Sequence[str]) -> str:
    lines = [""]
    for part in parts:
        if lines[-1] and len(lines[-1]) + len(part) > _LABEL:
            lines.append("")
        lines[-1] += (", " if lines[-1] else "") + part
    return ",\n".join(lines)


def shared(frame: pd.DataFrame, limit: int = 90) -> str:
    """The parameters of the only configuration there is."""
    table = _configurations(frame)
    text = ", ".join(f"{name}={short(table[name].iloc[0])}" for name in table.columns[1:])
    return text if len(text) <= limit else text[: limit - 1] + "…"
