"""What `upload` and `download` promise, on every drive."""

import os
import random
from collections import Counter
from pathlib import Path

import pytest

from ludwig.drive import Drive
from ludwig.drives.trees import same_file
from ludwig.errors import DriveError, NotFound, WrongKind
from tests.contract.conftest import CIFS
from tests.harness import wait_until

LONG = random.Random(1).randbytes(3_500_000)
SMALL = 30 if CIFS else 150


def make_tree(folder: Path, *, small: int = SMALL) -> dict[str, bytes]:
    files = {f"sub{i % 7}/deep/file {i}.txt": b"%d\n" % i * (i + 1) for i in range(small)}
    files |= {"empty": b"", "long.bin": LONG, "sub1/edge": b"e" * 65536, "sub1/üñï": b"u"}
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        os.utime(path, (1_600_000_000, 1_500_000_000.25))
    return files


def read_tree(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


class Seen(Counter[str]):
    def __call__(self, name: str, size: int) -> None:
        self[name] += size


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("skip_same", [False, True])
@pytest.mark.parametrize("target", ["", "data/corpora"])
def test_there_and_back(
    drive: Drive, place_folder: Path, tree: Path, tmp_path: Path, skip_same: bool, target: str
) -> None:
    files = make_tree(tree)
    up, down = Seen(), Seen()
    drive.upload(tree, target, progress=up, skip_same=skip_same)
    assert read_tree(place_folder / target) == files
    drive.download(target, tmp_path / "back" / "here", progress=down)
    assert read_tree(tmp_path / "back" / "here") == files
    sizes = {name: len(content) for name, content in files.items()}
    assert dict(up) == sizes
    assert dict(down) == sizes


def test_a_long_file_is_told_of_in_parts(drive: Drive, tree: Path) -> None:
    make_tree(tree)
    parts: list[int] = []
    drive.upload(tree, "data", files=["long.bin"], progress=lambda name, count: parts.append(count))
    assert sum(parts) == len(LONG)
    assert len([count for count in parts if count]) > 1


def test_some_files_only(drive: Drive, place_folder: Path, tree: Path, tmp_path: Path) -> None:
    make_tree(tree)
    wanted = ["long.bin", "sub3/deep/file 3.txt", "empty"]
    drive.upload(tree, "data", files=wanted)
    assert sorted(read_tree(place_folder / "data")) == sorted(wanted)
    drive.download("data", tmp_path / "back", files=iter(wanted[1:]))
    assert sorted(read_tree(tmp_path / "back")) == sorted(wanted[1:])


def test_what_is_the_same_is_left_alone(drive: Drive, place_folder: Path, tree: Path) -> None:
    files = make_tree(tree)
    drive.upload(tree, "data", skip_same=True)
    before = {n: (place_folder / "data" / n).stat().st_ino for n in files}
    seen = Seen()
    drive.upload(tree, "data", skip_same=True, progress=seen)
    assert {n: (place_folder / "data" / n).stat().st_ino for n in files} == before
    assert dict(seen) == {name: len(content) for name, content in files.items()}


def test_times_are_kept(drive: Drive, place_folder: Path, tree: Path) -> None:
    files = make_tree(tree, small=3)
    drive.upload(tree, "data", skip_same=True)
    for name in files:
        modified = (place_folder / "data" / name).stat().st_mtime
        assert modified == pytest.approx(1_500_000_000, abs=2)


def test_an_upload_goes_on_where_it_was(drive: Drive, place_folder: Path, tree: Path) -> None:
    """One file came half-way (a stranger's copy), one is old, one is missing."""
    files = make_tree(tree)
    drive.upload(tree, "data", skip_same=True)
    half, old, missing = "long.bin", "sub3/deep/file 3.txt", "sub2/deep/file 2.txt"
    (place_folder / "data" / half).write_bytes(LONG[:1000])
    (place_folder / "data" / old).write_bytes(bytes(len(files[old])))
    (place_folder / "data" / missing).unlink()
    if drive.mount is not None:  # the kernel of a mount believes sizes and times for a second
        there = drive.mount / "data"
        wait_until(lambda: not any(same_file(tree / n, there / n) for n in (half, old, missing)))
    drive.upload(tree, "data", skip_same=True)
    assert read_tree(place_folder / "data") == files


def test_a_changed_file_is_sent_again(drive: Drive, place_folder: Path, tree: Path) -> None:
    make_tree(tree, small=5)
    drive.upload(tree, "data", skip_same=True)
    (tree / "sub1/edge").write_bytes(b"f" * 65536)
    (tree / "long.bin").write_bytes(LONG[::-1])
    drive.upload(tree, "data", skip_same=True)
    assert (place_folder / "data/sub1/edge").read_bytes() == b"f" * 65536
    assert (place_folder / "data/long.bin").read_bytes() == LONG[::-1]


def test_an_interrupted_upload_leaves_whole_files_only(
    drive: Drive, place_folder: Path, tree: Path
) -> None:
    files = make_tree(tree)

    class Enough(Exception):
        pass

    counted = 0

    def stop(name: str, size: int) -> None:
        nonlocal counted
        counted += 1
        if counted == SMALL // 2:
            raise Enough

    with pytest.raises(Enough):
        drive.upload(tree, "data", skip_same=True, progress=stop)
    there = read_tree(place_folder / "data")
    assert all(files[n] == c for n, c in there.items() if not Path(n).name.startswith(".tmp-"))
    drive.upload(tree, "data", skip_same=True)
    names = {n for n in read_tree(place_folder / "data") if not Path(n).name.startswith(".tmp-")}
    assert names == set(files)


def test_links_are_not_sent(drive: Drive, place_folder: Path, tree: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    (tree / "file").write_bytes(b"x")
    (tree / "link").symlink_to(tmp_path / "secret")
    (tree / "folder").symlink_to(tmp_path)
    drive.upload(tree, "data")
    assert read_tree(place_folder / "data") == {"file": b"x"}


def test_an_empty_tree(drive: Drive, tree: Path, tmp_path: Path) -> None:
    drive.upload(tree, "data")
    assert drive.list("data") == []
    drive.download("data", tmp_path / "back")
    assert list((tmp_path / "back").iterdir()) == []


def test_what_is_not_there(drive: Drive, tree: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        drive.download("missing", tmp_path / "back")
    drive.mkdir("data")
    with pytest.raises(NotFound) as caught:
        drive.download("data", tmp_path / "back", files=["gone"])
    assert caught.value.path == "data/gone"
    with pytest.raises(NotFound):
        drive.upload(tmp_path / "no such tree", "data")
    with pytest.raises(DriveError, match="gone"):
        drive.upload(tree, "data", files=["gone"])


@pytest.mark.parametrize("content", [b"small", LONG], ids=["small", "long"])
@pytest.mark.parametrize("skip_same", [False, True])
def test_a_folder_is_where_a_file_should_go(
    drive: Drive, tree: Path, content: bytes, skip_same: bool
) -> None:
    (tree / "name").write_bytes(content)
    drive.make_folders("data/name")
    with pytest.raises(DriveError) as caught:
        drive.upload(tree, "data", skip_same=skip_same)
    assert caught.value.path == "data/name"
    assert drive.list("data") == ["name"]
    assert drive.list("data/name") == []


def test_a_file_is_where_a_folder_should_go(drive: Drive, tree: Path) -> None:
    make_tree(tree, small=3)
    drive.mkdir("data")
    drive.create("data/sub1", b"")
    with pytest.raises(WrongKind):
        drive.upload(tree, "data")
