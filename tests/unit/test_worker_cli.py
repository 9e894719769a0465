"""What `ludwig-worker` says: its help, and a person's mistakes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ludwig.config import WORKER_FILE

WORKER = Path(sys.executable).with_name("ludwig-worker")


def call(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("LUDWIG_")}
    return subprocess.run(
        [str(WORKER), *arguments],
        env={**clean, **variables},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("command", ["run", "check", "drain"])
def test_help(command: str) -> None:
    done = call(command, "--help")
    text = " ".join(done.stdout.split())
    assert done.returncode == 0
    assert f"Example: ludwig-worker {command}" in text
    assert "Environment: LUDWIG_WORKER_CONFIG" in text
    assert call(command, "-h").stdout == done.stdout


@pytest.mark.skipif(WORKER_FILE.exists(), reason="this machine is a node")
def test_a_machine_that_is_no_node() -> None:
    done = call("run")
    assert done.returncode == 2
    assert done.stderr.startswith(f"ludwig-worker: {WORKER_FILE}: there is no such file. Name")


def test_the_file_that_a_variable_names(tmp_path: Path) -> None:
    done = call("check", LUDWIG_WORKER_CONFIG=str(tmp_path / "gone.toml"))
    assert done.returncode == 2
    assert done.stderr == f"ludwig-worker: {tmp_path / 'gone.toml'}: there is no such file.\n"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_one_may_not_write_to(tmp_path: Path) -> None:
    (tmp_path / "worker.toml").write_text('work = "/etc/ludwig/no"\n[drive]\nurl = "/tmp"\n')
    done = call("drain", "--config", str(tmp_path / "worker.toml"))
    assert done.returncode == 1
    assert "Run this as root" in done.stderr and "Traceback" not in done.stderr
