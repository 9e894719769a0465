"""Heartbeats, and who is silent by whose clock."""

from pathlib import Path

import pytest

from ludwig import errors, layout
from ludwig.drives.folder import FolderDrive
from ludwig.model import Beat, RunningAttempt
from ludwig.nodes import Observer, last_counter, write_beat
from tests.hooked_drive import Count, CutAt, HookedDrive

SILENT_S = 60.0


@pytest.fixture
def drive(tmp_path: Path) -> FolderDrive:
    drive = FolderDrive(tmp_path)
    drive.make_folders(layout.NODES)
    return drive


def beat(host: str = "hoff", counter: int = 1, boot: str = "boot1", *held: int) -> Beat:
    running = tuple(RunningAttempt(project="trees", job=1, task=task, attempt=1) for task in held)
    return Beat(host=host, boot=boot, counter=counter, state="idle", running=running)


def names(drive: FolderDrive) -> list[str]:
    return sorted(drive.list(layout.NODES))


def test_a_new_beat_takes_the_place_of_the_one_before(drive: FolderDrive) -> None:
    for counter in (1, 2, 3):
        write_beat(drive, beat(counter=counter))
    assert names(drive) == ["hoff.00000003.json"]


def test_two_agents_with_one_name_find_out(drive: FolderDrive) -> None:
    write_beat(drive, beat(counter=1, boot="boot1"))
    with pytest.raises(errors.Exists):
        write_beat(drive, beat(counter=1, boot="boot2"))


def test_a_beat_whose_answer_was_lost_is_no_rival(drive: FolderDrive) -> None:
    hooked = HookedDrive(drive, CutAt(1, "after", errors.DriveTimeout("testing", "")))
    with pytest.raises(errors.DriveTimeout):
        write_beat(hooked, beat(counter=1))
    write_beat(drive, beat("hoff", 1, "boot1", 7))  # composed anew, since something was claimed


def test_an_agent_goes_on_counting_after_a_restart(drive: FolderDrive) -> None:
    assert last_counter(drive, "hoff") == 0
    for counter in (7, 8, 12):
        drive.publish(layout.beat_path("hoff", counter), b"anything")
    drive.publish(layout.beat_path("hebb", 99), b"anything")
    assert last_counter(drive, "hoff") == 12
    assert names(drive) == ["hebb.00000099.json", "hoff.00000012.json"]


def test_a_node_is_silent_when_its_counter_stands_still(drive: FolderDrive) -> None:
    observer = Observer(drive, silent_s=SILENT_S)
    write_beat(drive, beat(counter=1))
    for now in range(1000, 1060, 10):
        observer.look(now)
        assert not observer.silent("hoff", now)
    observer.look(1060)
    assert observer.silent("hoff", 1060)
    write_beat(drive, beat(counter=2))
    observer.look(1061)
    assert not observer.silent("hoff", 1061)


def test_a_node_whose_beats_were_removed_is_silent_in_the_end(drive: FolderDrive) -> None:
    observer = Observer(drive, silent_s=SILENT_S)
    write_beat(drive, beat(counter=5))
    observer.look(0)
    drive.remove_folder(layout.NODES)
    for now in range(10, 70, 10):
        observer.look(now)
    assert observer.silent("hoff", 60)


def test_a_node_that_counts_anew_is_alive(drive: FolderDrive) -> None:
    observer = Observer(drive, silent_s=SILENT_S)
    write_beat(drive, beat(counter=500))
    observer.look(0)
    drive.remove(layout.beat_path("hoff", 500))
    for now in range(10, 200, 10):
        write_beat(drive, beat(counter=now // 10, boot="boot2"))
        observer.look(now)
    assert not observer.silent("hoff", 190)
    found = observer.beat("hoff")
    assert found is not None
    assert found.boot == "boot2"


def test_a_node_never_seen_is_not_silent_until_it_had_its_time(drive: FolderDrive) -> None:
    observer = Observer(drive, silent_s=SILENT_S)
    assert not observer.silent("hoff", 1e9)
    observer.first_look(["hoff"], 100)
    for now in range(100, 170, 10):
        observer.look(now)
    assert not observer.silent("hoff", 159)
    assert observer.silent("hoff", 160)


def test_an_hour_without_the_server_is_nobodys_death(drive: FolderDrive) -> None:
    """Everybody was silent; whoever is back first must let the others speak."""
    observer = Observer(drive, silent_s=SILENT_S)
    write_beat(drive, beat(counter=1))
    observer.look(0)
    observer.look(10)
    observer.look(3610)
    assert not observer.silent("hoff", 3610)
    for now in range(3620, 3660, 10):
        observer.look(now)
    assert observer.silent("hoff", 3660), "but it must not take for ever"


def test_a_failed_look_does_not_count_as_one(drive: FolderDrive) -> None:
    away = errors.DriveAway("listing", layout.NODES)
    hooked = HookedDrive(drive)
    observer = Observer(hooked, silent_s=SILENT_S)
    write_beat(drive, beat(counter=1))
    observer.look(0)
    for now in range(10, 100, 10):
        hooked.hook = CutAt(1, "before", away)
        with pytest.raises(errors.DriveAway):
            observer.look(now)
    hooked.unhook()
    observer.look(100)
    assert not observer.silent("hoff", 100)


def test_who_holds_an_attempt(drive: FolderDrive) -> None:
    observer = Observer(drive, silent_s=SILENT_S)
    write_beat(drive, beat("hoff", 1, "boot1", 7, 8))
    observer.look(0)
    found = observer.holder(("trees", 1, 7, 1))
    assert found is not None
    assert found[0] == "hoff"
    assert observer.holder(("trees", 1, 9, 1)) is None
    write_beat(drive, beat("hoff", 2, "boot1", 8))
    observer.look(1)
    assert observer.holder(("trees", 1, 7, 1)) is None


def test_a_look_costs_one_listing_and_a_read_for_each_new_beat(drive: FolderDrive) -> None:
    for number in range(5):
        write_beat(drive, beat(f"node{number}"))
    count = Count()
    observer = Observer(HookedDrive(drive, count), silent_s=SILENT_S)
    observer.look(0)
    assert count.calls == {"list": 1, "read": 5}
    observer.look(1)
    assert count.calls == {"list": 2, "read": 5}
    write_beat(drive, beat("node3", 2))
    observer.look(2, read=["node0"])
    assert count.calls == {"list": 3, "read": 5}
    observer.look(3)
    assert count.calls == {"list": 4, "read": 6}
