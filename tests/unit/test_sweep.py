"""A sweep, from the dicts that users give to the chunks of the nodes."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ludwig import errors
from ludwig.client import sweep
from ludwig.client.nodes_choice import weights
from ludwig.model import Run, Slots
from tests.fakelab import FakeLab

STAMP = "2026-11-18-10-00-00"


def test_a_grid_is_every_combination_and_what_is_fixed() -> None:
    assert sweep.grid(lr=[0.1, 0.2], hidden=[64, 128], sizes=(1, 2), name="x") == [
        {"lr": lr, "hidden": hidden, "sizes": (1, 2), "name": "x"}
        for lr in (0.1, 0.2)
        for hidden in (64, 128)
    ]
    with pytest.raises(errors.ParameterError, match="lr"):
        sweep.grid(lr=[])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "empty"),
        ({"lr": 0.1}, "list of dicts"),
        ([0.1], r"param2val_list\[0\] is a float"),
        ([{"lr": 0.1}, {1: 2}], r"param2val_list\[1\]: 1 is no parameter's name"),
        ([{"lr": 0.1, "save_path": "here"}], "'save_path' is given by Ludwig"),
        ([{"job_name": "mine"}], "'job_name' is given by Ludwig"),
        ([{"f": lambda x: x}], r"param2val_list\[0\]\['f'\]"),
        ([{"deep": [{"f": object()}]}], r"param2val_list\[0\]\['deep'\]"),
    ],
)
def test_what_cannot_be_sent_is_named(given: Any, words: str) -> None:
    with pytest.raises(errors.ParameterError, match=words):
        sweep.check_params(given)


def test_equal_configurations_are_one() -> None:
    found = sweep.check_params([{"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 1, "b": 2.0}])
    assert found[0].params == {"a": 1, "b": 2}
    assert len({one.hash for one in found}) == len(found)
    assert len(sweep.check_params([{"a": 1, "param_name": None, "job_name": None}, {"a": 1}])) == 1


def test_shares_are_by_weight_and_add_up() -> None:
    three = {"hoff": 1, "hebb": 2, "hinton": 3}
    assert sweep.shares(12, three) == {"hoff": 2, "hebb": 4, "hinton": 6}
    assert sweep.shares(1, {"hoff": 1, "hebb": 4}) == {"hoff": 0, "hebb": 1}
    for count in range(40):
        given = sweep.shares(count, {"hoff": 1, "hebb": 2, "hinton": 8})
        assert sum(given.values()) == count


def dealt(seed: int, **more: Any) -> tuple[dict[str, Any], dict[str, bytes]]:
    named = {f"param_{n:03d}": {"lr": n} for n in range(1, 21)}
    options = {"weights": {"hoff": 1, "big_node": 3}, "per": "task", **more}
    return sweep.chunks(
        named, dict.fromkeys(named, 2), stamp=STAMP, random=random.Random(seed), **options
    )


def runs_of(chunks: dict[str, Any]) -> list[Run]:
    return [run for chunk in chunks.values() for task in chunk.tasks for run in task.runs]


def test_tasks_are_dealt_in_random_order_with_names_of_their_own() -> None:
    chunks, payloads = dealt(1)
    runs = runs_of(chunks)
    order = [run.param_name for run in runs]
    assert [len(chunks[host].tasks) for host in ("hoff", "big_node")] == [10, 30]
    assert set(Counter(order).values()) == {2}
    assert order != sorted(order), "expensive configurations shall not lie beside each other"
    assert order != [run.param_name for run in runs_of(dealt(2)[0])]
    assert len({run.job_name for run in runs}) == len(runs), "people seed with it"
    names = [run.job_name.split("_") for run in runs]
    assert {(stamp, host) for stamp, host, _ in names} == {(STAMP, "hoff"), (STAMP, "big-node")}
    for host, chunk in chunks.items():
        for task in chunk.tasks:
            (only,) = pickle.loads(payloads[host][task.offset : task.offset + task.length])
            (run,) = task.runs
            assert (only["param_name"], only["job_name"]) == (run.param_name, run.job_name)
            assert f"param_{only['lr']:03d}" == run.param_name


def test_a_chunk_as_one_task() -> None:
    chunks, _ = dealt(1, per="chunk")
    assert [len(chunk.tasks) for chunk in chunks.values()] == [1, 1]
    assert [len(chunk.tasks[0].runs) for chunk in chunks.values()] == [10, 30]


def test_nodes_weigh_what_they_can_run_at_once(tmp_path: Path) -> None:
    lab = FakeLab(tmp_path, hosts=("hoff", "hebb", "new"))
    lab.beat("hoff", slots=Slots(gpus=1, cpus=8))
    lab.beat("hebb", slots=Slots(gpus=4, cpus=2))
    hosts = ("hoff", "hebb", "new")
    assert weights(lab.lab, hosts, None) == {"hoff": 1, "hebb": 4, "new": 1}
    assert weights(lab.lab, hosts, 2) == {"hoff": 1, "hebb": 2, "new": 1}
    assert weights(lab.lab, hosts, 0) == {"hoff": 8, "hebb": 2, "new": 1}
