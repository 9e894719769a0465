"""Helpers of the tests that send to real inboxes: nodes, archives, a jump host.

A plugin of pytest, for its fixtures.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from ludwig.client.upload import Inboxes
from ludwig.config import NodeConfig
from ludwig.errors import NodeError
from tests.harness import (
    Daemon,
    SftpServer,
    SshHome,
    program,
    release_port,
    require,
    reserve_port,
    wait_until,
)
from tests.sftp_server import make_key

MakeServer = Callable[..., SftpServer]


@pytest.fixture
def own_home(ssh_home: SshHome, monkeypatch: pytest.MonkeyPatch) -> None:
    """`~/.ssh` and the agent are the test's, not those of the person who runs it."""
    monkeypatch.setenv("HOME", str(ssh_home.home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


@pytest.fixture
def archive(tmp_path: Path) -> tuple[str, Path]:
    return make_archive(tmp_path / "archive.tar.gz", 300_000)


def make_archive(path: Path, size: int) -> tuple[str, Path]:
    path.write_bytes(os.urandom(size))
    return hashlib.sha256(path.read_bytes()).hexdigest(), path


def node(name: str) -> dict[str, NodeConfig]:
    return {name: NodeConfig(address=name)}


def refusal(inboxes: Inboxes, name: str = "hoff") -> NodeError:
    error = inboxes.connect()[name]
    assert error is not None
    return error


def files(server: SftpServer) -> dict[str, bytes]:
    paths = [path for path in server.inbox.rglob("*") if path.is_file()]
    return {str(path.relative_to(server.inbox)): path.read_bytes() for path in paths}


class Jump:
    """An sshd that only forwards: a gate to the nodes behind it."""

    def __init__(self, ssh: SshHome, folder: Path) -> None:
        folder.mkdir()
        self.port = reserve_port()
        key = make_key(folder / "host_key")
        (folder / "authorized_keys").write_text(ssh.public_key)
        settings = {
            "ListenAddress": f"127.0.0.1:{self.port}",
            "HostKey": key,
            "PidFile": "none",
            "LogLevel": "VERBOSE",
            "AuthorizedKeysFile": folder / "authorized_keys",
            "StrictModes": "no",
            "UsePAM": "no",
            "PermitRootLogin": "yes",
            "AllowTcpForwarding": "yes",
        }
        text = "".join(f"{name} {value}\n" for name, value in settings.items())
        (folder / "sshd_config").write_text(text)
        public = " ".join(key.with_suffix(".pub").read_text().split()[:2])
        with ssh.known_hosts.open("a") as file:
            file.write(f"[127.0.0.1]:{self.port} {public}\n")
        self.stanza = f"Host gate\n  HostName 127.0.0.1\n  Port {self.port}\n"
        command = [program("sshd"), "-D", "-e", "-f", str(folder / "sshd_config")]
        self.daemon = Daemon(command, log=folder / "sshd.log")


@pytest.fixture
def jump_host(ssh_home: SshHome, tmp_path: Path) -> Iterator[Jump]:
    require("sshd")
    jump = Jump(ssh_home, tmp_path / "gate")
    jump.daemon.start()
    wait_until(lambda: "Server listening" in jump.daemon.log.read_text(), alive=[jump.daemon])
    yield jump
    jump.daemon.kill()
    release_port(jump.port)


def kill_sessions(server: SftpServer) -> int:
    """SIGKILL every session of a server, not the server."""
    children = psutil.Process(server.daemon.pid).children(recursive=True)
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    return len(children)


def config(ssh_home: SshHome) -> str:
    return ssh_home.config.read_text()
