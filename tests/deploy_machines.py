"""Owns whole Debian machines for the tests of `deploy/`: real systemd, sshd and smbd in containers.

The root file system is built once from Debian's packages and kept in `.cache/`, which git ignores;
every machine is a copy-on-write layer over it. All machines of a test are in one network namespace
that has nothing but loopback, each with an address of its own: nobody reaches the outside.
"""

import contextlib
import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil
import pytest

from tests.processes import Daemon, make_state_folder, wait_until
from tests.tools import SKIP_PREFIX, program, require

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache"
MEMORY = Path("/dev/shm")
PACKAGES = (
    "acl,ca-certificates,cifs-utils,dbus,libpam-systemd,openssh-server,procps,python3-venv,samba,"
    "smbclient,sudo,systemd,systemd-sysv"
)
# What would only wait for a network, a clock or a person.
MASKED = (
    "apt-daily.timer apt-daily-upgrade.timer console-getty.service dpkg-db-backup.timer "
    "e2scrub_all.timer fstrim.timer nmbd.service samba-ad-dc.service "
    "systemd-networkd.service systemd-networkd-wait-online.service systemd-resolved.service "
    "systemd-timesyncd.service winbind.service"
)
VERSION = "1"


def need_machines() -> None:
    """Skip (fail with CI=true) where containers cannot be had."""
    require("root", "ip", "sshd", "mmdebstrap", "systemd-nspawn")


def _apt_sources() -> Path:
    """Where this machine has its Debian packages from."""
    for path in (
        Path("/etc/apt/sources.list.d/debian.sources"),
        Path("/etc/apt/sources.list"),
    ):
        if path.is_file() and path.stat().st_size:
            return path
    pytest.skip(f"{SKIP_PREFIX}Debian's own package sources")


def _fastest() -> Path:
    """Where layers go: memory, if there is plenty. Package managers flush every file."""
    plenty = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 4 << 30
    return MEMORY if plenty else Path("/var/lib")


@contextlib.contextmanager
def _locked(name: str) -> Iterator[None]:
    CACHE.mkdir(exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def root_file_system() -> Path:
    """A Debian of this machine's release, with the packages that nodes and servers need."""
    suite = _suite()
    recipe = hashlib.sha256(f"{VERSION} {suite} {PACKAGES} {MASKED}".encode()).hexdigest()[:12]
    target = CACHE / f"rootfs-{recipe}"
    with _locked("rootfs"):
        if not target.exists():
            for old in CACHE.glob("rootfs-*"):
                shutil.rmtree(old)
            _build(suite, target)
    return target


def _suite() -> str:
    lines = Path("/etc/os-release").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)["VERSION_CODENAME"].strip('"')


def _build(suite: str, target: Path) -> None:
    masks = " ".join(MASKED.split())
    hooks = [
        f'chroot "$1" systemctl -q mask {masks}',
        'rm -f "$1"/etc/ssh/ssh_host_* "$1"/etc/machine-id; touch "$1"/etc/machine-id',
        'chroot "$1" ssh-keygen -q -t ed25519 -N "" -f /etc/ssh/ssh_host_ed25519_key',
        'rm -rf "$1"/usr/share/doc "$1"/usr/share/man "$1"/usr/share/locale',
    ]
    command = [program("mmdebstrap"), "--quiet", "--variant=apt", "--skip=check/qemu"]
    command += ["--aptopt=APT::Install-Recommends false", f"--include={PACKAGES}"]
    command += [f"--customize-hook={hook}" for hook in hooks]
    building = CACHE / f"building-{os.getpid()}"
    result = subprocess.run(
        [*command, suite, str(building), str(_apt_sources())], capture_output=True, text=True
    )
    if result.returncode != 0:
        shutil.rmtree(building, ignore_errors=True)
        message = f"Debian's packages ({result.stderr[-500:]})"
        if os.environ.get("CI") == "true":
            pytest.fail(SKIP_PREFIX + message)
        pytest.skip(SKIP_PREFIX + message)
    building.rename(target)


def wheelhouse() -> Path:
    """The packages an agent needs, for machines that cannot download."""
    requirements = ROOT / "deploy" / "node-requirements.txt"
    digest = hashlib.sha256(VERSION.encode() + requirements.read_bytes()).hexdigest()[:12]
    target = CACHE / f"wheelhouse-{digest}"
    with _locked("wheelhouse"):
        if not target.exists():
            for old in CACHE.glob("wheelhouse-*"):
                shutil.rmtree(old)
            building = CACHE / f"wheels-{os.getpid()}"
            command = [sys.executable, "-m", "pip", "--quiet", "download", "--only-binary=:all:"]
            command += ["-d", str(building), "-r", str(requirements), "setuptools>=77"]
            subprocess.run(command, check=True, capture_output=True)
            building.rename(target)
    return target


def copy_checkout(folder: Path) -> Path:
    """What a checkout has of Ludwig, as it is now: this one may change under a test."""
    folder.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    for name in ("ludwig", "client", "worker", "deploy"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    return folder


def build_wheel(folder: Path, *, version: str | None = None) -> Path:
    """Ludwig as a wheel, calling itself by another version if asked to."""
    source = copy_checkout(folder / f"source-{version or 'now'}")
    if version is not None:
        path = source / "ludwig" / "__init__.py"
        text = path.read_text()
        lines = [
            f'__version__ = "{version}"' if line.startswith("__version__") else line
            for line in text.splitlines()
        ]
        path.write_text("\n".join(lines) + "\n")
    out = folder / f"wheel-{version or 'now'}"
    command = [sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps"]
    command += ["--no-build-isolation", "-w", str(out), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    return next(out.glob("*.whl"))


def clear_forgotten_machines() -> None:
    """End the machines, and remove the layers, of test runs that were killed."""
    for parent in (MEMORY, Path("/var/lib")):
        for folder in parent.glob("ludwig-machine-*-*"):
            if psutil.pid_exists(int(folder.name.split("-")[2])):
                continue
            for process in psutil.process_iter(["cmdline"]):
                if f"--directory={folder}/root" in (process.info["cmdline"] or []):
                    for one in (*process.children(), process):
                        with contextlib.suppress(psutil.NoSuchProcess):
                            one.kill()
            subprocess.run([program("umount"), "-l", str(folder / "root")], capture_output=True)
            shutil.rmtree(folder, ignore_errors=True)


class Network:
    """A network namespace with loopback and nothing else."""

    def __init__(self) -> None:
        self.name = f"ludwig-deploy-{os.getpid()}"

    def __enter__(self) -> "Network":
        clear_forgotten_machines()
        for old in Path("/run/netns").glob("ludwig-deploy-*"):
            if not psutil.pid_exists(int(old.name.rpartition("-")[2])):
                subprocess.run([program("ip"), "netns", "delete", old.name])
        subprocess.run([program("ip"), "netns", "add", self.name], check=True)
        subprocess.run([program("ip"), "-n", self.name, "link", "set", "lo", "up"], check=True)
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run([program("ip"), "netns", "delete", self.name])

    def run(
        self, command: Sequence[str], *, env: Mapping[str, str] | None = None, **options: object
    ) -> "subprocess.CompletedProcess[str]":
        """Run something outside of all machines, that can talk to them."""
        done: subprocess.CompletedProcess[str] = subprocess.run(
            [program("ip"), "netns", "exec", self.name, *command],
            capture_output=True,
            text=True,
            env={**os.environ, **(env or {})},
            timeout=300,
            **options,  # type: ignore[call-overload]
        )
        return done


class Machine:
    """One machine. `run` and `check` execute as root on it; `path` shows its files."""

    def __init__(
        self,
        name: str,
        network: Network,
        *,
        address: str,
        hosts: Mapping[str, str],
        serves_files: bool,
    ) -> None:
        self.name, self.network, self.address = name, network, address
        self.state = make_state_folder("machine", _fastest())
        self.root = self.state / "root"
        for part in ("upper", "work", "root"):
            (self.state / part).mkdir()
        options = f"lowerdir={root_file_system()}"
        options += f",upperdir={self.state / 'upper'},workdir={self.state / 'work'}"
        mount = [program("mount"), "-t", "overlay", "overlay", "-o", options, str(self.root)]
        subprocess.run(mount, check=True)
        if not serves_files:  # one network, one smbd
            self.path("/etc/systemd/system/smbd.service").symlink_to("/dev/null")
        self.path("/etc/hostname").write_text(f"{name}\n")
        entries = {"127.0.0.1": "localhost", address: name, **{a: h for h, a in hosts.items()}}
        lines = [f"{where} {host}\n" for where, host in entries.items()]
        self.path("/etc/hosts").write_text("".join(lines))
        self.path("/etc/ssh/sshd_config.d/00-test.conf").write_text(f"ListenAddress {address}\n")
        command = [program("systemd-nspawn"), "--quiet", "--register=no", "--keep-unit", "--boot"]
        command += [f"--network-namespace-path=/run/netns/{network.name}", "--console=pipe"]
        command += ["--resolv-conf=off", "--timezone=off", "--link-journal=no"]
        command += [f"--machine=ludwig-{os.getpid()}-{name}", f"--directory={self.root}"]
        self.daemon = Daemon(command, log=self.state / "console.log")

    def path(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def __enter__(self) -> "Machine":
        self.daemon.start()
        try:
            wait_until(self._up, what=f"{self.name} to boot", timeout=120, alive=[self.daemon])
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.daemon.kill()
        subprocess.run([program("umount"), "-l", str(self.root)])
        shutil.rmtree(self.state, ignore_errors=True)

    @property
    def leader(self) -> int:
        """Its process 1, as seen from here."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.daemon.pid).children():
                return child.pid
        raise OSError(f"{self.name} does not run")

    def _up(self) -> bool:
        result = self.run("systemctl is-active multi-user.target")
        return result.stdout.strip() == "active"

    def run(self, command: str, *, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        """A line of shell, on the machine."""
        enter = [program("nsenter"), "-t", str(self.leader), "-a", "env", "-i"]
        enter += ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8"]
        return subprocess.run(
            [*enter, "sh", "-c", command], input=stdin, capture_output=True, text=True, timeout=300
        )

    def check(self, command: str, *, stdin: str = "") -> str:
        """As `run`, and fail with everything it said unless it succeeds."""
        result = self.run(command, stdin=stdin)
        said = f"{self.name}# {command}\n{result.stdout}{result.stderr}"
        assert result.returncode == 0, said
        return result.stdout

    def copy_in(self, source: Path, target: str) -> None:
        """Into the running machine: the layer below must not change under it."""
        archive = subprocess.run(
            ["tar", "-C", str(source.parent), "--exclude=__pycache__", "-c", source.name],
            capture_output=True,
            check=True,
        ).stdout
        enter = [program("nsenter"), "-t", str(self.leader), "-a"]
        unpack = (
            f"mkdir -p {shlex.quote(target)} && tar -C {shlex.quote(target)} -x --no-same-owner"
        )
        subprocess.run([*enter, "sh", "-c", unpack], input=archive, check=True)

    def copy_from(self, other: "Machine", folder: str) -> None:
        """A folder of another machine, at the same place here."""
        enter = [program("nsenter"), "-t", str(other.leader), "-a", "tar", "-C", "/", "-c"]
        archive = subprocess.run([*enter, folder.lstrip("/")], capture_output=True, check=True)
        unpack = [program("nsenter"), "-t", str(self.leader), "-a", "tar", "-C", "/", "-x"]
        subprocess.run(unpack, input=archive.stdout, check=True)

    def snapshot(self, *folders: str) -> dict[str, str]:
        """Every file with its mode, owner, and content: to see what changed.

        But for heartbeats: agents of other tests go on writing theirs.
        """
        where = f"{' '.join(folders)} -xdev -not -path '*/.ludwig/nodes/*'"
        command = f"find {where} -printf '%p\\t%y %m %U:%G %l\\n'"
        listed = dict(line.split("\t", 1) for line in self.check(command).splitlines())
        command = f"find {where} -type f -exec sha256sum {{}} +"
        for line in self.check(command).splitlines():
            digest, _, path = line.partition("  ")
            listed[path] += f" {digest}"
        return listed


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ludwig-deploy-") as name:
        yield Path(name)
