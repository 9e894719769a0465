"""The suites that every drive passes, on a kernel CIFS mount: see `tests/cifs/vm.py`."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ludwig.drives import open_drive
from tests.cifs.referee import Referee
from tests.cifs.vm import CODE, GATEWAY, Machine
from tests.harness import SmbServer

# One worker boots the machine and runs all of it; nothing here is fast.
pytestmark = [pytest.mark.xdist_group("cifs"), pytest.mark.timeout(1200)]

Mount = Callable[..., str]

# What tests the drive alone; the rest needs servers, which the machine has not.
CONTRACT = ("test_files.py", "test_folders.py", "test_trees.py", "test_watch.py")


def run_suite(machine: Machine, mount: Mount, *tests: str) -> None:
    """On two mounts as people have them, and one whose kernel confuses no files, for looking."""
    mounts = [mount(), mount(), mount("noserverino")]
    thorough = os.environ.get("LUDWIG_TEST_CIFS_VM") == "always"
    env = {
        "LUDWIG_TEST_CIFS": " ".join(mounts),
        "LUDWIG_TEST_CIFS_NAMES": "200" if thorough else "60",
    }
    command = ["python3", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "timeout=600"]
    said = machine.run(*command, "--durations=12", *tests, env=env, timeout=1100)
    print(said)
    assert " passed" in said


def test_the_kernel(machine: Machine, mount: Mount) -> None:
    run_suite(machine, mount, "tests/cifs/guest")


def test_the_contract(machine: Machine, mount: Mount) -> None:
    files = [f"tests/contract/{name}" for name in CONTRACT]
    run_suite(machine, mount, *files, "tests/contract/test_open.py::test_the_format")


def test_races_between_mounts(machine: Machine, mount: Mount) -> None:
    run_suite(machine, mount, "tests/contract/test_races.py")


NAMES = 100


@pytest.mark.parametrize("operation", ["create", "publish", "mkdir"])
def test_races_between_kinds(
    machine: Machine, server: SmbServer, mount: Mount, operation: str
) -> None:
    """Two mounts, two programs that speak SMB, and two on the server itself want each name."""
    mounts = [mount(), mount()]
    (server.folder / "race").mkdir()
    smb: dict[str, Any] = {"url": server.url, "user": server.user, "password": server.password}
    places: list[dict[str, Any]] = [{"kind": "guest", "url": path} for path in mounts]
    places += [{"kind": "host", **smb}] * 2
    places += [{"kind": "host", "url": str(server.folder)}] * 2
    module = ("-m", "tests.cifs.referee")
    with Referee() as referee:
        port = str(referee.port)
        processes = [machine.popen("python3", *module, GATEWAY, port, "guest") for _ in mounts]
        here = [sys.executable, *module, "127.0.0.1", port, "host"]
        processes += [start(here) for _ in range(4)]
        try:
            won = referee.hold(operation, NAMES, places)
        except Exception as error:
            for process in processes:
                process.terminate()
            said = [process.communicate()[0] for process in processes]
            raise AssertionError("\n".join([str(error), *said])) from error
    for process in processes:
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0, output
    assert sorted(name for names in won for name in names) == list(range(NAMES))
    kinds = [won[0] + won[1], won[2] + won[3], won[4] + won[5]]
    print([len(names) for names in won])
    assert sum(bool(names) for names in kinds) > 1, "nobody raced"
    if operation != "mkdir":
        for number, names in enumerate(won):
            for name in names:
                content = (server.folder / "race" / str(name)).read_bytes()
                assert content == f"racer {number}".encode()
    drive = open_drive(**smb)
    assert sorted(drive.list("race"), key=int) == [str(i) for i in range(NAMES)]
    drive.close()


def start(command: list[str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=Path(__file__).resolve().parents[2],
    )


def test_the_machine_has_the_code_of_this_tree(machine: Machine) -> None:
    text = Path(__file__).read_text()
    assert machine.run("cat", f"{CODE}/tests/cifs/test_mount.py") == text
