"""What the virtual machine gets besides Debian: Ludwig's code, what it needs, and who may log in.

It is a tar archive on a second disk, made anew for each boot; `build_image.INIT` unpacks it and
starts `/payload/start`. The dependencies are copied from the environment that runs the tests, so
the machine's Python must be of the same minor version.
"""

import importlib.metadata
import io
import re
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
INBOX_USER = "ana"

# What an agent and the contract suite import; what these need in turn comes along.
DISTRIBUTIONS = (
    "msgspec",
    "nvidia-ml-py",
    "pathspec",
    "platformdirs",
    "psutil",
    "pytest",
    "pytest-timeout",
    "PyYAML",
    "smbprotocol",
    "typer",
    "watchdog",
)

# Folder of the repository -> where it is imported from.
SOURCES = {
    "ludwig": "ludwig",
    "client": "ludwig/client",
    "worker": "ludwig/worker",
    "tests": "tests",
}

PYTEST = """\
[pytest]
addopts = --import-mode=importlib --strict-markers
pythonpath = .
filterwarnings = error
"""

SSHD = f"""\
HostKey /payload/host_key
AuthorizedKeysFile /payload/authorized_keys
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
StrictModes no
UsePAM no
UseDNS no
MaxSessions 100
MaxStartups 100
Subsystem sftp internal-sftp
Match User {INBOX_USER}
    ForceCommand internal-sftp
    ChrootDirectory /var/sftp/ludwig
    DisableForwarding yes
"""

# Initial RAM disk and kernel have mounted /proc, /sys, /dev, /dev/pts and /run.
START = f"""\
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
mkdir -p /dev/shm /run/sshd
for folder in /dev/shm /tmp; do mount -t tmpfs -o mode=1777 tmpfs $folder; done
modprobe -a virtio_net cifs
hostname cifs-node
ip link set lo up
ip link set eth0 up
ip address add 10.0.2.15/24 dev eth0
ip route add default via 10.0.2.2
useradd --no-create-home --shell /bin/sh {INBOX_USER}
usermod -p '*' {INBOX_USER}
mkdir -p /var/sftp/ludwig/tickets /var/sftp/ludwig/sources
chown {INBOX_USER}: /var/sftp/ludwig/tickets /var/sftp/ludwig/sources
exec /usr/sbin/sshd -D -e -f /payload/sshd_config
"""


def write_payload(target: Path, *, host_key: Path, authorized: Path) -> None:
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive:
        add_text(archive, "payload/start", START)
        add_text(archive, "payload/sshd_config", SSHD)
        add_text(archive, "payload/host_key", host_key.read_text(), mode=0o600)
        add_text(archive, "payload/authorized_keys", authorized.read_text())
        for folder, name in SOURCES.items():
            archive.add(REPOSITORY / folder, f"payload/code/{name}", filter=plain)
        # Last, so that they win: the fixtures for servers, and their plugins, stay at home.
        add_text(archive, "payload/code/tests/conftest.py", "")
        add_text(archive, "payload/code/pytest.ini", PYTEST)
        for path, name in dependency_files():
            archive.add(path, f"payload/site/{name}", filter=plain)


def python_version() -> str:
    """The version that the machine's Python must have."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Bytecode comes along, and is found valid: without it a first import takes ten seconds."""
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    return member


def add_text(archive: tarfile.TarFile, name: str, text: str, mode: int = 0o644) -> None:
    member = tarfile.TarInfo(name)
    member.mode = mode
    data = text.encode()
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))


def dependency_files() -> Iterator[tuple[Path, str]]:
    for name in sorted(closure(DISTRIBUTIONS)):
        distribution = importlib.metadata.distribution(name)
        for file in distribution.files or []:
            path = Path(str(distribution.locate_file(file)))
            if ".." not in file.parts and path.is_file():
                yield path, file.as_posix()


def closure(names: tuple[str, ...]) -> set[str]:
    """These distributions, and those that they need without any extra."""
    found: set[str] = set()
    ahead = list(names)
    while ahead:
        name = re.sub(r"[-_.]+", "-", ahead.pop()).lower()
        if name in found:
            continue
        try:
            needed = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # for another system or an older Python
        found.add(name)
        for requirement in needed:
            if "extra ==" not in requirement:
                ahead.append(re.split(r"[\s;<>=!~\[(]", requirement, maxsplit=1)[0])
    return found
