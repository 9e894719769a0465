"""A project that says its parameters in a file: `<package>/params.py` and `<package>/job.py`.

Owns finding such a package in a folder and reading its `param2requests`, `param2default` and
`param2debug`. Importing the user's file is the only code of theirs that runs on their machine.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ludwig.client.sweep import grid
from ludwig.errors import ParameterError, UsageError

__all__ = ["Package", "find_package", "load_package"]

PARAMS, JOB = "params.py", "job.py"


@dataclass(frozen=True)
class Package:
    """A package's parameters: what is asked for, and what holds otherwise."""

    folder: Path
    requests: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    default: Mapping[str, Any] = field(default_factory=dict)
    debug: Mapping[str, Any] = field(default_factory=dict)

    @property
    def entry(self) -> str:
        """The file that is run, relative to the project."""
        return f"{self.folder.name}/{JOB}"

    def configurations(
        self, grids: Mapping[str, list[Any]], fixed: Mapping[str, Any], *, debug: bool = False
    ) -> list[dict[str, Any]]:
        """Every combination of the requests on top of the defaults; the arguments win.

        With `debug`, `param2debug` takes the place of the requests: one configuration, to try out.
        `ParameterError` for a parameter that `param2default` does not know.
        """
        base = {**self.default, **(self.debug if debug else {}), **fixed}
        requests = {} if debug else self.requests
        asked = {**{name: list(values) for name, values in requests.items()}, **grids}
        asked = {name: values for name, values in asked.items() if name not in fixed}
        for name in (*asked, *fixed):
            if self.default and name not in self.default:
                near = difflib.get_close_matches(name, self.default, n=1)
                hint = f"did you mean {near[0]!r}?" if near else "add it there."
                place = self.folder / PARAMS
                raise ParameterError(f"{name!r} is not in param2default of {place}: {hint}")
        return [{**base, **point} for point in grid(**asked)]


def find_package(root: Path) -> Path | None:
    """The one folder below `root` with both files. `UsageError` if there are several."""
    if (root / PARAMS).is_file() and (root / JOB).is_file():
        return root
    found = sorted(
        path.parent for path in root.glob(f"*/{PARAMS}") if (path.parent / JOB).is_file()
    )
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise UsageError(f"several packages here have a params.py and a job.py: {names}. Name one.")
    return found[0] if found else None


def load_package(folder: Path) -> Package:
    """Import `<package>.params` and read it. `UsageError` with what went wrong."""
    folder = folder.resolve()
    file = folder / PARAMS
    sys.path.insert(0, str(folder.parent))
    try:
        module = importlib.import_module(f"{folder.name}.params")
    except Exception as error:
        kind = type(error).__name__
        raise UsageError(
            f"{file} cannot be imported: {kind}: {error}. Does it run here?"
        ) from error
    finally:
        sys.path.remove(str(folder.parent))
    values = {}
    for name in ("param2requests", "param2default", "param2debug"):
        value = getattr(module, name, {})
        if not isinstance(value, Mapping):
            raise UsageError(f"{file}: {name} must be a dict, not a {type(value).__name__}.")
        values[name] = value
    for name, options in values["param2requests"].items():
        if not isinstance(options, (list, tuple)):
            raise UsageError(
                f"{file}: param2requests[{name!r}] must be a list of values, not {options!r}."
            )
    return Package(folder, values["param2requests"], values["param2default"], values["param2debug"])
