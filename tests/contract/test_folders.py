"""What the operations on folders promise, on every drive."""

import time
from pathlib import Path

import pytest

from ludwig.drive import Drive
from ludwig.errors import Exists, NotFound, WrongKind
from tests.contract.conftest import CIFS


def test_list_and_scan(drive: Drive, other: Drive) -> None:
    drive.mkdir("folder")
    drive.create("folder/file", b"12345")
    drive.mkdir("folder/sub")
    assert sorted(other.list("folder")) == ["file", "sub"]
    entries = {entry.name: entry for entry in other.scan("folder")}
    assert sorted(entries) == ["file", "sub"]
    assert entries["file"].size == 5
    assert not entries["file"].is_folder
    assert entries["sub"].is_folder
    assert entries["file"].modified == pytest.approx(time.time(), abs=60)


def test_an_empty_folder(drive: Drive) -> None:
    drive.mkdir("folder")
    assert drive.list("folder") == []
    assert drive.scan("folder") == []
    assert drive.list("") == ["folder"]


def test_listing_what_is_not_there(drive: Drive) -> None:
    for path in ("missing", "missing/below"):
        with pytest.raises(NotFound) as caught:
            drive.list(path)
        assert caught.value.path == path
        with pytest.raises(NotFound):
            drive.scan(path)


def test_temporary_names_are_not_listed(drive: Drive, place_folder: Path) -> None:
    (place_folder / ".tmp-0123456789abcdef").write_bytes(b"left by somebody who died")
    drive.create("file", b"")
    assert drive.list("") == ["file"]
    assert [entry.name for entry in drive.scan("")] == ["file"]


@pytest.mark.parametrize("number", [0, 1, 400] if CIFS else [0, 1, 1_000, 10_000])
def test_list_many(drive: Drive, place_folder: Path, number: int) -> None:
    folder = place_folder / "many"
    folder.mkdir()
    names = {f"{i:05d}.1" for i in range(number)}
    for name in names:
        (folder / name).touch()
    listed = drive.list("many")
    assert len(listed) == number
    assert set(listed) == names
    scanned = drive.scan("many")
    assert len(scanned) == number
    assert {entry.name for entry in scanned} == names


def test_list_more_than_fits_an_answer(drive: Drive, place_folder: Path) -> None:
    folder = place_folder / "many"
    folder.mkdir()
    names = {f"{i:06d}" + "x" * 140 for i in range(500 if CIFS else 5_000)}
    for name in names:
        (folder / name).touch()
    assert sorted(drive.list("many")) == sorted(names)
    assert sorted(entry.name for entry in drive.scan("many")) == sorted(names)


def test_exists(drive: Drive) -> None:
    drive.create("file", b"")
    drive.mkdir("folder")
    assert drive.exists("")
    assert drive.exists("file")
    assert drive.exists("folder")
    assert not drive.exists("missing")
    assert not drive.exists("missing/below")
    assert not drive.exists("file/below")


def test_mkdir(drive: Drive, other: Drive) -> None:
    drive.mkdir("folder")
    with pytest.raises(Exists) as caught:
        other.mkdir("folder")
    assert caught.value.path == "folder"
    with pytest.raises(NotFound):
        drive.mkdir("missing/folder")
    drive.create("file", b"")
    with pytest.raises(Exists):
        drive.mkdir("file")


def test_make_folders(drive: Drive, other: Drive) -> None:
    drive.make_folders("a/b/c/d")
    drive.make_folders("a/b/c/d")
    other.make_folders("a/b/e")
    drive.make_folders("")
    drive.make_folders("f/g", "f/g/h", "a/i", "", "j/k/l")
    assert sorted(other.list("")) == ["a", "f", "j"]
    assert other.list("f/g") == ["h"]
    assert other.list("j/k") == ["l"]
    assert sorted(drive.list("a/b")) == ["c", "e"]


@pytest.mark.parametrize("path", ["file", "file/below", "file/far/below"])
def test_make_folders_where_a_file_is(drive: Drive, path: str) -> None:
    drive.create("file", b"")
    with pytest.raises(WrongKind):
        drive.make_folders(path)


def test_a_file_is_not_a_folder(drive: Drive) -> None:
    drive.create("file", b"x")
    calls = [
        lambda: drive.list("file"),
        lambda: drive.scan("file"),
        lambda: drive.list("file/below"),
        lambda: drive.read("file/below"),
        lambda: drive.create("file/below", b"x"),
        lambda: drive.publish("file/below", b"x"),
        lambda: drive.append("file/below", b"x", at=0),
        lambda: drive.mkdir("file/below"),
        lambda: drive.remove_folder("file"),
    ]
    for number, call in enumerate(calls):
        with pytest.raises(WrongKind):
            call()
            pytest.fail(f"call {number} was allowed")
    assert drive.read("file") == b"x"


def test_move(drive: Drive, other: Drive) -> None:
    drive.make_folders("staging/1")
    drive.create("staging/1/a.csv", b"a")
    drive.make_folders("staging/1/saves")
    drive.create("staging/1/saves/model", b"m")
    drive.make_folders("runs/param_001")
    drive.move("staging/1", "runs/param_001/job")
    assert sorted(other.list("runs/param_001/job")) == ["a.csv", "saves"]
    assert other.read("runs/param_001/job/saves/model") == b"m"
    assert other.list("staging") == []


@pytest.mark.parametrize("kind", ["empty folder", "folder", "file"])
def test_move_replaces_nothing(drive: Drive, kind: str) -> None:
    drive.make_folders("source")
    drive.create("source/file", b"new")
    if kind == "file":
        drive.create("target", b"old")
    else:
        drive.mkdir("target")
        if kind == "folder":
            drive.create("target/file", b"old")
    with pytest.raises(Exists) as caught:
        drive.move("source", "target")
    assert caught.value.path == "target"
    assert drive.read("source/file") == b"new"
    if kind != "empty folder":
        assert drive.read("target" if kind == "file" else "target/file") == b"old"


def test_move_what_is_not_there(drive: Drive) -> None:
    with pytest.raises(NotFound):
        drive.move("missing", "target")
    drive.mkdir("source")
    with pytest.raises(NotFound):
        drive.move("source", "missing/target")


def test_move_while_somebody_reads_below(drive: Drive, other: Drive) -> None:
    drive.mkdir("source")
    drive.create("source/file", b"x" * 100_000)
    other.read("source/file")
    drive.move("source", "target")
    assert other.read("target/file") == b"x" * 100_000


def test_remove_folder(drive: Drive) -> None:
    drive.make_folders("a/b/c")
    for i in range(100):
        drive.create(f"a/b/{i}", b"x")
    drive.create("a/b/c/file", b"x")
    drive.remove_folder("a")
    assert drive.list("") == []
    drive.remove_folder("a")
    drive.remove_folder("missing/below")


def test_remove_folder_takes_temporary_files_along(drive: Drive, place_folder: Path) -> None:
    drive.mkdir("folder")
    (place_folder / "folder" / ".tmp-0123456789abcdef").write_bytes(b"left")
    drive.remove_folder("folder")
    assert not drive.exists("folder")


def test_usage(drive: Drive) -> None:
    usage = drive.usage()
    assert 0 < usage.free <= usage.total
    assert 0 <= usage.percent_full <= 100


def test_where(drive: Drive, place_folder: Path) -> None:
    assert drive.where.endswith(place_folder.name)
    assert drive.mount in (None, Path(drive.where))
