"""Uploads that are cut short: connections, servers and inboxes that die or hang, and Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from pathlib import Path

import psutil
import pytest

from ludwig.client.connections import Connections
from ludwig.client.upload import Inboxes
from ludwig.errors import NodeUnreachable
from tests.harness import SshHome
from tests.inboxes import Jump, MakeServer, files, kill_sessions, make_archive, node, refusal

pytestmark = [pytest.mark.needs_sshd, pytest.mark.usefixtures("own_home")]


def test_a_server_that_hangs_is_given_up_in_time(sftp_server: MakeServer) -> None:
    server = sftp_server("hoff")
    server.daemon.suspend()
    try:
        with Inboxes(node("hoff"), connect_timeout_s=0.5) as inboxes:
            error = refusal(inboxes)
    finally:
        server.daemon.resume()
    assert isinstance(error, NodeUnreachable)
    assert "did not answer within 0.5 s" in str(error)
    assert f"127.0.0.1:{server.port} (hoff in ssh's configuration)" in str(error)


def test_a_connection_killed_in_the_middle_leaves_no_part_and_is_made_anew(
    sftp_server: MakeServer, tmp_path: Path
) -> None:
    server = sftp_server("hoff")
    sha256, path = make_archive(tmp_path / "big", 40_000_000)
    final = server.inbox / "sources" / f"{sha256}.tar.gz"
    killed = []
    told: list[int] = []

    def progress(name: str, count: int) -> None:
        told.append(count)
        if not killed:
            assert not final.exists()
            killed.append(kill_sessions(server))

    with Inboxes(node("hoff")) as inboxes:
        assert inboxes.send_source(sha256, path, ["hoff"], progress) == {"hoff": None}
    assert killed[0] > 0
    assert final.read_bytes() == path.read_bytes()
    assert sum(told) == path.stat().st_size


def test_a_node_that_dies_in_the_middle_has_nothing_under_the_final_name(
    sftp_server: MakeServer, tmp_path: Path
) -> None:
    server = sftp_server("hoff")
    sha256, path = make_archive(tmp_path / "big", 40_000_000)
    done = threading.Event()

    def progress(name: str, count: int) -> None:
        if not done.is_set():
            done.set()
            server.kill()

    with Inboxes(node("hoff")) as inboxes:
        error = inboxes.send_source(sha256, path, ["hoff"], progress)["hoff"]
        assert isinstance(error, NodeUnreachable)
        assert [name for name in files(server) if not name.startswith("sources/.tmp-")] == []
        server.start()
        assert inboxes.has_source(sha256) == set()
        assert inboxes.tickets("hoff") == []
        assert inboxes.send_source(sha256, path, ["hoff"]) == {"hoff": None}


def test_a_connection_that_dropped_while_idle_is_made_anew(sftp_server: MakeServer) -> None:
    server = sftp_server("hoff")
    with Inboxes(node("hoff")) as inboxes:
        assert inboxes.connect() == {"hoff": None}
        assert kill_sessions(server) > 0
        inboxes.send_ticket("hoff", "trees", 1, b"{}")
        assert inboxes.tickets("hoff") == ["trees-0001.json"]


def test_a_server_that_hangs_in_the_middle(
    sftp_server: MakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ludwig.client.ssh.KEEPALIVE_S", 0.2)
    server = sftp_server("hoff")
    sha256, path = make_archive(tmp_path / "big", 40_000_000)
    hung = threading.Event()

    def progress(name: str, count: int) -> None:
        if not hung.is_set():
            hung.set()
            server.daemon.suspend()

    try:
        with Inboxes(node("hoff"), connect_timeout_s=1) as inboxes:
            error = inboxes.send_source(sha256, path, ["hoff"], progress)["hoff"]
    finally:
        server.daemon.resume()
    assert isinstance(error, NodeUnreachable)
    assert "did not answer within 1 s" in str(error)


def test_an_inbox_that_hangs_while_ssh_does_not(
    sftp_server: MakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that writes hangs, as on a dead disk; the one that speaks SSH goes on."""
    monkeypatch.setattr("ludwig.client.inbox_sftp.STALL_S", 0.5)
    monkeypatch.setattr("ludwig.client.inbox_sftp.CLOSE_S", 0.2)
    monkeypatch.setattr("ludwig.client.ssh.CLOSE_S", 0.2)
    server = sftp_server("hoff")
    sha256, path = make_archive(tmp_path / "big", 40_000_000)
    hung: list[psutil.Process] = []

    def progress(name: str, count: int) -> None:
        for child in psutil.Process(server.daemon.pid).children(recursive=True):
            if child not in hung and "internal-sftp" in " ".join(child.cmdline()):
                hung.append(child)
                child.suspend()

    with Inboxes(node("hoff")) as inboxes:
        error = inboxes.send_source(sha256, path, ["hoff"], progress)["hoff"]
    for process in hung:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()
    assert len(hung) == 2, "once, and once more from scratch"
    assert isinstance(error, NodeUnreachable)
    assert not (server.inbox / "sources" / f"{sha256}.tar.gz").exists()


def test_ctrl_c_ends_it_and_cleans_up(sftp_server: MakeServer, tmp_path: Path) -> None:
    server = sftp_server("hoff")
    sha256, path = make_archive(tmp_path / "big", 40_000_000)
    asked = threading.Event()

    def progress(name: str, count: int) -> None:
        if not asked.is_set():
            asked.set()
            os.kill(os.getpid(), signal.SIGINT)

    with Inboxes(node("hoff")) as inboxes:
        with pytest.raises(KeyboardInterrupt):
            inboxes.send_source(sha256, path, ["hoff"], progress)
        assert files(server) == {}
        inboxes.send_ticket("hoff", "trees", 1, b"{}")


def test_a_jump_host_that_went_silent_is_not_asked_again(
    sftp_server: MakeServer,
    jump_host: Jump,
    ssh_home: SshHome,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As after a laptop has slept: the kept connections to gate and node are both dead."""
    monkeypatch.setattr("ludwig.client.inbox_sftp.KEPT_S", 0.5)
    monkeypatch.setattr("ludwig.client.ssh.CLOSE_S", 0.2)
    sftp_server("hoff")
    ssh_home.config.write_text(
        ssh_home.config.read_text().replace("Host hoff\n", "Host hoff\n    ProxyJump gate\n")
        + jump_host.stanza
    )
    connections = Connections(connect_timeout_s=5)
    with Inboxes(node("hoff"), connections=connections) as inboxes:
        assert inboxes.connect() == {"hoff": None}
    silent = psutil.Process(jump_host.daemon.pid).children(recursive=True)
    assert silent
    for process in silent:
        process.suspend()
    try:
        with Inboxes(node("hoff"), connections=connections) as inboxes:
            inboxes.begin()
            assert inboxes.connect() == {"hoff": None}
    finally:
        for process in silent:
            process.resume()
        connections.close()
