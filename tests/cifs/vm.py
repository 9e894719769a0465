"""A virtual machine with a kernel CIFS mount, and commands run in it.

Owns one QEMU process. All its traffic is QEMU's own user-mode network: the machine reaches servers
on this one's loopback at `GATEWAY`, and its sshd is reached at a port of 127.0.0.1.
"""

import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence

from tests.cifs import build_image, payload
from tests.harness import Daemon, SmbServer, program, release_port, reserve_port, wait_until
from tests.processes import make_state_folder
from tests.servers import Started

GATEWAY = "10.0.2.2"
BOOT_S = 180.0
ENVIRONMENT = {
    "PYTHONPATH": "/payload/code:/payload/site",
    "PYTHONDONTWRITEBYTECODE": "0",
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
}
CODE = "/payload/code"


class Machine(Started):
    """Boots on `start`; everything written to its disk is forgotten with it."""

    def __init__(self, image: build_image.Image) -> None:
        self.state = make_state_folder("vm")
        self.port = reserve_port()
        self.key = self.state / "key"
        self._image = image
        self._console = self.state / "console.log"
        for name in ("key", "host_key"):
            command = [program("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-C", name]
            subprocess.run([*command, "-f", str(self.state / name)], check=True)
        self.known_hosts = self.state / "known_hosts"
        public = (self.state / "host_key.pub").read_text()
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {public}")
        self.daemon = Daemon(self._command(), log=self._console)
        self.boot_s = 0.0

    def _command(self) -> list[str]:
        kernel = (
            "root=/dev/vda rw console=ttyS0 quiet fastboot panic=-1 net.ifnames=0 mitigations=off"
        )
        return [
            program("qemu-system-x86_64"),
            *("-accel", "tcg,thread=multi"),
            *("-machine", "q35,hpet=off"),
            *("-cpu", "max"),
            *("-smp", "2"),
            *("-m", "2048"),
            *("-nodefaults", "-display", "none", "-no-reboot"),
            *("-serial", "stdio"),
            *("-kernel", str(self._image.kernel)),
            *("-initrd", str(self._image.ramdisk)),
            *("-append", f"{kernel} random.trust_cpu=on init=/sbin/ludwig-init"),
            *("-drive", f"file={self._image.disk},if=virtio,format=raw,snapshot=on"),
            *("-drive", f"file={self.state}/payload.tar,if=virtio,format=raw,readonly=on"),
            *("-netdev", f"user,id=net,hostfwd=tcp:127.0.0.1:{self.port}-:22"),
            *("-device", "virtio-net-pci,netdev=net"),
        ]

    def start(self) -> None:
        """Returns when commands can be run."""
        begun = time.monotonic()
        payload.write_payload(
            self.state / "payload.tar",
            host_key=self.state / "host_key",
            authorized=self.state / "key.pub",
        )
        self.daemon.start()
        wait_until(
            self._answers,
            timeout=BOOT_S,
            what="the virtual machine to boot",
            alive=[self.daemon],
            interval=0.2,
        )
        self.boot_s = time.monotonic() - begun
        there = self.run("python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])")
        if there.strip() != (wanted := payload.python_version()):
            raise RuntimeError(f"the tests run Python {wanted}, the machine has {there.strip()}")

    def _answers(self) -> bool:
        return self.popen("true", stdout=subprocess.DEVNULL).wait(30) == 0

    def ssh(self) -> list[str]:
        """The command that logs in; one connection serves them all."""
        options = {
            "BatchMode": "yes",
            "ConnectTimeout": "10",
            "ControlMaster": "auto",
            "ControlPath": self.state / "control",
            "ControlPersist": "yes",
            "GlobalKnownHostsFile": "/dev/null",
            "IdentitiesOnly": "yes",
            "IdentityFile": self.key,
            "LogLevel": "ERROR",
            "StrictHostKeyChecking": "yes",
            "UserKnownHostsFile": self.known_hosts,
        }
        command = [program("ssh"), "-F", "none", "-p", str(self.port), "-l", "root"]
        return [*command, *(f"-o{k}={v}" for k, v in options.items()), "127.0.0.1"]

    def popen(
        self,
        *command: str,
        env: Mapping[str, str] | None = None,
        stdout: int | None = subprocess.PIPE,
    ) -> "subprocess.Popen[str]":
        """Start a command in the machine; its output and exit status are those of the process."""
        given = ENVIRONMENT | dict(env or {})
        words = ["cd", CODE, ";", "exec", "env", *(f"{k}={v}" for k, v in given.items()), *command]
        line = " ".join(word if word == ";" else shlex.quote(word) for word in words)
        return subprocess.Popen(
            [*self.ssh(), line],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.STDOUT if stdout == subprocess.PIPE else subprocess.DEVNULL,
            text=True,
        )

    def run(
        self, *command: str, env: Mapping[str, str] | None = None, timeout: float = 60.0
    ) -> str:
        """What a command printed; it must succeed."""
        process = self.popen(*command, env=env)
        try:
            said, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            said, _ = process.communicate()
            raise AssertionError(f"{command!r} took over {timeout:g} s:\n{said}") from None
        if process.returncode != 0:
            raise AssertionError(f"{command!r} ended with {process.returncode}:\n{said}")
        return said

    def write(self, path: str, text: str) -> None:
        script = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text(sys.argv[2])"
        self.run("python3", "-c", script, path, text)

    def mount(self, server: SmbServer, path: str, *options: str) -> None:
        """Mount a share of a server on this machine's loopback, with a cache of its own."""
        given = ["vers=3.1.1", f"port={server.port}", "nosharesock", f"username={server.user}"]
        given += [f"password={server.password}", *options]
        self.run("mkdir", "-p", path)
        share = f"//{GATEWAY}/{server.share}"
        self.run("mount", "-t", "cifs", share, path, "-o", ",".join(given))

    def unmount(self, *paths: str) -> None:
        if self.daemon.poll() is None:
            self.run("umount", "--lazy", *paths)

    def console(self) -> str:
        return self._console.read_text(errors="replace")

    def close(self) -> None:
        closing: Sequence[str] = [*self.ssh()[:-1], "-O", "exit", "127.0.0.1"]
        subprocess.run(closing, capture_output=True)
        self.daemon.kill()
        release_port(self.port)
        shutil.rmtree(self.state, ignore_errors=True)
