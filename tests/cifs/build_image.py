"""Builds the virtual machine's disk from Debian's packages: a kernel with cifs, sshd and Python.

    python -m tests.cifs.build_image

Owns `.cache/cifs-vm/<hash of the recipe>/`, which holds the disk, the kernel and its initial RAM
disk. Nothing of Ludwig is in it (see `payload.py`): it is built once and lasts until the recipe
changes. The packages come from where this machine's own apt has them.
"""

import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.tools import find, program

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "cifs-vm"

PACKAGES = (
    "linux-image-cloud-amd64",  # small, and it has cifs
    "cifs-utils",
    "iproute2",
    "kmod",
    "mount",
    "openssh-server",
    "openssh-sftp-server",
    "procps",
    "python3",
    "tini",
)

# What the kernel must load before it can see its disk.
EARLY_MODULES = "virtio_pci\nvirtio_blk\next4\n"

INIT = """\
#!/bin/sh
# Everything else is on the second disk, which is a tar archive.
tar -xf /dev/vdb -C /
exec tini -s -- sh /payload/start
"""

HOOKS = {
    "etc/initramfs-tools/conf.d/ludwig": "MODULES=list\nCOMPRESS=gzip\nFSTYPE=ext4\n",
    "usr/share/initramfs-tools/modules.d/ludwig": EARLY_MODULES,
    "sbin/ludwig-init": INIT,
}

LEFT_OUT = ("doc/*", "man/*", "locale/*", "info/*", "bash-completion/*", "lintian/*")

DISK_MB = 1400
FORMAT = 1
"""To be raised when the code below changes what is built."""

TO_BOOT = {"qemu-system-x86_64": "qemu-system-x86", "ssh": "openssh-client"}
TO_BUILD = {"mmdebstrap": "mmdebstrap", "mke2fs": "e2fsprogs", "apt-get": "apt"}


@dataclass(frozen=True)
class Image:
    """What a machine boots from."""

    folder: Path

    @property
    def disk(self) -> Path:
        return self.folder / "root.ext4"

    @property
    def kernel(self) -> Path:
        return self.folder / "vmlinuz"

    @property
    def ramdisk(self) -> Path:
        return self.folder / "initrd"

    @property
    def is_built(self) -> bool:
        return (self.folder / "built.json").exists()


def release() -> str:
    """The Debian that is here, which is also the one in the machine: its Python is the same."""
    return platform.freedesktop_os_release().get("VERSION_CODENAME", "unknown")


def image() -> Image:
    """The image for this recipe, built or not."""
    recipe = json.dumps([FORMAT, release(), PACKAGES, HOOKS, LEFT_OUT, DISK_MB])
    return Image(CACHE / hashlib.sha256(recipe.encode()).hexdigest()[:16])


def cannot_boot() -> str | None:
    """What this machine lacks to boot it, in words, or None."""
    if platform.machine() != "x86_64":
        return "a machine of the kind x86_64"
    return missing_program(TO_BOOT)


def cannot_build() -> str | None:
    """What this machine lacks to build it, in words, or None."""
    if os.geteuid() != 0:
        return "root, to build the virtual machine's disk"
    return missing_program(TO_BUILD) or (None if sources() else "Debian's package sources")


def missing_program(needed: dict[str, str]) -> str | None:
    for name, package in needed.items():
        if find(name) is None:
            return f"{name} (package {package})"
    return None


def build() -> Image:
    """The image, built if it is not there. Safe to call from several processes."""
    wanted = image()
    if wanted.is_built:
        return wanted
    if (why := cannot_build()) is not None:
        raise RuntimeError(f"building the virtual machine's disk needs {why}")
    CACHE.mkdir(parents=True, exist_ok=True)
    with one_at_a_time():
        if not wanted.is_built:
            begun = time.monotonic()
            shutil.rmtree(wanted.folder, ignore_errors=True)
            wanted.folder.mkdir()
            make(wanted)
            seconds = round(time.monotonic() - begun, 1)
            (wanted.folder / "built.json").write_text(json.dumps({"seconds": seconds}))
            for other in CACHE.iterdir():  # of older recipes
                if other.is_dir() and other != wanted.folder:
                    shutil.rmtree(other, ignore_errors=True)
    return wanted


def make(wanted: Image) -> None:
    root = wanted.folder / "root"
    try:
        bootstrap(root)
        shutil.copyfile((root / "vmlinuz").resolve(), wanted.kernel)
        shutil.copyfile((root / "initrd.img").resolve(), wanted.ramdisk)
        command = [program("mke2fs"), "-q", "-t", "ext4", "-m", "0", "-O", "^has_journal"]
        run([*command, "-d", str(root), str(wanted.disk), f"{DISK_MB}M"])
    finally:
        shutil.rmtree(root, ignore_errors=True)


def bootstrap(root: Path) -> None:
    with_files = root.parent / "files"
    for name, content in HOOKS.items():
        path = with_files / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        path.chmod(0o755)
    # Whatever it mounts below the new root is gone with it, however it ends.
    command = [program("unshare"), "--mount", "--propagation=private"]
    command += [program("mmdebstrap"), "--quiet", "--mode=root", "--variant=essential"]
    command += [f"--include={','.join(PACKAGES)}", "--aptopt=APT::Install-Recommends false"]
    command += [f"--dpkgopt=path-exclude=/usr/share/{what}" for what in LEFT_OUT]
    command += [f"--setup-hook=copy-in {with_files}/etc {with_files}/usr {with_files}/sbin /"]
    run([*command, release(), str(root), "-"], stdin="\n".join(sources()))
    shutil.rmtree(with_files)


def sources() -> list[str]:
    """Where this machine's apt has Debian itself from, as lines of sources.list."""
    fields = "$(ORIGIN) $(REPO_URI) $(RELEASE) $(COMPONENT)"
    listed = run([program("apt-get"), "indextargets", "Created-By: Packages", f"--format={fields}"])
    found = (line.split() for line in listed.splitlines())
    return [f"deb {' '.join(where)}" for origin, *where in found if origin == "Debian"]


def run(command: list[str], stdin: str = "") -> str:
    done = subprocess.run(command, input=stdin, text=True, capture_output=True)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed:\n{done.stderr[-2000:]}")
    return done.stdout


@contextmanager
def one_at_a_time() -> Iterator[None]:
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    begun = time.monotonic()
    try:
        built = build()
    except RuntimeError as error:
        sys.exit(str(error))
    print(f"{built.folder} ({time.monotonic() - begun:.0f} s)")
