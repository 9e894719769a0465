"""What the old system left in `runs/`, and how its configurations are recognised.

LudwigCluster numbered configurations without an index: `runs/param_1/param2val.yaml` was all there
was. Each gets its place in the plans once, under the name it has, so that numbers stay as they are.
Nothing of the old files is executed, changed or moved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ludwig import codec, errors, layout
from ludwig.client.sweep import Configuration
from ludwig.drive import Drive
from ludwig.registry import Registry

__all__ = ["known_as", "legacy_names", "loose_hash"]


def legacy_names(drive: Drive, registry: Registry) -> dict[str, str]:
    """Configurations in `runs/` that no plan knows: param_name → hash.

    The number of one that cannot be read (a numpy object, a half-written file) stays taken.
    """
    files = layout.project_files(registry.project)
    try:
        found = drive.list(files.runs)
    except errors.NotFound:
        return {}
    names: dict[str, str] = {}
    for name in sorted(found):
        if layout.parse_param(name) is None or name in registry.names:
            continue
        path = files.param2val(name)
        try:
            names[name] = loose_hash(codec.from_yaml(drive.read(path), path))
        except (errors.NotFound, errors.WrongKind, errors.Malformed, errors.ParameterError):
            names[name] = codec.sha256(f"unreadable {name}".encode())
    return names


def known_as(configurations: Sequence[Configuration], registry: Registry) -> list[Configuration]:
    """The configurations under the hashes by which the project knows them.

    That is another one for a configuration of the old system which had lists where there are tuples
    now, or the other way round. Of several that would be one and the same, the first is meant.
    """
    if not registry.imported:
        return list(configurations)
    known = set(registry.names.values())
    imported = {registry.names[name] for name in registry.imported}
    taken = {one.hash for one in configurations}
    result: list[Configuration] = []
    for one in configurations:
        loose = one.hash if one.hash in known else loose_hash(one.params)
        if loose not in taken and loose in imported:
            one = one._replace(hash=loose)
            taken.add(loose)
        result.append(one)
    return result


def loose_hash(params: Mapping[str, Any]) -> str:
    """As `codec.params_hash`, but a tuple is the same as a list."""
    return codec.params_hash({key: _listed(value) for key, value in params.items()})


def _listed(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_listed(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _listed(item) for key, item in value.items()}
    return value
