"""The two configuration files: a lab's `ludwig.toml` and an agent's `worker.toml`.

Owns where the files are found and how they go together; `config_keys.py` says what is in them. A
key that is not known, a value of the wrong type or out of range, is a `ConfigError` that names the
file and the key. Every key can be given by an environment variable (`describe_keys`), which wins
over the file. No password is ever read from a file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from ludwig import settings
from ludwig.config_keys import DriveConfig, LabConfig, NodeConfig, WorkerConfig, short_hostname
from ludwig.errors import ConfigError, NameNotAllowed
from ludwig.layout import check_host

__all__ = [
    "LAB_FILE",
    "WORKER_FILE",
    "DriveConfig",
    "KeyDoc",
    "LabConfig",
    "NodeConfig",
    "WorkerConfig",
    "describe_keys",
    "find_lab_config",
    "load_lab",
    "load_worker",
    "user_lab_config",
]

LAB_FILE = "ludwig.toml"
WORKER_FILE = Path("/etc/ludwig/worker.toml")


_DRIVE_KEYS = {item.name: "[drive]" for item in fields(DriveConfig)}
_NODE_KEYS = {"address": "[nodes.NAME]"}


def user_lab_config() -> Path:
    """The lab's file in the user's configuration folder, whether or not it is there."""
    from platformdirs import user_config_path

    return user_config_path("ludwig", appauthor=False) / LAB_FILE


def _near_files(start: Path | None) -> Iterator[Path]:
    """`ludwig.toml` in this folder and its parents, nearest first."""
    here = (start or Path.cwd()).absolute()
    for folder in (here, *here.parents):
        if _is_file(folder / LAB_FILE):
            yield folder / LAB_FILE


def _is_file(path: Path) -> bool:
    """A folder that may not be looked into holds no configuration for this user."""
    try:
        return path.is_file()
    except OSError:
        return False


def _is_lab(table: Mapping[str, object]) -> bool:
    return "drive" in table or "nodes" in table


def find_lab_config(
    start: Path | None = None, *, environ: Mapping[str, str] = os.environ
) -> Path | None:
    """The file with the lab's drive and nodes, or None.

    `LUDWIG_CONFIG`, else the first `ludwig.toml` with `[drive]` or `[nodes]` in this folder or a
    parent, else the one in the user's configuration folder. One that only names a project is
    passed over.
    """
    if environ.get("LUDWIG_CONFIG"):
        return settings.expand(environ["LUDWIG_CONFIG"], Path.cwd())
    for path in (*_near_files(start), user_lab_config()):
        if _is_file(path) and _is_lab(settings.read_toml(path)):
            return path
    return None


def _near_project(start: Path | None) -> tuple[Path, dict[str, Any]] | None:
    """The nearest file that names a project."""
    for path in _near_files(start):
        table = settings.read_toml(path)
        if "project" in table:
            return path, table
    return None


def load_lab(
    path: Path | None = None,
    *,
    start: Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> LabConfig:
    """The lab's configuration from `path`, else from where `find_lab_config` finds it.

    The project is the one that the nearest `ludwig.toml` names, from `start` (default: the current
    folder) upwards, even when drive and nodes come from another file.
    """
    file = path or find_lab_config(start, environ=environ)
    if file is None and not environ.get("LUDWIG_DRIVE_URL"):
        raise ConfigError(
            f"No lab configuration found: looked at LUDWIG_CONFIG, for {LAB_FILE} with a [drive] "
            f"in {(start or Path.cwd()).absolute()} and its parents, and for {user_lab_config()}. "
            "Write one with `ludwig init`, or ask for your lab's."
        )
    table = settings.read_toml(file) if file else {}
    near = _near_project(start) if path is None else None
    for source, content in ((file, table), near or (None, {})):
        _lab_keys(source, content, {})
    named, content = near or (file, table)
    return LabConfig(
        **_lab_keys(named, content, environ),
        drive=_drive(table, file, environ),
        nodes=_nodes(table.get("nodes", {}), file, environ),
        path=file,
    )


def _lab_keys(file: Path | None, table: object, environ: Mapping[str, str]) -> dict[str, Any]:
    return settings.build(
        LabConfig,
        table,
        file=file,
        section="",
        environ=environ,
        sections=("drive", "nodes"),
        elsewhere={**_DRIVE_KEYS, **_NODE_KEYS},
    )


def _drive(
    table: Mapping[str, object], file: Path | None, environ: Mapping[str, str]
) -> DriveConfig:
    values = settings.build(
        DriveConfig, table.get("drive", {}), file=file, section="drive", environ=environ
    )
    if values.get("mount") is None and "://" not in values["url"]:
        values["mount"] = Path(values["url"])
    return DriveConfig(**values)


def _nodes(
    tables: object, file: Path | None, environ: Mapping[str, str]
) -> Mapping[str, NodeConfig]:
    """By name. `LUDWIG_NODES` (comma-separated) restricts them, or names them without a file."""
    if not isinstance(tables, dict):
        raise ConfigError(f"{file}: nodes must be tables, [nodes.NAME].")
    wanted = [name.strip() for name in environ.get("LUDWIG_NODES", "").split(",") if name.strip()]
    nodes: dict[str, NodeConfig] = {}
    for name, table in tables.items():
        _check_node_name(name, nodes, file)
        nodes[name] = _node(name, table, file, environ)
    for name in wanted:
        if name not in nodes:
            _check_node_name(name, nodes, None)
            nodes[name] = _node(name, {}, None, environ)
    return {name: nodes[name] for name in wanted or nodes}


def _check_node_name(name: str, others: Mapping[str, object], file: Path | None) -> None:
    place = f"{file}: [nodes.{name}]" if file else "environment variable LUDWIG_NODES"
    try:
        check_host(name)
    except NameNotAllowed as error:
        raise ConfigError(f"{place}: {error}") from error
    for other in others:
        if other.casefold() == name.casefold():
            raise ConfigError(
                f"{place}: differs from '{other}' by case alone; the drive cannot tell them apart."
            )


def _node(name: str, table: object, file: Path | None, environ: Mapping[str, str]) -> NodeConfig:
    variable = re.sub(r"[^A-Z0-9]", "_", name.upper())
    if isinstance(table, dict):
        table = {"address": name, **table}
    values = settings.build(
        NodeConfig,
        table,
        file=file,
        section=f"nodes.{name}",
        environ=environ,
        elsewhere=_DRIVE_KEYS,
        env_name=lambda pattern: pattern.replace("<NAME>", variable),
    )
    return NodeConfig(**values)


def load_worker(
    path: Path | None = None, *, environ: Mapping[str, str] = os.environ
) -> WorkerConfig:
    """An agent's configuration from `path`, else `LUDWIG_WORKER_CONFIG`, else `WORKER_FILE`.

    The file may be missing when it was not asked for and the environment names a drive.
    """
    file: Path | None = path
    if file is None and environ.get("LUDWIG_WORKER_CONFIG"):
        file = settings.expand(environ["LUDWIG_WORKER_CONFIG"], Path.cwd())
    if file is None and (_is_file(WORKER_FILE) or not environ.get("LUDWIG_DRIVE_URL")):
        file = WORKER_FILE
    table = settings.read_toml(file) if file else {}
    values = settings.build(
        WorkerConfig,
        table,
        file=file,
        section="",
        environ=environ,
        sections=("drive",),
        elsewhere=_DRIVE_KEYS,
    )
    if "hostname" not in values:
        try:
            check_host(short_hostname())
        except NameNotAllowed as error:
            raise ConfigError(f"{file}: hostname is missing, and the machine's: {error}") from error
    return WorkerConfig(**values, drive=_drive(table, file, environ), path=file)


class KeyDoc(NamedTuple):
    """One key of a file, for documentation and `--help`."""

    file: str
    section: str
    key: str
    kind: str
    default: str
    env: str
    about: str
    required: bool


def describe_keys() -> list[KeyDoc]:
    """Every key of both files, in the order of the files."""
    places: list[tuple[str, str, Any]] = [
        (LAB_FILE, "", LabConfig),
        (LAB_FILE, "drive", DriveConfig),
        (LAB_FILE, "nodes.NAME", NodeConfig),
        (WORKER_FILE.name, "", WorkerConfig),
        (WORKER_FILE.name, "drive", DriveConfig),
    ]
    docs = []
    for file, section, cls in places:
        for item in fields(cls):
            if kind := settings.kind_of(item):
                default = settings.shown_default(item)
                about, env = item.metadata["about"], item.metadata["env"]
                docs.append(
                    KeyDoc(file, section, item.name, kind.words, default, env, about, default == "")
                )
    return docs
