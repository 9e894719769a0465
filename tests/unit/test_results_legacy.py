"""`ludwig.results`: the names that scripts of LudwigCluster import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ludwig import codec, errors
from ludwig.results import gen_all_param2vals, gen_param_paths
from ludwig.sweep import expand

DEFAULT = {"lr": 0.1, "sizes": (64, 32), "flag": False, "corpus": None}


def add(runs: Path, name: str, params: dict[str, object], *, reps: int = 1) -> None:
    for number in range(reps):
        (runs / name / f"2020-01-01-10-00-00_node_num{number}").mkdir(parents=True)
    (runs / name).mkdir(parents=True, exist_ok=True)
    (runs / name / "saves").mkdir()
    text = codec.to_yaml(params | {"param_name": name, "job_name": None})
    (runs / name / "param2val.yaml").write_text(text)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "trees" / "runs"
    add(folder, "param_001", DEFAULT, reps=2)
    add(folder, "param_10", DEFAULT | {"lr": 0.2}, reps=3)
    add(folder, "param_2", DEFAULT | {"lr": 0.3, "sizes": [64, 32]})
    add(folder, "param_4", DEFAULT | {"lr": 0.4})
    add(folder, "param_5", DEFAULT | {"lr": 0.5}, reps=0)
    (folder / "param_6").mkdir()
    (folder / "other").mkdir()
    return folder


def test_expand() -> None:
    made = expand({"lr": [1, 2], "flag": [True, False]}, DEFAULT)
    assert [(m["lr"], m["flag"]) for m in made] == [(1, True), (1, False), (2, True), (2, False)]
    assert all(list(m) == list(DEFAULT) and m["sizes"] == (64, 32) for m in made)
    assert expand({}, DEFAULT) == [DEFAULT]
    assert list(gen_all_param2vals({"lr": [1]}, {"lr": 0})) == [{"lr": 1}]
    with pytest.raises(errors.ParameterError, match="Did you mean 'sizes'"):
        expand({"size": [1]}, DEFAULT)
    with pytest.raises(errors.ParameterError, match="give a list"):
        expand({"lr": 0.1}, DEFAULT)  # type: ignore[dict-item]


def test_folders_and_labels_in_order(runs: Path, tmp_path: Path) -> None:
    found = list(
        gen_param_paths("trees", {"lr": [0.3, 0.2, 0.1]}, DEFAULT, ludwig_data_path=runs.parents[1])
    )
    assert found == [
        (runs / "param_001", "lr=0.1\nn=2"),
        (runs / "param_2", "lr=0.3\nn=1"),
        (runs / "param_10", "lr=0.2\nn=3"),
    ]


def test_options(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ((_, label),) = gen_param_paths(
        "x", {"lr": [0.1]}, DEFAULT, runs_path=runs, label_params=["flag", "lr"], label_n=False
    )
    assert label == "lr=0.1\nflag=False"
    monkeypatch.chdir(runs.parent)
    ((path, _),) = gen_param_paths("x", {"sizes": [[64, 32]]}, DEFAULT, isolated=True)
    assert path == runs / "param_001"


def test_missing_configurations(runs: Path) -> None:
    requests = {"lr": [0.1, 0.5, 0.6]}
    with pytest.raises(
        SystemExit, match="Of 3 requested configurations of 'trees', 2 have no runs"
    ):
        list(gen_param_paths("trees", requests, DEFAULT, runs_path=runs))
    found = gen_param_paths("trees", requests, DEFAULT, runs_path=runs, require_all_found=False)
    assert [path.name for path, _ in found] == ["param_001"]
    with pytest.raises(SystemExit):
        list(gen_param_paths("trees", requests, DEFAULT, runs_path=runs / "none"))


def test_true_is_not_one(runs: Path) -> None:
    with pytest.raises(SystemExit):
        list(gen_param_paths("trees", {"flag": [0]}, DEFAULT, runs_path=runs))


def test_it_is_light() -> None:
    code = "import sys, ludwig.results; sys.exit('pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
