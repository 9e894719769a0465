"""Inboxes that are folders, and what importing the upload costs and needs."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ludwig.client.inbox_folder import FolderInbox
from ludwig.client.upload import Inboxes
from ludwig.config import NodeConfig
from ludwig.errors import NameNotAllowed, NodeError

SHA256 = "ab" * 32


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    folder = tmp_path / "inbox"
    folder.mkdir()
    return folder


def nodes(inbox: Path) -> dict[str, NodeConfig]:
    return {"here": NodeConfig(address=f"folder:{inbox}")}


def test_a_folder_does_what_an_sftp_inbox_does(inbox: Path, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive.write_bytes(os.urandom(3_000_000))
    told: list[tuple[str, int]] = []
    with Inboxes(nodes(inbox)) as inboxes:
        assert inboxes.connect() == {"here": None}
        assert inboxes.has_source(SHA256) == set()
        sent = inboxes.send_source(SHA256, archive, ["here"], lambda *call: told.append(call))
        assert sent == {"here": None}
        assert inboxes.has_source(SHA256, size=3_000_000) == {"here"}
        inboxes.send_ticket("here", "trees", 3, b"{}")
        assert inboxes.tickets("here") == ["trees-0003.json"]
    assert sum(count for _, count in told) == 3_000_000
    assert (inbox / "sources" / f"{SHA256}.tar.gz").read_bytes() == archive.read_bytes()
    names = sorted(path.name for path in inbox.rglob("*") if path.is_file())
    assert names == [f"{SHA256}.tar.gz", "trees-0003.json"], "no temporary name is left"


def test_an_inbox_inside_the_folder(inbox: Path) -> None:
    (inbox / "in").mkdir()
    config = {"here": NodeConfig(address=f"folder:{inbox}", inbox="in")}
    with Inboxes(config) as inboxes:
        inboxes.send_ticket("here", "trees", 1, b"{}")
    assert (inbox / "in/tickets/trees-0001.json").exists()


def test_temporary_names_are_not_tickets(inbox: Path) -> None:
    with Inboxes(nodes(inbox)) as inboxes:
        inboxes.connect()
        (inbox / "tickets/.tmp-0123").write_text("half")
        assert inboxes.tickets("here") == []


def test_a_missing_folder_is_not_made(inbox: Path) -> None:
    with Inboxes(nodes(inbox / "none")) as inboxes:
        error = inboxes.connect()["here"]
        assert isinstance(error, NodeError)
        assert "there is no folder" in str(error)
        with pytest.raises(NodeError, match="node 'here'"):
            inboxes.send_ticket("here", "trees", 1, b"{}")
        (inbox / "none").mkdir()
        assert inboxes.connect() == {"here": None}


def test_a_failed_write_is_named_and_leaves_nothing(
    inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with Inboxes(nodes(inbox)) as inboxes:
        inboxes.connect()
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(NodeError, match=r"writing '.*trees-0001.json': No space left"):
            inboxes.send_ticket("here", "trees", 1, b"{}")
    assert [path for path in inbox.rglob("*") if path.is_file()] == []


def test_names_are_checked_before_anything_is_written(inbox: Path, tmp_path: Path) -> None:
    with Inboxes(nodes(inbox)) as inboxes:
        with pytest.raises(NameNotAllowed):
            inboxes.send_tickets("../evil", 1, {"here": b"{}"})
        with pytest.raises(NameNotAllowed):
            inboxes.has_source("../evil")
        with pytest.raises(NameNotAllowed):
            inboxes.send_source("x", tmp_path, ["here"])


def test_no_thread_is_started_before_it_is_needed(inbox: Path) -> None:
    before = threading.active_count()
    with Inboxes(nodes(inbox)):
        assert threading.active_count() == before


def test_an_error_that_is_nobody_s_fault_but_ours_is_not_hidden(
    inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(self: FolderInbox, folder: str) -> list[str]:
        raise ZeroDivisionError

    monkeypatch.setattr(FolderInbox, "names", broken)
    with Inboxes(nodes(inbox)) as inboxes, pytest.raises(ZeroDivisionError):
        inboxes.tickets("here")


def run_python(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_asyncssh_is_not_imported_for_folders() -> None:
    run_python(
        "import sys, ludwig.client.upload, ludwig.client.snapshot, ludwig.client.data\n"
        "assert 'asyncssh' not in sys.modules and 'pandas' not in sys.modules"
    )


@pytest.mark.parametrize(
    "module",
    [
        "ludwig.config",
        "ludwig.client.upload",
        "ludwig.client.ssh",
        "ludwig.client.inbox_sftp",
        "ludwig.client.snapshot",
        "ludwig.client.git",
        "ludwig.client.data",
    ],
)
def test_nothing_that_only_posix_has_is_imported(module: str) -> None:
    hidden = ("fcntl", "grp", "pty", "pwd", "resource", "termios", "tty")
    # Libraries may look at these in their own way: what is loaded before does not count.
    libraries = "asyncssh, asyncio, getpass, msgspec, pathspec, platformdirs, tarfile, subprocess"
    run_python(
        f"import sys, {libraries}\nsys.modules.update(dict.fromkeys({hidden!r}))\nimport {module}\n"
    )
