"""Owns real SFTP servers (OpenSSH's sshd) on loopback, one per node, and the client's `~/.ssh`.

As root an account is jailed as on a node of a lab: chroot, internal-sftp, key only. Otherwise the
only account is one's own, without a jail, and starts in the inbox.
"""

import os
import pwd
import shutil
import subprocess
from pathlib import Path

from tests import jail_users
from tests.processes import Daemon, make_state_folder, reserve_port
from tests.servers import LoopbackServer
from tests.tools import program

# A jail must be root's all the way up, so it cannot be in a folder for temporary files.
JAILS = Path("/var/lib")
PRIVILEGE_SEPARATION = Path("/run/sshd")


class SshHome:
    """A home folder with a `.ssh` that knows the servers of a test: key, config, known_hosts."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.folder = home / ".ssh"
        self.folder.mkdir(mode=0o700, parents=True)
        self.config = self.folder / "config"
        self.known_hosts = self.folder / "known_hosts"
        self.private_key = make_key(self.folder / "id_ed25519")
        self.config.touch(mode=0o600)
        self.known_hosts.touch(mode=0o600)

    @property
    def public_key(self) -> str:
        return self.private_key.with_suffix(".pub").read_text()

    def add_host(self, host: str, *, port: int, user: str, host_key: str) -> None:
        """Let `ssh HOST` (with `-F config`, or with HOME set) reach a server and trust it."""
        with self.known_hosts.open("a") as file:
            file.write(f"[127.0.0.1]:{port} {host_key}\n")
        with self.config.open("a") as file:
            file.write(
                f"Host {host}\n"
                f"    HostName 127.0.0.1\n"
                f"    Port {port}\n"
                f"    User {user}\n"
                f"    IdentityFile {self.private_key}\n"
                f"    IdentitiesOnly yes\n"
                f"    UserKnownHostsFile {self.known_hosts}\n"
                f"    StrictHostKeyChecking yes\n"
                f"    BatchMode yes\n"
            )


class SftpServer(LoopbackServer):
    """One node's sshd. What a client uploads into `.` appears in `inbox` on this machine.

    With `accounts` above one, further users share the inbox; they are hosts `NAME-2`, `NAME-3` …
    of the client's config. Accounts above one need root.
    """

    def __init__(self, name: str, ssh: SshHome, *, accounts: int = 1) -> None:
        self.name = name
        self.ssh = ssh
        self.jailed = os.geteuid() == 0
        if accounts > 1 and not self.jailed:
            raise ValueError("only root can have several accounts")
        self.port = reserve_port()
        self.state = make_state_folder("sftp", JAILS if self.jailed else None)
        self.state.chmod(0o755)
        self.jail = self.state / "jail"
        self.inbox = self.jail / "inbox"
        self.users = [self._take_user() for _ in range(accounts)]
        self._make_jail()
        self._configure()
        command = [program("sshd"), "-D", "-e", "-f", str(self.state / "sshd_config")]
        self.daemon = Daemon(command, log=self.state / "sshd.log")

    @property
    def user(self) -> str:
        return self.users[0]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def prepare(self) -> None:
        if self.jailed:
            PRIVILEGE_SEPARATION.mkdir(mode=0o755, exist_ok=True)

    def close(self) -> None:
        """End it, remove the jail and give the users back."""
        super().close()
        if self.jailed:
            for user in self.users:
                jail_users.give_back(user)
            self.users.clear()

    def _take_user(self) -> str:
        return jail_users.take() if self.jailed else pwd.getpwuid(os.geteuid()).pw_name

    def _make_jail(self) -> None:
        self.jail.mkdir()
        self.inbox.mkdir()
        if not self.jailed:
            return
        self.jail.chmod(0o755)
        if len(self.users) == 1:
            shutil.chown(self.inbox, user=self.user, group="nogroup")
        else:
            self.inbox.chmod(0o1777)

    def _configure(self) -> None:
        host_key = make_key(self.state / "host_key")
        public = " ".join(host_key.with_suffix(".pub").read_text().split()[:2])
        for number, user in enumerate(self.users, start=1):
            host = self.name if number == 1 else f"{self.name}-{number}"
            self.ssh.add_host(host, port=self.port, user=user, host_key=public)
        authorized = self.state / "authorized_keys"
        authorized.write_text(self.ssh.public_key)
        start_folder = "/inbox" if self.jailed else str(self.inbox)
        settings = {
            "ListenAddress": f"127.0.0.1:{self.port}",
            "HostKey": host_key,
            "PidFile": "none",
            "LogLevel": "VERBOSE",
            "UseDNS": "no",
            "MaxStartups": "100",
            "AllowUsers": " ".join(self.users),
            "AuthorizedKeysFile": authorized,
            "StrictModes": "no",
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "UsePAM": "no",
            "DisableForwarding": "yes",
            "PermitTTY": "no",
            "Subsystem": "sftp internal-sftp",
            "ForceCommand": f"internal-sftp -d {start_folder}",
        }
        if self.jailed:
            settings["ChrootDirectory"] = self.jail
        lines = [f"{key} {value}\n" for key, value in settings.items()]
        (self.state / "sshd_config").write_text("".join(lines))


def make_key(path: Path) -> Path:
    command = [program("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-C", "test"]
    command += ["-f", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    return path
