"""Owns a real SMB server (Samba's smbd) on loopback, as root or not."""

import os
import pwd
import secrets
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.processes import (
    Daemon,
    accepts_connections,
    make_state_folder,
    release_port,
    reserve_port,
    wait_until,
)
from tests.tools import program

STATE_FOLDERS = (
    "cache directory",
    "lock directory",
    "ncalrpc dir",
    "pid directory",
    "private dir",
    "state directory",
)


class SmbServer:
    """One smbd with one share. The files behind it belong to whoever runs the tests.

    `global_settings` and `share_settings` are lines of smb.conf, e.g. `{"read only": "yes"}`;
    they win over the defaults here.
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

    def start(self) -> None:
        """Start serving; returns when connections are accepted. Also after stop() or kill()."""
        if not self.config.exists():
            self._configure()
        self.daemon.start()
        wait_until(
            lambda: accepts_connections(self.port),
            what=f"smbd to listen on port {self.port}",
            alive=[self.daemon],
            interval=0.002,
        )

    def stop(self) -> None:
        """End it in an orderly way. Its port and its files stay for the next start()."""
        self.daemon.stop()

    def kill(self) -> None:
        """End it as a power cut would."""
        self.daemon.kill()

    def restart(self) -> None:
        """Kill it, and start it again on the same port with the same files."""
        self.kill()
        self.start()

    def suspend(self) -> None:
        """Let it hang: connections stay open, no request is answered, until resume()."""
        self.daemon.suspend()

    def resume(self) -> None:
        self.daemon.resume()

    def close(self) -> None:
        """End it and remove everything, the files behind the share included."""
        self.kill()
        release_port(self.port)
        shutil.rmtree(self.state, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

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
