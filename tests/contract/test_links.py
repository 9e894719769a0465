"""Links on a folder drive, put there by somebody who means harm, lead nowhere."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ludwig.drive import Drive
from ludwig.drives import open_drive
from ludwig.errors import DriveError, Exists, NoPermission


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    (folder / "sub").mkdir(parents=True)
    (folder / "secret").write_bytes(b"secret")
    return folder


@pytest.fixture
def drive(tmp_path: Path, outside: Path) -> Drive:
    folder = tmp_path / "drive"
    folder.mkdir()
    (folder / "file").symlink_to(outside / "secret")
    (folder / "dangling").symlink_to(outside / "new")
    (folder / "folder").symlink_to(outside)
    (folder / "real").mkdir()
    (folder / "real" / "up").symlink_to("..")
    return open_drive(str(folder))


def content(folder: Path) -> dict[str, bytes]:
    files = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    return files | {str(p.relative_to(folder)): b"/" for p in folder.rglob("*") if p.is_dir()}


CALLS: dict[str, Callable[[Drive, Path], object]] = {
    "read": lambda drive, tree: drive.read("file"),
    "read below": lambda drive, tree: drive.read("folder/secret"),
    "create below": lambda drive, tree: drive.create("folder/new", b"x"),
    "publish below": lambda drive, tree: drive.publish("folder/new", b"x"),
    "append": lambda drive, tree: drive.append("file", b"x", at=0),
    "append dangling": lambda drive, tree: drive.append("dangling", b"x", at=0),
    "replace below": lambda drive, tree: drive.replace("folder/secret", b"x"),
    "list": lambda drive, tree: drive.list("folder"),
    "scan": lambda drive, tree: drive.scan("folder"),
    "list below": lambda drive, tree: drive.list("folder/sub"),
    "mkdir below": lambda drive, tree: drive.mkdir("folder/new"),
    "make_folders below": lambda drive, tree: drive.make_folders("folder/a/b"),
    "move out": lambda drive, tree: drive.move("real", "folder/real"),
    "move in": lambda drive, tree: drive.move("folder/sub", "here"),
    "remove below": lambda drive, tree: drive.remove("folder/secret"),
    "remove_folder below": lambda drive, tree: drive.remove_folder("folder/sub"),
    "remove_folder": lambda drive, tree: drive.remove_folder("folder"),
    "upload": lambda drive, tree: drive.upload(tree, "folder"),
    "upload below": lambda drive, tree: drive.upload(tree, "folder/sub"),
    "download": lambda drive, tree: drive.download("folder", tree),
    "download file": lambda drive, tree: drive.download("", tree, files=["file"]),
    "download below": lambda drive, tree: drive.download("", tree, files=["folder/secret"]),
    "up and down": lambda drive, tree: drive.read("real/up/file"),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_links_are_not_followed(
    drive: Drive, outside: Path, tmp_path: Path, call: Callable[[Drive, Path], object]
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "new").write_bytes(b"x")
    before, tree_before = content(outside), content(tree)
    with pytest.raises(DriveError):
        call(drive, tree)
    assert content(outside) == before
    assert content(tree) == tree_before


def test_a_link_in_the_way_of_an_upload(drive: Drive, outside: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "file").write_bytes(b"mine")
    with pytest.raises(NoPermission):
        drive.upload(tree, "")
    drive.upload(tree, "", skip_same=True)  # arrives whole, in place of the link
    assert drive.read("file") == b"mine"
    assert (outside / "secret").read_bytes() == b"secret"


def test_a_link_is_a_name_that_is_taken(drive: Drive, outside: Path) -> None:
    for name in ("file", "dangling", "folder"):
        with pytest.raises((Exists, NoPermission)):
            drive.create(name, b"x")
        with pytest.raises((Exists, NoPermission)):
            drive.publish(name, b"x")
    assert not (outside / "new").exists()


def test_a_download_passes_over_links(drive: Drive, tmp_path: Path) -> None:
    drive.create("real/file", b"x")
    drive.download("", tmp_path / "tree")
    assert content(tmp_path / "tree") == {"real": b"/", "real/file": b"x"}


def test_removing_a_link_removes_the_link(drive: Drive, outside: Path) -> None:
    drive.remove("file")
    assert not drive.exists("file")
    assert (outside / "secret").exists()
