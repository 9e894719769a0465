"""A job from submit() to finished runs, over both drives, with one, two and three agents."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import SmbServer
from tests.lab import Lab

SAVE = """
import os, sys
from pathlib import Path

def main(param2val):
    print("out", param2val["lr"])
    print("err", file=sys.stderr)
    folder = Path(param2val["save_path"])
    (folder / "model.bin").write_bytes(b"x" * 1000)
    (folder.parent / "acc.csv").write_text(f"epoch,acc\\n0,{param2val['lr']}\\n")
"""


@pytest.fixture(params=["folder", "smb"])
def smb(request: pytest.FixtureRequest) -> Iterator[SmbServer | None]:
    if request.param == "folder":
        yield None
    else:
        yield request.getfixturevalue("smb_server")


def test_three_agents_finish_a_job(tmp_path: Path, smb: SmbServer | None) -> None:
    with Lab(tmp_path, hosts=("hoff", "hebb", "hinton"), smb=smb) as lab:
        lab.start()
        job = lab.submit(SAVE, [{"lr": n / 10} for n in range(6)], reps=2)
        ends = lab.wait(job)
        assert [done.outcome for done in ends.values()] == ["done"] * 12
        assert {done.host for done in ends.values()} == {"hoff", "hebb", "hinton"}
        for task, folders in lab.runs(job).items():
            assert len(folders) == 1
            assert sorted(p.name for p in folders[0].iterdir()) == ["acc.csv", "saves"]
            assert (folders[0] / "saves" / "model.bin").stat().st_size == 1000
            text = lab.log(job, task)
            assert text.startswith("out") and text.endswith("err\n")
        assert not list((lab.job_folder(job) / "staging").iterdir())
        done = ends[1]
        assert done.exit_code == 0 and done.seconds > 0 and done.cpu_seconds > 0
        assert done.memory_max > 1 << 20
        lab.until(lambda: all(a.lines("closed") for a in lab.agents.values()), "closed everywhere")
        for agent in lab.agents.values():
            lab.until(lambda a=agent: not list((a.work / "attempts").iterdir()), "a clean bench")
            assert not list((agent.work / "tickets").iterdir())
            assert not list((agent.inbox / "tickets").iterdir())
