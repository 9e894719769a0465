"""The inventory of a lab, `lab.toml`: which machines there are, and what scripts are told there.

Owns the keys of that file. Every mistake in it is an error: a key that nobody knows would silently
do nothing.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NAME = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9._-]{0,30}[a-zA-Z0-9])?")


class Wrong(Exception):
    """A mistake in the inventory or on the command line."""


@dataclass(frozen=True)
class Target:
    """A machine, and how it is reached."""

    name: str
    ssh: str
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Lab:
    """The inventory."""

    server: Target
    nodes: list[Target]
    keys: Path
    per_member: bool
    wheelhouse: Path | None

    @property
    def members(self) -> list[str]:
        return sorted(path.stem for path in self.keys.glob("*.pub"))

    @property
    def drive(self) -> str:
        host = self.server.settings.get("host") or self.server.ssh.rpartition("@")[2]
        port = self.server.settings.get("port")
        share = self.server.settings.get("share", "research_data")
        return f"smb://{host}{f':{port}' if port else ''}/{share}"


SERVER_KEYS = {"ssh", "host", "port", "folder", "share", "options"}
LAB_KEYS = {"keys", "accounts", "wheelhouse"}
NODE_KEYS = {"ssh", "mount", "job_python", "slots", "options", "worker"}


def read_lab(path: Path) -> Lab:
    """The inventory, or `Wrong`: an unknown key would silently do nothing."""
    try:
        data = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise Wrong(f"there is no {path}: copy deploy/lab.toml and change it") from None
    except tomllib.TOMLDecodeError as error:
        raise Wrong(f"{path}: {error}") from None
    _only(path, "the file", data, {"server", "lab", "defaults", "nodes"})
    server, lab = data.get("server", {}), data.get("lab", {})
    _only(path, "[server]", server, SERVER_KEYS)
    _only(path, "[lab]", lab, LAB_KEYS)
    defaults = data.get("defaults", {})
    _only(path, "[defaults]", defaults, NODE_KEYS - {"ssh"})
    nodes = []
    for name, own in data.get("nodes", {}).items():
        if not NAME.fullmatch(name):
            raise Wrong(f"{path}: [nodes.{name}] is not a name for a machine")
        _only(path, f"[nodes.{name}]", own, NODE_KEYS)
        nodes.append(Target(name, own.get("ssh", name), {**defaults, **own}))
    if "ssh" not in server or not nodes:
        raise Wrong(f"{path}: needs [server] with ssh = …, and at least one [nodes.NAME]")
    accounts = lab.get("accounts", "shared")
    if accounts not in ("shared", "per-member"):
        raise Wrong(f'{path}: accounts = {accounts!r}: must be "shared" or "per-member"')
    keys = path.parent / lab.get("keys", "keys")
    if bad := [stem.name for stem in keys.glob("*.pub") if not NAME.fullmatch(stem.stem)]:
        raise Wrong(f"{keys}: {bad[0]} is not called after an account: NAME.pub")
    wheelhouse = path.parent / lab["wheelhouse"] if "wheelhouse" in lab else None
    if wheelhouse is not None and not wheelhouse.is_dir():
        raise Wrong(f"{path}: wheelhouse: there is no folder {wheelhouse}")
    return Lab(
        server=Target("server", server["ssh"], server),
        nodes=nodes,
        keys=keys,
        per_member=accounts == "per-member",
        wheelhouse=wheelhouse,
    )


def _only(path: Path, where: str, table: dict[str, Any], known: set[str]) -> None:
    if unknown := sorted(set(table) - known):
        raise Wrong(
            f"{path}: {where}: unknown key {unknown[0]!r}; known: {', '.join(sorted(known))}"
        )


def server_options(lab: Lab) -> list[str]:
    settings = lab.server.settings
    options = []
    for key in ("folder", "share"):
        if key in settings:
            options += [f"--{key}", settings[key]]
    if lab.members:
        options += ["--members", ",".join(lab.members)]
    return [*options, *settings.get("options", [])]


def node_options(lab: Lab, node: Target, *, wheel: Path | None) -> list[str]:
    settings = node.settings
    options = ["--hostname", node.name, "--drive", lab.drive, "--password", "password"]
    options += ["--keys", "keys"] + (["--users"] if lab.per_member else [])
    mount = settings.get("mount", True)
    if mount is False:
        options.append("--no-mount")
    elif isinstance(mount, str):
        options += ["--mount", mount]
    if "job_python" in settings:
        options += ["--job-python", settings["job_python"]]
    options += ["--slots", str(settings.get("slots", "gpus"))]
    for key, value in settings.get("worker", {}).items():
        options += ["--set", f"{key}={_toml(value)}"]
    options += ["--wheel", wheel.name] if wheel else ["--from", "."]
    options += ["--wheelhouse", "wheelhouse"] if lab.wheelhouse else []
    return [*options, *settings.get("options", [])]


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value)
