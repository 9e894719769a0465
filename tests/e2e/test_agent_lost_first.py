"""What a dead node held is run again soon, not when nothing else is left."""

from __future__ import annotations

from pathlib import Path

from tests.lab import Lab

TASKS = 120
RUN = """
import time

def main(param2val):
    time.sleep(0.3)
"""


def test_lost_tasks_do_not_wait_until_nothing_new_is_left(tmp_path: Path) -> None:
    with Lab(tmp_path, hosts=("hoff", "hebb"), silent_s=2.0, slots=1) as lab:
        lab.start()
        job = lab.submit(RUN, [{"lr": 0.1}], reps=TASKS)
        lab.until(lambda: (beat := lab.beat("hebb")) and beat.running, "hebb to be at work")
        lab["hebb"].kill()
        lab.until(lambda: [c for c in lab.claims(job) if c.endswith(".2")], "somebody to take over")
        assert len(lab.claims(job)) < TASKS / 2
        job.cancel()
        lab.wait(job)
