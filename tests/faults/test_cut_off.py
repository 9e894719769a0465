"""A node whose cable is pulled while it works, for longer than it may be silent."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from ludwig.client.lookout import Lookout
from tests.cable import Cable, Forbidden
from tests.harness import SmbServer
from tests.lab import Lab
from tests.tools import find, require

RUN = """
import os, time
from pathlib import Path
def main(param2val):
    host = "hoff" if "/hoff/work/" in os.environ["LUDWIG_STOP"] else "hebb"
    while not Path({folder!r}, "for " + host).exists():
        time.sleep(0.01)
    Path(param2val["save_path"], "host").write_text(host)
"""


@pytest.fixture
def cable() -> Iterator[Cable]:
    """Not with the marker `needs_ip`: what a kernel forbids is no failure of the CI's set-up."""
    if find("ip") is None:
        require("ip")
    with contextlib.ExitStack() as stack:
        try:
            laid = stack.enter_context(Cable())
        except Forbidden as error:
            pytest.skip(f"needs a kernel that allows network namespaces and veth pairs: {error}")
        yield laid


@pytest.fixture
def server(cable: Cable) -> Iterator[SmbServer]:
    with SmbServer(global_settings={"interfaces": f"127.0.0.1/8 {cable.near}/30"}) as server:
        yield server


def node(lab: Lab, host: str) -> dict[str, object]:
    """Its line of `ludwig nodes --json`, as a new command would print it."""
    (row,) = (one.as_json() for one in Lookout(lab.client).nodes() if one.host == host)
    return row


@pytest.mark.needs_smbd
@pytest.mark.needs_root
def test_a_node_that_was_cut_off_comes_back_too_late(
    tmp_path: Path, cable: Cable, server: SmbServer
) -> None:
    with Lab(tmp_path, hosts=("hoff", "hebb"), smb=server, silent_s=2.0) as lab:
        hoff = lab["hoff"]
        hoff.configure(drive={"url": server.url.replace("127.0.0.1", cable.near)})
        hoff.wrap(*cable.node)
        lab.start()
        job = lab.submit(RUN.format(folder=str(tmp_path)), [{"lr": n} for n in range(6)])
        lab.until(lambda: len(hoff.lines("started")) >= 2, "hoff to be busy")

        cable.pull()
        (tmp_path / "for hebb").touch()
        lab.until(lambda: node(lab, "hoff")["state"] == "silent", "hoff to be shown as silent")
        assert "silent for" in str(node(lab, "hoff")["why"])
        ends = lab.wait(job)
        assert {(done.outcome, done.host) for done in ends.values()} == {("done", "hebb")}
        before = lab.ends(job)
        (tmp_path / "for hoff").touch()
        lab.until(lambda: len(hoff.lines("exited")) >= 2, "hoff to finish, cut off as it is")

        cable.plug()
        lab.until(lambda: len(late_ends(lab)) >= 2, "hoff to learn that it is too late")
        lab.until(lambda: node(lab, "hoff")["state"] == "idle", "hoff to be back")

        assert lab.ends(job) == before, "the late results change nothing"
        folders = [folder for found in lab.runs(job).values() for folder in found]
        assert [(folder / "saves" / "host").read_text() for folder in folders] == ["hebb"] * 6
        everything = list((lab.root / lab.project / "runs").glob("param_*/*num*"))
        assert sorted(everything) == sorted(folders), "nothing twice"
        taken = [row for row in job.status().as_json()["tasks"] if row["attempt"] == 2]
        assert len(taken) >= 2
        assert all("hoff has been silent for" in row["why"] for row in taken)
        assert not hoff.says("Traceback")


def late_ends(lab: Lab) -> list[str]:
    return [line for line in lab["hoff"].lines("ended") if "by-another-node" in line]
