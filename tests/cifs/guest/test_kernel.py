"""What a kernel CIFS mount does to programs (DESIGN §7), and what the folder drive makes of it."""

import os
import threading
import time
from pathlib import Path

import pytest

from ludwig.drives.folder import FolderDrive
from ludwig.errors import DriveAway, Exists


def link_and_leave(folder: Path, name: str, *, opened: bool) -> int | None:
    """What a publisher leaves that is killed, or held up, between its link and its unlink."""
    temporary = folder / ".tmp-0123456789abcdef"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    os.write(descriptor, b"published")
    os.fsync(descriptor)
    if not opened:
        os.close(descriptor)
    os.link(temporary, folder / name)
    return descriptor if opened else None


def test_it_knows_that_this_is_a_mount(drive: FolderDrive) -> None:
    assert drive._remote


def test_a_name_just_linked_is_read(here: Path, drive: FolderDrive) -> None:
    """The kernel says EINVAL for a second: the reader waits instead of giving up."""
    link_and_leave(here, "file", opened=False)
    assert drive.read("file") == b"published"


def test_a_name_being_published_can_be_read_later(here: Path, drive: FolderDrive) -> None:
    descriptor = link_and_leave(here, "file", opened=True)
    assert descriptor is not None
    with pytest.raises(OSError, match="Invalid argument"):
        (here / "file").open()
    with pytest.raises(DriveAway):
        drive.read("file")
    with pytest.raises(DriveAway):
        drive.publish("file", b"another")
    os.close(descriptor)
    assert drive.read("file") == b"published"
    with pytest.raises(Exists):
        drive.publish("file", b"another")


def test_what_is_listed_is_read_at_once(drive: FolderDrive, other: FolderDrive) -> None:
    """Even if it was looked for in vain a moment before."""
    drive.mkdir("done")
    for number in range(20):
        assert not drive.exists(f"done/{number}")
        other.publish(f"done/{number}", b"the end")
        assert f"{number}" in drive.list("done")
        assert drive.read(f"done/{number}") == b"the end"


def test_a_folder_that_somebody_read_is_removed(drive: FolderDrive, other: FolderDrive) -> None:
    """Its files stay listed while another machine's kernel still has them open."""
    drive.make_folders("staging/1.1")
    for number in range(5):
        drive.create(f"staging/1.1/{number}", b"x" * 1000)
        assert other.read(f"staging/1.1/{number}") == b"x" * 1000
    drive.remove_folder("staging/1.1")
    assert drive.list("staging") == []
    assert other.list("staging") == []


def test_a_folder_in_use_is_not_removed(
    drive: FolderDrive, other: FolderDrive, there: Path
) -> None:
    drive.mkdir("folder")
    other.create("folder/file", b"x")
    with (there / "folder" / "file").open("rb"), pytest.raises(DriveAway, match="open"):
        drive.remove_folder("folder")
    drive.remove_folder("folder")
    assert drive.list("") == []


def test_a_tail_has_no_holes(drive: FolderDrive, other: FolderDrive) -> None:
    """The writer's kernel may send sizes before bytes, unless each append is flushed."""
    line = b"0123456789" * 9 + b"end of line\n"
    over = threading.Event()

    def write() -> None:
        for number in range(150):
            drive.append("log", line, at=number * len(line))
        over.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = b""
    while not over.is_set() or len(seen) < 150 * len(line):
        if "log" in other.list(""):
            seen += other.read("log", offset=len(seen))
        assert b"\0" not in seen
    writer.join()
    assert seen == line * 150


def test_sizes_are_not_trusted(drive: FolderDrive, other: FolderDrive) -> None:
    drive.append("log", b"one\n", at=0)
    assert other.read("log") == b"one\n"
    assert [entry.size for entry in other.scan("")] == [4]
    for number in range(1, 20):
        drive.append("log", b"one\n", at=4 * number)
        assert other.read("log") == b"one\n" * (number + 1)
        assert other.read("log", offset=4 * number) == b"one\n"


def test_names_that_differ_by_case_alone(drive: FolderDrive, other: FolderDrive) -> None:
    drive.publish("Hoff", b"1")
    with pytest.raises(Exists):
        other.publish("hoff", b"2")
    with pytest.raises(Exists):
        other.mkdir("HOFF")
    assert drive.list("") == ["Hoff"]


def test_a_target_looked_for_in_vain_is_not_replaced(
    drive: FolderDrive, other: FolderDrive
) -> None:
    """`move` looks first, and the look may be a second old: the server has the last word."""
    for number, content in enumerate((b"", b"x")):
        for name in ("mine", "theirs"):
            drive.make_folders(f"{number}/{name}")
            drive.create(f"{number}/{name}/file", name.encode())
        if not content:
            drive.remove(f"{number}/theirs/file")
        assert not drive.exists(f"{number}/target")
        other.move(f"{number}/theirs", f"{number}/target")
        with pytest.raises(Exists) as caught:
            drive.move(f"{number}/mine", f"{number}/target")
        assert caught.value.path == f"{number}/target"
        assert other.list(f"{number}/target") == (["file"] if content else [])
        assert drive.read(f"{number}/mine/file") == b"mine"


def test_watch_sees_what_others_do(drive: FolderDrive, other: FolderDrive) -> None:
    drive.mkdir("watched")
    with drive.watch("watched") as watch:
        begun = time.monotonic()
        other.create("watched/stop", b"")
        assert watch.wait(10)
        assert time.monotonic() - begun < 5
