"""SSH connections to nodes, as people have set them up for `ssh`.

Owns what asyncssh does not do by itself, each seen in 2.24: `/etc/ssh/ssh_config` and the global
known_hosts are read; an IdentityFile that is missing or encrypted is passed over instead of ending
the attempt, and with IdentitiesOnly still found in the agent; one bad line of known_hosts does not
spoil the rest; `UserKnownHostsFile none` does not switch off checking; jump hosts are checked and
waited for like nodes, and shared. An unknown or changed host key is always refused, whatever
StrictHostKeyChecking says. Only `upload.py` imports this module. Asks no questions.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import asyncssh
from asyncssh.config import ConfigParseError, SSHClientConfig
from asyncssh.known_hosts import SSHKnownHosts

from ludwig.client import ssh_errors
from ludwig.config import NodeConfig
from ludwig.errors import NodeError

__all__ = ["Connector", "close_connection"]

# A node that says nothing for this long in the middle of a transfer is given up.
KEEPALIVE_S, KEEPALIVE_COUNT = 5, 3
JUMPS_MAX = 8
CLOSE_S = 2.0
_State = tuple[Path, int, int]
"""A file, its size and its time."""
DEFAULT_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa", "id_ed25519_sk", "id_ecdsa_sk")


@dataclass
class Route:
    """How one host is reached: what ssh's configuration makes of a name."""

    name: str
    host: str
    port: int
    user: str
    alias: str | None
    jump: str | None
    command: bool
    known_hosts: SSHKnownHosts
    known_hosts_file: Path
    keys: list[asyncssh.SSHKeyPair] = field(default_factory=list)
    key_notes: list[str] = field(default_factory=list)
    """Every identity that was looked at, with what became of it: for error messages."""
    agent_identities: list[str] | None = None
    via: str = ""
    presented: asyncssh.SSHKey | None = None
    """The host key that was not trusted."""

    @property
    def where(self) -> str:
        """`ludwig@10.0.0.5:22 (Host hoff) through gate`."""
        text = f"{self.user}@{self.host}:{self.port}"
        text += f" ({self.name} in ssh's configuration)" if self.name != self.host else ""
        return text + (f" through {self.via}" if self.via else "")

    @property
    def known_name(self) -> str:
        """The name of the host in known_hosts."""
        name = self.alias or self.host
        return name if self.port == 22 else f"[{name}]:{self.port}"

    def known_keys(self, address: str = "") -> Sequence[asyncssh.SSHKey]:
        port = None if self.port == 22 else self.port
        return self.known_hosts.match(self.alias or self.host, address, port)[0]


class _Client(asyncssh.SSHClient):
    """Notes the key of a host that is not trusted."""

    def __init__(self, route: Route) -> None:
        self._route = route

    def validate_host_public_key(
        self, host: str, addr: str, port: int, key: asyncssh.SSHKey
    ) -> bool:
        self._route.presented = key
        return False


class Connector:
    """Makes connections. All calls from one event loop."""

    def __init__(self, ssh_config: Path | None = None) -> None:
        self._ssh_config = ssh_config
        self._known_hosts: dict[tuple[_State, ...], SSHKnownHosts] = {}
        self._jumps: dict[str, asyncio.Task[asyncssh.SSHClientConnection]] = {}

    def anew(self) -> Connector:
        """One that knows of no jump host yet."""
        return Connector(self._ssh_config)

    @property
    def _config_files(self) -> list[Path]:
        """As they are now: a person may just have written one."""
        if self._ssh_config:
            return [self._ssh_config]
        files = [Path("~/.ssh/config").expanduser(), Path("/etc/ssh/ssh_config")]
        return [file for file in files if os.access(file, os.R_OK)]

    async def connect(
        self, name: str, node: NodeConfig, *, timeout_s: float
    ) -> asyncssh.SSHClientConnection:
        """A connection to a node, or a `NodeError` that says what was tried and what to do."""
        host, port = node.host_and_port
        label = f"node '{name}'"
        route = self._route(label, host, user=node.user, port=port)
        try:
            async with asyncio.timeout(timeout_s):
                return await self._open(label, route)
        except TimeoutError as error:
            raise ssh_errors.timed_out(label, route.where, timeout_s) from error

    async def close(self) -> None:
        """Give up the connections to jump hosts."""
        jumps, self._jumps = list(self._jumps.values()), {}
        for task in jumps:
            if not task.done():
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await close_connection(await task)

    async def _open(self, label: str, route: Route, depth: int = 0) -> asyncssh.SSHClientConnection:
        options: dict[str, Any] = {}
        if route.jump:
            tunnel = await self._tunnel(label, route.jump, depth)
            options["tunnel"] = tunnel
        elif not route.command:
            options["tunnel"] = None
        try:
            return await self._dial_and_look(route, options)
        except (asyncssh.Error, OSError, ValueError) as error:
            keys = route.key_notes + await _agent_notes(error)
            raise ssh_errors.explain(label, route, error, keys) from error

    async def _dial_and_look(
        self, route: Route, options: dict[str, Any]
    ) -> asyncssh.SSHClientConnection:
        """asyncssh asks only for host keys of the kinds that are known, so a host that has none of
        them just hangs up. Then ask for any kind, to see its key and refuse it by name; but a busy
        host hangs up as well, so it gets a second chance to show a key that is known.
        """
        hung_up = (asyncssh.KeyExchangeFailed, asyncssh.ConnectionLost, ConnectionResetError)
        try:
            return await self._dial(route, options)
        except hung_up:
            if not route.known_keys():
                raise
        try:
            return await self._dial(route, {**options, "server_host_key_algs": "default"})
        except asyncssh.HostKeyNotVerifiable as refused:
            try:
                return await self._dial(route, options)
            except hung_up:
                raise refused from None

    async def _dial(self, route: Route, options: dict[str, Any]) -> asyncssh.SSHClientConnection:
        return await asyncssh.connect(
            route.name,
            route.port,
            username=route.user,
            config=self._config_files,
            client_factory=lambda: _Client(route),
            client_keys=route.keys,
            ignore_encrypted=True,
            agent_identities=route.agent_identities,
            agent_forwarding=False,
            x11_forwarding=False,
            known_hosts=route.known_hosts,
            keepalive_interval=KEEPALIVE_S,
            keepalive_count_max=KEEPALIVE_COUNT,
            **options,
        )

    async def _tunnel(self, label: str, jump: str, depth: int) -> asyncssh.SSHClientConnection:
        """The connection to a chain of jump hosts `[user@]host[:port],…`, made once for all."""
        task = self._jumps.get(jump)
        if task is not None and task.done() and (task.cancelled() or task.exception()):
            task = None
        if task is not None and task.done() and task.result().is_closed():
            task = None
        if task is None:
            task = asyncio.create_task(self._jump(label, jump, depth + 1))
            # Nobody may be left to hear of a failure when all who waited ran out of time.
            task.add_done_callback(lambda task: task.cancelled() or task.exception())
            self._jumps[jump] = task
        return await asyncio.shield(task)

    async def _jump(self, label: str, jump: str, depth: int) -> asyncssh.SSHClientConnection:
        if depth > JUMPS_MAX:
            raise NodeError(f"{label}: ProxyJump goes round in circles: {jump}.")
        before, _, last = jump.rpartition(",")
        user, _, address = last.strip().rpartition("@")
        try:
            host, port = NodeConfig(address=address.removeprefix("ssh://")).host_and_port
        except ValueError as error:
            raise NodeError(f"{label}: ProxyJump {jump!r} is not a list of hosts.") from error
        label = f"{label}: jump host '{last}'"
        route = self._route(label, host, user=user or None, port=port)
        if before:
            route.jump, route.via = before, before
        return await self._open(label, route, depth)

    def _route(self, label: str, host: str, *, user: str | None, port: int | None) -> Route:
        try:
            config = SSHClientConfig.load(
                None,
                self._config_files,
                False,
                False,
                False,
                getpass.getuser(),
                user or (),
                host,
                port or (),
            )
        except (ConfigParseError, OSError, ValueError, KeyError) as error:
            raise NodeError(f"{label}: ssh's configuration cannot be used: {error}") from error
        get = config.get
        files = _known_hosts_files(get("UserKnownHostsFile"), get("GlobalKnownHostsFile"))
        jump = cast("str | None", get("ProxyJump"))
        route = Route(
            name=host,
            host=cast(str, get("Hostname", host)),
            port=cast(int, get("Port", 22)),
            user=cast(str, get("User", None) or getpass.getuser()),
            alias=cast("str | None", get("HostKeyAlias")),
            jump=jump,
            command=get("ProxyCommand") is not None,
            known_hosts=self._read_known_hosts(files),
            known_hosts_file=files[0] if files else Path("~/.ssh/known_hosts").expanduser(),
            via=jump or "",
        )
        _add_keys(route, cast("list[str] | None", get("IdentityFile")))
        if get("IdentitiesOnly"):
            route.agent_identities = _public_keys(cast("list[str] | None", get("IdentityFile")))
        return route

    def _read_known_hosts(self, files: list[Path]) -> SSHKnownHosts:
        """Once for all nodes, and again when one of the files has changed."""
        states = tuple(map(_state, files))
        known = self._known_hosts.get(states)
        if known is None:
            known = SSHKnownHosts()
            self._known_hosts = {states: known}
            for file in files:
                with contextlib.suppress(OSError):
                    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
                        with contextlib.suppress(ValueError):
                            known.load(line)
        return known


async def close_connection(connection: asyncssh.SSHClientConnection) -> None:
    """Say goodbye; hang up on a host that does not listen."""
    connection.close()
    try:
        async with asyncio.timeout(CLOSE_S):
            await connection.wait_closed()
    except TimeoutError:
        connection.abort()


def _state(file: Path) -> _State:
    try:
        facts = file.stat()
    except OSError:
        return (file, 0, 0)
    return (file, facts.st_size, facts.st_mtime_ns)


def _home(text: str) -> Path:
    return Path(text.replace("%d", str(Path.home())).replace("%%", "%")).expanduser()


def _known_hosts_files(user: object, everybody: object) -> list[Path]:
    """As ssh has them. `none` (an empty list) is an empty file: nothing is known."""
    files = ["~/.ssh/known_hosts", "~/.ssh/known_hosts2"] if user is None else user
    more = ["/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"]
    more = more if everybody is None else cast("list[str]", everybody)
    return [_home(name) for name in (*cast("list[str]", files), *more)]


def _identity_paths(identities: list[str] | None) -> list[Path]:
    if identities:
        return [_home(name) for name in identities]
    return [Path("~/.ssh", name).expanduser() for name in DEFAULT_KEYS]


def _add_keys(route: Route, identities: list[str] | None) -> None:
    """Load what can be used, and note about every file what became of it."""
    for path in _identity_paths(identities):
        try:
            found = asyncssh.load_keypairs([str(path)], ignore_encrypted=True)
        except FileNotFoundError:
            if identities:
                route.key_notes.append(f"{path} (no such file)")
            continue
        except (OSError, asyncssh.KeyImportError, ValueError) as error:
            route.key_notes.append(f"{path} (not usable: {error})")
            continue
        route.keys.extend(found)
        note = "" if found else " (has a passphrase; `ssh-add` it to the agent)"
        route.key_notes.append(f"{path}{note}")


def _public_keys(identities: list[str] | None) -> list[str] | None:
    """The files that say which keys of the agent may be used, under IdentitiesOnly."""
    public = []
    for path in _identity_paths(identities):
        for candidate in (path, path.with_name(path.name + ".pub")):
            with contextlib.suppress(OSError, asyncssh.KeyImportError):
                asyncssh.read_public_key(candidate)
                public.append(str(candidate))
    return public


async def _agent_notes(error: Exception) -> list[str]:
    """The keys in the agent, when a login was refused."""
    if not isinstance(error, asyncssh.PermissionDenied) or not os.environ.get("SSH_AUTH_SOCK"):
        return []
    try:
        async with asyncssh.connect_agent() as agent:
            keys = await agent.get_keys()
            return [f"'{key.get_comment()}' of the agent" for key in keys]
    except (OSError, ValueError, asyncssh.Error):
        return ["no agent (SSH_AUTH_SOCK is set, but nothing answers there)"]
