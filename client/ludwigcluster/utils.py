"""`list_all_param2vals`: every configuration of a sweep, as a list of dicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ludwig.errors import ParameterError
from ludwig.sweep import expand

__all__ = ["list_all_param2vals"]

Requests = Mapping[str, Sequence[Any]]


def list_all_param2vals(
    params: type | Requests,
    param2default: Mapping[str, Any] | None = None,
    *,
    update_d: Mapping[str, Any] | None = None,
    add_names: bool = True,
) -> list[dict[str, Any]]:
    """All combinations of the lists that are the attributes of a class, or the values of a dict.

    Attributes whose names begin with `_` are skipped. With a dict, `param2default` completes each
    combination; `list_all_param2vals(ParamsClass, {…})` means `update_d`, as its second argument
    did. `update_d` goes into every configuration, last; before it `param_name` and `job_name` as
    None (Ludwig fills them in), unless `add_names` is false.
    """
    if isinstance(params, Mapping):
        if param2default is None:
            raise ParameterError("list_all_param2vals: a dict of requests needs param2default.")
        points = expand(params, param2default)
    else:
        lists = {name: value for name, value in vars(params).items() if name[:1] != "_"}
        points = expand(lists, lists)
        update_d = update_d if update_d is not None else param2default
    names = {"param_name": None, "job_name": None} if add_names else {}
    return [{**point, **names, **(update_d or {})} for point in points]
