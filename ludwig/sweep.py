"""How requested values over defaults become a list of configurations. Pure, standard library."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from ludwig.errors import ParameterError

__all__ = ["expand"]


def expand(
    param2requests: Mapping[str, Sequence[Any]], param2default: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Every combination of the requested values; all other parameters have their default.

    In the order of the requests, the last one changing fastest; keys in the order of the defaults.
    `ParameterError` for a parameter that has no default, or values that are not a list.
    """
    for name, values in param2requests.items():
        if name not in param2default:
            near = difflib.get_close_matches(str(name), [str(key) for key in param2default], n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ParameterError(f"{name!r} is requested but has no default.{hint}")
        if not isinstance(values, (list, tuple)):
            raise ParameterError(
                f"the request for {name!r} is a {type(values).__name__}; give a list of values."
            )
    return [
        {**param2default, **dict(zip(param2requests, values, strict=True))}
        for values in itertools.product(*param2requests.values())
    ]
