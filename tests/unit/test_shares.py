"""What is left of a job, and how often a node looks at it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ludwig import layout
from ludwig.drives.folder import FolderDrive
from ludwig.nodes import GAP, Observer
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
    assert looks.chance(64) == 1.0
    assert 10 < looks.chance(1_000) * looks.watching(1_000) * 1_000 < 20, "at once, of a silent one"


def test_all_watch_a_small_lab_and_enough_of_a_large_one() -> None:
    assert looks.watching(1) == looks.watching(looks.LOOKERS) == 1.0
    for nodes in (100, 300, 1_000, 10_000):
        watchers = nodes * looks.watching(nodes)
        assert looks.LOOKERS < watchers < nodes
        assert watchers >= nodes / 25, "they can take over what a tenth of the nodes held"
    assert looks.help_s(8) == looks.help_s(64) == looks.HELP_LOOK_S < looks.help_s(300) < 60


def test_who_did_not_look_calls_nobody_silent(tmp_path: Path) -> None:
    """A busy node of a large lab leaves the heartbeats to others; then it looks again."""
    drive = FolderDrive(tmp_path)
    observer = Observer(drive, silent_s=60.0)
    observer.first_look(["hoff"], 0.0)
    observer.count(0.0)
    assert not observer.silent("hoff", 10_000.0)
    observer.count(10_000.0)
    assert not observer.silent("hoff", 10_000.0)
    for now in (10_015.0, 10_030.0, 10_046.0):
        observer.count(now)
    assert observer.silent("hoff", 10_046.0)


def test_one_question_tells_whether_others_take_from_a_share(view: JobView, tmp_path: Path) -> None:
    files = layout.job_files("trees", 1)
    share = Shares(view).of("hoff")
    assert share.last() == 19 and not view.look_at_claim(19) and share.last() == 19
    claimed = tmp_path / files.claim_of(19, 1)
    claimed.parent.mkdir(parents=True)
    claimed.touch()
    assert view.look_at_claim(19) and share.last() == 17 and share.helped()


def test_homes_are_known_by_the_buckets_that_hold_all_of_their_tasks(view: JobView) -> None:
    assert view.homes_in(view.buckets_of("hebb")) == ["hoff", "hebb"]
    assert view.homes_in([]) == [] and view.buckets_of("stranger") == ()
