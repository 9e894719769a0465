"""Connections that are kept between uses: what is saved, and every way in which one may end."""

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from ludwig.client import lab
from ludwig.client.cli import main
from ludwig.client.connections import Connections
from ludwig.client.ssh import Connector
from ludwig.client.upload import Inboxes
from ludwig.config import NodeConfig
from ludwig.drives import write_format
from ludwig.drives.folder import FolderDrive
from ludwig.errors import NodeError
from tests.harness import SftpServer, SshHome, wait_until

pytestmark = pytest.mark.needs_sshd

MakeServer = Callable[..., SftpServer]
NODES = {"hoff": NodeConfig(address="hoff")}


BEFORE: list[threading.Thread] = []


@pytest.fixture(autouse=True)
def own_home(ssh_home: SshHome, monkeypatch: pytest.MonkeyPatch) -> None:
    BEFORE[:] = threading.enumerate()
    monkeypatch.setenv("HOME", str(ssh_home.home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


def send(connections: Connections, number: int) -> None:
    with Inboxes(NODES, connections=connections) as inboxes:
        assert inboxes.connect() == {"hoff": None}
        inboxes.send_ticket("hoff", "trees", number, b"{}")


def logins(server: SftpServer) -> int:
    return (server.state / "sshd.log").read_text().count("Accepted publickey")


def threads() -> list[threading.Thread]:
    """Those of this test: clients of tests before it may keep theirs for a minute."""
    return [t for t in threading.enumerate() if t.name == "ludwig-upload" and t not in BEFORE]


def test_one_login_serves_many_uses(sftp_server: MakeServer) -> None:
    server = sftp_server("hoff")
    connections = Connections()
    for number in range(1, 4):
        send(connections, number)
    assert logins(server) == 1
    assert len(list((server.inbox / "tickets").iterdir())) == 3
    connections.close()
    assert not threads()
    send(connections, 4)
    assert logins(server) == 2
    connections.close()


def test_a_login_that_was_begun_is_used(sftp_server: MakeServer) -> None:
    server = sftp_server("hoff")
    connections = Connections()
    connections.begin(NODES)
    wait_until(lambda: logins(server) == 1, what="a login")
    assert not list((server.inbox / "tickets").glob("*"))
    send(connections, 1)
    assert logins(server) == 1
    connections.close()
    assert not threads()


def test_the_command_logs_in_to_nodes_while_it_asks_the_drive(
    sftp_server: MakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the drive answers only once somebody has logged in to the node."""
    server = sftp_server("hoff")
    (tmp_path / "drive").mkdir()
    write_format(FolderDrive(tmp_path / "drive"))
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "run.py").write_text("def main(param2val): ...\n")
    (tmp_path / "ludwig.toml").write_text(
        f'[drive]\nurl = "{tmp_path / "drive"}"\n[nodes.hoff]\naddress = "hoff"\n'
    )
    check = lab.check_drive

    def check_late(opened: lab.Lab) -> None:
        wait_until(lambda: logins(server) == 1, what="a login")
        check(opened)

    monkeypatch.setattr(lab, "check_drive", check_late)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["submit", "--json"])
    assert not ended.value.code
    assert logins(server) == 1
    assert len(list((server.inbox / "tickets").iterdir())) == 1


def test_a_restarted_sshd_is_not_noticed(sftp_server: MakeServer) -> None:
    server = sftp_server("hoff")
    connections = Connections()
    send(connections, 1)
    server.kill()
    server.start()
    send(connections, 2)
    connections.close()


def test_a_connection_that_went_silent_is_made_anew(
    sftp_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a laptop has slept: nobody has closed it, and nobody answers."""
    monkeypatch.setattr("ludwig.client.inbox_sftp.KEPT_S", 0.3)
    monkeypatch.setattr("ludwig.client.ssh.CLOSE_S", 0.2)
    server = sftp_server("hoff")
    connections = Connections()
    send(connections, 1)
    silent = psutil.Process(server.daemon.pid).children(recursive=True)
    for process in silent:
        process.suspend()
    try:
        send(connections, 2)
    finally:
        for process in silent:
            process.resume()
    assert logins(server) == 2
    connections.close()


def test_folders_that_were_removed_meanwhile_are_made_again(sftp_server: MakeServer) -> None:
    server = sftp_server("hoff")
    connections = Connections()
    send(connections, 1)
    (server.inbox / "tickets").rename(server.inbox / "elsewhere")
    send(connections, 2)
    assert [path.name for path in (server.inbox / "tickets").iterdir()] == ["trees-0002.json"]
    connections.close()


def test_beginning_to_connect_changes_nothing(sftp_server: MakeServer) -> None:
    server = sftp_server("hoff")
    connections = Connections()
    with Inboxes(NODES, connections=connections) as inboxes:
        inboxes.begin()
        wait_until(lambda: "Starting session" in (server.state / "sshd.log").read_text())
        assert list(server.inbox.iterdir()) == []
        assert inboxes.connect() == {"hoff": None}
    assert logins(server) == 1
    connections.close()


def test_a_failed_beginning_is_told_once_and_tried_again_next_time(
    sftp_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[NodeError] = []
    plain = Connector.connect

    async def connect(connector: Connector, *args: Any, **options: Any) -> Any:
        try:
            return await plain(connector, *args, **options)
        except NodeError as error:
            failures.append(error)
            raise

    monkeypatch.setattr(Connector, "connect", connect)
    server = sftp_server("hoff")
    server.stop()
    connections = Connections()
    with Inboxes(NODES, connections=connections) as inboxes:
        inboxes.begin()
        assert inboxes.connect()["hoff"] is not None
    with Inboxes(NODES, connections=connections) as inboxes:
        inboxes.begin()
        wait_until(lambda: len(failures) == 2, what="a failure that nobody asks for")
    server.start()
    with Inboxes(NODES, connections=connections) as inboxes:
        inboxes.begin()
        assert inboxes.connect() == {"hoff": None}
    connections.close()


def test_a_host_key_that_a_person_has_just_accepted(
    sftp_server: MakeServer, ssh_home: SshHome
) -> None:
    sftp_server("hoff")
    known = ssh_home.home / ".ssh" / "known_hosts"
    text = known.read_text()
    known.write_text("")
    connections = Connections()
    with Inboxes(NODES, connections=connections) as inboxes:
        assert "ssh-keyscan" in str(inboxes.connect()["hoff"])
    known.write_text(text)
    send(connections, 1)
    connections.close()


def test_nothing_is_left_after_a_while_without_use(sftp_server: MakeServer) -> None:
    server = sftp_server("hoff")
    connections = Connections(idle_s=0.3)
    with Inboxes(NODES, connections=connections) as inboxes:
        assert inboxes.connect() == {"hoff": None}
        # In use, if idle: an upload of data to the drive may take hours. A slow machine only makes
        # this window longer.
        time.sleep(0.5)
        assert len(threads()) == 1
    wait_until(lambda: not threads(), what="the thread to end")
    assert not psutil.Process(server.daemon.pid).children(recursive=True)
    send(connections, 1)
    connections.close()


def test_an_owner_that_is_forgotten_takes_its_connections_along(sftp_server: MakeServer) -> None:
    sftp_server("hoff")
    connections = Connections()
    send(connections, 1)
    assert len(threads()) == 1
    del connections
    gc.collect()
    wait_until(lambda: not threads(), what="the thread to end")


def test_several_threads_at_once(sftp_server: MakeServer) -> None:
    server = sftp_server("hoff")
    connections = Connections()
    users = [threading.Thread(target=send, args=(connections, n)) for n in range(1, 9)]
    for user in users:
        user.start()
    for user in users:
        user.join()
    assert len(list((server.inbox / "tickets").iterdir())) == 8
    assert logins(server) == 1
    connections.close()


def test_closing_while_another_thread_is_at_it_waits_for_its_end(sftp_server: MakeServer) -> None:
    sftp_server("hoff")
    connections = Connections()
    with Inboxes(NODES, connections=connections) as inboxes:
        assert inboxes.connect() == {"hoff": None}
        connections.close()
        inboxes.send_ticket("hoff", "trees", 1, b"{}")
    assert not threads()


PROGRAM = """
import gc, os, sys, warnings
from ludwig.client.connections import Connections
from ludwig.client.upload import Inboxes
from ludwig.config import NodeConfig
connections = Connections()
def send(number):
    with Inboxes({"hoff": NodeConfig(address="hoff")}, connections=connections) as inboxes:
        assert inboxes.connect() == {"hoff": None}
        inboxes.send_ticket("hoff", "trees", number, b"{}")
send(1)
"""


def run_program(more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-c", PROGRAM + more]
    return subprocess.run(command, capture_output=True, text=True, timeout=30)


def test_a_program_that_forgets_to_close_ends_at_once(sftp_server: MakeServer) -> None:
    server = sftp_server("hoff")
    done = run_program("")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    wait_until(lambda: not psutil.Process(server.daemon.pid).children())


def test_a_program_ends_also_when_its_node_does_not_listen(sftp_server: MakeServer) -> None:
    server = sftp_server("hoff")
    more = (
        "import psutil\n"
        f"for child in psutil.Process({server.daemon.pid}).children(recursive=True):\n"
        "    child.suspend()\n"
    )
    try:
        begun = time.monotonic()
        done = run_program(more)
        took = time.monotonic() - begun
    finally:
        for child in psutil.Process(server.daemon.pid).children(recursive=True):
            child.resume()
    assert (done.returncode, done.stderr) == (0, "")
    assert took < 5


def test_a_forked_child_connects_by_itself(sftp_server: MakeServer) -> None:
    server = sftp_server("hoff")
    done = run_program(
        "child = os.fork()\n"
        "send(2 if child else 3)\n"
        "if child:\n"
        "    assert os.waitpid(child, 0)[1] == 0\n"
        "    send(4)\n"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(list((server.inbox / "tickets").iterdir())) == 4
    assert logins(server) == 2


def test_a_forked_child_that_only_closes_does_not_disturb_its_parent(
    sftp_server: MakeServer,
) -> None:
    server = sftp_server("hoff")
    done = run_program(
        "child = os.fork()\n"
        "if not child:\n"
        "    connections.close()\n"
        "    del connections\n"
        "    gc.collect()\n"
        "    sys.exit()\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "send(2)\n"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert logins(server) == 1


def test_a_lost_connection_is_told_to_its_user_and_nobody_else(
    sftp_server: MakeServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = sftp_server("hoff")
    archive = tmp_path / "big"
    archive.write_bytes(os.urandom(20_000_000))
    lost = threading.Event()

    def progress(name: str, count: int) -> None:
        if not lost.is_set():
            lost.set()
            server.kill()

    with Inboxes(NODES, connect_timeout_s=1) as inboxes:
        assert inboxes.send_source("0" * 64, archive, ["hoff"], progress)["hoff"] is not None
    gc.collect()
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
