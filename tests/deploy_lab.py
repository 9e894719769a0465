"""A lab set up by `deploy/` and nothing else: a file server, nodes, an administrator, two members.

Machines are booted when first asked for, and shared by all tests that ask.
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path

import pytest

from tests.deploy_machines import (
    ROOT,
    Machine,
    Network,
    build_wheel,
    copy_checkout,
    need_machines,
    scratch_folder,
    wheelhouse,
)
from tests.processes import wait_until
from tests.sftp_server import make_key

ADDRESSES = {
    "fileserver": "127.0.0.10",
    "hoff": "127.0.0.11",
    "hebb": "127.0.0.12",
    "norman": "127.0.0.13",
}
MEMBERS = ("ana", "bob")
DRIVE = "smb://fileserver/research_data"
URL = f"smb://{ADDRESSES['fileserver']}/research_data"


class DeployLab:
    """`server` and `hoff` are set up by the scripts; `machine(…)` is a bare Debian."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self._stack = folder, stack
        self.network = stack.enter_context(Network())
        self._machines: dict[str, Machine] = {}
        self.keys = folder / "keys"
        self.keys.mkdir()
        for name in ("admin", *MEMBERS):
            make_key(folder / name)
        for name in MEMBERS:
            (self.keys / f"{name}.pub").write_text((folder / f"{name}.pub").read_text())

    @cached_property
    def checkout(self) -> Path:
        return copy_checkout(self.folder / "checkout")

    @cached_property
    def wheel(self) -> Path:
        return build_wheel(self.folder)

    # --- machines ------------------------------------------------------------------------------

    def machine(self, name: str) -> Machine:
        """A machine with `deploy/` in /root, and the administrator's key."""
        if name not in self._machines:
            machine = self._stack.enter_context(
                Machine(
                    name,
                    self.network,
                    address=ADDRESSES[name],
                    hosts=ADDRESSES,
                    serves_files=name == "fileserver",
                )
            )
            machine.copy_in(ROOT / "deploy", "/root")
            key = (self.folder / "admin.pub").read_text()
            machine.check(
                "umask 077; mkdir -p /root/.ssh; cat >>/root/.ssh/authorized_keys", stdin=key
            )
            self._machines[name] = machine
        return self._machines[name]

    @cached_property
    def server(self) -> Machine:
        machine = self.machine("fileserver")
        machine.check(f"/root/deploy/install-server.sh --members {','.join(MEMBERS)}")
        return machine

    @cached_property
    def hoff(self) -> Machine:
        machine = self.machine("hoff")
        self.prepare(machine)
        machine.check(self.install_node())
        return machine

    def prepare(self, machine: Machine) -> None:
        """Bring what install-node.sh is told to use."""
        machine.copy_in(self.wheel, "/root")
        machine.copy_in(wheelhouse(), "/root")
        machine.copy_in(self.keys, "/root")
        machine.check("umask 077; cat >/root/password", stdin=self.node_password)

    def install_node(self, *options: str) -> str:
        words = ["/root/deploy/install-node.sh", "--drive", DRIVE, "--no-mount", "--slots", "2"]
        words += ["--password", "/root/password", "--keys", "/root/keys"]
        words += ["--wheel", f"/root/{self.wheel.name}"]
        words += ["--wheelhouse", f"/root/{wheelhouse().name}", "--set", "grace_s=2", *options]
        return " ".join(words)

    # --- people --------------------------------------------------------------------------------

    @cached_property
    def node_password(self) -> str:
        return self.server.check("cat /etc/ludwig/node.password").strip()

    def password(self, member: str) -> str:
        """The first password that the administrator hands to a member."""
        lines = self.server.check("cat /etc/ludwig/first-passwords").splitlines()
        return dict(line.split(":", 1) for line in lines)[member]

    def ssh_options(self, key: str) -> list[str]:
        return ["-F", str(self.ssh_home(key, "ludwig") / ".ssh/config")]

    def ssh_home(self, member: str, account: str) -> Path:
        """A home whose ~/.ssh reaches every machine with the member's key."""
        home = self.folder / f"home-{member}-{account}"
        if not home.exists():
            (home / ".ssh").mkdir(parents=True, mode=0o700)
            lines = [
                f"Host {name}\n  HostName {address}\n  User {account}\n"
                for name, address in ADDRESSES.items()
            ]
            lines += [
                f"Host *\n  IdentityFile {self.folder / member}\n  IdentitiesOnly yes\n",
                "  StrictHostKeyChecking accept-new\n  BatchMode yes\n",
                f"  UserKnownHostsFile {home / '.ssh/known_hosts'}\n",
            ]
            (home / ".ssh" / "config").write_text("".join(lines))
            (home / ".ssh" / "known_hosts").write_text(self._host_keys())
        return home

    def _host_keys(self) -> str:
        public = self.server.check("cat /etc/ssh/ssh_host_ed25519_key.pub").split()[:2]
        return "".join(f"{address} {' '.join(public)}\n" for address in ADDRESSES.values())

    def ludwig(self, member: str, account: str, project: Path, *words: str) -> dict[str, object]:
        """`ludwig … --json`, as a member types it on a laptop. Fails with all it said."""
        env = {
            "HOME": str(self.ssh_home(member, account)),
            "LUDWIG_SMB_PASSWORD": self.password(member),
            "LUDWIG_CONFIG": str(project / "ludwig.toml"),
        }
        command = [str(Path(sys.executable).parent / "ludwig"), *words, "--json"]
        run = self.network.run(command, env=env, cwd=project)
        assert run.returncode == 0, f"{command}\n{run.stdout}{run.stderr}"
        answer: dict[str, object] = json.loads(run.stdout)
        return answer

    def project(self, name: str, code: str, *, member: str, nodes: str) -> Path:
        """A project as a member has it: a lab's configuration and src/run.py."""
        folder = self.folder / f"{name}-{member}"
        (folder / "src").mkdir(parents=True)
        (folder / "src" / "run.py").write_text(code)
        tables = "".join(f'[nodes.{node}]\naddress = "{node}"\n' for node in nodes.split())
        (folder / "ludwig.toml").write_text(
            f'project = "{name}"\n[drive]\nurl = "{URL}"\nuser = "{member}"\n{tables}'
        )
        return folder

    def wait_for(
        self, member: str, account: str, project: Path, state: str
    ) -> list[dict[str, object]]:
        """Until all tasks of the project's last job are in this state."""

        def looked() -> list[dict[str, object]]:
            answer = self.ludwig(member, account, project, "status")
            (job,) = answer["jobs"][-1:]  # type: ignore[index]
            if "tasks" not in job:
                answer = self.ludwig(member, account, project, "status", str(job["job"]))
                (job,) = answer["jobs"]  # type: ignore[misc]
            tasks: list[dict[str, object]] = job["tasks"]
            if any(task["state"] in ("failed", "lost") for task in tasks):
                pytest.fail(f"waited for {state}: {json.dumps(tasks, indent=1)}")
            assert all(task["state"] == state for task in tasks), tasks
            return tasks

        return wait_until(looked, timeout=240, interval=0.5, what=f"all tasks {state}")

    def lab_py(self, *words: str) -> "tuple[int, str]":
        """The administrator's command, with the inventory in `folder`."""
        config = self.ssh_home("admin", "root") / ".ssh" / "config"
        command = [sys.executable, str(self.checkout / "deploy" / "lab.py"), *words]
        command += ["--lab", str(self.folder / "lab.toml"), "-F", str(config)]
        run = self.network.run(command, env={"PYTHONDONTWRITEBYTECODE": "1"})
        return run.returncode, run.stdout + run.stderr


@pytest.fixture(scope="session")
def deploy_lab() -> Iterator[DeployLab]:
    """Machines of their own. Tests that use it are marked xdist_group("deploy")."""
    need_machines()
    if "PYTEST_XDIST_WORKER" in os.environ:
        os.nice(5)  # others wait for milliseconds while this waits for package managers
    with scratch_folder() as folder, ExitStack() as stack:
        yield DeployLab(folder, stack)
