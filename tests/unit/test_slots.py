"""Who runs where: GPUs and CPU slots are given once, and only when they can be used."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludwig.worker import slots
from ludwig.worker.places import DRAIN_S, RETURN_S
from ludwig.worker.reading import GpuProcess, Reading
from ludwig.worker.slots import Assignment, Places

GIB = 1 << 30


def card(index: int = 0, *processes: GpuProcess, **values: object) -> Reading:
    used = sum(process.memory for process in processes)
    usual = Reading(f"GPU-{index}", index, "Card", memory_used=used, memory_total=24 * GIB)
    return replace(usual, processes=processes, **values)  # type: ignore[arg-type]


def lost(index: int = 0) -> Reading:
    return card(index, error="it fell off the bus", lost=True)


def node(*readings: Reading, cores: int = 8) -> Places:
    return slots.observe(slots.start("gpus", cores=cores), readings, pids={}, now=0.0)


def running(places: Places, attempt: str, wanted: int | None = None) -> Places:
    assignment = slots.fit(places, wanted)
    assert assignment is not None
    return slots.take(places, attempt, assignment)


PLAYER = GpuProcess(99, 5 * GIB, name="python", user="ana", started=1.0)
DESKTOP = GpuProcess(98, GIB // 2, graphics=True, name="Xorg", user="root", started=1.0)
MINE = GpuProcess(7, 3 * GIB, name="python", user="ludwig", started=2.0)


# ---- what there is


@pytest.mark.parametrize(
    ("configured", "cores", "has_gpus", "expected"),
    [("gpus", 8, False, 8), ("gpus", 8, True, 4), ("gpus", 1, True, 1), (3, 8, False, 3)],
)
def test_how_many_cpu_slots(
    configured: int | str, cores: int, has_gpus: bool, expected: int
) -> None:
    assert slots.cpu_slots(configured, cores, has_gpus=has_gpus) == expected  # type: ignore[arg-type]


def test_a_node_without_gpus_runs_everything_but_gpu_tasks_on_its_cores() -> None:
    places = node(cores=2)
    assert slots.fit(places, None) == slots.fit(places, 0) == Assignment()
    assert slots.fit(places, 1) is None
    assert slots.never(places, 1) == "the task wants 1 GPU, the node has no GPU"
    places = running(running(places, "a"), "b", 0)
    assert slots.fit(places, None) is None
    assert slots.why_not(places, None) == "all 2 CPU slots are in use"


def test_a_number_of_slots_leaves_the_gpus_alone() -> None:
    places = slots.observe(slots.start(3, cores=8), [card()], pids={}, now=0.0)
    assert slots.fit(places, None) == Assignment()
    assert slots.snapshot(places)[1].gpus == 0
    assert slots.snapshot(places)[1].cpus == 3


def test_one_task_per_gpu() -> None:
    places = node(card(0), card(1))
    places = running(running(places, "a"), "b")
    assert places.attempts == {"a": Assignment(("GPU-0",)), "b": Assignment(("GPU-1",))}
    assert slots.fit(places, None) is None
    assert slots.why_not(places, None) == "GPU 0 runs a; GPU 1 runs b"
    assert slots.fit(places, 0) == Assignment()


def test_several_gpus_for_one_task() -> None:
    places = node(card(0), card(1), card(2))
    assert slots.fit(places, 2) == Assignment(("GPU-0", "GPU-1"))
    places = running(running(places, "a"), "b")
    assert slots.fit(places, 2) is None
    assert slots.why_not(places, 2) == "2 GPUs are wanted, 1 of 3 free: GPU 0 runs a; GPU 1 runs b"
    assert slots.never(places, 3) == ""
    assert slots.never(places, 4) == "the task wants 4 GPUs, the node has 3 GPUs"
    assert slots.why_not(places, 4) == slots.never(places, 4)


def test_what_could_start_if_nothing_of_ours_ran() -> None:
    places = running(running(node(card(0), card(1), card(2, PLAYER), lost(3)), "a"), "b")
    assert slots.fit(places, 1) is None
    assert slots.fits_alone(places, 2) and slots.fits_alone(places, None)
    assert not slots.fits_alone(places, 3)
    assert slots.fits_alone(places, 0)


def test_nothing_is_given_twice() -> None:
    places = running(node(card(0)), "a")
    with pytest.raises(ValueError, match="not free"):
        slots.take(places, "b", Assignment(("GPU-0",)))
    with pytest.raises(ValueError, match="already"):
        slots.take(places, "a", Assignment())


def test_a_driver_that_broke_does_not_move_training_to_the_cpu() -> None:
    broken = slots.observe(slots.start("gpus", cores=4), [], pids={}, now=0.0, broken="no driver")
    assert slots.fit(broken, None) is None
    assert slots.why_not(broken, None) == "the node's GPUs cannot be used: no driver"
    assert slots.fit(broken, 0) == Assignment()
    repaired = slots.observe(broken, [card()], pids={}, now=1.0)
    assert slots.fit(repaired, None) == Assignment(("GPU-0",))


# ---- somebody else's processes


def test_a_gpu_that_somebody_plays_with_is_not_used_until_it_is_free() -> None:
    places = node(card(0, PLAYER), card(1))
    assert slots.fit(places, None) == Assignment(("GPU-1",))
    (first, second), counts = slots.snapshot(places)
    assert (first.state, second.state) == ("foreign", "free")
    assert first.why.startswith("is used by python of ana (pid 99, 5.0 GiB, since 19")
    assert (counts.gpus, counts.gpus_free) == (2, 1)
    freed = slots.observe(places, [card(0), card(1)], pids={}, now=60.0)
    assert slots.fit(freed, 2) is not None


def test_a_desktop_is_not_in_the_way_a_game_is() -> None:
    assert slots.fit(node(card(0, DESKTOP)), None) is not None
    game = replace(DESKTOP, memory=GIB)
    assert slots.fit(node(card(0, game)), None) is None
    tiny = replace(DESKTOP, graphics=False, memory=1)
    assert slots.fit(node(card(0, tiny)), None) is None


def test_our_own_processes_are_not_foreign() -> None:
    places = running(node(card(0)), "a")
    places = slots.observe(places, [card(0, MINE)], pids={"a": [7]}, now=1.0)
    ((gpu,), _) = slots.snapshot(places)
    assert (gpu.state, gpu.why) == ("busy", "runs a")


def test_a_process_beside_ours_is_named() -> None:
    places = running(node(card(0)), "a")
    places = slots.observe(places, [card(0, MINE, PLAYER)], pids={"a": [7]}, now=1.0)
    ((gpu,), _) = slots.snapshot(places)
    assert gpu.state == "busy"
    assert gpu.why.startswith("runs a, and is used by python of ana")


def test_an_attempt_that_takes_another_gpu_than_its_own() -> None:
    places = running(node(card(0), card(1)), "a")
    places = slots.observe(places, [card(0), card(1, MINE)], pids={"a": [7]}, now=1.0)
    assert slots.fit(places, None) is None
    assert [gpu.state for gpu in slots.snapshot(places)[0]] == ["busy", "busy"]
    assert slots.snapshot(places)[0][1].why == "is used by a"


# ---- after a task


def test_a_gpu_is_free_after_a_look_that_finds_nothing_left() -> None:
    places = running(node(card(0)), "a")
    places = slots.observe(places, [card(0, MINE)], pids={"a": [7]}, now=1.0)
    places = slots.release(places, "a", 2.0)
    assert slots.fit(places, None) is None
    assert slots.why_not(places, None) == "GPU 0 is being freed by a"
    places = slots.observe(places, [card(0)], pids={}, now=2.0)
    assert slots.fit(places, None) is not None
    assert places.attempts == {}


def test_memory_that_stays_held_takes_a_gpu_out_of_service_until_it_is_freed() -> None:
    places = running(node(card(0)), "a")
    places = slots.observe(places, [card(0, MINE)], pids={"a": [7]}, now=1.0)
    places = slots.release(places, "a", 2.0)
    places = slots.observe(places, [card(0, MINE)], pids={}, now=3.0)
    (left,) = slots.leftovers(places)
    assert (left.attempt, left.uuid, left.process) == ("a", "GPU-0", MINE)
    assert slots.snapshot(places)[0][0].state == "busy"
    places = slots.observe(places, [card(0, MINE)], pids={}, now=2.0 + DRAIN_S)
    gpu = slots.snapshot(places)[0][0]
    assert gpu.state == "out"
    assert "memory of a stays held by python of ludwig (pid 7" in gpu.why
    assert slots.leftovers(places) == (left,)
    places = slots.observe(places, [card(0)], pids={}, now=600.0)
    assert slots.fit(places, None) is not None


def test_a_process_that_was_never_seen_before_the_end() -> None:
    places = slots.release(running(node(card(0)), "a"), "a", 0.5, pids=[7])
    places = slots.observe(places, [card(0, MINE)], pids={}, now=1.0)
    assert [left.process.pid for left in slots.leftovers(places)] == [7]


def test_a_pid_that_is_used_again_is_somebody_else() -> None:
    places = running(node(card(0)), "a")
    places = slots.observe(places, [card(0, MINE)], pids={"a": [7]}, now=1.0)
    places = slots.release(places, "a", 2.0)
    other = replace(PLAYER, pid=7)
    places = slots.observe(places, [card(0, other)], pids={}, now=3.0)
    assert slots.leftovers(places) == ()
    assert slots.snapshot(places)[0][0].state == "foreign"


def test_memory_that_no_process_explains() -> None:
    places = running(node(card(0, memory_used=GIB)), "a")
    places = slots.release(places, "a", 1.0)
    held = slots.observe(places, [card(0, memory_used=4 * GIB)], pids={}, now=1.0 + DRAIN_S)
    assert slots.snapshot(held)[0][0].state == "out"
    assert "stays held by no process that can be seen" in slots.why_not(held, None)
    freed = slots.observe(held, [card(0, memory_used=GIB + 1)], pids={}, now=20.0)
    assert slots.fit(freed, None) is not None


# ---- GPUs that are gone


def test_a_lost_gpu_ends_its_own_attempt_and_leaves_service() -> None:
    places = running(running(node(card(0), card(1), card(2)), "a"), "b")
    places = slots.observe(places, [card(0), lost(1), card(2)], pids={}, now=1.0)
    assert slots.lost_attempts(places) == {"b": "GPU 1 (Card): it fell off the bus"}
    assert [gpu.state for gpu in slots.snapshot(places)[0]] == ["busy", "out", "free"]
    places = slots.release(places, "b", 2.0)
    places = slots.observe(places, [card(0), lost(1), card(2)], pids={}, now=3.0)
    assert slots.lost_attempts(places) == {}
    assert slots.fit(places, 2) is None
    assert "GPU 1 is out of service: it fell off the bus" in slots.why_not(places, 2)


def test_a_lost_gpu_is_used_again_only_after_it_was_well_for_a_while() -> None:
    places = slots.observe(node(card(0)), [lost(0)], pids={}, now=1.0)
    for now in (2.0, 2.0 + RETURN_S - 1):
        places = slots.observe(places, [card(0)], pids={}, now=now)
        assert slots.fit(places, None) is None
        assert "it was lost and is watched" in slots.why_not(places, None)
    places = slots.observe(places, [card(0)], pids={}, now=2.0 + RETURN_S)
    assert slots.fit(places, None) is not None


def test_a_gpu_that_cannot_be_read_keeps_its_attempt() -> None:
    places = running(node(card(0)), "a")
    places = slots.observe(places, [card(0, error="no answer")], pids={}, now=1.0)
    assert slots.lost_attempts(places) == {}
    assert slots.snapshot(places)[0][0].state == "out"
    places = slots.observe(places, [card(0)], pids={}, now=2.0)
    assert slots.snapshot(places)[0][0].state == "busy"


def test_a_gpu_that_is_no_longer_listed_is_lost() -> None:
    places = running(node(card(0), card(1)), "a")
    places = slots.observe(places, [card(1)], pids={}, now=1.0)
    assert list(slots.lost_attempts(places)) == ["a"]


@pytest.mark.parametrize("broken", ["", "no driver"])
def test_no_reading_at_all_ends_nothing(broken: str) -> None:
    places = running(node(card(0)), "a")
    places = slots.observe(places, [], pids={}, now=1.0, broken=broken)
    assert slots.lost_attempts(places) == {}
    assert slots.snapshot(places)[0][0].state == "out"


def test_a_gpu_without_a_name_is_forgotten_when_it_has_one() -> None:
    nameless = Reading("unknown-0", 0, error="no answer")
    places = slots.observe(node(nameless), [card(0)], pids={}, now=1.0)
    assert [gpu.uuid for gpu in places.gpus] == ["GPU-0"]


# ---- after the agent was restarted


def test_attempts_that_run_already_are_adopted_where_they_run() -> None:
    places = slots.adopt(slots.start("gpus", cores=4), "a", Assignment(("GPU-1",)))
    places = slots.adopt(places, "b", Assignment())
    places = slots.observe(places, [card(0), card(1, MINE)], pids={"a": [7]}, now=0.0)
    assert slots.fit(places, None) == Assignment(("GPU-0",))
    assert slots.snapshot(places)[1].cpus_free == 1
    assert slots.lost_attempts(places) == {}
    places = slots.observe(slots.release(places, "a", 1.0), [card(0), card(1)], pids={}, now=1.0)
    assert len(places.gpus_free) == 2


def test_an_adopted_attempt_whose_gpu_is_gone() -> None:
    places = slots.adopt(slots.start("gpus", cores=4), "a", Assignment(("GPU-9",)))
    places = slots.observe(places, [card(0)], pids={}, now=0.0)
    assert list(slots.lost_attempts(places)) == ["a"]


# ---- whatever happens


CARDS = st.sampled_from(["well", "lost", "error", "foreign", "desktop", "missing"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("start"), st.sampled_from([None, 0, 1, 2, 3])),
        st.tuples(st.just("end"), st.integers(0, 10)),
        st.tuples(st.just("look"), st.lists(CARDS, min_size=3, max_size=3)),
    ),
    max_size=40,
)


def as_cards(kinds: list[str]) -> list[Reading]:
    made = {
        "well": card,
        "lost": lost,
        "error": lambda index: card(index, error="no answer"),
        "foreign": lambda index: card(index, PLAYER),
        "desktop": lambda index: card(index, DESKTOP),
    }
    return [made[kind](index) for index, kind in enumerate(kinds) if kind != "missing"]


@given(STEPS, st.sampled_from([0, 3]))
def test_no_place_is_given_twice(steps: list[tuple[str, object]], gpus: int) -> None:
    places = node(*(card(index) for index in range(gpus)), cores=4)
    for number, (what, value) in enumerate(steps):
        if what == "start":
            wanted = value if isinstance(value, int) else None
            assignment = slots.fit(places, wanted)
            assert (assignment is None) == bool(slots.why_not(places, wanted))
            if assignment:
                states = {gpu.uuid: gpu.state for gpu in slots.snapshot(places)[0]}
                assert all(states[uuid] == "free" for uuid in assignment.gpus)
                assert len(assignment.gpus) == (
                    wanted if wanted is not None else min(1, len(places.gpus))
                )
                places = slots.take(places, f"attempt {number}", assignment)
        elif what == "end" and places.attempts:
            attempts = sorted(places.attempts)
            assert isinstance(value, int)
            places = slots.release(places, attempts[value % len(attempts)], float(number))
        elif what == "look" and gpus:
            assert isinstance(value, list)
            places = slots.observe(places, as_cards(value), pids={}, now=float(number))
        given_away = [uuid for held in places.attempts.values() for uuid in held.gpus]
        assert len(given_away) == len(set(given_away)) <= gpus
        on_cpus = [held for held in places.attempts.values() if not held.gpus]
        assert len(on_cpus) <= places.cpus
        counts = slots.snapshot(places)[1]
        assert counts.gpus_free + len(given_away) <= counts.gpus == gpus
        assert counts.cpus_free == places.cpus - len(on_cpus)
        for attempt, held in places.attempts.items():
            assert all((gpu := places.gpu(u)) and gpu.attempt == attempt for u in held.gpus)
