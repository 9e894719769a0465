"""The demo's lab over the real protocols: one smbd, and an sshd for each node, on loopback.

Needs no root: both run as whoever started the demo, on free ports, with everything they write in
the demo's folder (or, for want of a short path, in one that goes with them). The nodes speak SMB
without a mount, and the client reaches their inboxes by SFTP with a key made for this demo. Not an
example of a secure server: see `deploy/` for that.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from ludwig import errors
from ludwig.client.embedded import EmbeddedLab, end_processes
from ludwig.client.lab import Lab
from ludwig.drive import Drive
from ludwig.drives import open_drive

__all__ = ["ServedLab"]

SHARE = "research_data"
START_S = 10.0
SHORT = 70
PRIVILEGE_SEPARATION = Path("/run/sshd")
PACKAGES = {
    "smbd": "samba",
    "pdbedit": "samba",
    "sshd": "openssh-server",
    "ssh-keygen": "openssh-client",
}


class ServedLab(EmbeddedLab):
    """An `EmbeddedLab` whose drive is an SMB share, and whose inboxes are behind SFTP.

    Sets HOME for this process, for ssh's configuration and keys are looked for there.
    """

    def __init__(
        self, folder: Path, hosts: Sequence[str], *, node_silent_s: float, project: str
    ) -> None:
        super().__init__(folder, hosts, node_silent_s=node_silent_s, project=project)
        self._programs = {name: _find(name) for name in PACKAGES}
        self._user = getpass.getuser()
        self._password = secrets.token_hex(12)
        self._ports = {name: _free_port() for name in ("smbd", *hosts)}
        self._home = self.folder / "home"
        self._servers: dict[str, subprocess.Popen[bytes]] = {}
        self._made_privilege_separation = False
        self._elsewhere: Path | None = None

    # --- how this lab differs ----------------------------------------------------------------

    def drive_keys(self) -> Mapping[str, object]:
        keys = {"url": self._url, "user": self._user, "node_silent_s": self._silent_s}
        return {**keys, "encrypt": True}

    def node_keys(self, host: str) -> Mapping[str, object]:
        return {"address": host}

    def open_drive(self) -> Drive:
        return open_drive(self._url, user=self._user, password=self._password, encrypt=True)

    def agent_environment(self) -> dict[str, str]:
        return {**super().agent_environment(), "LUDWIG_SMB_PASSWORD": self._password}

    def start(self) -> Lab:
        os.environ["HOME"] = str(self._home)
        self.drive_folder.mkdir(parents=True, exist_ok=True)
        self._start_smbd()
        self._make_ssh_home()
        for host in self.hosts:
            self.inbox(host).mkdir(parents=True, exist_ok=True)
            self._start_sshd(host)
        return super().start()

    def kill_node(self, host: str) -> None:
        super().kill_node(host)
        self._end_servers([host])

    def kill(self) -> None:
        super().kill()
        self._end_servers(["smbd", *self.hosts])
        if self._elsewhere is not None:
            shutil.rmtree(self._elsewhere, ignore_errors=True)
        if self._made_privilege_separation:
            with contextlib.suppress(OSError):
                PRIVILEGE_SEPARATION.rmdir()

    # --- the file server ---------------------------------------------------------------------

    @property
    def _url(self) -> str:
        return f"smb://127.0.0.1:{self._ports['smbd']}/{SHARE}"

    def _start_smbd(self) -> None:
        state = self._short_state("smbd")
        folders = ("cache directory", "lock directory", "ncalrpc dir", "pid directory")
        settings = {name: state / name.split()[0] for name in folders}
        settings |= {name: state / name.split()[0] for name in ("private dir", "state directory")}
        for folder in settings.values():
            folder.mkdir()
        rest = {
            "server role": "standalone server",
            "interfaces": "127.0.0.1/8",
            "bind interfaces only": "yes",
            "smb ports": self._ports["smbd"],
            "disable netbios": "yes",
            "server min protocol": "SMB3",
            "passdb backend": f"tdbsam:{state / 'passdb.tdb'}",
            "log file": state / "log",
            "load printers": "no",
            "printcap name": "/dev/null",
            "disable spoolss": "yes",
            "rpc start on demand helpers": "no",
        }
        share: dict[str, object] = {"path": self.drive_folder, "read only": "no"}
        if os.geteuid() == 0:
            share["force user"] = self._user
        config = state / "smb.conf"
        config.write_text(
            _section("global", {**settings, **rest}) + _section(SHARE, share), encoding="utf-8"
        )
        subprocess.run(
            [self._programs["pdbedit"], "--configfile", config, "-a", "-t", self._user],
            input=f"{self._password}\n{self._password}\n",
            text=True,
            check=True,
            capture_output=True,
        )
        command = [self._programs["smbd"], "--foreground", "--no-process-group", "--debug-stdout"]
        self._serve("smbd", [*command, "--configfile", str(config)])

    # --- the nodes' inboxes ------------------------------------------------------------------

    def _make_ssh_home(self) -> None:
        folder = self._home / ".ssh"
        folder.mkdir(parents=True, mode=0o700)
        self._make_key(folder / "id_ed25519")
        lines = [
            f"IdentityFile {folder / 'id_ed25519'}",
            "IdentitiesOnly yes",
            f"UserKnownHostsFile {folder / 'known_hosts'}",
        ]
        for host in self.hosts:
            lines += [f"Host {host}", "    HostName 127.0.0.1", f"    Port {self._ports[host]}"]
        (folder / "config").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def _start_sshd(self, host: str) -> None:
        state = self._state(host)
        public = self._make_key(state / "host_key")
        port = self._ports[host]
        with (self._home / ".ssh" / "known_hosts").open("a", encoding="utf-8") as file:
            file.write(f"[127.0.0.1]:{port} {public}\n")
        settings = {
            "ListenAddress": f"127.0.0.1:{port}",
            "HostKey": state / "host_key",
            "PidFile": "none",
            "AllowUsers": self._user,
            "AuthorizedKeysFile": self._home / ".ssh" / "id_ed25519.pub",
            "StrictModes": "no",
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "UsePAM": "no",
            "DisableForwarding": "yes",
            "PermitTTY": "no",
            "Subsystem": "sftp internal-sftp",
            "ForceCommand": f"internal-sftp -d {self.inbox(host)}",
        }
        config = state / "sshd_config"
        config.write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
        if os.geteuid() == 0 and not PRIVILEGE_SEPARATION.exists():
            PRIVILEGE_SEPARATION.mkdir(mode=0o755)
            self._made_privilege_separation = True
        self._serve(host, [self._programs["sshd"], "-D", "-e", "-f", str(config)])

    def _make_key(self, path: Path) -> str:
        """A new key; returns its public half."""
        command = [self._programs["ssh-keygen"], "-q", "-t", "ed25519", "-N", "", "-C", "demo"]
        subprocess.run([*command, "-f", str(path)], check=True, capture_output=True)
        return path.with_suffix(".pub").read_text(encoding="utf-8").strip()

    # --- processes ---------------------------------------------------------------------------

    def _state(self, name: str) -> Path:
        folder = self.folder / "servers" / name
        folder.mkdir(parents=True)
        return folder

    def _short_state(self, name: str) -> Path:
        """As `_state`, but somewhere else if its sockets would not fit into their 107 bytes."""
        folder = self.folder / "servers" / name
        if len(str(folder)) <= SHORT:
            return self._state(name)
        self._elsewhere = Path(tempfile.mkdtemp(prefix="ludwig-", dir="/tmp"))
        folder.parent.mkdir(parents=True, exist_ok=True)
        return self._elsewhere

    def _serve(self, name: str, command: Sequence[str]) -> None:
        """Start a server and wait until it answers."""
        log = self.folder / "servers" / f"{name}.log"
        with log.open("ab") as out:
            server = self._servers[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )
        deadline = time.monotonic() + START_S
        while not _answers(self._ports[name]):
            if server.poll() is not None or time.monotonic() > deadline:
                tail = log.read_text("utf-8", "replace")[-2000:]
                raise errors.LudwigError(f"{command[0]} did not start:\n{tail}")
            time.sleep(0.01)

    def _end_servers(self, names: Sequence[str]) -> None:
        states = [f"{self.folder / 'servers' / name}/" for name in names]
        if self._elsewhere is not None and "smbd" in names:
            states.append(f"{self._elsewhere}/")
        marks = tuple(states)

        def family() -> list[psutil.Process]:
            """Found by their configuration file, and what has left its parent by its session."""
            started = {server.pid for name, server in self._servers.items() if name in names}
            found: dict[int, psutil.Process] = {}
            for process in psutil.process_iter(["cmdline"]):
                words = process.info["cmdline"] or ()
                ours = process.pid in started or any(word.startswith(marks) for word in words)
                with contextlib.suppress(OSError):
                    ours = ours or os.getsid(process.pid) in started
                if ours:
                    found[process.pid] = process
                    with contextlib.suppress(psutil.NoSuchProcess):
                        found |= {child.pid: child for child in process.children(recursive=True)}
            return list(found.values())

        end_processes(family)
        for name in names:
            if (server := self._servers.pop(name, None)) is not None:
                server.wait()


def _find(name: str) -> str:
    """A program's path; servers are not on everybody's PATH."""
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"
    found = shutil.which(name, path=path)
    if found is None:
        raise errors.UsageError(
            f"--smb needs {name}, which is not installed (Debian: apt install {PACKAGES[name]}). "
            "Without --smb the demo needs no servers."
        )
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _section(name: str, settings: Mapping[str, object]) -> str:
    lines = [f"    {key} = {value}" for key, value in settings.items()]
    return "\n".join([f"[{name}]", *lines, ""])
