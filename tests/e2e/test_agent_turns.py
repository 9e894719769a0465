"""Whose turn it is on a node that has several jobs: none waits for the end of another's sweep."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.test_agent_gpus import make_lab
from tests.nvml import StubNvml

TASKS = 60
RUN = """
import time

def main(param2val):
    time.sleep(0.3)
"""


@pytest.mark.parametrize("gpus", [None, 1, 2])
def test_a_small_job_does_not_wait_for_the_end_of_a_sweep(
    tmp_path: Path, nvml: StubNvml, gpus: int | None
) -> None:
    for _ in range(2):
        nvml.add()
    with make_lab(tmp_path, nvml) as lab:
        lab.start()
        sweep = lab.submit(RUN, [{"lr": 0.1}], reps=TASKS)
        lab.until(lambda: len(lab["hoff"].lines("started")) >= 4, "the sweep to run")
        small = lab.submit(RUN, [{"lr": 0.2}], gpus=gpus)
        lab.until(lambda: len(lab["hoff"].lines("accepted")) == 2, "the small job to be let in")
        before = len(lab.claims(sweep))
        lab.wait(small)
        assert len(lab.claims(sweep)) - before < TASKS / 4
        sweep.cancel()
        lab.wait(sweep)
