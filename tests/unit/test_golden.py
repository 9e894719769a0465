"""The drive of version 1 that was committed stays readable for ever.

Should one of these tests fail, do not make the drive anew: what fails here fails in every lab.
"""

import shutil
from pathlib import Path

import pytest

from ludwig import codec, job_records, layout, queue, registry, states
from ludwig.drives import check_format
from ludwig.drives.folder import FolderDrive
from ludwig.nodes import Observer
from ludwig.view import JobView
from tests.golden.make import SWEEP, make
from tests.jobs import tasks_in

GOLDEN = Path(__file__).parents[1] / "golden" / "v1"


@pytest.fixture
def drive(tmp_path: Path) -> FolderDrive:
    shutil.copytree(GOLDEN, tmp_path / "drive")
    return FolderDrive(tmp_path / "drive")


def rows(drive: FolderDrive, number: int) -> tuple[JobView, list[states.TaskStatus]]:
    observer = Observer(drive, silent_s=60)
    observer.look(0.0)
    view = JobView(drive, job_records.read_job(drive, "trees", number))
    view.refresh()
    return view, states.task_states(view, observer, 0.0)


def test_the_format_is_known(drive: FolderDrive) -> None:
    check_format(drive)


def test_the_states_of_the_first_job(drive: FolderDrive) -> None:
    view, found = rows(drive, 1)
    assert [(row.state, row.node, row.attempt) for row in found] == [
        ("done", "hoff", 1),
        ("failed", "hoff", 3),
        ("stopped", "hoff", 1),
        ("running", "hebb", 1),
    ]
    assert found[1].why == "ValueError: no such corpus, here neither"
    end = view.end_of(2)
    assert end is not None
    assert [(failure.attempt, failure.host) for failure in end.failures] == [
        (1, "hebb"),
        (2, "hebb"),
        (3, "hoff"),
    ]
    assert view.accepted == {"hoff", "hebb"}
    assert not view.problems


def test_the_states_of_the_second_job(drive: FolderDrive) -> None:
    view, found = rows(drive, 2)
    assert [row.state for row in found] == ["done", "stopped", "done", "stopped", "stopped"]
    assert view.refusals == {"hebb": "it has no GPU"}
    assert view.stops == {0}


def test_the_registry(drive: FolderDrive) -> None:
    known = registry.read_registry(drive, "trees")
    names = {f"param_{n:03d}": codec.params_hash(p) for n, p in enumerate(SWEEP, start=1)}
    assert known.names == names
    assert known.promised[2] == {"param_001": 1, "param_002": 1, "param_003": 3}
    assert registry.reserve_job(drive, "trees") == 3


@pytest.mark.parametrize("number", [1, 2])
def test_parameters_and_tasks(drive: FolderDrive, number: int) -> None:
    job = job_records.read_job(drive, "trees", number)
    for name, params in job_records.read_params(drive, job).items():
        assert params == SWEEP[int(name[-3:]) - 1]
    for host, task in tasks_in(job).values():
        assert job_records.read_task(drive, job, host, task).startswith(b"\x80")


@pytest.mark.parametrize("number", [1, 2])
def test_every_run_is_as_its_manifest_says(drive: FolderDrive, number: int) -> None:
    job = job_records.read_job(drive, "trees", number)
    assert queue.roll_forward(drive, job) == []
    for task, (_, spec) in tasks_in(job).items():
        end = queue.read_done(drive, job, task)
        run = spec.runs[0]
        folder = layout.project_files("trees").run(run.param_name, run.job_name)
        assert drive.exists(folder) == (end is not None and end.outcome == "done")
        for file in end.files[0] if end and end.files else ():
            data = drive.read(f"{folder}/{file.path}")
            assert (len(data), codec.sha256(data)) == (file.size, file.sha256)


@pytest.mark.parametrize("name", ["param_001", "param_003"])
def test_configurations(drive: FolderDrive, name: str) -> None:
    path = layout.project_files("trees").param2val(name)
    found = codec.from_yaml(drive.read(path), path)
    expected = SWEEP[int(name[-3:]) - 1]
    assert found == {**expected, "param_name": name, "job_name": None}


def test_logs(drive: FolderDrive) -> None:
    log = drive.read(layout.job_files("trees", 1).log_of(1, 1))
    assert log == b"hello from task 1\n"


def test_it_is_complete_in_git() -> None:
    """No ignored kind of file is missing from a fresh clone."""
    kinds = {path.suffix for path in GOLDEN.rglob("*") if path.is_file()}
    assert kinds >= {".pkl", ".json", ".jsonl", ".yaml", ".csv", ".log", ".bin"}


def test_it_can_still_be_made(tmp_path: Path) -> None:
    """The same files by name; should this fail alone, the protocol has grown: see make.py."""
    made = tmp_path / "made"
    made.mkdir()
    make(made, tmp_path / "disk")
    files = {path.relative_to(made) for path in made.rglob("*") if path.is_file()}
    assert files == {path.relative_to(GOLDEN) for path in GOLDEN.rglob("*") if path.is_file()}
