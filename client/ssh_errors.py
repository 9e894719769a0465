"""What went wrong with a node's SSH, in words a student can act on.

Owns the wording; `ssh.py` connects. Every message names the node, what was tried, and the next
step; where a command fixes it, the exact command.
"""

from __future__ import annotations

import shlex
import socket
from pathlib import Path
from typing import Protocol

import asyncssh

from ludwig.errors import HostKeyRefused, LoginRefused, NodeError, NodeUnreachable

__all__ = ["Tried", "explain", "explain_sftp", "timed_out"]


class Tried(Protocol):
    """What is known about a connection that failed; `ssh.Route` is one."""

    name: str
    host: str
    port: int
    user: str
    alias: str | None
    via: str
    presented: asyncssh.SSHKey | None
    known_hosts_file: Path

    @property
    def where(self) -> str: ...

    @property
    def known_name(self) -> str: ...

    def known_keys(self, address: str = "") -> object: ...


def timed_out(label: str, where: str, seconds: float) -> NodeUnreachable:
    return NodeUnreachable(
        f"{label} did not answer within {seconds:g} s: tried {where}. "
        "Is the machine on, and are you in its network (VPN)?"
    )


def explain(label: str, tried: Tried, error: Exception, keys: list[str]) -> NodeError:
    """The `NodeError` for an exception of `asyncssh.connect`."""
    reason = str(getattr(error, "reason", error)).strip().rstrip(".")
    if isinstance(error, asyncssh.HostKeyNotVerifiable):
        return _host_key(label, tried, reason)
    if isinstance(error, asyncssh.PermissionDenied) or "authentication failures" in reason:
        return _login(label, tried, reason, keys)
    if isinstance(error, socket.gaierror):
        return NodeUnreachable(
            f"{label}: the name '{tried.host}' is not known. Check its address in ludwig.toml, "
            f"and HostName under `Host {tried.name}` in ~/.ssh/config."
        )
    if isinstance(error, asyncssh.ChannelOpenError) and tried.via:
        return NodeUnreachable(
            f"{label}: {tried.via} was reached, but did not connect to "
            f"{tried.host}:{tried.port}: {reason}."
        )
    if isinstance(error, (ConnectionRefusedError, OSError, asyncssh.ConnectionLost)):
        what = "connection refused" if isinstance(error, ConnectionRefusedError) else reason
        return NodeUnreachable(
            f"{label} does not answer: tried {tried.where}: {what or type(error).__name__}. "
            "Is the machine on, with its SSH server running?"
        )
    return NodeError(f"{label} cannot be used: {tried.where}: {reason or type(error).__name__}.")


def _host_key(label: str, tried: Tried, reason: str) -> HostKeyRefused:
    key = tried.presented
    file = shlex.quote(str(tried.known_hosts_file))
    name = shlex.quote(tried.known_name)
    shown = f"{key.get_algorithm()} {key.get_fingerprint()}" if key else "another kind of key"
    if "revoked" in reason:
        return HostKeyRefused(
            f"{label}: its host key is marked @revoked in known_hosts: {tried.where}. "
            "Nothing was sent. Tell whoever runs the node."
        )
    verify = (
        "Ask whoever runs the node for its fingerprint (there: "
        "`ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub`)"
    )
    if tried.known_keys():
        return HostKeyRefused(
            f"{label}: its host key has changed: {tried.where} now shows {shown}. Nothing was "
            "sent. That happens when a machine is set up again, and also when somebody listens "
            f"in. {verify}; if it is this one, forget the old key and trust the new one:\n"
            f"    ssh-keygen -f {file} -R {name}\n"
            f"    {_trust(tried, file)}"
        )
    return HostKeyRefused(
        f"{label}: its host key is not known here: {tried.where} shows {shown}. Nothing was "
        f"sent. {verify}; if it is the same, trust it:\n"
        f"    {_trust(tried, file)}"
    )


def _trust(tried: Tried, file: str) -> str:
    """ssh-keyscan where it can get there; else the line itself."""
    key = tried.presented
    if key is not None and (tried.via or tried.alias):
        text = key.export_public_key().decode().split()
        return f"echo {shlex.quote(f'{tried.known_name} {text[0]} {text[1]}')} >> {file}"
    port = "" if tried.port == 22 else f"-p {tried.port} "
    kind = f"-t {_kind(key)} " if key else ""
    return f"ssh-keyscan {kind}{port}{shlex.quote(tried.host)} >> {file}"


def _kind(key: asyncssh.SSHKey) -> str:
    algorithm = key.get_algorithm()
    return "ecdsa" if "ecdsa" in algorithm else algorithm.removeprefix("ssh-")


def _login(label: str, tried: Tried, reason: str, keys: list[str]) -> LoginRefused:
    offered = ", ".join(keys) or "none (there is no key in ~/.ssh and no agent)"
    hint = (
        "Too many keys were offered: set `IdentitiesOnly yes` and IdentityFile for this Host."
        if "authentication failures" in reason
        else "Send your public key (~/.ssh/id_ed25519.pub; `ssh-keygen -t ed25519` makes one) to "
        "whoever runs the node, or check the user."
    )
    return LoginRefused(
        f"{label} refuses the login of '{tried.user}' at {tried.where}. Keys: {offered}. {hint}"
    )


def explain_sftp(label: str, doing: str, path: str, error: Exception) -> NodeError:
    """The `NodeError` for an exception in the middle of a session."""
    reason = str(getattr(error, "reason", error)).strip().rstrip(".")
    lost = (asyncssh.SFTPConnectionLost, asyncssh.SFTPNoConnection, asyncssh.ConnectionLost)
    lost_too = (asyncssh.DisconnectError, ConnectionError, TimeoutError, BrokenPipeError)
    if isinstance(error, (*lost, *lost_too)):
        return NodeUnreachable(
            f"{label}: the connection was lost while {doing} '{path}'"
            + (f": {reason}." if reason else ".")
        )
    if isinstance(error, asyncssh.SFTPPermissionDenied):
        return NodeError(
            f"{label}: no permission for {doing} '{path}' in the inbox. The top folder of a jail "
            "is always root's: `inbox` under this node in ludwig.toml must name a folder in it "
            "that the SFTP user may write to."
        )
    if isinstance(error, (asyncssh.SFTPNoSuchFile, asyncssh.SFTPNoSuchPath)):
        return NodeError(
            f"{label}: {doing} '{path}': there is no such file or folder. Check `inbox` under "
            "this node in ludwig.toml: it is a path inside the jail."
        )
    return NodeError(
        f"{label}: {doing} '{path}' failed: {reason or type(error).__name__}. "
        "The node's disk may be full."
    )
