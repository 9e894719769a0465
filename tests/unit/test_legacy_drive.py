"""Drives that the old system left behind: recognised, counted, numbers kept; nothing executed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from ludwig import codec, errors, registry
from ludwig.client import legacy, sweep
from ludwig.client.submit import Submission, Submitted, submit
from ludwig.results import gen_param_paths
from tests.fakelab import FakeLab
from tests.harness import SmbServer

RUN = "def main(param2val):\n    return []\n"


class OldDrive(FakeLab):
    """A project with a history, and a folder to submit from."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (self.home / "src").mkdir()
        (self.home / "src" / "code.py").touch()
        (self.home / "run.py").write_text(RUN)

    def old(self, name: str, params: Any, *runs: str) -> Path:
        """A configuration as the old system wrote it."""
        place = self.root / self.project / "runs" / name
        place.mkdir(parents=True)
        text = params if isinstance(params, str) else yaml.dump(params, default_flow_style=False)
        (place / "param2val.yaml").write_text(text)
        for run in runs:
            (place / run).mkdir()
            (place / run / "accuracy.csv").write_text("epoch,accuracy\n0,0.5\n")
        return place

    def sweep(self, *params: dict[str, Any], reps: int = 1, **options: Any) -> Submitted:
        submission = Submission(
            src_ps=[Path("src")], param2val_list=params, reps=reps, root=self.home, **options
        )
        return submit(self.lab, self.project, submission)

    def names(self) -> dict[str, str]:
        return registry.read_registry(self.drive, self.project).names


@pytest.fixture
def lab(tmp_path: Path) -> OldDrive:
    return OldDrive(tmp_path)


def test_finished_runs_count_and_numbers_are_kept(lab: OldDrive) -> None:
    old = {"lr": 0.1, "sizes": (4, 8), "param_name": "param_1", "job_name": None}
    lab.old("param_1", old, "2019-03-04-10:20:30_num0", "2019-03-04-10:20:30_num1")
    lab.old("param_12", {**old, "lr": 0.5, "param_name": "param_12"})
    assert lab.sweep({"lr": 0.1, "sizes": (4, 8)}, reps=2).job is None
    assert lab.sweep({"lr": 0.1, "sizes": (4, 8)}, reps=3).tasks == 1
    made = lab.sweep({"lr": 0.5, "sizes": (4, 8)}, {"lr": 0.9, "sizes": (4, 8)})
    assert made.tasks == 2
    assert set(lab.names()) == {"param_1", "param_12", "param_013"}


def test_lists_where_there_are_tuples_now_and_the_other_way_round(lab: OldDrive) -> None:
    lab.old("param_001", {"sizes": [[1, 2], [3]], "x": {"y": [1]}}, "a_num0")
    lab.old("param_002", {"sizes": ((5, 6), (7,)), "x": None}, "a_num0")
    assert lab.sweep({"sizes": ((1, 2), (3,)), "x": {"y": (1,)}}).job is None
    assert lab.sweep({"sizes": [[5, 6], [7]], "x": None}).job is None
    # Two that only now are one and the same stay two.
    made = lab.sweep({"sizes": ((9,),)}, {"sizes": [[9]]})
    assert made.tasks == 2 and set(lab.names()) >= {"param_003", "param_004"}


def test_constants_that_yaml_writes_as_aliases(lab: OldDrive) -> None:
    shared = (64, 64)
    place = lab.old("param_001", {"hidden": shared, "context": shared}, "a_num0")
    assert "*id001" in (place / "param2val.yaml").read_text()
    assert lab.sweep({"hidden": (64, 64), "context": (64, 64)}).job is None


@pytest.mark.parametrize(
    "text",
    [
        "!!python/object/apply:os.system ['touch {mark}']",
        "lr: !!python/object/apply:os.system ['touch {mark}']\n",
        "lr: !!python/name:os.system\n",
        "- not\n- a mapping\n",
        "lr: [\n",
        "a: &a [*a]\n",
        "a: &a [1,1,1,1,1,1,1,1,1,1]\n"
        + "".join(
            f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 10)}]\n"
            for n in range(9)
        ),
        "",
        yaml.dump({"lr": np.float64(0.5)}),
    ],
    ids=["object", "value", "name", "list", "cut", "endless", "growing", "empty", "numpy"],
)
def test_what_cannot_be_read_keeps_its_number_and_is_not_executed(
    lab: OldDrive, tmp_path: Path, text: str
) -> None:
    mark = tmp_path / "executed"
    lab.old("param_007", text.replace("{mark}", str(mark)), "a_num0")
    (lab.root / lab.project / "runs" / "param_008").mkdir()  # without a param2val.yaml
    assert lab.sweep({"lr": 0.5}).tasks == 1
    assert set(lab.names()) == {"param_007", "param_008", "param_009"}
    assert not mark.exists()


def test_other_things_in_runs_are_left_alone(lab: OldDrive) -> None:
    for name in ("param_test", "parameters.txt", "old", ".DS_Store", "param_"):
        (lab.root / lab.project / "runs" / name).mkdir(parents=True)
    lab.old("param_1", {"lr": 1}, "plots", "a_num0")
    assert lab.sweep({"lr": 1}, reps=2).tasks == 1
    assert set(lab.names()) == {"param_1"}


def test_runs_that_were_removed_are_run_again(lab: OldDrive) -> None:
    place = lab.old("param_1", {"lr": 1}, "a_num0", "a_num1")
    assert lab.sweep({"lr": 1}, reps=2).job is None
    (place / "a_num1" / "accuracy.csv").unlink()
    (place / "a_num1").rmdir()
    assert lab.sweep({"lr": 1}, reps=2).tasks == 1


def test_again_counts_nothing(lab: OldDrive) -> None:
    lab.old("param_1", {"lr": 1}, "a_num0")
    assert lab.sweep({"lr": 1}, again=True).tasks == 1


def test_old_runs_of_a_share_that_shows_colons_as_names_of_its_own(
    lab: OldDrive, smb_server: SmbServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ludwig.client.lab import Lab
    from ludwig.drives import open_drive, write_format

    monkeypatch.setenv("LUDWIG_CACHE", str(lab.folder / "cache"))
    lab.root = smb_server.folder
    lab.old("param_1", {"lr": 1}, "2019-03-04-10:20:30_num0", "2019-03-04-10\uf03a20_num1")
    drive = open_drive(smb_server.url, user=smb_server.user, password=smb_server.password)
    write_format(drive)
    assert not all("num" in name for name in drive.list("trees/runs/param_1") if "yaml" not in name)
    submission = Submission(src_ps=[Path("src")], param2val_list=[{"lr": 1}], reps=2, root=lab.home)
    assert submit(Lab(lab.lab.config, drive), lab.project, submission).job is None
    drive.close()

    # The copies that plots are made from can be found by `*num*`.
    monkeypatch.setenv("LUDWIG_DRIVE_URL", smb_server.url)
    monkeypatch.setenv("LUDWIG_DRIVE_USER", smb_server.user)
    monkeypatch.setenv("LUDWIG_SMB_PASSWORD", smb_server.password)
    monkeypatch.chdir(lab.folder)
    (lab.folder / "ludwig.toml").unlink()
    for _ in range(2):
        ((path, label),) = gen_param_paths("trees", {"lr": [1]}, {"lr": 2})
        assert label == "lr=1\nn=2" and len(list(path.glob("*num*/accuracy.csv"))) == 2


def test_plots_find_them(lab: OldDrive) -> None:
    lab.old("param_1", {"lr": 1, "sizes": [1, 2], "param_name": "param_1"}, "2019-03:04_num0")
    found = gen_param_paths("trees", {"lr": [1]}, {"lr": 2, "sizes": (1, 2)}, None, lab.root)
    assert [(path.name, label) for path, label in found] == [("param_1", "lr=1\nn=1")]


@pytest.mark.parametrize(
    "params",
    [
        {"sizes": ((1, 2), (3, (4,)))},
        {"sizes": [[1, [2]], []]},
        {"kind": {"a": (1, None), "b": [True]}, "none": None},
        {"lr": np.float64(0.1), "n": np.int64(3), "flag": np.bool_(True), "s": np.str_("x")},
        {"n": 10**20, "nan": float("inf"), "text": "ü: - 1", "empty": ""},
    ],
)
def test_parameters_survive_the_way_to_yaml(params: dict[str, Any]) -> None:
    (one,) = sweep.check_params([params])
    text = codec.to_yaml({**one.params, "param_name": "param_001", "job_name": None})
    back = yaml.load(text, Loader=yaml.FullLoader)
    assert {k: back[k] for k in params} == one.params == params
    assert all(not type(value).__module__.startswith("numpy") for value in one.params.values())
    assert codec.from_yaml(text, "x") == back
    assert legacy.loose_hash(back) == legacy.loose_hash(params)


def test_a_few_aliases_are_read_and_many_are_not() -> None:
    assert codec.from_yaml("a: &x [1]\nb: *x\n", "p") == {"a": [1], "b": [1]}
    with pytest.raises(errors.Malformed):
        codec.from_yaml("a: *nothing\n", "p")
