"""Knows which programs the tests need, and what to do when one is missing.

A test says `@pytest.mark.needs_smbd`, a fixture calls `require("smbd")`. Without the program the
test is skipped with a reason; with CI=true it fails.
"""

import functools
import os
import shutil
import subprocess

import pytest

# Tool -> the Debian package it comes from.
PACKAGES = {
    "smbd": "samba",
    "smbclient": "smbclient",
    "sshd": "openssh-server",
    "sftp": "openssh-client",
    "gcc": "gcc and libc6-dev",
    "tmux": "tmux",
    "git": "git",
    "ip": "iproute2",
    "unshare": "util-linux",
    "bwrap": "bubblewrap",
    "mmdebstrap": "mmdebstrap",
    "systemd-nspawn": "systemd-container",
    "systemd-analyze": "systemd",
    "shellcheck": "shellcheck",
}
SKIP_PREFIX = "needs "


def program(name: str) -> str:
    """The full path of a program; servers are not on everybody's PATH."""
    found = find(name)
    if found is None:
        raise FileNotFoundError(f"{name} is not installed (package {PACKAGES.get(name, name)})")
    return found


@functools.cache
def find(name: str) -> str | None:
    path = os.environ.get("PATH", os.defpath)
    return shutil.which(name, path=f"{path}:/usr/local/sbin:/usr/sbin:/sbin")


@functools.cache
def missing(tool: str) -> str | None:
    """Why the tool cannot be used here, or None."""
    if tool == "root":
        return None if os.geteuid() == 0 else "root"
    if tool not in PACKAGES:
        raise KeyError(f"no marker needs_{tool}: add {tool!r} to tests/tools.py")
    if find(tool) is None:
        return f"{tool} (package {PACKAGES[tool]})"
    if tool == "gcc" and not compiles():
        return "a gcc that finds its headers (packages gcc and libc6-dev)"
    if tool in ("unshare", "ip") and not may_unshare():
        return "private namespaces (root, in a container that allows them)"
    return None


def require(*tools: str) -> None:
    """Skip the running test if one of the tools is missing; fail it with CI=true."""
    for tool in tools:
        reason = missing(tool)
        if reason is None:
            continue
        if os.environ.get("CI") == "true":
            pytest.fail(f"{SKIP_PREFIX}{reason}, and nothing may be skipped with CI=true")
        pytest.skip(SKIP_PREFIX + reason)


def compiles() -> bool:
    source = b"#include <stdio.h>\n"
    return succeeds([program("gcc"), "-E", "-"], source)


def may_unshare() -> bool:
    return find("unshare") is not None and succeeds([program("unshare"), "-u", "-m", "true"])


def succeeds(command: list[str], stdin: bytes = b"") -> bool:
    return subprocess.run(command, input=stdin, capture_output=True).returncode == 0
