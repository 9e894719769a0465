"""What `watch` promises, on every drive."""

import threading
import time

import pytest

from ludwig.drive import Drive, Watch
from tests.contract.conftest import CIFS
from tests.harness import wait_until

SOON = 10.0  # how long a change may take to be noticed before the test fails
A_WHILE = 0.6  # how long nothing must be reported; longer than a folder drive's polling


def drain(watch: Watch) -> None:
    while watch.wait(A_WHILE):
        pass


@pytest.mark.parametrize("change", ["create", "publish", "mkdir", "remove", "move in", "move out"])
def test_changes_are_told(drive: Drive, other: Drive, change: str) -> None:
    drive.make_folders("watched/folder")
    drive.create("watched/old", b"")
    drive.mkdir("elsewhere")
    changes = {
        "create": lambda: other.create("watched/new", b"x"),
        "publish": lambda: other.publish("watched/new", b"x"),
        "mkdir": lambda: other.mkdir("watched/new"),
        "remove": lambda: other.remove("watched/old"),
        "move in": lambda: other.move("elsewhere", "watched/here"),
        "move out": lambda: other.move("watched/folder", "elsewhere/there"),
    }
    with drive.watch("watched") as watch:
        assert not watch.wait(0)
        changes[change]()
        assert watch.wait(SOON)
        drain(watch)


def test_a_change_between_two_waits_is_told(drive: Drive, other: Drive) -> None:
    with drive.watch("") as watch:
        for i in range(5):
            other.create(f"file{i}", b"")
            assert watch.wait(SOON)
            drain(watch)


def test_one_folder_only(drive: Drive, other: Drive) -> None:
    drive.make_folders("watched/below")
    with drive.watch("watched") as watch:
        other.create("beside", b"")
        other.create("watched/below/file", b"")
        assert not watch.wait(A_WHILE)


def test_it_waits_no_longer_than_asked(drive: Drive) -> None:
    with drive.watch("") as watch:
        start = time.monotonic()
        assert not watch.wait(0.3)
        assert 0.25 < time.monotonic() - start < 5


def test_several_watches(drive: Drive, other: Drive) -> None:
    for i in range(5):
        drive.mkdir(f"folder{i}")
    watches = [drive.watch(f"folder{i}") for i in range(5)]
    other.create("folder3/file", b"")
    assert watches[3].wait(SOON)
    assert [watch.wait(0) for watch in watches] == [False] * 5
    for watch in watches:
        watch.close()


def test_a_watch_holds_up_nothing(drive: Drive) -> None:
    with drive.watch("") as watch:
        thread = threading.Thread(target=watch.wait, args=(30,))
        thread.start()
        start = time.monotonic()
        for _ in range(20):
            drive.list("")
        assert time.monotonic() - start < 5
        assert thread.is_alive()
        watch.close()
        thread.join(SOON)
        assert not thread.is_alive()


def test_close_from_another_thread(drive: Drive) -> None:
    watch = drive.watch("")
    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.append(watch.wait(60)))
    thread.start()
    watch.close()
    thread.join(SOON)
    assert results == [False]
    watch.close()
    assert not watch.wait(1)


def test_closing_the_drive_ends_no_other_drive(drive: Drive, other: Drive) -> None:
    with other.watch("") as watch:
        drive.close()
        drive.create("file", b"")
        assert watch.wait(SOON)


def test_a_flood_of_changes(drive: Drive, other: Drive) -> None:
    """More than a server can list in one notification: still "something changed"."""
    with drive.watch("") as watch:
        for i in range(200 if CIFS else 1500):
            other.create(f"{'long name ' * 15}{i}", b"")
        assert watch.wait(SOON)
        drain(watch)
        other.create("one more", b"")
        assert watch.wait(SOON)


def test_a_folder_that_comes_later(drive: Drive, other: Drive) -> None:
    with drive.watch("later") as watch:
        assert not watch.wait(0.1)
        other.mkdir("later")
        assert watch.wait(SOON)
        drain(watch)
        other.create("later/file", b"")
        assert watch.wait(SOON)


def test_a_folder_that_goes(drive: Drive, other: Drive) -> None:
    drive.mkdir("folder")
    with drive.watch("folder") as watch:
        other.remove_folder("folder")
        assert watch.wait(SOON)
        wait_until(lambda: not drive.exists("folder"), what="the folder to be gone")
        drain(watch)
        other.mkdir("folder")
        assert watch.wait(SOON)


def test_watch_again_after_close(drive: Drive, other: Drive) -> None:
    for i in range(4):
        with drive.watch("") as watch:
            other.create(f"file{i}", b"")
            assert watch.wait(SOON)
