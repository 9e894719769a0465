"""Logs that grow, with NUL bytes, halves of characters and no end of line."""

from pathlib import Path

import pytest

from ludwig import layout
from ludwig.client.logs import Follower, Tail, list_attempts, read_log, read_tail
from ludwig.drives.folder import FolderDrive
from tests.fakelab import FakeLab


@pytest.fixture
def drive(tmp_path: Path) -> FolderDrive:
    return FolderDrive(tmp_path)


def test_lines_come_when_they_are_complete(drive: FolderDrive) -> None:
    tail = Tail("log")
    assert tail.read(drive, 0.0) == []
    drive.append("log", b"one\ntw", at=0)
    assert tail.read(drive, 0.0) == ["one"]
    drive.append("log", b"o\nthree", at=6)
    assert tail.read(drive, 0.0) == ["two"]
    assert tail.read(drive, 0.0, final=True) == ["three"]
    assert tail.read(drive, 0.0, final=True) == []


def test_a_character_that_arrives_in_two_parts(drive: FolderDrive) -> None:
    tail = Tail("log")
    data = "Größe: 3 µm\n".encode()
    for at in range(len(data)):
        drive.append("log", data[at : at + 1], at=at)
        lines = tail.read(drive, 0.0)
    assert lines == ["Größe: 3 µm"]


def test_nul_means_not_yet(drive: FolderDrive) -> None:
    tail = Tail("log")
    drive.append("log", b"one\n\0\0\0\0five\n", at=0)
    assert tail.read(drive, 0.0) == ["one"]
    assert tail.read(drive, 3.0) == []
    drive.append("log", b"two\n", at=4)
    assert tail.read(drive, 4.0) == ["two", "five"]


def test_nul_that_stays_was_printed(drive: FolderDrive) -> None:
    tail = Tail("log")
    drive.append("log", b"a\0b\nc\n", at=0)
    assert tail.read(drive, 0.0) == []
    assert tail.read(drive, 4.9) == []
    assert tail.read(drive, 5.0) == ["ab", "c"]


def test_bytes_that_are_no_text(drive: FolderDrive) -> None:
    drive.append("log", b"\xff\xfe ok\n", at=0)
    assert Tail("log").read(drive, 0.0) == ["\ufffd\ufffd ok"]
    assert read_log(drive, "log") == "\ufffd\ufffd ok\n"


def test_progress_bars_of_the_users_are_shown_as_on_a_terminal(drive: FolderDrive) -> None:
    drive.append("log", b"10 %\r50 %\r100 %\ndone\r\n", at=0)
    assert Tail("log").read(drive, 0.0) == ["100 %", "done"]


@pytest.mark.parametrize("size", [10, 65_535, 65_536, 65_537, 200_000, 1_000_003])
def test_the_end_of_a_log_of_any_size(drive: FolderDrive, size: int) -> None:
    drive.append("log", b"x" * (size - 5) + b"\nlast", at=0)
    assert read_tail(drive, "log", lines=1) == "last"


def test_the_end_of_a_log_that_is_not_there(drive: FolderDrive) -> None:
    assert read_tail(drive, "log") == ""


def test_following_several_tasks_and_attempts(tmp_path: Path) -> None:
    lab = FakeLab(tmp_path)
    job = lab.submit(3)
    files = layout.job_files("trees", job.job)
    follower = Follower(lab.drive, files)
    lab.log(job, 1, b"a\nunfinished")
    lab.log(job, 2, b"b\n")
    lab.log(job, 3, b"not asked for\n")
    (lab.root / files.logs_in(0) / "stranger.txt").write_text("x")
    assert [str(line) for line in follower.read({1, 2}, 0.0)] == ["0001 | a", "0002 | b"]
    lab.log(job, 1, b"again\n", attempt=2)
    lines = [str(line) for line in follower.read({1, 2}, 0.0)]
    assert lines == ["0001 | unfinished", "0001.2 | again"]
    lab.log(job, 2, b"end")
    lines = [str(line) for line in follower.read({1, 2}, 0.0, over=frozenset({1, 2}))]
    assert lines == ["0002 | end"]
    assert list(follower.read({1, 2}, 0.0, over=frozenset({1, 2}))) == []
    assert list_attempts(lab.drive, files, [1, 2, 3]) == {1: [1, 2], 2: [1], 3: [1]}
