"""A bad node does no harm: jobs are set aside, the node quarantines itself, and both end."""

from hypothesis import given
from hypothesis import strategies as st

from ludwig.worker.suspicion import PAUSE_MAX_S, PAUSE_S, Suspicion


def die(node: Suspicion, job: str, task: int, now: float = 0.0, *, reached: bool = True) -> None:
    node.ended(job, task, now, seconds=1.0, failed=True, user_code_reached=reached)


def succeed(node: Suspicion, job: str, task: int, now: float = 0.0) -> None:
    node.ended(job, task, now, seconds=1.0, failed=False, user_code_reached=True)


def fail_late(node: Suspicion, job: str, task: int, now: float = 0.0) -> None:
    node.ended(job, task, now, seconds=600.0, failed=True, user_code_reached=True)


def with_set_aside(*jobs: str) -> Suspicion:
    node = Suspicion()
    for job in jobs:
        for task in (1, 2, 3):
            die(node, job, task)
    return node


def test_nothing_speaks_against_a_new_node() -> None:
    node = Suspicion()
    assert node.may_claim("p/1", 0.0, True)
    assert node.state(0.0) == (False, "", ())


def test_a_job_is_set_aside_after_three_different_tasks_died_at_once() -> None:
    node = Suspicion()
    die(node, "p/1", 1)
    die(node, "p/1", 2)
    assert node.may_claim("p/1", 1.0, True)
    die(node, "p/1", 3)
    assert not node.may_claim("p/1", 1.0, True)
    assert node.may_claim("p/2", 1.0, True)
    quarantined, why, set_aside = node.state(1.0)
    assert (quarantined, set_aside) == (False, ("p/1",))
    assert why == "tasks of p/1 die at once here; the next trial is in 59 s"


def test_one_task_that_dies_again_and_again_is_one_task() -> None:
    node = Suspicion()
    for _ in range(5):
        die(node, "p/1", 1)
    assert node.state(0.0) == (False, "", ())


def test_a_success_in_between_starts_the_count_anew() -> None:
    node = Suspicion()
    die(node, "p/1", 1)
    die(node, "p/1", 2)
    succeed(node, "p/1", 3)
    die(node, "p/1", 4)
    die(node, "p/1", 5)
    assert node.may_claim("p/1", 0.0, True)


def test_failures_after_a_while_are_the_jobs_own() -> None:
    node = Suspicion()
    for task in range(10):
        fail_late(node, "p/1", task)
    assert node.state(0.0) == (False, "", ())


def test_the_fault_is_the_jobs_when_no_other_node_does_better() -> None:
    node = with_set_aside("p/1")
    assert node.may_claim("p/1", 1.0, False)
    assert node.state(1.0) == (False, "", ("p/1",))


def test_one_task_is_tried_after_a_pause_that_doubles() -> None:
    node = with_set_aside("p/1")
    now, pauses = 0.0, []
    for _ in range(8):
        started = now
        while not node.may_claim("p/1", now, True):
            now += 1
        pauses.append(now - started)
        node.claimed("p/1", now)
        assert not node.may_claim("p/1", now + 10_000, True), "only one trial at a time"
        die(node, "p/1", 9, now)
    # Five seconds more for the job that failed: another would go first.
    assert pauses == [60, 125, 245, 485, 965, 1805, 1805, 1805]
    assert pauses[-1] - 5 == PAUSE_MAX_S


def test_a_trial_that_succeeds_clears_the_job() -> None:
    node = with_set_aside("p/1")
    node.claimed("p/1", PAUSE_S)
    assert "is being tried" in node.state(PAUSE_S)[1]
    succeed(node, "p/1", 4, 70.0)
    assert node.may_claim("p/1", 70.0, True)
    assert node.state(70.0) == (False, "", ())


def test_a_trial_that_fails_late_clears_the_job_too() -> None:
    node = with_set_aside("p/1")
    node.claimed("p/1", PAUSE_S)
    fail_late(node, "p/1", 4, 700.0)
    assert node.may_claim("p/1", 700.0, True)


def test_a_trial_without_a_verdict_is_followed_by_another() -> None:
    node = with_set_aside("p/1")
    node.claimed("p/1", PAUSE_S)
    node.withdrawn("p/1")
    assert node.may_claim("p/1", PAUSE_S, True)


def test_two_jobs_set_aside_quarantine_the_node() -> None:
    node = with_set_aside("p/1", "q/1")
    assert not node.may_claim("r/1", 1.0, True)
    quarantined, why, set_aside = node.state(1.0)
    assert quarantined and set_aside == ("p/1", "q/1")
    assert why == "tasks of p/1 and q/1 die at once here; the next trial is in 59 s"


def test_a_quarantined_node_tries_any_job_and_is_free_when_that_succeeds() -> None:
    node = with_set_aside("p/1", "q/1")
    assert node.may_claim("r/1", PAUSE_S, True)
    node.claimed("r/1", PAUSE_S)
    assert not node.may_claim("s/1", PAUSE_S, True)
    succeed(node, "r/1", 1, 100.0)
    assert node.may_claim("s/1", 100.0, True)
    assert node.state(100.0)[::2] == (False, ("p/1", "q/1"))


def test_another_job_is_tried_before_the_one_whose_trial_failed() -> None:
    node = with_set_aside("p/1", "q/1")
    node.claimed("r/1", PAUSE_S)
    die(node, "r/1", 1, PAUSE_S)
    assert not node.may_claim("r/1", PAUSE_S + 120, True)
    assert node.may_claim("s/1", PAUSE_S + 120, True)


def test_two_broken_jobs_do_not_quarantine_the_only_node() -> None:
    node = Suspicion()
    for job in ("p/1", "q/1"):
        for task in (1, 2, 3, 4):
            assert node.may_claim(job, 0.0, False)
            die(node, job, task)
    assert node.may_claim("r/1", 0.0, False)
    assert not node.state(0.0)[0]


def test_quarantine_ends_with_the_jobs_that_caused_it() -> None:
    node = with_set_aside("p/1", "q/1")
    node.forget("p/1")
    assert node.may_claim("r/1", 1.0, True)
    assert node.state(1.0)[::2] == (False, ("q/1",))


def test_a_trial_of_a_suspect_third_job_that_fails_late_is_followed_by_another() -> None:
    node = Suspicion()
    die(node, "r/1", 1)
    for job in ("p/1", "q/1"):
        for task in (1, 2, 3):
            die(node, job, task)
    node.claimed("r/1", PAUSE_S)
    fail_late(node, "r/1", 2, 900.0)
    assert node.may_claim("r/1", 900.0, True)


def test_three_attempts_that_never_reach_the_users_code_quarantine_the_node() -> None:
    node = Suspicion()
    for number, job in enumerate(("p/1", "q/1", "p/1")):
        assert node.may_claim(job, 0.0, False)
        die(node, job, number, reached=False)
    # Whatever others do: nothing that runs here can end well.
    assert not node.may_claim("r/1", 1.0, False)
    quarantined, why, set_aside = node.state(1.0)
    assert quarantined and not set_aside
    assert why.startswith("3 attempts in a row died before the job's own code was reached")
    node.claimed("r/1", PAUSE_S)
    assert not node.may_claim("r/1", PAUSE_S, False)
    die(node, "r/1", 1, PAUSE_S, reached=True)
    assert node.may_claim("r/1", PAUSE_S, False)
    assert not node.state(PAUSE_S)[0]


def test_attempts_that_reach_the_users_code_break_the_row() -> None:
    node = Suspicion()
    for task in (1, 2):
        die(node, "p/1", task, reached=False)
    fail_late(node, "q/1", 1)
    die(node, "q/2", 1, reached=False)
    assert not node.state(0.0)[0]


JOBS = ("p/1", "p/2", "q/1")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(JOBS),
        st.integers(1, 5),
        st.sampled_from(["success", "quick", "late", "unreached", "withdrawn"]),
        st.floats(0, 300),
        st.booleans(),
    ),
    max_size=60,
)


@given(STEPS)
def test_no_history_shuts_a_node_for_ever(steps: list[tuple[str, int, str, float, bool]]) -> None:
    """As long as trials are claimed and end, one more comes within the longest pause."""
    node = Suspicion()
    now = 0.0
    for job, task, how, passed, others_fine in steps:
        now += passed
        if not node.may_claim(job, now, others_fine):
            continue
        node.claimed(job, now)
        if how == "withdrawn":
            node.withdrawn(job)
        elif how == "unreached":
            die(node, job, task, now, reached=False)
        else:
            {"success": succeed, "quick": die, "late": fail_late}[how](node, job, task, now)
    # That others are fine may be news, and a reason for a pause from here on.
    for job in JOBS:
        node.may_claim(job, now, True)
    later = now + PAUSE_MAX_S + 10
    assert all(node.may_claim(job, later, True) for job in (*JOBS, "new/1"))
    for job in JOBS:
        node.claimed(job, later)
        succeed(node, job, 1, later)
    assert node.state(later) == (False, "", ())
    assert all(node.may_claim(job, later, True) for job in JOBS)


@given(STEPS)
def test_what_is_set_aside_is_not_claimed(steps: list[tuple[str, int, str, float, bool]]) -> None:
    """Within the first pause after three deaths nothing is claimed that others can run."""
    node = Suspicion()
    for job, task, _, _, _ in steps:
        die(node, job, task)
    for job in JOBS:
        if len({task for name, task, *_ in steps if name == job}) >= 3:
            assert not node.may_claim(job, PAUSE_S - 1, True)
            assert job in node.state(0.0)[2]
