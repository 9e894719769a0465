"""Uploading to real, chroot-jailed SFTP accounts, and everything SSH may refuse."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import shlex
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from ludwig.client.connections import Connections
from ludwig.client.upload import Inboxes
from ludwig.config import NodeConfig
from ludwig.errors import (
    HostKeyRefused,
    LoginRefused,
    NodeError,
    NodeUnreachable,
    UsageError,
)
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

pytestmark = pytest.mark.needs_sshd

MakeServer = Callable[..., SftpServer]


@pytest.fixture(autouse=True)
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


def test_sources_and_tickets_reach_a_jailed_inbox(
    sftp_server: MakeServer, archive: tuple[str, Path]
) -> None:
    server = sftp_server("hoff")
    sha256, path = archive
    told: list[int] = []
    with Inboxes(node("hoff")) as inboxes:
        assert inboxes.connect() == {"hoff": None}
        assert inboxes.has_source(sha256) == set()
        sent = inboxes.send_source(sha256, path, ["hoff"], lambda name, count: told.append(count))
        assert sent == {"hoff": None}
        assert inboxes.has_source(sha256) == {"hoff"}
        assert inboxes.has_source(sha256, size=path.stat().st_size) == {"hoff"}
        assert inboxes.has_source(sha256, size=1) == set()
        inboxes.send_ticket("hoff", "trees", 17, b"{}")
        assert inboxes.tickets("hoff") == ["trees-0017.json"]
    assert sum(told) == path.stat().st_size
    name = f"sources/{sha256}.tar.gz"
    assert files(server) == {name: path.read_bytes(), "tickets/trees-0017.json": b"{}"}
    ticket = (server.inbox / "tickets/trees-0017.json").stat()
    assert ticket.st_mode & 0o777 == 0o644
    if server.jailed:
        assert ticket.st_uid == server.inbox.stat().st_uid


def test_a_source_that_is_there_is_not_sent_again(
    sftp_server: MakeServer, archive: tuple[str, Path]
) -> None:
    server = sftp_server("hoff")
    sha256, path = archive
    told: list[int] = []
    with Inboxes(node("hoff")) as inboxes:
        inboxes.send_source(sha256, path, ["hoff"])
        before = (server.inbox / "sources" / f"{sha256}.tar.gz").stat()
        inboxes.send_source(sha256, path, ["hoff"], lambda name, count: told.append(count))
    after = (server.inbox / "sources" / f"{sha256}.tar.gz").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert told == [path.stat().st_size]


def test_a_truncated_source_is_sent_again(
    sftp_server: MakeServer, archive: tuple[str, Path]
) -> None:
    server = sftp_server("hoff")
    sha256, path = archive
    with Inboxes(node("hoff")) as inboxes:
        inboxes.send_source(sha256, path, ["hoff"])
        os.truncate(server.inbox / "sources" / f"{sha256}.tar.gz", 100)
        assert inboxes.send_source(sha256, path, ["hoff"]) == {"hoff": None}
    assert files(server)[f"sources/{sha256}.tar.gz"] == path.read_bytes()


def test_several_nodes_at_once_and_one_is_down(
    sftp_server: MakeServer, archive: tuple[str, Path], tmp_path: Path
) -> None:
    servers = [sftp_server(name) for name in ("hoff", "hebb", "pitts")]
    servers[1].stop()
    (tmp_path / "here").mkdir()
    nodes = {server.name: NodeConfig(address=server.name) for server in servers}
    nodes["here"] = NodeConfig(address=f"folder:{tmp_path / 'here'}")
    sha256, path = archive
    with Inboxes(nodes) as inboxes:
        errors = inboxes.connect()
        assert {name for name, error in errors.items() if error is None} == {
            "hoff",
            "pitts",
            "here",
        }
        down = errors["hebb"]
        assert isinstance(down, NodeUnreachable)
        assert f"127.0.0.1:{servers[1].port}" in str(down) and "connection refused" in str(down)
        errors = inboxes.send_source(sha256, path, nodes)
        assert [name for name, error in errors.items() if error] == ["hebb"]
        assert inboxes.has_source(sha256) == {"hoff", "pitts", "here"}
        servers[1].start()
        tickets = {name: name.encode() for name in nodes}
        assert inboxes.send_tickets("trees", 1, tickets) == dict.fromkeys(nodes)
        assert inboxes.tickets("hebb") == ["trees-0001.json"]
    assert files(servers[2])["tickets/trees-0001.json"] == b"pitts"
    assert (tmp_path / "here/tickets/trees-0001.json").read_bytes() == b"here"


def test_a_node_that_is_not_in_the_lab() -> None:
    with Inboxes({}) as inboxes, pytest.raises(UsageError, match="No such node: hoff"):
        inboxes.tickets("hoff")


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


def test_an_address_with_port_and_user_needs_no_ssh_config(
    sftp_server: MakeServer, ssh_home: SshHome
) -> None:
    server = sftp_server("hoff")
    ssh_home.config.unlink()
    nodes = {"hoff": NodeConfig(address=server.address, user=server.user)}
    with Inboxes(nodes) as inboxes:
        assert inboxes.connect() == {"hoff": None}


def test_a_name_that_does_not_exist() -> None:
    with Inboxes({"hoff": NodeConfig(address="no-such-host.invalid")}) as inboxes:
        error = refusal(inboxes)
    assert isinstance(error, NodeUnreachable)
    assert "no-such-host.invalid" in str(error)


# Host keys


def test_an_unknown_host_key_and_the_command_that_fixes_it(
    sftp_server: MakeServer, ssh_home: SshHome
) -> None:
    server = sftp_server("hoff")
    ssh_home.known_hosts.write_text("")
    with Inboxes(node("hoff")) as inboxes:
        error = refusal(inboxes)
        assert isinstance(error, HostKeyRefused)
        assert "not known here" in str(error) and fingerprint(server) in str(error)
        assert "ssh-keygen -lf" in str(error)
        run_commands(error)
    with Inboxes(node("hoff")) as inboxes:
        assert inboxes.connect() == {"hoff": None}
    assert not files(server)


def test_a_changed_host_key_and_the_commands_that_fix_it(
    sftp_server: MakeServer, ssh_home: SshHome, tmp_path: Path
) -> None:
    server = sftp_server("hoff")
    other = make_key(tmp_path / "other").with_suffix(".pub").read_text()
    ssh_home.known_hosts.write_text(f"[127.0.0.1]:{server.port} {other}")
    with Inboxes(node("hoff")) as inboxes:
        error = refusal(inboxes)
    assert isinstance(error, HostKeyRefused)
    assert "has changed" in str(error) and fingerprint(server) in str(error)
    run_commands(error)
    with Inboxes(node("hoff")) as inboxes:
        assert inboxes.connect() == {"hoff": None}


def test_a_host_key_of_another_kind_counts_as_changed(
    sftp_server: MakeServer, ssh_home: SshHome, tmp_path: Path
) -> None:
    server = sftp_server("hoff")
    command = [program("ssh-keygen"), "-q", "-t", "ecdsa", "-N", "", "-f", str(tmp_path / "other")]
    subprocess.run(command, check=True)
    ssh_home.known_hosts.write_text(
        f"[127.0.0.1]:{server.port} {(tmp_path / 'other.pub').read_text()}"
    )
    with Inboxes(node("hoff")) as inboxes:
        error = refusal(inboxes)
    assert isinstance(error, HostKeyRefused)
    assert "has changed" in str(error)


def test_a_revoked_host_key(sftp_server: MakeServer, ssh_home: SshHome) -> None:
    sftp_server("hoff")
    line = ssh_home.known_hosts.read_text()
    ssh_home.known_hosts.write_text(line + "@revoked " + line)
    with Inboxes(node("hoff")) as inboxes:
        error = refusal(inboxes)
    assert isinstance(error, HostKeyRefused)
    assert "@revoked" in str(error)


@pytest.mark.parametrize("setting", ["none", "/dev/null"])
def test_checking_cannot_be_switched_off(
    sftp_server: MakeServer, ssh_home: SshHome, setting: str
) -> None:
    sftp_server("hoff")
    text = re.sub(r"UserKnownHostsFile .*", f"UserKnownHostsFile {setting}", config(ssh_home))
    ssh_home.config.write_text(text.replace("Checking yes", "Checking no"))
    with Inboxes(node("hoff")) as inboxes:
        assert isinstance(refusal(inboxes), HostKeyRefused)


def test_hashed_entries_and_lines_that_make_no_sense(
    sftp_server: MakeServer, ssh_home: SshHome
) -> None:
    sftp_server("hoff")
    command = [program("ssh-keygen"), "-H", "-f", str(ssh_home.known_hosts)]
    subprocess.run(command, check=True, capture_output=True)
    hashed = ssh_home.known_hosts.read_text()
    assert hashed.startswith("|1|")
    ssh_home.known_hosts.write_text(f"nonsense\n@what is this\n|1|x|y z\n{hashed}")
    with Inboxes(node("hoff")) as inboxes:
        assert inboxes.connect() == {"hoff": None}


def test_known_hosts_in_other_files(sftp_server: MakeServer, ssh_home: SshHome) -> None:
    sftp_server("hoff")
    ssh_home.known_hosts.rename(ssh_home.folder / "lab_hosts")
    text = re.sub(
        r"(UserKnownHostsFile) .*", r"\1 ~/.ssh/missing ~/.ssh/lab_hosts", config(ssh_home)
    )
    ssh_home.config.write_text(text)
    with Inboxes(node("hoff")) as inboxes:
        assert inboxes.connect() == {"hoff": None}


# Logging in


def test_a_refused_key_is_named_with_user_and_host(
    sftp_server: MakeServer, ssh_home: SshHome, tmp_path: Path
) -> None:
    server = sftp_server("hoff")
    replace_identity(ssh_home, [make_key(tmp_path / "stranger"), tmp_path / "missing"])
    with Inboxes(node("hoff")) as inboxes:
        error = refusal(inboxes)
    assert isinstance(error, LoginRefused)
    for part in (f"'{server.user}'", f"127.0.0.1:{server.port}", f"{tmp_path}/stranger,"):
        assert part in str(error)
    assert f"{tmp_path}/missing (no such file)" in str(error)


def test_identities_that_cannot_be_used_are_passed_over(
    sftp_server: MakeServer, ssh_home: SshHome, tmp_path: Path
) -> None:
    sftp_server("hoff")
    (tmp_path / "garbage").write_text("no key")
    encrypt(make_key(tmp_path / "encrypted"))
    bad = [tmp_path / name for name in ("missing", "garbage", "encrypted")]
    replace_identity(ssh_home, [*bad, ssh_home.private_key])
    with Inboxes(node("hoff")) as inboxes:
        assert inboxes.connect() == {"hoff": None}


def test_default_keys_are_tried(sftp_server: MakeServer, ssh_home: SshHome) -> None:
    sftp_server("hoff")
    replace_identity(ssh_home, [])
    with Inboxes(node("hoff")) as inboxes:
        assert inboxes.connect() == {"hoff": None}


def test_a_key_with_a_passphrase_comes_from_the_agent(
    sftp_server: MakeServer, ssh_home: SshHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IdentitiesOnly and an IdentityFile that only the agent can use: a common setup."""
    sftp_server("hoff")
    with agent(ssh_home) as socket:
        command = [program("ssh-add"), "-q", str(ssh_home.private_key)]
        subprocess.run(command, check=True, env={**os.environ, "SSH_AUTH_SOCK": str(socket)})
        encrypt(ssh_home.private_key)
        with Inboxes(node("hoff")) as inboxes:
            error = refusal(inboxes)
        assert isinstance(error, LoginRefused)
        assert "has a passphrase; `ssh-add` it" in str(error)
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
        with Inboxes(node("hoff")) as inboxes:
            assert inboxes.connect() == {"hoff": None}


def test_the_agent_and_no_file_at_all(
    sftp_server: MakeServer, ssh_home: SshHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    sftp_server("hoff")
    with agent(ssh_home) as socket:
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
        subprocess.run([program("ssh-add"), "-q", str(ssh_home.private_key)], check=True)
        ssh_home.private_key.unlink()
        ssh_home.config.write_text(config(ssh_home).replace("IdentitiesOnly yes", ""))
        with Inboxes(node("hoff")) as inboxes:
            assert inboxes.connect() == {"hoff": None}


# The configuration of ssh


def test_includes_and_patterns(sftp_server: MakeServer, ssh_home: SshHome) -> None:
    sftp_server("hoff")
    ssh_home.config.rename(ssh_home.folder / "lab.conf")
    ssh_home.config.write_text("Include lab.conf\nHost *\n  ForwardAgent yes\n  User nobody\n")
    with Inboxes(node("hoff")) as inboxes:
        assert inboxes.connect() == {"hoff": None}


def test_an_ssh_config_elsewhere(
    sftp_server: MakeServer, ssh_home: SshHome, tmp_path: Path
) -> None:
    sftp_server("hoff")
    ssh_home.config.rename(tmp_path / "lab_ssh")
    with Inboxes(node("hoff"), ssh_config=tmp_path / "lab_ssh") as inboxes:
        assert inboxes.connect() == {"hoff": None}


def test_a_broken_ssh_config_is_named_with_its_line(ssh_home: SshHome) -> None:
    ssh_home.config.write_text("Host hoff\n  Port many\n")
    with Inboxes(node("hoff")) as inboxes:
        error = refusal(inboxes)
    assert f"{ssh_home.config} line 2" in str(error)


def test_through_a_jump_host(
    sftp_server: MakeServer, ssh_home: SshHome, jump_host: Jump, archive: tuple[str, Path]
) -> None:
    names = ["hoff", "hebb"]
    servers = [sftp_server(name) for name in names]
    ssh_home.config.write_text(
        config(ssh_home).replace("    HostName", "    ProxyJump gate\n    HostName", 2)
        + jump_host.stanza
    )
    sha256, path = archive
    with Inboxes({name: NodeConfig(address=name) for name in names}) as inboxes:
        assert inboxes.connect() == dict.fromkeys(names)
        assert inboxes.send_source(sha256, path, names) == dict.fromkeys(names)
    assert all(files(server) for server in servers)
    log = jump_host.daemon.log.read_text()
    assert log.count("Accepted publickey") == 1, "one connection to the jump host serves all"


def test_a_jump_host_is_checked_too(
    sftp_server: MakeServer, ssh_home: SshHome, jump_host: Jump
) -> None:
    server = sftp_server("hoff")
    text = config(ssh_home).replace("    HostName", "    ProxyJump gate\n    HostName", 1)
    ssh_home.config.write_text(text + jump_host.stanza)
    known = ssh_home.known_hosts.read_text()

    def without(port: int) -> HostKeyRefused:
        lines = [line for line in known.splitlines() if f":{port} " not in line]
        ssh_home.known_hosts.write_text("\n".join(lines) + "\n")
        with Inboxes(node("hoff")) as inboxes:
            error = refusal(inboxes)
        assert isinstance(error, HostKeyRefused)
        return error

    assert "jump host 'gate'" in str(without(jump_host.port))
    behind = without(server.port)
    assert "through gate" in str(behind) and "jump host" not in str(behind)
    run_commands(behind)
    with Inboxes(node("hoff")) as inboxes:
        assert inboxes.connect() == {"hoff": None}
        server.stop()
    with Inboxes(node("hoff")) as inboxes:
        error = refusal(inboxes)
        assert isinstance(error, NodeUnreachable)
        assert "gate was reached, but did not connect" in str(error)
    jump_host.daemon.stop()
    with Inboxes(node("hoff")) as inboxes:
        error = refusal(inboxes)
        assert isinstance(error, NodeUnreachable)
        assert "jump host 'gate' does not answer" in str(error)


# The inbox


def test_an_inbox_that_is_missing_or_not_writable(sftp_server: MakeServer) -> None:
    server = sftp_server("hoff")
    with Inboxes({"hoff": NodeConfig(address="hoff", inbox="elsewhere")}) as inboxes:
        error = refusal(inboxes)
    assert "there is no such file or folder. Check `inbox`" in str(error)
    if server.jailed:
        with Inboxes({"hoff": NodeConfig(address="hoff", inbox="/")}) as inboxes:
            error = refusal(inboxes)
        assert "no permission for making '" in str(error)
        assert "top folder of a jail is always root's" in str(error)
        with Inboxes({"hoff": NodeConfig(address="hoff", inbox="/inbox")}) as inboxes:
            assert inboxes.connect() == {"hoff": None}


@pytest.mark.needs_root
def test_users_who_share_an_inbox(sftp_server: MakeServer, archive: tuple[str, Path]) -> None:
    server = sftp_server("hoff", accounts=2)
    sha256, path = archive
    for number, name in enumerate(("hoff", "hoff-2"), start=1):
        with Inboxes(node(name)) as inboxes:
            assert inboxes.send_source(sha256, path, [name]) == {name: None}
            inboxes.send_ticket(name, "trees", number, b"{}")
    owners = {file.stat().st_uid for file in (server.inbox / "tickets").iterdir()}
    assert len(owners) == 2


def test_a_ticket_is_as_readable_as_its_folder(sftp_server: MakeServer) -> None:
    server = sftp_server("hoff")
    with Inboxes(node("hoff")) as inboxes:
        inboxes.connect()
    (server.inbox / "tickets").chmod(0o2750)
    with Inboxes(node("hoff")) as inboxes:
        inboxes.send_ticket("hoff", "trees", 1, b"{}")
    assert (server.inbox / "tickets/trees-0001.json").stat().st_mode & 0o777 == 0o640


# Interruptions


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


def test_inside_a_running_event_loop(sftp_server: MakeServer) -> None:
    """As in a Jupyter notebook, whose cells run in one."""
    sftp_server("hoff")

    async def cell() -> list[str]:
        with Inboxes(node("hoff")) as inboxes:
            inboxes.send_ticket("hoff", "trees", 1, b"{}")
            return inboxes.tickets("hoff")

    assert asyncio.run(cell()) == ["trees-0001.json"]


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


def test_closing_ends_the_thread_and_using_it_again_reconnects(sftp_server: MakeServer) -> None:
    sftp_server("hoff")
    before = threading.active_count()
    inboxes = Inboxes(node("hoff"))
    assert inboxes.connect() == {"hoff": None}
    inboxes.close()
    assert threading.active_count() == before
    assert inboxes.tickets("hoff") == []
    inboxes.close()
    inboxes.close()


# Helpers


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


@contextlib.contextmanager
def agent(ssh_home: SshHome) -> Iterator[Path]:
    socket = ssh_home.home / "agent"
    daemon = Daemon(
        [program("ssh-agent"), "-D", "-a", str(socket)], log=ssh_home.home / "agent.log"
    )
    daemon.start()
    try:
        wait_until(socket.exists, alive=[daemon])
        yield socket
    finally:
        daemon.kill()


def kill_sessions(server: SftpServer) -> int:
    """SIGKILL every session of a server, not the server."""
    children = psutil.Process(server.daemon.pid).children(recursive=True)
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    return len(children)


def config(ssh_home: SshHome) -> str:
    return ssh_home.config.read_text()


def replace_identity(ssh_home: SshHome, paths: list[Path]) -> None:
    lines = "".join(f"    IdentityFile {path}\n" for path in paths)
    text = re.sub(r"    IdentityFile .*\n", lambda match: lines, config(ssh_home))
    ssh_home.config.write_text(text)


def encrypt(key: Path) -> None:
    command = [program("ssh-keygen"), "-q", "-p", "-P", "", "-N", "secret", "-f", str(key)]
    subprocess.run(command, check=True, capture_output=True)


def fingerprint(server: SftpServer) -> str:
    command = [program("ssh-keygen"), "-lf", str(server.state / "host_key.pub")]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[1]


def run_commands(error: NodeError) -> None:
    """Do what a message says, word for word."""
    commands = re.findall(r"^    (\S.*)$", str(error), flags=re.MULTILINE)
    assert commands
    for command in commands:
        assert shlex.split(command)
        subprocess.run(["/bin/sh", "-c", command], check=True, capture_output=True)
