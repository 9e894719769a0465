"""What a script left in `runs/` before it failed or was cancelled is not a finished run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab import Lab

SCRIPT = """
import os, pickle, sys, time
from pathlib import Path

with open(os.environ["LUDWIG_CHUNK"], "rb") as file:
    chunk = pickle.load(file)
for param2val in chunk:
    root = Path(os.environ["LUDWIG_PROJECT_PATH"])
    place = root / "runs" / param2val["param_name"] / param2val["job_name"]
    place.mkdir(parents=True)
    (place / "half.csv").write_text("x\\n1\\n")
    if param2val["how"] == "fail":
        sys.exit("out of memory")
    if param2val["how"] == "hang":
        time.sleep(600)
"""


@pytest.mark.parametrize("how", ["fail", "hang"])
def test_half_a_run_does_not_stay(tmp_path: Path, how: str) -> None:
    with Lab(tmp_path) as lab:
        lab.start()
        job = lab.submit(SCRIPT, [{"how": how}], retries=0)
        if how == "hang":
            lab.until(lambda: list(lab.root.glob("trees/runs/*/*/half.csv")), "half a run")
            job.cancel()
        (done,) = lab.wait(job).values()
        assert done.outcome == ("failed" if how == "fail" else "stopped")
        lab.until(lambda: not list(lab.root.glob("trees/runs/*/*num*")), "no half run", timeout=10)
        # It does not count, so it is wanted again.
        again = lab.submit(SCRIPT, [{"how": how}], retries=0)
        assert len(again.status().tasks) == 1
        again.cancel()
