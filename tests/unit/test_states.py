"""What state a task is in and why, what is claimed next, and what a failure leads to."""

from pathlib import Path
from typing import Any

import pytest

from ludwig import layout, queue, states
from ludwig.drives.folder import FolderDrive
from ludwig.model import ATTEMPT_LIMIT, Done, Failure, Job, Refusal, Stop
from ludwig.view import JobView
from tests.claiming import claimable
from tests.scene import Scene
from tests.simsubmit import job_record


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_nobody_has_been_heard_of(scene: Scene) -> None:
    row = scene.row(1)
    assert row.state == "queued"
    assert row.why == ("no node can run it now (hoff: not heard of yet; hebb: not heard of yet)")


def test_waiting_for_a_slot_at_home(scene: Scene) -> None:
    scene.serve("hoff", "hebb")
    assert scene.row(1).why == "waits for a free slot on hoff"
    assert scene.row(2).why == "waits for a free slot on hebb"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"state": "draining"}, "hoff cannot (draining); hebb will take over"),
        ({"state": "draining", "why": "reboot"}, "hoff cannot (draining: reboot); hebb"),
        ({"state": "quarantined", "why": "hot"}, "hoff cannot (quarantined: hot)"),
        ({"set_aside": ("trees/1",), "why": "all die"}, "has set this job aside: all die"),
    ],
)
def test_home_says_why_it_cannot(scene: Scene, fields: dict[str, Any], says: str) -> None:
    scene.serve("hoff", "hebb")
    scene.beat("hoff", **fields)
    assert says in scene.row(1).why


def test_home_refused_the_job(scene: Scene) -> None:
    scene.serve("hebb")
    queue.refuse(scene.drive, "trees", 1, Refusal(host="hoff", why="has 1 GPU"))
    assert scene.row(1).why == "hoff cannot (refused: has 1 GPU); hebb will take over"


def test_a_refusal_that_was_taken_back(scene: Scene) -> None:
    queue.refuse(scene.drive, "trees", 1, Refusal(host="hoff", why="has 1 GPU"))
    assert "refused" in scene.row(1).why
    scene.drive.remove(scene.files.refused_by("hoff"))
    assert "refused" not in scene.row(1).why


def test_home_has_not_seen_its_ticket(scene: Scene) -> None:
    scene.serve("hebb")
    scene.beat("hoff")
    assert "has not taken up its ticket yet" in scene.row(1).why


def test_a_claimed_task_runs(scene: Scene) -> None:
    scene.serve("hoff")
    scene.claim("hoff", 1)
    row = scene.row(1)
    assert (row.state, row.node, row.attempt) == ("running", "hoff", 1)
    assert row.why == "just claimed by hoff"
    scene.beat("hoff", (1, 1))
    assert scene.row(1).why == "on hoff"
    scene.beat("hoff", (1, 1), phase="waiting")
    row = scene.row(1)
    assert (row.state, row.why) == ("queued", "next on hoff")


def test_a_beat_that_was_made_before_the_claim_proves_nothing(scene: Scene) -> None:
    scene.serve("hoff")
    scene.claim("hoff", 1, beat=5)
    scene.counters["hoff"] = 4
    scene.beat("hoff")  # beat 5, composed before the claim
    assert scene.row(1).state == "running"
    scene.beat("hoff")  # beat 6, which would list it
    assert scene.row(1).state == "lost"


def test_a_silent_node_loses_its_tasks(scene: Scene) -> None:
    scene.serve("hoff", "hebb")
    scene.claim("hoff", 1)
    scene.beat("hoff", (1, 1))
    scene.row(1)
    scene.wait(50, "hebb")
    assert scene.row(1).state == "running"
    assert not scene.retakes()
    scene.wait(10, "hebb")
    row = scene.row(1)
    assert (row.state, row.node) == ("lost", "hoff")
    assert row.why == "hoff has been silent for 60 s; hebb will take over"
    retake = scene.retakes()[1]
    assert (retake.attempt, retake.lost, retake.failures) == (2, False, ())
    assert retake.why == "attempt 1: hoff has been silent for 60 s"


def test_a_node_that_forgot_its_task_loses_it(scene: Scene) -> None:
    scene.serve("hoff", "hebb")
    scene.claim("hoff", 1)
    scene.beat("hoff", (3, 1))
    assert scene.row(1).state == "lost"
    assert "does not know of it any more" in scene.retakes()[1].why


def test_a_restarted_node_keeps_what_it_lists(scene: Scene) -> None:
    scene.serve("hoff")
    scene.claim("hoff", 1)
    scene.beat("hoff", (1, 1), boot="c")
    assert scene.row(1).state == "running"
    scene.beat("hoff", boot="c")
    assert scene.row(1).state == "lost"


def test_a_node_that_counts_anew_is_not_believed_for_ever(scene: Scene) -> None:
    """Somebody removed its beats: the claim names a beat that comes only in hours."""
    scene.counters["hoff"] = 5000
    scene.serve("hoff")
    scene.claim("hoff", 1)
    scene.drive.remove_folder(layout.NODES)
    scene.drive.make_folders(layout.NODES)
    scene.counters["hoff"] = 0
    scene.beat("hoff", boot="c")
    assert scene.row(1).state == "running"
    for _ in range(7):
        scene.now += 10
        scene.beat("hoff", boot="c")
        scene.row(1)
    assert scene.row(1).state == "lost"


@pytest.mark.parametrize("content", [b"", b'{"version":1,"ho'])
def test_a_claim_whose_writer_died(scene: Scene, content: bytes) -> None:
    scene.serve("hoff", "hebb")
    scene.drive.create(scene.files.claim_of(1, 1), content)
    row = scene.row(1)
    assert row.state == "queued"
    assert "has not said which" in row.why
    assert not scene.retakes()
    scene.wait(60, "hoff", "hebb")
    assert scene.retakes()[1].attempt == 2


def test_a_damaged_claim_of_a_living_node_is_not_taken(scene: Scene) -> None:
    scene.serve("hoff", "hebb")
    scene.drive.create(scene.files.claim_of(1, 1), b"")
    for _ in range(12):
        scene.now += 10
        scene.beat("hoff", (1, 1))
        assert scene.row(1).state == "running"
    assert not scene.retakes()


def test_a_removed_claim_does_not_free_its_number(scene: Scene) -> None:
    scene.serve("hoff", "hebb")
    scene.claim("hoff", 1)
    scene.event("hoff", what="claimed", task=1, attempt=1)
    scene.drive.remove(scene.files.claim_of(1, 1))
    scene.beat("hoff", (1, 1))
    assert scene.row(1).state == "running"
    assert 1 not in claimable(scene.view, "hoff")
    scene.beat("hoff")
    scene.wait(70, "hebb", "hoff")
    assert scene.retakes()[1].attempt == 2


def test_a_failed_attempt_is_left_to_others(scene: Scene) -> None:
    scene.serve("hoff", "hebb")
    earlier = Failure(attempt=1, host="hoff", why="first")
    scene.claim("hoff", 1)
    scene.claim("hoff", 1, 2, why="attempt 1 failed on hoff", failures=(earlier,))
    scene.beat("hoff", (1, 2))
    assert scene.row(1).why == "attempt 1 failed on hoff"
    scene.event("hoff", what="failed", task=1, attempt=2, why="second\nline")
    row = scene.row(1)
    assert (row.state, row.attempt) == ("queued", 2)
    assert row.why == "failed on hoff: second line; hebb, hoff will take over"
    retake = scene.retakes()[1]
    assert retake.attempt == 3
    assert [failure.why for failure in retake.failures] == ["first", "second\nline"]


def test_a_released_attempt_is_left_to_others(scene: Scene) -> None:
    scene.serve("hoff", "hebb")
    scene.claim("hoff", 1)
    scene.event("hoff", what="released", task=1, attempt=1, why="draining " * 1000)
    row = scene.row(1)
    assert row.state == "queued"
    assert row.why.startswith("given back by hoff: draining")
    retake = scene.retakes()[1]
    assert retake.failures == ()
    assert len(retake.why) < 300
    scene.claim("hebb", 1, 2, why=retake.why)
    assert scene.row(1).node == "hebb"


def test_a_task_that_was_tried_too_often_is_lost(scene: Scene) -> None:
    scene.serve("hoff", "hebb")
    scene.claim("hoff", 1, ATTEMPT_LIMIT)
    scene.beat("hoff")
    retake = scene.retakes()[1]
    assert retake.lost


@pytest.mark.parametrize(
    ("outcome", "why", "says"),
    [
        ("done", "", "finished on hoff after 61.5 s"),
        ("failed", "RuntimeError: no", "RuntimeError: no"),
        ("lost", "", "lost on hoff"),
        ("stopped", "cancelled", "cancelled"),
    ],
)
def test_an_end_is_an_end(scene: Scene, outcome: Any, why: str, says: str) -> None:
    scene.serve("hoff", "hebb")
    scene.claim("hoff", 1)
    done = Done(
        task=1, attempt=1, outcome=outcome, host="hoff", nonce="12345678", why=why, seconds=61.5
    )
    assert queue.end(scene.drive, scene.job, done)
    row = scene.row(1)
    assert (row.state, row.why, row.node) == (outcome, says, "hoff")
    assert not scene.retakes()


def test_an_end_that_somebody_removed_is_still_an_end(scene: Scene) -> None:
    scene.serve("hoff")
    done = Done(task=1, attempt=1, outcome="done", host="hoff", nonce="12345678")
    scene.event("hoff", what="ended", task=1, attempt=1, done=done)
    assert scene.row(1).state == "done"
    assert 1 not in claimable(scene.view, "hoff")


# --- cancelling --------------------------------------------------------------------------------


def stop(scene: Scene, task: int | None = None) -> None:
    queue.stop(scene.drive, scene.job, Stop(user="ana"), task=task)


def test_what_was_cancelled_before_it_started(scene: Scene) -> None:
    scene.serve("hoff")
    stop(scene, 1)
    row = scene.row(1)
    assert (row.state, row.why) == ("stopped", "cancelled before it started")
    assert set(claimable(scene.view, "hoff")) == {2, 3, 4}
    stop(scene)
    scene.look()
    assert not claimable(scene.view, "hoff")
    assert scene.view.open_tasks() == set()


def test_what_is_cancelled_while_it_waits_for_its_slot_is_not_over_yet(scene: Scene) -> None:
    """It may have started since that beat, and leave half a run: its node says when it is over."""
    scene.serve("hoff")
    scene.claim("hoff", 1)
    scene.beat("hoff", (1, 1), phase="waiting")
    stop(scene)
    row = scene.row(1)
    assert (row.state, row.why) == ("queued", "being stopped on hoff")


def test_what_is_being_cancelled(scene: Scene) -> None:
    scene.serve("hoff")
    scene.claim("hoff", 1)
    scene.beat("hoff", (1, 1))
    stop(scene)
    row = scene.row(1)
    assert (row.state, row.why) == ("running", "being stopped on hoff")
    assert not list(states.abandoned_stops(scene.view, scene.observer, scene.now))


def test_a_cancelled_task_of_a_dead_node_is_ended_by_whoever_sees_it(scene: Scene) -> None:
    scene.serve("hoff", "hebb")
    scene.claim("hoff", 1)
    scene.beat("hoff", (1, 1))
    stop(scene)
    scene.row(1)
    scene.wait(60, "hebb")
    row = scene.row(1)
    assert row.state == "stopped"
    assert row.why == "cancelled; hoff has been silent for 60 s"
    assert not scene.retakes(), "what is stopped is not run again"
    found = list(states.abandoned_stops(scene.view, scene.observer, scene.now))
    assert found == [(1, 1, row.why)]


# --- what to claim -----------------------------------------------------------------------------


def test_home_first_then_from_the_back_of_whoever_has_most(tmp_path: Path) -> None:
    job, _, _ = job_record(
        "trees",
        1,
        {"param_001": {}},
        {"param_001": 9},
        hosts=["hoff", "hebb", "pitts"],
        nonce="12345678",
        stamp="2026-11-18-10-00-00",
    )
    view = JobView(FolderDrive(tmp_path), job)
    assert claimable(view, "hoff") == [1, 4, 7, 9, 8, 6, 5, 3, 2]
    view.claims[6] = view.claims[9] = 1
    view.done |= {1, 4}
    assert claimable(view, "hoff") == [7, 8, 5, 3, 2]
    assert claimable(view, "stranger")[0] == 8


def test_without_balance_everybody_stays_at_home(tmp_path: Path) -> None:
    scene = Scene(tmp_path, balance=False)
    scene.serve("hoff", "hebb")
    scene.look()
    assert claimable(scene.view, "hoff") == [1, 3]
    assert not list(states.left_over(scene.view, scene.observer, "hoff", scene.now))
    scene.wait(60, "hoff")
    assert list(states.left_over(scene.view, scene.observer, "hoff", scene.now)) == [2, 4]


def test_only_nodes_that_have_the_job_are_expected_to_help(scene: Scene) -> None:
    scene.serve("hoff")
    scene.beat("hebb", (1, 1))  # busy with something, but without a ticket for this job
    scene.look()
    assert states.others_serving(scene.view, scene.observer, "hoff", scene.now) == []
    scene.event("hebb", what="accepted")
    scene.look()
    assert states.others_serving(scene.view, scene.observer, "hoff", scene.now) == ["hebb"]
    scene.beat("hebb", state="draining")
    scene.look()
    assert states.others_serving(scene.view, scene.observer, "hoff", scene.now) == []


# --- failures ----------------------------------------------------------------------------------


def failures(*hosts: str) -> tuple[Failure, ...]:
    return tuple(
        Failure(attempt=index + 1, host=host, why="no") for index, host in enumerate(hosts)
    )


@pytest.mark.parametrize(
    ("retries", "where", "others", "step"),
    [
        (0, ["hoff"], True, "give up"),
        (1, ["hoff"], True, "retry"),
        (1, ["hoff"], False, "retry"),
        (1, ["hoff", "hoff"], True, "hand over"),
        (1, ["hoff", "hoff"], False, "give up"),
        (2, ["hoff", "hoff"], True, "retry"),
        (1, ["hebb", "hebb", "hoff"], True, "give up"),
    ],
)
def test_what_a_failure_leads_to(
    tmp_path: Path, retries: int, where: list[str], others: bool, step: str
) -> None:
    job: Job = Scene(tmp_path, retries=retries).job
    assert states.after_failure(job, failures(*where), "hoff", others=others) == step


def test_one_word_for_a_job() -> None:
    none: dict[Any, int] = dict.fromkeys(states.STATES, 0)
    assert states.job_state(none) == "done"
    assert states.job_state({**none, "done": 3}) == "done"
    assert states.job_state({**none, "done": 3, "failed": 1}) == "failed"
    assert states.job_state({**none, "failed": 1, "queued": 1}) == "queued"
    assert states.job_state({**none, "queued": 1, "running": 1, "lost": 1}) == "running"
