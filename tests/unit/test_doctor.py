"""The doctor finds each illness, says the next step, and heals what can be healed."""

from pathlib import Path

import pytest

from ludwig import errors, job_records, layout, queue, registry
from ludwig.client import doctor
from ludwig.client.doctor import Finding, examine
from ludwig.client.ssh_hosts import ssh_hosts
from ludwig.drive import Usage
from ludwig.drives.folder import FolderDrive
from ludwig.model import Done
from tests.fakelab import FakeLab, gpu
from tests.jobs import tasks_in


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeLab:
    lab = FakeLab(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("LUDWIG_CONFIG", str(lab.toml))
    monkeypatch.chdir(lab.home)
    lab.beat("hoff")
    lab.beat("hebb")
    return lab


def bad(findings: list[Finding]) -> list[Finding]:
    return [one for one in findings if one.level != "ok"]


def test_a_healthy_lab(lab: FakeLab) -> None:
    findings = list(examine())
    assert bad(findings) == []
    assert {one.check for one in findings} == {
        "configuration", "drive", "room", "writing", "node hoff", "node hebb", "jobs",
    }  # fmt: skip
    assert not list((lab.root / ".ludwig").glob("doctor*"))


def test_no_configuration(lab: FakeLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUDWIG_CONFIG", "/nowhere/ludwig.toml")
    (only,) = examine()
    assert only.level == "problem" and "/nowhere/ludwig.toml" in only.what
    assert "ludwig init" in only.todo


def test_a_mistake_in_the_configuration(
    lab: FakeLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mistaken.toml"
    file.write_text('[drive]\nurl = "/media/data"\n[nodes.hoff]\nadress = "hoff"\n')
    monkeypatch.setenv("LUDWIG_CONFIG", str(file))
    (only,) = examine()
    assert "did you mean 'address'" in only.what
    assert only.todo == "Correct it there.", "init would not touch a file that is there"


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (
            lambda lab: lab.root.rename(lab.folder / "away"),
            "is not there: the drive is not mounted",
        ),
        (
            lambda lab: (lab.root.rename(lab.folder / "away"), lab.root.mkdir()),
            "is empty: the drive is not mounted",
        ),
        (
            lambda lab: (lab.root / layout.FORMAT).unlink(),
            "is not a drive of Ludwig's .* `ludwig init --drive`",
        ),
        (
            lambda lab: (lab.root / layout.FORMAT).write_text('{"version": 9}'),
            "the drive has format 9",
        ),
    ],
)
def test_a_drive_that_cannot_be_used(lab: FakeLab, break_it: object, words: str) -> None:
    import re

    break_it(lab)  # type: ignore[operator]
    (found,) = bad(list(examine(nodes=False)))
    assert found.check == "drive"
    assert re.search(words, found.what), found.what


@pytest.mark.parametrize(("free", "level"), [(5, "problem"), (15, "warning"), (50, "ok")])
def test_a_full_drive(lab: FakeLab, monkeypatch: pytest.MonkeyPatch, free: int, level: str) -> None:
    monkeypatch.setattr(FolderDrive, "usage", lambda self: Usage(100, free))
    assert [one.level for one in examine(nodes=False) if one.check == "room"] == [level]


@pytest.mark.parametrize("error", [errors.NotAtomic, errors.NoPermission, errors.DriveReadOnly])
def test_a_drive_that_cannot_be_written(
    lab: FakeLab, monkeypatch: pytest.MonkeyPatch, error: type[errors.DriveError]
) -> None:
    def refuse(self: FolderDrive, path: str, data: bytes) -> None:
        raise error("publishing", path)

    monkeypatch.setattr(FolderDrive, "publish", refuse)
    (found,) = [one for one in examine(nodes=False) if one.check == "writing"]
    assert found.level == "problem"


def test_nodes_in_trouble(lab: FakeLab) -> None:
    (lab.folder / "inbox-hoff").rmdir()
    lab.beat("hoff", age=500)
    lab.beat("hebb", ludwig="0.0.1", gpus=(gpu(state="out", why="memory stays full"),))
    lab.beat("guest")
    texts = [f"{one.check}: {one.what}" for one in bad(list(examine()))]
    assert len(texts) == 5
    assert "there is no folder" in texts[0]
    assert "works for the lab, but is not in your ludwig.toml" in texts[1]
    assert "its agent is ludwig 0.0.1" in texts[2]
    assert "GPU 0 is out of service: memory stays full" in texts[3]
    assert "node hoff: silent for 8 min" in texts[4]


def test_a_job_that_nobody_can_run(lab: FakeLab) -> None:
    job = lab.submit(2)
    lab.refuse(job, "hoff", "no such interpreter")
    lab.refuse(job, "hebb", "no such interpreter")
    (found,) = bad(list(examine(nodes=False)))
    assert found.check == "job 1 of trees"
    assert "2 tasks wait, and nobody can run them" in found.what
    assert "refused: no such interpreter" in found.what


def test_staging_left_over_is_healed(lab: FakeLab) -> None:
    job = lab.submit(2)
    lab.accept(job)
    _, task = tasks_in(job)[1]
    files = layout.job_files("trees", job.job)
    lab.drive.make_folders(files.staged_run(1, 1, 0))
    lab.drive.make_folders(layout.project_files("trees").param(task.runs[0].param_name))
    done = Done(task=1, attempt=1, outcome="done", host="hoff", nonce="n" * 8, files=((),))
    queue.end(lab.drive, job, done)
    (found,) = bad(list(examine(nodes=False)))
    assert "still staged" in found.what and found.repair is not None
    assert "moved the results of 1 tasks" in found.repair()
    run = layout.project_files("trees").run(task.runs[0].param_name, task.runs[0].job_name)
    assert (lab.root / run).is_dir()
    assert bad(list(examine(nodes=False))) == []


def test_a_submission_that_died(lab: FakeLab, monkeypatch: pytest.MonkeyPatch) -> None:
    number = registry.reserve_job(lab.drive, "trees")
    assert bad(list(examine(nodes=False))) == []
    monkeypatch.setattr(doctor, "DEAD_SUBMISSION_S", 0.0)
    (found,) = bad(list(examine(nodes=False)))
    assert "died half-way" in found.what and found.repair is not None
    found.repair()
    assert job_records.read_job(lab.drive, "trees", number).abandoned
    assert bad(list(examine(nodes=False))) == []


def test_a_job_that_was_changed(lab: FakeLab) -> None:
    job = lab.submit(1)
    (lab.root / layout.job_files("trees", job.job).record).write_text("{}\n")
    found = bad(list(examine(nodes=False)))
    assert [one.check for one in found] == ["job 1 of trees"]


def test_a_job_that_was_just_submitted_is_no_problem(
    lab: FakeLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.submit(1)
    assert bad(list(examine(nodes=False))) == []
    monkeypatch.setattr(doctor, "TICKET_S", 0.0)
    (found,) = bad(list(examine(nodes=False)))
    assert "to take up the ticket" in found.what


def test_hosts_of_ssh(tmp_path: Path) -> None:
    (tmp_path / "more").write_text("Host pitts\n  HostName 10.0.0.9\n")
    config = tmp_path / "config"
    config.write_text(
        "# labs\nHost hoff hebb *.lab\n  User ludwig\nHost=lecun\nHost !bad ?x\n"
        'Include more\nhost "quoted"\nMatch all\nHost hoff\n'
    )
    assert ssh_hosts(config) == ["hoff", "hebb", "lecun", "pitts", "quoted"]
    assert ssh_hosts(tmp_path / "none") == []
