"""What `main(param2val)` returned becomes files: `<name>.csv` for each Series or DataFrame.

Owns the rules for what may be returned. Lies beside `child.py` and runs under the job's
interpreter, from Python 3.8 on, without `ludwig` and without importing pandas: what pandas made
can write itself.
"""

# ruff: noqa: PTH118, PTH123
from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ALLOWED = (
    "Return a list of named pandas Series, a DataFrame, a dict of either, a dict of numbers, "
    "[] or None."
)
DEVICES = {"con", "prn", "aux", "nul"} | {
    f"{port}{n}" for port in ("com", "lpt") for n in range(10)
}


class NotSavable(Exception):
    """What was returned cannot be saved. The message goes on after 'main() returned '."""


def save(returned: Any, folder: str) -> None:
    """Write each result as `<name>.csv` into the folder. Nothing is written if one cannot be."""
    tables = named_tables(returned)
    taken: dict[str, str] = {}
    for name, _ in tables:
        check_name(name)
        if name.casefold() in taken:
            other = taken[name.casefold()]
            raise NotSavable(
                f"two results named {other!r} and {name!r}, which would be one file. "
                "Give them different names."
            )
        taken[name.casefold()] = name
    for name, table in tables:
        path = os.path.join(folder, name + ".csv")
        if isinstance(table, dict):
            write_row(table, path)
        elif table.ndim == 1:
            table.to_csv(path, header=[name if table.name is None else str(table.name)])
        else:
            table.to_csv(path)


def named_tables(returned: Any) -> list[tuple[Any, Any]]:
    """Each table with the name of its file. A dict stands for a single row."""
    if returned is None:
        return []
    if is_table(returned):
        return [(returned.name if returned.ndim == 1 else "results", returned)]
    if isinstance(returned, (list, tuple)):
        return [(name_in_list(item), item) for item in returned]
    if isinstance(returned, dict):
        return tables_of_dict(returned)
    raise NotSavable(f"{kind(returned)}. {ALLOWED}")


def name_in_list(item: Any) -> Any:
    if not is_table(item):
        raise NotSavable(f"a list with {kind(item)} in it. {ALLOWED}")
    if item.ndim != 1:
        raise NotSavable(
            "a list with a DataFrame in it, which has no name. "
            'Return a dict instead: {"accuracy": frame}.'
        )
    return item.name


def tables_of_dict(returned: dict[Any, Any]) -> list[tuple[Any, Any]]:
    tables = [(name, value) for name, value in returned.items() if is_table(value)]
    if len(tables) == len(returned):
        return tables
    for name, value in returned.items():
        if not isinstance(name, str):
            raise NotSavable(f"a dict with the key {name!r}. Keys must be strings.")
        if not is_table(value) and not is_scalar(value):
            raise NotSavable(f"a dict in which {name!r} is {kind(value)}. {ALLOWED}")
        if not is_table(value) and tables:
            raise NotSavable(
                f"a dict that mixes tables and single values ({name!r} is {kind(value)}). "
                "Put the single values into a Series."
            )
    return [("results", returned)]


def is_table(value: Any) -> bool:
    """A Series or a DataFrame, judged by what it can do."""
    if isinstance(value, type) or not all(hasattr(value, x) for x in ("to_csv", "index", "ndim")):
        return False
    return hasattr(value, "name") if value.ndim == 1 else hasattr(value, "columns")


def is_scalar(value: Any) -> bool:
    if value is None or isinstance(value, (bool, int, float, str)):
        return True
    return getattr(value, "ndim", None) == 0 and hasattr(value, "item")


def kind(value: Any) -> str:
    return f"an object of type {type(value).__name__}"


def check_name(name: Any) -> None:
    """It becomes a file on the drive, which may be a Windows share."""
    if name is None:
        raise NotSavable(
            "a Series without a name. Give it one, pd.Series(values, name='accuracy'): "
            "it is also the name of its file."
        )
    if not isinstance(name, str):
        raise NotSavable(f"a result named {name!r}. Names must be strings.")
    bad = sorted({c for c in name if c in '<>:"/\\|?*' or not c.isprintable()})
    if bad:
        reason = "holds " + " ".join(repr(c) for c in bad)
    elif not name or name[0] in ". " or name[-1] in ". ":
        reason = "is empty, or begins or ends with a dot or a space"
    elif name.partition(".")[0].strip().casefold() in DEVICES:
        reason = "is the name of a device on Windows"
    elif len(name.encode("utf-8", "replace")) > 190:
        reason = "is too long"
    else:
        return
    raise NotSavable(f"a result named {name!r}, which cannot be the name of a file: it {reason}.")


def write_row(values: dict[str, Any], path: str) -> None:
    """One row with an index column, as pandas would write the same dict."""
    import csv

    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["", *values])
        row = [value.item() if hasattr(value, "item") else value for value in values.values()]
        writer.writerow([0, *row])
