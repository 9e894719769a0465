"""How an attempt's process is started: what is executed, in which environment, seeing which files.

Owns the copy of `child.py` that jobs execute, the environment they get, and the private view of the
script contract's chunk. Starting is `runner.py`, what comes after `attempt.py`.
"""

from __future__ import annotations

import functools
import hashlib
import os
import py_compile
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ludwig.worker.account import Account

__all__ = ["base_environment", "can_isolate", "isolated", "stage", "switched"]

HERE = Path(__file__).resolve().parent
STAGED = ("child.py", "returned.py", "warm.py")
SUPERVISE = """\
import sys

if sys.version_info < (3, 8):
    sys.exit("ludwig: jobs need Python 3.8 or newer; this is " + sys.version)
import child

del sys.modules["child"]
child.main(sys.argv)
"""
WARM = """\
import sys
import child, warm

del sys.modules["child"], sys.modules["warm"]
warm.main(sys.argv)
"""
INHERITED = ("LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH")
"""All that a job gets of the agent's environment: passwords may be in the rest."""


# --- what is executed ------------------------------------------------------------------------


def stage(work: Path) -> Path:
    """The file to run under a job's interpreter, in a folder that every account can read.

    Ludwig itself may be installed where jobs cannot look. Beside it lies the compiled form: a file
    that is run, unlike one that is imported, would be compiled anew for every task.
    """
    digest, sources = _sources()
    return _stage(work / "child" / digest, sources)


@functools.cache
def _sources() -> tuple[str, tuple[tuple[str, bytes], ...]]:
    """What is staged, by the digest of all of it: as it was when this agent first asked."""
    sources = {name: (HERE / name).read_bytes() for name in STAGED}
    sources |= {"supervise.py": SUPERVISE.encode(), "start_warm.py": WARM.encode()}
    digest = hashlib.sha256(repr(sorted(sources.items())).encode()).hexdigest()[:16]
    return digest, tuple(sources.items())


@functools.lru_cache(maxsize=8)
def _stage(folder: Path, sources: tuple[tuple[str, bytes], ...]) -> Path:
    if not (folder / "supervise.py").exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.parent.chmod(0o755)
        temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".new-"))
        for name, content in sources:
            path = temporary / name
            path.write_bytes(content)
            path.chmod(0o644)
            if name in STAGED:
                mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
                py_compile.compile(str(path), doraise=True, invalidation_mode=mode)
        (temporary / "__pycache__").chmod(0o755)
        temporary.chmod(0o755)
        try:
            temporary.rename(folder)
        except OSError:  # another agent or thread was first
            shutil.rmtree(temporary)
    return folder / "supervise.py"


def switched(account: Account) -> dict[str, Any]:
    """What `subprocess` must be told to become the account."""
    if not account.switch:
        return {}
    return {"user": account.uid, "group": account.gid, "extra_groups": list(account.groups)}


# --- its environment -------------------------------------------------------------------------


def base_environment(account: Account, python: Path) -> dict[str, str]:
    """What every job gets, whoever started the agent."""
    kept = {name: os.environ[name] for name in INHERITED if name in os.environ}
    return {
        "LANG": "C.UTF-8",
        **kept,
        "PATH": f"{python.parent}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(account.home),
        "USER": account.name,
        "LOGNAME": account.name,
        "SHELL": "/bin/sh",
        "PYTHONUNBUFFERED": "1",
    }


# --- its view of one file --------------------------------------------------------------------


def isolated(
    command: Sequence[str], env: Mapping[str, str], account: Account, *, source: Path, target: Path
) -> dict[str, Any]:
    """Arguments for `subprocess`: run the command where `target` shows the bytes of `source`.

    `target` must exist. Close the descriptors in `pass_fds` after the start.
    """
    method = _method(account) or "isolate"
    return _isolated(method, command, env, account, binding=(str(source), str(target)))


def _isolated(
    method: str,
    command: Sequence[str],
    env: Mapping[str, str],
    account: Account,
    *,
    binding: tuple[str, str],
) -> dict[str, Any]:
    if method == "bwrap":
        binds = ["--dev-bind", "/", "/", "--ro-bind", *binding]
        return {"args": ["bwrap", *binds, "--", *command], "env": dict(env), **switched(account)}
    descriptor = os.memfd_create("environment")
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(b"\0".join(os.fsencode(f"{name}={value}") for name, value in env.items()))
    os.lseek(descriptor, 0, os.SEEK_SET)
    groups = ",".join(str(group) for group in account.groups)
    helper = [sys.executable, "-I", "-S", "-B", str(HERE / "isolate.py"), str(descriptor)]
    whose = [str(account.uid), str(account.gid), groups]
    arguments = [*helper, *whose, *binding, *command]
    return {"args": arguments, "env": {"PATH": os.defpath}, "pass_fds": [descriptor]}


def can_isolate(account: Account) -> bool:
    """Whether attempts can have a private view of the drive. Tried once, then remembered."""
    return _method(account) is not None


@functools.lru_cache
def _method(account: Account) -> str | None:
    methods = ["isolate"] + (["bwrap"] if shutil.which("bwrap") else [])
    return next((method for method in methods if _works(method, account)), None)


def _works(method: str, account: Account) -> bool:
    """Bind one file over another and look."""
    with tempfile.TemporaryDirectory(prefix="ludwig-probe-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for file, text in (("source", b"inside"), ("target", b"outside")):
            (folder / file).write_bytes(text)
            (folder / file).chmod(0o644)
        binding = (str(folder / "source"), str(folder / "target"))
        command = ["/bin/cat", binding[1]]
        arguments = _isolated(method, command, {}, account, binding=binding)
        try:
            run = subprocess.run(capture_output=True, timeout=20, check=False, **arguments)
        except (OSError, subprocess.SubprocessError):
            return False
        finally:
            for descriptor in arguments.get("pass_fds", ()):
                os.close(descriptor)
        return run.stdout == b"inside" and (folder / "target").read_bytes() == b"outside"
