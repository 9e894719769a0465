"""The small parts of the agent, each by itself."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ludwig import layout, nodes
from ludwig.drives import write_format
from ludwig.drives.folder import FolderDrive
from ludwig.model import Beat
from ludwig.worker.bell import Bell
from ludwig.worker.identity import LEFT, AnotherAgent, WorkLock, await_silence_of_others
from ludwig.worker.inbox import Inbox
from ludwig.worker.journal import facts, note
from ludwig.worker.prepare import make_storable

# --- the bell --------------------------------------------------------------------------------


def test_a_ring_before_the_wait_is_heard() -> None:
    bell = Bell()
    bell.ring()
    bell.ring()
    began = time.monotonic()
    bell.wait(30)
    assert time.monotonic() - began < 5
    bell.wait(0)  # both rings were one


def test_the_bell_tells_of_processes_that_end() -> None:
    bell, told = Bell(), threading.Event()
    with subprocess.Popen(["sleep", "600"]) as process:
        bell.listen(process.pid, told.set)
        bell.wait(0)
        assert not told.is_set()
        process.kill()
        bell.wait(30)
        assert told.is_set()
    gone = threading.Event()
    bell.listen(process.pid, gone.set)
    assert gone.is_set()
    bell.wait(30)


# --- the journal -----------------------------------------------------------------------------


def test_a_line_is_made_of_words_and_facts(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        note(logging.getLogger("x"), "claimed", job="trees/1", task=4, why="", seconds=None)
    assert caplog.messages == ["claimed job=trees/1 task=4"]


def test_facts_cannot_forge_other_facts_or_lines() -> None:
    (fact,) = facts(why='a=b\nended job="x"')
    assert fact == 'why="a=b\\nended job=\\"x\\""'


# --- whose name it is ------------------------------------------------------------------------


@pytest.fixture
def drive(tmp_path: Path) -> FolderDrive:
    folder = tmp_path / "drive"
    folder.mkdir()
    drive = FolderDrive(folder)
    write_format(drive)
    drive.make_folders(".ludwig/nodes")
    return drive


def beat(drive: FolderDrive, counter: int, *, boot: str = "other", left: bool = False) -> None:
    extra = {LEFT: True} if left else {}
    record = Beat(host="hoff", boot=boot, counter=counter, state="idle", extra=extra)
    nodes.write_beat(drive, record)


def never(seconds: float) -> bool:
    raise AssertionError("there is no reason to wait")


def test_a_name_nobody_had_and_ones_own_are_free_at_once(drive: FolderDrive) -> None:
    await_silence_of_others(drive, "hoff", set(), silent_s=60, wait=never)
    beat(drive, 1, boot="mine")
    await_silence_of_others(drive, "hoff", {"mine"}, silent_s=60, wait=never)
    beat(drive, 2, left=True)
    await_silence_of_others(drive, "hoff", set(), silent_s=60, wait=never)


def test_a_name_that_is_in_use_is_refused(drive: FolderDrive) -> None:
    beat(drive, 1)

    def meanwhile(seconds: float) -> bool:
        beat(drive, 2)
        return False

    with pytest.raises(AnotherAgent, match="another agent beats as 'hoff'"):
        await_silence_of_others(drive, "hoff", {"mine"}, silent_s=60, wait=meanwhile)


def test_the_name_of_a_silent_node_becomes_free(drive: FolderDrive) -> None:
    beat(drive, 1)
    slept = []

    def sleep(seconds: float) -> bool:
        slept.append(seconds)
        time.sleep(seconds)
        return False

    await_silence_of_others(drive, "hoff", set(), silent_s=0.3, wait=sleep)
    assert len(slept) >= 5


def test_a_work_folder_belongs_to_one_process_as_long_as_it_lives(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from ludwig.worker.identity import WorkLock\n"
        "lock = WorkLock(Path(sys.argv[1])); lock.remember('first'); print('held', flush=True)\n"
        "time.sleep(600)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        with pytest.raises(AnotherAgent, match=f"process {process.pid}"):
            WorkLock(tmp_path)
        process.kill()
    lock = WorkLock(tmp_path)
    assert lock.earlier_boots() == {"first"}
    lock.release()


# --- the inbox -------------------------------------------------------------------------------


def test_the_inbox_follows_no_links_and_reads_no_devices(tmp_path: Path) -> None:
    tickets = tmp_path / "tickets"
    tickets.mkdir()
    (tmp_path / "secret").write_text("{}")
    (tickets / "trees-0001.json").symlink_to(tmp_path / "secret")
    (tickets / "trees-0002.json").mkdir()
    (tickets / "trees-0003.json").write_text("{}")
    (tickets / ".trees-0004.json").write_text("{}")
    found = Inbox(tmp_path, lambda: None).letters()
    assert [letter.name for letter in found] == ["trees-0003.json"]
    assert found[0].names() == ("trees", 3)


def test_the_same_ticket_sent_again_is_another_letter(tmp_path: Path) -> None:
    (tmp_path / "tickets").mkdir()
    path = tmp_path / "tickets" / "trees-0001.json"
    inbox = Inbox(tmp_path, lambda: None)
    path.write_text("{}")
    (first,) = inbox.letters()
    (again,) = inbox.letters()
    assert first.identity == again.identity
    (tmp_path / "new").write_text("{}")
    (tmp_path / "new").rename(path)
    (second,) = inbox.letters()
    assert second.data == first.data and second.identity != first.identity


def test_without_inotify_the_slow_rescan_still_finds_tickets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_more() -> None:
        raise OSError(24, "inotify instance limit reached")

    monkeypatch.setattr("ludwig.worker.inbox.Observer", no_more)
    (tmp_path / "tickets").mkdir()
    (tmp_path / "tickets" / "trees-0001.json").write_text("{}")
    inbox = Inbox(tmp_path, lambda: None)
    inbox.start()
    assert len(inbox.letters()) == 1
    inbox.stop()


# --- names of results ------------------------------------------------------------------------


def test_results_get_names_that_every_drive_can_store(tmp_path: Path) -> None:
    for name in ("acc.csv", "ACC.csv", "a:b?.txt", "con", "ends."):
        (tmp_path / name).write_text(name)
    notes = make_storable(tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert len(names) == 5 and len({name.lower() for name in names}) == 5
    assert "ACC.csv" in names and not any(set(name) & set(":?") for name in names)
    assert len(notes) == 4
    assert make_storable(tmp_path) == []


@pytest.mark.parametrize(
    "names", [["x:1.csv", "x_1.csv"], ["A", "a", "a-2"], ["COM1", "_COM1", "com¹.csv"]]
)
def test_a_renamed_result_takes_no_other_ones_place(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).write_text(name)
    make_storable(tmp_path)
    assert sorted(path.read_text() for path in tmp_path.iterdir()) == sorted(names)
    kept = [layout.check_relative(path.name).lower() for path in tmp_path.iterdir()]
    assert len(set(kept)) == len(names)
