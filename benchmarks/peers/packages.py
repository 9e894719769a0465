"""Gets what Ludwig is compared with from where its users would: PyPI and Debian.

Python packages go to a virtual environment in `.cache/peers`, which git ignores; Debian's are
installed as `make test` installs its own, without starting a service. What cannot be had is a
`Missing` that says why, and the benchmark goes on without it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["Missing", "debian", "python_with"]

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "peers"
POLICY = Path("/usr/sbin/policy-rc.d")
SBIN = ":/usr/local/sbin:/usr/sbin:/sbin"


class Missing(Exception):
    """This contender cannot be had here; the message says why."""


def debian(program: str, *packages: str) -> str:
    """The full path of a program, after installing its packages if it was not there."""
    search = os.environ.get("PATH", os.defpath) + SBIN
    if found := shutil.which(program, path=search):
        return found
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise Missing(f"{program} is not installed (Debian: apt-get install {' '.join(packages)})")
    _install(packages)
    if found := shutil.which(program, path=search):
        return found
    raise Missing(f"apt-get install {' '.join(packages)} did not bring {program}")


def _install(packages: tuple[str, ...]) -> None:
    """Debian starts a server as soon as it is installed, unless this file says no."""
    ours = not POLICY.exists()
    if ours:
        POLICY.write_text("#!/bin/sh\nexit 101\n")
        POLICY.chmod(0o755)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "install", "-q", "-y", "--no-install-recommends", *packages]
    try:
        subprocess.run(["apt-get", "update", "-q"], env=environment, capture_output=True)
        subprocess.run(command, env=environment, capture_output=True, timeout=600)
    except subprocess.TimeoutExpired:
        raise Missing("apt-get install took more than ten minutes") from None
    finally:
        if ours:
            POLICY.unlink()


def python_with(package: str, *more: str) -> Path:
    """An interpreter that can import a package of PyPI."""
    python = CACHE / "venv" / "bin" / "python"
    if not python.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "venv", "--without-pip", str(python.parents[1])]
        _run(command, package)
    if subprocess.run([python, "-c", f"import {package}"], capture_output=True).returncode:
        pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
        _run([*pip, package, *more], package)
    return python


def _run(command: list[str], package: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["?"])[-1]
        raise Missing(f"{package} could not be installed: {last}")
