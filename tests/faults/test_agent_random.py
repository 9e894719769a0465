"""SIGKILL for the agent, the job and the file server at random moments, fifty times.

Whatever dies in between: every task ends exactly once, and every result is complete.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import time
from pathlib import Path

import pytest

from ludwig import layout
from ludwig.client.job import Job
from tests.harness import SmbServer, wait_until
from tests.jobs import tasks_in
from tests.lab import Lab

KILLS = 50
SEED = int(os.environ.get("LUDWIG_TEST_SEED", "20261118"))
TASKS = 90

RUN = """
import hashlib, os, time
from pathlib import Path
def main(param2val):
    print("begin", param2val["job_name"], flush=True)
    folder = Path(param2val["save_path"])
    for part in range(4):
        time.sleep(0.05)
        data = (param2val["job_name"] + str(part)).encode() * 500
        (folder / f"part{part}").write_bytes(data)
    print("end", param2val["job_name"], flush=True)
"""


class Chaos:
    """One thing dies at a time, and is started again a moment later."""

    def __init__(self, lab: Lab, smb: SmbServer) -> None:
        self.lab, self.smb = lab, smb
        self.random = random.Random(SEED)
        self.done: dict[str, int] = {"agent": 0, "job": 0, "server": 0}

    def strike(self) -> None:
        time.sleep(self.random.uniform(0.0, 0.15))
        getattr(self, f"kill_{self.random.choice(['agent', 'agent', 'job', 'job', 'server'])}")()

    def kill_agent(self) -> None:
        agent = self.lab[self.random.choice(sorted(self.lab.agents))]
        agent.kill_alone()
        time.sleep(self.random.uniform(0.0, 0.3))
        agent.start()
        self.done["agent"] += 1

    def kill_job(self) -> None:
        pids = sorted(self.lab.processes())
        if pids:
            with_luck = self.random.choice(pids)  # the supervisor, or the job itself
            try:
                os.kill(with_luck, signal.SIGKILL)
            except ProcessLookupError:
                return
            self.done["job"] += 1

    def kill_server(self) -> None:
        self.smb.kill()
        time.sleep(self.random.uniform(0.0, 0.3))
        self.smb.start()
        self.done["server"] += 1


@pytest.mark.timeout(180)
def test_fifty_deaths(tmp_path: Path, smb_server: SmbServer) -> None:
    with Lab(tmp_path, hosts=("hoff", "hebb"), smb=smb_server, silent_s=2.0) as lab:
        lab.start()
        jobs = [lab.submit(RUN, [{"lr": n} for n in range(TASKS)], retries=20)]
        chaos = Chaos(lab, smb_server)
        while sum(chaos.done.values()) < KILLS:
            chaos.strike()
            if len(list((lab.job_folder(jobs[-1]) / "done" / "0000").iterdir())) > TASKS - 10:
                jobs.append(submit_more(lab, len(jobs)))
        assert min(chaos.done.values()) >= 5, chaos.done
        for job in jobs:
            wait_until(lambda j=job: all_ended(lab, j), what="every end", timeout=120)
            check(lab, job)


def submit_more(lab: Lab, number: int) -> Job:
    params = [{"lr": number * 1000 + n} for n in range(TASKS)]
    return lab.submit(RUN, params, retries=20)


def all_ended(lab: Lab, job: Job) -> bool:
    ends = [p for p in (lab.job_folder(job) / "done" / "0000").iterdir() if p.name.isdigit()]
    staged = list((lab.job_folder(job) / "staging").iterdir())
    assert len(ends) == TASKS and not staged, f"{len(ends)} ends, {len(staged)} staged"
    return True


def check(lab: Lab, job: Job) -> None:
    """By what is on the server's disk alone."""
    ends, runs = lab.ends(job), lab.runs(job)
    assert len(ends) == TASKS
    assert {done.outcome for done in ends.values()} == {"done"}
    record = job.status().record
    for task, done in ends.items():
        (folder,) = runs[task]
        (spec,) = tasks_in(record)[task][1].runs
        found = {p.relative_to(folder).as_posix(): p for p in folder.rglob("*") if p.is_file()}
        assert {file.path for file in done.files[0]} == set(found)
        for file in done.files[0]:
            data = found[file.path].read_bytes()
            assert hashlib.sha256(data).hexdigest() == file.sha256
        for part in range(4):
            expected = (spec.job_name + str(part)).encode() * 500
            assert found[f"saves/part{part}"].read_bytes() == expected
        log = lab.log(job, task, done.attempt)
        assert log == f"begin {spec.job_name}\nend {spec.job_name}\n", log
    # One folder per run, and nothing else that looks like one.
    every = list((lab.root / layout.project_files(lab.project).runs).glob("*/*num*"))
    assert len(every) == len({p.name for p in every})
