"""`Client(..., local=True)`: a sweep on this machine, and nothing left when the script is over."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.processes import wait_until

SCRIPT = """
from ludwig import Client, grid

job = Client("trees", local=True).submit(["src"], [], grid(lr=[0.1, 0.2]), retries=0)
status = job.wait()
print(len(job.results()), "rows", status.counts["failed"], "failed")
job.wait(check=True)
"""
RUN = """
import pandas as pd

def main(param2val):
    if param2val["lr"] == BAD:
        raise ValueError("lr is too large")
    return [pd.Series([1, 2], name="loss")]
"""


@pytest.mark.parametrize("bad", [None, 0.2])
def test_a_script_that_closes_nothing(tmp_path: Path, bad: float | None) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "run.py").write_text(f"BAD = {bad}\n{RUN}")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("LUDWIG_")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        env={**environment, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    try:
        assert done.returncode == (1 if bad else 0), done.stderr
        assert done.stdout == ("2 rows 1 failed\n" if bad else "4 rows 0 failed\n"), done.stderr
        if bad:
            assert "JobFailed" in done.stderr and "ValueError: lr is too large" in done.stderr
            assert f"whole log: {tmp_path}" in done.stderr
        wait_until(lambda: not processes(tmp_path), what="the end of the agent", timeout=5)
    finally:
        for process in processes(tmp_path):
            process.kill()


def processes(folder: Path) -> list[psutil.Process]:
    """Those that were started with a path in this folder."""
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if any(str(folder) in word for word in process.info["cmdline"] or ())
    ]
