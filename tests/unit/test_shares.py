"""What is left of a job, and how often a node looks at it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ludwig.drives.folder import FolderDrive
from ludwig.nodes import GAP
from ludwig.shares import Shares
from ludwig.view import JobView
from ludwig.worker import looks
from tests.simsubmit import job_record


@pytest.fixture
def view(tmp_path: Path) -> JobView:
    job, _, _ = job_record(
        "trees",
        1,
        {"param_001": {}},
        {"param_001": 20},
        hosts=["hoff", "hebb"],
        nonce="12345678",
        stamp="2026-11-18-10-00-00",
    )
    return JobView(FolderDrive(tmp_path), job)


def test_home_and_helper_meet_in_the_middle(view: JobView) -> None:
    share = Shares(view).of("hoff")
    taken = []
    while (first := share.first()) is not None:
        assert not share.helped() or taken
        view.claims[first] = 1
        taken.append(first)
        if (last := share.last()) is not None:
            view.claims[last] = 1
            taken.append(last)
    assert sorted(taken) == [task.task for task in view.job.chunks["hoff"].tasks]
    assert taken[:4] == [1, 19, 3, 17]
    assert share.exhausted() and share.left() == 0 and share.helped()


def test_a_share_knows_what_is_left_and_who_takes_from_it(view: JobView) -> None:
    shares = Shares(view)
    own = shares.of("hoff")
    assert (own.left(), own.helped()) == (10, False)
    view.claims |= {1: 1, 3: 1}
    assert (own.left(), own.helped()) == (8, False), "what we take from the front is no help"
    view.claims[19] = 1
    assert (own.left(), own.helped()) == (7, True)
    view.stops.add(5)
    assert own.first() == 7
    assert shares.fullest(["hoff", "hebb"]) == "hebb"
    assert shares.others("hoff") == ["hebb"]
    view.stops.add(0)
    assert shares.others("hoff") == [] and own.exhausted()
    assert shares.fullest(["hoff", "hebb"]) == ""
    assert shares.of("stranger").exhausted()


@pytest.mark.parametrize("silent_s", [2.0, 60.0, 600.0])
def test_no_look_comes_too_late_to_notice_silence(silent_s: float) -> None:
    for nodes in (1, 8, 64, 65, 300, 1_000, 100_000):
        assert looks.glance_s(silent_s, nodes) <= max(silent_s * GAP, looks.look_s(silent_s))
        assert looks.glance_s(silent_s, nodes) >= looks.look_s(silent_s)


def test_the_sum_of_all_whole_looks_does_not_grow_with_the_nodes() -> None:
    """A look reads something of every node."""

    def reads_a_second(nodes: int, *, room: bool) -> float:
        return nodes * nodes / looks.whole_s(60.0, nodes, room=room)

    for room in (True, False):
        most = reads_a_second(looks.LOOKERS, room=room)
        for nodes in (8, 64, 100, 300, 1_000):
            assert reads_a_second(nodes, room=room) <= most * 1.001
    assert looks.whole_s(60.0, 8, room=True) == looks.look_s(60.0)
    assert looks.chance(64) == 1.0 and looks.chance(1_000) * 1_000 < 5
