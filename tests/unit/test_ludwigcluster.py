"""The names of LudwigCluster: `Client`, `SFTP.worker_names`, `list_all_param2vals`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ludwig.errors import ParameterError, UsageError
from ludwigcluster.client import Client
from ludwigcluster.config import SFTP
from ludwigcluster.utils import list_all_param2vals
from tests.fakelab import FakeLab


class Params:
    learning_rate = [0.1, 0.2]  # noqa: RUF012 – as such projects have it
    sizes = [[1], [1, 2]]  # noqa: RUF012
    corpus = ["words"]  # noqa: RUF012
    _hidden = "skipped"


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeLab]:
    lab = FakeLab(tmp_path)
    (lab.home / "src").mkdir()
    (lab.home / "src" / "run.py").write_text("def main(param2val): pass\n")
    monkeypatch.setenv("LUDWIG_CONFIG", str(lab.toml))
    monkeypatch.chdir(lab.home)
    yield lab
    del SFTP.worker_names


def test_a_class_of_lists() -> None:
    found = list_all_param2vals(Params)
    assert len(found) == 4
    assert found[0] == {
        "learning_rate": 0.1,
        "sizes": [1],
        "corpus": "words",
        "param_name": None,
        "job_name": None,
    }
    pairs = [(one["learning_rate"], one["sizes"]) for one in found]
    assert pairs == list(itertools.product(Params.learning_rate, Params.sizes))


def test_a_class_with_more() -> None:
    (first, *_) = list_all_param2vals(Params, update_d={"job_name": "test"}, add_names=True)
    assert (first["param_name"], first["job_name"]) == (None, "test")
    (first, *_) = list_all_param2vals(Params, {"corpus": "more"}, add_names=False)
    assert first == {"learning_rate": 0.1, "sizes": [1], "corpus": "more"}


def test_requests_over_defaults() -> None:
    found = list_all_param2vals({"a": [1, 2]}, {"a": 0, "b": (3,)}, add_names=False)
    assert found == [{"a": 1, "b": (3,)}, {"a": 2, "b": (3,)}]
    with pytest.raises(ParameterError, match="'aa' is requested but has no default"):
        list_all_param2vals({"aa": [1]}, {"a": 0})
    with pytest.raises(ParameterError, match="needs param2default"):
        list_all_param2vals({"a": [1]})


def test_an_attribute_that_is_not_a_list() -> None:
    class Wrong:
        learning_rate = 0.1

    with pytest.raises(ParameterError, match="give a list of values"):
        list_all_param2vals(Wrong)


def submitted_to(lab: FakeLab, **options: Any) -> set[str]:
    options = {"param2val_list": [{"n": n} for n in range(4)], **options}
    job = Client("trees").submit(src_ps=[Path("src")], data_ps=[], **options)
    return set(job.status().record.chunks)


def test_worker_names_are_read_from_the_configuration(lab: FakeLab) -> None:
    assert SFTP.worker_names == ["hoff", "hebb"]
    assert submitted_to(lab) == {"hoff", "hebb"}


def test_worker_names_can_be_reassigned(lab: FakeLab) -> None:
    SFTP.worker_names = ["hebb"]
    assert submitted_to(lab) == {"hebb"}
    assert submitted_to(lab, reps=2, worker="hoff") == {"hoff"}


def test_worker_names_can_be_changed_in_place(lab: FakeLab) -> None:
    SFTP.worker_names.remove("hoff")
    assert submitted_to(lab) == {"hebb"}


def test_an_unknown_worker(lab: FakeLab) -> None:
    SFTP.worker_names = ["hof"]
    with pytest.raises(UsageError, match="Did you mean 'hoff'"):
        submitted_to(lab)


def test_requests_instead_of_a_list(lab: FakeLab) -> None:
    client = Client("trees", {"lr": 0.1, "layers": (1, 2)})
    assert client.project_name == "trees"
    job = client.submit(src_ps=["src"], param2requests={"lr": [0.1, 0.2]}, reps=2)
    assert len(job.status().tasks) == 4
    assert client.submit(src_ps=["src"], param2requests={"lr": [0.2]}, reps=2).id == 0
    both: dict[str, Any] = {"param2requests": {"lr": [1]}, "param2val_list": [{"lr": 1}]}
    for given in ({}, both):
        with pytest.raises(ParameterError, match="either param2val_list or param2requests"):
            client.submit(src_ps=["src"], **given)


def test_testing_starts_nothing(lab: FakeLab) -> None:
    job = Client("trees").submit(["src"], None, list_all_param2vals(Params), 2, True, "hoff")
    assert job.id == 0 and not list(lab.root.glob("trees/runs"))
