"""The virtual machine, booted once, and when there is one.

`make test-cifs` always builds and boots it. `make test` does when its disk is there already or can
be built within `BUDGET_S`; continuous integration does not build it, and says so.
"""

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cifs import build_image
from tests.cifs.vm import Machine
from tests.harness import SmbServer, require

BUDGET_S = 240.0
REPOSITORY = Path(__file__).resolve().parents[2]

_numbers = itertools.count(1)


def build_or_skip() -> build_image.Image:
    """The disk, or the end of the test in words."""
    image = build_image.image()
    wanted = os.environ.get("LUDWIG_TEST_CIFS_VM") == "always"
    missing = build_image.cannot_boot() or (None if image.is_built else build_image.cannot_build())
    if missing:
        refuse = pytest.fail if wanted else pytest.skip
        refuse(f"needs {missing}, for a kernel CIFS mount")
    if image.is_built:
        return image
    if os.environ.get("CI") == "true" and not wanted:
        pytest.skip("the virtual machine's disk is not cached; `make test-cifs` builds it")
    command = [sys.executable, "-m", "tests.cifs.build_image"]
    builder = subprocess.Popen(
        command,
        cwd=REPOSITORY,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        _, said = builder.communicate(timeout=None if wanted else BUDGET_S)
    except BaseException as error:
        os.killpg(builder.pid, signal.SIGKILL)  # with mmdebstrap and what that started
        builder.communicate()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        pytest.skip(f"the virtual machine's disk was not built within {BUDGET_S:.0f} s")
    if builder.returncode != 0:
        pytest.fail(f"the virtual machine's disk was not built: {said}")
    return image


@pytest.fixture(scope="session")
def machine() -> Iterator[Machine]:
    require("smbd")
    with Machine(build_or_skip()) as machine:
        yield machine


@pytest.fixture
def server() -> Iterator[SmbServer]:
    """A file server on this machine's loopback, which the virtual one reaches."""
    with SmbServer() as server:
        yield server


@pytest.fixture
def mount(machine: Machine, server: SmbServer) -> Iterator[Callable[..., str]]:
    """Mounts of that server in the machine, each with a cache of its own: their paths."""
    with ExitStack() as stack:

        def add(*options: str) -> str:
            path = f"/mnt/{next(_numbers)}"
            machine.mount(server, path, *options)
            stack.callback(machine.unmount, path)
            return path

        yield add
