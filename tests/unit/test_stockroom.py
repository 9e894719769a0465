"""Sources are made ready before they are needed, and nothing depends on that."""

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ludwig import errors, layout
from ludwig.client.snapshot import pack
from ludwig.worker import stockroom, workspace
from ludwig.worker.account import job_account
from ludwig.worker.inbox import Inbox
from ludwig.worker.stockroom import Stockroom
from tests.harness import wait_until


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A source as it lies in an inbox."""
    return make_archive(tmp_path, "print(1)\n")


def make_archive(tmp_path: Path, text: str) -> Path:
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True, exist_ok=True)
    (project / "src" / "run.py").write_text(text)
    folder = tmp_path / "inbox" / layout.SOURCES
    return pack([Path("src")], root=project, entry="run.py", out=folder).archive


def sha256_of(archive: Path) -> str:
    return archive.name.removesuffix(".tar.gz")


def make_room(tmp_path: Path, user: str | None = None, percent: float = 100.0) -> Stockroom:
    account = job_account(user, allow_root=True)
    return Stockroom(tmp_path / "work", account, disk_max_percent=percent)


def spares(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "work" / "spares").iterdir())


@contextmanager
def serving(room: Stockroom) -> Iterator[Stockroom]:
    room.start()
    try:
        yield room
    finally:
        room.stop()


def test_what_arrives_is_unpacked_and_has_a_copy_to_spare(tmp_path: Path, archive: Path) -> None:
    source = tmp_path / "work" / "sources" / sha256_of(archive)
    with serving(make_room(tmp_path)) as room:
        room.arrived(archive, sha256_of(archive))
        wait_until(lambda: spares(tmp_path) and room.take(source, tmp_path / "mine"))
    assert (source / "src" / "run.py").read_text() == "print(1)\n"
    (tmp_path / "mine" / "src" / "run.py").write_text("mine")
    assert (source / "src" / "run.py").read_text() == "print(1)\n"
    assert not room.take(source, tmp_path / "another"), "a copy is one attempt's own"


def test_an_attempt_takes_the_spare_copy_and_makes_none(
    tmp_path: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = make_room(tmp_path)
    room.make_ready(archive, sha256_of(archive))
    source = room.unpack(archive, sha256_of(archive))
    copies = counted(monkeypatch)
    for number in (1, 2):
        folder = tmp_path / "work" / "attempts" / f"p-1-{number}-1"
        workspace.prepare(
            folder,
            source=source,
            project="p",
            chunk=b"c",
            allow_root=True,
            take_spare=room.take,
        )
        assert (folder / "tree" / "p" / "src" / "run.py").read_text() == "print(1)\n"
        assert len(copies) == number - 1


def counted(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    copies: list[Path] = []
    copy: Callable[..., None] = workspace.copy_tree

    def copy_and_count(master: Path, target: Path, **options: object) -> None:
        copies.append(target)
        copy(master, target, **options)

    monkeypatch.setattr(workspace, "copy_tree", copy_and_count)
    return copies


def test_who_needs_a_copy_that_is_being_made_waits_for_it(
    tmp_path: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    copy = workspace.copy_tree

    def slowly(master: Path, target: Path, **options: object) -> None:
        begun.set()
        assert go_on.wait(20)
        copy(master, target)

    monkeypatch.setattr(workspace, "copy_tree", slowly)
    with serving(make_room(tmp_path)) as room:
        source = room.unpack(archive, sha256_of(archive))
        room.used(source)
        assert begun.wait(20)
        threading.Timer(0.1, go_on.set).start()
        assert room.take(source, tmp_path / "mine")


def test_a_source_that_cannot_be_taken_is_left_to_its_ticket(tmp_path: Path, archive: Path) -> None:
    wrong = archive.with_name(f"{hashlib.sha256(b'other').hexdigest()}.tar.gz")
    archive.rename(wrong)
    with serving(make_room(tmp_path)) as room:
        room.arrived(wrong, sha256_of(wrong))
        room.used(tmp_path / "work" / "sources" / "gone")
        archive = make_archive(tmp_path, "print(2)\n")
        room.arrived(archive, sha256_of(archive))
        wait_until(lambda: len(spares(tmp_path)) == 1)
        with pytest.raises(errors.TicketRefused, match="damaged"):
            room.unpack(wrong, sha256_of(wrong))


def test_an_earlier_agents_copies_are_not_used(tmp_path: Path, archive: Path) -> None:
    before = make_room(tmp_path)
    before.make_ready(archive, sha256_of(archive))
    room = make_room(tmp_path)
    assert spares(tmp_path) == []
    assert not room.take(tmp_path / "work" / "sources" / sha256_of(archive), tmp_path / "mine")


def test_few_copies_are_kept_and_not_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = make_room(tmp_path)
    for number in range(stockroom.SPARES + 2):
        archive = make_archive(tmp_path, f"print({number})\n")
        room.make_ready(archive, sha256_of(archive))
        room.make_ready(archive, sha256_of(archive))
    assert len(spares(tmp_path)) == stockroom.SPARES
    room.tidy()
    assert len(spares(tmp_path)) == stockroom.SPARES
    monkeypatch.setattr(stockroom, "KEEP_S", -1.0)
    room.tidy()
    assert spares(tmp_path) == []


def test_a_full_disk_has_no_room_for_copies(tmp_path: Path, archive: Path) -> None:
    room = make_room(tmp_path, percent=0.0)
    room.make_ready(archive, sha256_of(archive))
    assert spares(tmp_path) == []
    assert not (tmp_path / "work" / "sources").exists()


@pytest.mark.needs_root
def test_a_copy_is_the_agents_until_it_is_taken_and_then_the_jobs(
    tmp_path: Path, archive: Path
) -> None:
    account = job_account("nobody")
    room = make_room(tmp_path, "nobody")
    room.make_ready(archive, sha256_of(archive))
    assert (tmp_path / "work" / "spares").stat().st_mode & 0o777 == 0o700
    folder = tmp_path / "work" / "attempts" / "p-1-1-1"
    source = tmp_path / "work" / "sources" / sha256_of(archive)
    workspace.prepare(
        folder, source=source, project="p", chunk=b"", user="nobody", take_spare=room.take
    )
    assert all(path.lstat().st_uid == account.uid for path in (folder / "tree").rglob("*"))


def test_the_inbox_hears_of_sources_that_arrive(tmp_path: Path) -> None:
    """Of whole ones, at their place, and of each once."""
    inbox_folder = tmp_path / "inbox"
    sources = inbox_folder / "ana" / layout.SOURCES
    for folder in (sources, inbox_folder / "a" / "b" / layout.SOURCES):
        folder.mkdir(parents=True)
    name = f"{'0' * 64}.tar.gz"
    inbox = Inbox(inbox_folder, lambda: None)
    inbox.start()
    try:
        (inbox_folder / "a" / "b" / layout.SOURCES / name).touch()
        (sources / f"{layout.TEMPORARY}x").write_bytes(b"all of it")
        (sources / "notes.txt").touch()
        (sources / f"{layout.TEMPORARY}x").rename(sources / name)
        heard: list[tuple[Path, str, str]] = []
        wait_until(lambda: heard.extend(inbox.arrivals()) or heard)
        assert [(path, sha256) for path, sha256, _ in heard] == [(sources / name, "0" * 64)]
        assert inbox.arrivals() == []
    finally:
        inbox.stop()
