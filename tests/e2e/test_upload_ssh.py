"""Which nodes are believed and how one logs in: host keys, identities, ssh's configuration.

Whatever SSH refuses is said with the command that mends it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ludwig.client.upload import Inboxes
from ludwig.config import NodeConfig
from ludwig.errors import HostKeyRefused, LoginRefused, NodeError, NodeUnreachable
from tests.harness import Daemon, SftpServer, SshHome, program, wait_until
from tests.inboxes import Jump, MakeServer, config, files, node, refusal
from tests.sftp_server import make_key

pytestmark = [pytest.mark.needs_sshd, pytest.mark.usefixtures("own_home")]


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
