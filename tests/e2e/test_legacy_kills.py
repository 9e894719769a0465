"""Sweeps whose tasks each write a known shard, while nodes are killed at random.

The union of what is in `runs/` must be complete and without duplicates, for both contracts: also
for scripts that write to `runs/` themselves, a line at a time.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.old_lab import HOSTS, NEEDED, OldLab

pytestmark = NEEDED

SHARDS, LINES = 12, 5
FUNCTION = f"""
import time
from pathlib import Path

def main(param2val):
    with (Path(param2val["save_path"]).parent / "shard.csv").open("w", buffering=1) as file:
        file.write("line\\n")
        for n in range({LINES}):
            time.sleep(0.1)
            file.write(f"{{param2val['shard'] * {LINES} + n}}\\n")
"""
SCRIPT = f"""
import pickle, socket, time
from pathlib import Path

root = Path("/media/research_data/shards")
with (root / f"{{socket.gethostname()}}_param2val_chunk.pkl").open("rb") as file:
    chunk = pickle.load(file)
for param2val in chunk:
    place = root / "runs" / param2val["param_name"] / param2val["job_name"]
    place.mkdir(parents=True)  # fails if an earlier attempt is in the way
    with (place / "shard.csv").open("w", buffering=1) as file:
        file.write("line\\n")
        for n in range({LINES}):
            time.sleep(0.1)
            file.write(f"{{param2val['shard'] * {LINES} + n}}\\n")
"""


@pytest.mark.parametrize("script", [False, True], ids=["function", "script"])
def test_every_shard_once(tmp_path: Path, script: bool) -> None:
    dice = random.Random(6)
    with OldLab(tmp_path, silent_s=1.0) as lab:
        project = tmp_path / "shards"
        (project / "src").mkdir(parents=True)
        (project / "src" / "__init__.py").touch()
        (project / "run.py").write_text(SCRIPT if script else FUNCTION)
        (project / "submit.py").write_text(
            "from ludwigcluster.client import Client\n"
            f"param2vals = [{{'shard': n}} for n in range({SHARDS})]\n"
            "Client('shards').submit(src_ps=['src'], param2val_list=param2vals)\n"
        )
        lab.run(project, "python", "submit.py")
        job = lab.client("shards").job()
        kills = 0
        while not job.status().finished:
            time.sleep(dice.uniform(0.3, 1.5))
            if kills < 5:
                victim = dice.choice(HOSTS)
                lab.lab[victim].kill()
                kills += 1
                time.sleep(dice.uniform(0.0, 1.5))  # sometimes the other node takes over first
                lab.lab.start(victim)
        assert lab.lab.outcomes(job) == ["done"] * SHARDS
        assert kills and len(lab.lab.claims(job)) > SHARDS, "no kill hit a task"

        runs = lab.runs("shards")
        assert [len(found) for found in runs.values()] == [1] * SHARDS
        lines = [
            line
            for found in runs.values()
            for line in (found[0] / "shard.csv").read_text().splitlines()[1:]
        ]
        assert sorted(map(int, lines)) == list(range(SHARDS * LINES))
        frame = job.results()
        assert sorted(frame["line"]) == list(range(SHARDS * LINES))
