"""Owns a real SMB server (Samba's smbd) on loopback, as root or not."""

import os
import pwd
import secrets
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.processes import Daemon, make_state_folder, reserve_port
from tests.servers import LoopbackServer
from tests.tools import program

STATE_FOLDERS = (
    "cache directory",
    "lock directory",
    "ncalrpc dir",
    "pid directory",
    "private dir",
    "state directory",
)


class SmbServer(LoopbackServer):
    """One smbd with one share. The files behind it belong to whoever runs the tests.

    `global_settings` and `share_settings` are lines of smb.conf, e.g. `{"read only": "yes"}`;
    they win over the defaults here. `close` removes the
    files behind the share too, unless they are in a `folder` of somebody else's.
    """

    def __init__(
        self,
        *,
        folder: Path | None = None,
        share: str = "research_data",
        global_settings: Mapping[str, str] | None = None,
        share_settings: Mapping[str, str] | None = None,
    ) -> None:
        # Not below pytest's folders: Samba's sockets allow paths of 107 bytes only.
        self.state = make_state_folder("smb")
        self.folder = folder or self.state / "share"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.share = share
        self.user = pwd.getpwuid(os.geteuid()).pw_name
        self.password = secrets.token_hex(8)
        self.port = reserve_port()
        self.config = self.state / "smb.conf"
        self._global_settings = dict(global_settings or {})
        self._share_settings = dict(share_settings or {})
        command = [program("smbd"), "--foreground", "--no-process-group"]
        command += ["--configfile", str(self.config), "--debug-stdout"]
        self.daemon = Daemon(command, log=self.state / "smbd.log")

    @property
    def url(self) -> str:
        return f"smb://127.0.0.1:{self.port}/{self.share}"

    def prepare(self) -> None:
        if not self.config.exists():
            self._configure()

    def _configure(self) -> None:
        for folder in self._state_folders().values():
            Path(folder).mkdir(mode=0o755)
        self.config.write_text(
            section("global", self._defaults() | self._global_settings)
            + section(self.share, self._share_defaults() | self._share_settings)
        )
        command = [program("pdbedit"), "--configfile", str(self.config), "-a", "-t", self.user]
        passwords = f"{self.password}\n{self.password}\n"
        subprocess.run(command, input=passwords, text=True, check=True, capture_output=True)

    def _state_folders(self) -> dict[str, str]:
        return {key: str(self.state / key.split()[0]) for key in STATE_FOLDERS}

    def _defaults(self) -> dict[str, str]:
        return self._state_folders() | {
            "server role": "standalone server",
            "interfaces": "127.0.0.1/8",
            "bind interfaces only": "yes",
            "smb ports": str(self.port),
            "disable netbios": "yes",
            "server min protocol": "SMB3",
            "server signing": "mandatory",
            "passdb backend": f"tdbsam:{self.state / 'passdb.tdb'}",
            "log file": str(self.state / "log"),
            "map to guest": "never",
            "load printers": "no",
            "printcap name": "/dev/null",
            "disable spoolss": "yes",
            "usershare max shares": "0",
            # The helpers would leave our session, and are needed for listing shares only.
            "rpc start on demand helpers": "no",
            "log level": "1",
        }

    def _share_defaults(self) -> dict[str, str]:
        settings = {"path": str(self.folder), "read only": "no"}
        if os.geteuid() == 0:
            settings["force user"] = self.user
        return settings


def section(name: str, settings: Mapping[str, str]) -> str:
    lines = [f"    {key} = {value}" for key, value in settings.items()]
    return "\n".join([f"[{name}]", *lines, ""])


@dataclass(frozen=True)
class SmbShare:
    """A fresh folder on a server that other tests use too: do not stop or suspend that one."""

    server: SmbServer
    path: str

    @property
    def folder(self) -> Path:
        """The folder behind it, on this machine."""
        return self.server.folder / self.path

    @property
    def url(self) -> str:
        return f"{self.server.url}/{self.path}"

    @property
    def port(self) -> int:
        return self.server.port

    @property
    def share(self) -> str:
        return self.server.share

    @property
    def user(self) -> str:
        return self.server.user

    @property
    def password(self) -> str:
        return self.server.password
