"""A lab as LudwigCluster had it: a file server, two jailed nodes, the drive at its old path.

Real `smbd` and `sshd`. A node is a process with a host name of its own and a `/media` of its own,
in which the server's folder is bound to `/media/research_data` (no kernel here has cifs). The
laptop speaks SMB; its only configuration is `~/.config/ludwig/ludwig.toml`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from ludwig.client.client import Client
from ludwig.client.job import Job
from tests.harness import SftpServer, SmbServer, SshHome
from tests.lab import Lab

EXAMPLES = Path(__file__).parent.parent / "examples" / "legacy"
HOSTS = ("hoff", "hebb")
NEEDED = [
    pytest.mark.needs_smbd,
    pytest.mark.needs_sshd,
    pytest.mark.needs_unshare,
    pytest.mark.needs_root,
]
"""`pytestmark` of a module with an `OldLab`."""
MOUNT = "/media/research_data"
_ENTER = (
    'hostname "$1" && mount -t tmpfs tmpfs /media && mkdir "$3" && mount --bind "$2" "$3" '
    '&& shift 3 && exec "$@"'
)


def entering(host: str, folder: Path) -> list[str]:
    """The beginning of a command that runs on `host`, where `folder` is the mounted drive."""
    return ["unshare", "-u", "-m", "sh", "-c", _ENTER, "node", host, str(folder), MOUNT]


class OldLab:
    """`start` brings up the nodes; projects are copied to the laptop with `project`."""

    def __init__(self, folder: Path, *, slots: int = 1, silent_s: float = 2.0) -> None:
        self.folder = folder
        self._slots, self._silent_s = slots, silent_s
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.ssh = SshHome(self.folder / "laptop")
            self.smb = stack.enter_context(SmbServer())
            lab = Lab(self.folder, hosts=HOSTS, smb=self.smb, silent_s=self._silent_s)
            self.lab = stack.enter_context(lab)
            for host in HOSTS:
                server = stack.enter_context(SftpServer(host, self.ssh))
                self.lab[host].configure(
                    inbox=str(server.inbox), slots=self._slots, drive={"url": MOUNT}
                )
                self.lab[host].wrap(*entering(host, self.smb.folder))
            self._write_config()
            self.lab.start()
            self._open = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.__exit__(kind, error, trace)

    def _write_config(self) -> None:
        path = self.ssh.home / ".config" / "ludwig" / "ludwig.toml"
        path.parent.mkdir(parents=True)
        nodes = "".join(f'[nodes.{host}]\ngroups = ["{host[0]}s"]\n' for host in HOSTS)
        path.write_text(
            f'[drive]\nurl = "{self.smb.url}"\nuser = "{self.smb.user}"\nmount = "{MOUNT}"\n'
            f"node_silent_s = {self._silent_s}\n{nodes}"
        )

    def project(self, example: str) -> Path:
        """A fresh copy of an example on the laptop."""
        target = self.folder / "projects" / example
        shutil.copytree(EXAMPLES / example, target, ignore=shutil.ignore_patterns("__pycache__"))
        return target

    def start(self, project: Path, *command: str, mounted: bool = False) -> subprocess.Popen[str]:
        """A command in a project's folder; `mounted`: where the laptop has the drive mounted."""
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("LUDWIG", "XDG"))},
            "HOME": str(self.ssh.home),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "LUDWIG_SMB_PASSWORD": self.smb.password,
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        words: Sequence[str] = [*entering("laptop", self.smb.folder), *command]
        return subprocess.Popen(
            words if mounted else command,
            cwd=project,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, project: Path, *command: str, mounted: bool = False, status: int = 0) -> str:
        """What a command printed, both streams."""
        process = self.start(project, *command, mounted=mounted)
        out, err = process.communicate(timeout=90)
        assert process.returncode == status, f"{process.returncode}\n{out}\n{err}"
        return out + err

    def client(self, project: str) -> Client:
        return Client(project, lab=self.lab.client)

    def wait(self, project: str) -> list[Job]:
        """Wait until every job of a project is over; all their tasks must have ended well."""
        client = self.client(project)
        jobs = [client.job(one.job) for one in client.jobs()]
        for job in jobs:
            assert set(self.lab.wait(job).values()) and set(self.lab.outcomes(job)) == {"done"}
        return jobs

    def runs(self, project: str) -> dict[str, list[Path]]:
        """The run folders of each configuration, as they lie on the file server."""
        top = self.smb.folder / project / "runs"
        return {
            place.name: sorted(path for path in place.iterdir() if path.is_dir())
            for place in sorted(top.iterdir())
        }

    def counts(self, project: str) -> list[int]:
        """How many runs each configuration has."""
        return [len(runs) for runs in self.runs(project).values()]
