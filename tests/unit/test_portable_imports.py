"""`ludwig` and `ludwig.client` import on Windows and macOS: no POSIX-only module is needed."""

import subprocess
import sys

from tests import staged

POSIX_ONLY = (
    "crypt", "fcntl", "grp", "posix_ipc", "pty", "pwd", "resource", "spwd", "syslog", "termios",
    "tty",
)  # fmt: skip

CODE = """
import importlib, os, sys
hidden = {hidden!r}
# What the standard library itself has loaded on this system is its own business.
import asyncio, concurrent.futures, getpass, multiprocessing, pathlib, shutil, subprocess, tarfile
import asyncssh, pandas, platformdirs, psutil, rich.live, rich.progress, smbclient, tempfile, typer
for name in hidden:
    sys.modules[name] = None
{missing}
for name in {modules!r}:
    importlib.import_module(name)
print("imported", len({modules!r}))
"""

MISSING = "\n".join(
    f"os.__dict__.pop({name!r}, None)" for name in ("fork", "getuid", "geteuid", "setsid", "killpg")
)


def module_names() -> list[str]:
    places = [staged.staged_path(source) for source in staged.source_files()]
    names = [".".join(place.with_suffix("").parts).removesuffix(".__init__") for place in places]
    return sorted(
        name
        for name in names
        if name.split(".")[0] in ("ludwig", "ludwigcluster")
        and not name.startswith("ludwig.worker")
        and ".demo.project" not in name
    )


def test_every_module_of_the_client_imports_without_posix() -> None:
    modules = module_names()
    assert {"ludwig.queue", "ludwig.client.job", "ludwig.client.cli.status"} <= set(modules)
    code = CODE.format(hidden=POSIX_ONLY, missing=MISSING, modules=modules)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=staged.ROOT.anchor, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"imported {len(modules)}"
