"""Sources and tickets, sent to real, chroot-jailed SFTP accounts."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from ludwig.client.upload import Inboxes
from ludwig.config import NodeConfig
from ludwig.errors import NodeUnreachable, UsageError
from tests.inboxes import MakeServer, files, node, refusal

pytestmark = [pytest.mark.needs_sshd, pytest.mark.usefixtures("own_home")]


def test_sources_and_tickets_reach_a_jailed_inbox(
    sftp_server: MakeServer, archive: tuple[str, Path]
) -> None:
    server = sftp_server("hoff")
    sha256, path = archive
    told: list[int] = []
    with Inboxes(node("hoff")) as inboxes:
        assert inboxes.connect() == {"hoff": None}
        assert inboxes.has_source(sha256) == set()
        sent = inboxes.send_source(sha256, path, ["hoff"], lambda name, count: told.append(count))
        assert sent == {"hoff": None}
        assert inboxes.has_source(sha256) == {"hoff"}
        assert inboxes.has_source(sha256, size=path.stat().st_size) == {"hoff"}
        assert inboxes.has_source(sha256, size=1) == set()
        inboxes.send_ticket("hoff", "trees", 17, b"{}")
        assert inboxes.tickets("hoff") == ["trees-0017.json"]
    assert sum(told) == path.stat().st_size
    name = f"sources/{sha256}.tar.gz"
    assert files(server) == {name: path.read_bytes(), "tickets/trees-0017.json": b"{}"}
    ticket = (server.inbox / "tickets/trees-0017.json").stat()
    assert ticket.st_mode & 0o777 == 0o644
    if server.jailed:
        assert ticket.st_uid == server.inbox.stat().st_uid


def test_a_source_that_is_there_is_not_sent_again(
    sftp_server: MakeServer, archive: tuple[str, Path]
) -> None:
    server = sftp_server("hoff")
    sha256, path = archive
    told: list[int] = []
    with Inboxes(node("hoff")) as inboxes:
        inboxes.send_source(sha256, path, ["hoff"])
        before = (server.inbox / "sources" / f"{sha256}.tar.gz").stat()
        inboxes.send_source(sha256, path, ["hoff"], lambda name, count: told.append(count))
    after = (server.inbox / "sources" / f"{sha256}.tar.gz").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert told == [path.stat().st_size]


def test_a_truncated_source_is_sent_again(
    sftp_server: MakeServer, archive: tuple[str, Path]
) -> None:
    server = sftp_server("hoff")
    sha256, path = archive
    with Inboxes(node("hoff")) as inboxes:
        inboxes.send_source(sha256, path, ["hoff"])
        os.truncate(server.inbox / "sources" / f"{sha256}.tar.gz", 100)
        assert inboxes.send_source(sha256, path, ["hoff"]) == {"hoff": None}
    assert files(server)[f"sources/{sha256}.tar.gz"] == path.read_bytes()


def test_several_nodes_at_once_and_one_is_down(
    sftp_server: MakeServer, archive: tuple[str, Path], tmp_path: Path
) -> None:
    servers = [sftp_server(name) for name in ("hoff", "hebb", "pitts")]
    servers[1].stop()
    (tmp_path / "here").mkdir()
    nodes = {server.name: NodeConfig(address=server.name) for server in servers}
    nodes["here"] = NodeConfig(address=f"folder:{tmp_path / 'here'}")
    sha256, path = archive
    with Inboxes(nodes) as inboxes:
        errors = inboxes.connect()
        assert {name for name, error in errors.items() if error is None} == {
            "hoff",
            "pitts",
            "here",
        }
        down = errors["hebb"]
        assert isinstance(down, NodeUnreachable)
        assert f"127.0.0.1:{servers[1].port}" in str(down) and "connection refused" in str(down)
        errors = inboxes.send_source(sha256, path, nodes)
        assert [name for name, error in errors.items() if error] == ["hebb"]
        assert inboxes.has_source(sha256) == {"hoff", "pitts", "here"}
        servers[1].start()
        tickets = {name: name.encode() for name in nodes}
        assert inboxes.send_tickets("trees", 1, tickets) == dict.fromkeys(nodes)
        assert inboxes.tickets("hebb") == ["trees-0001.json"]
    assert files(servers[2])["tickets/trees-0001.json"] == b"pitts"
    assert (tmp_path / "here/tickets/trees-0001.json").read_bytes() == b"here"


def test_a_node_that_is_not_in_the_lab() -> None:
    with Inboxes({}) as inboxes, pytest.raises(UsageError, match="No such node: hoff"):
        inboxes.tickets("hoff")


def test_an_inbox_that_is_missing_or_not_writable(sftp_server: MakeServer) -> None:
    server = sftp_server("hoff")
    with Inboxes({"hoff": NodeConfig(address="hoff", inbox="elsewhere")}) as inboxes:
        error = refusal(inboxes)
    assert "there is no such file or folder. Check `inbox`" in str(error)
    if server.jailed:
        with Inboxes({"hoff": NodeConfig(address="hoff", inbox="/")}) as inboxes:
            error = refusal(inboxes)
        assert "no permission for making '" in str(error)
        assert "top folder of a jail is always root's" in str(error)
        with Inboxes({"hoff": NodeConfig(address="hoff", inbox="/inbox")}) as inboxes:
            assert inboxes.connect() == {"hoff": None}


@pytest.mark.needs_root
def test_users_who_share_an_inbox(sftp_server: MakeServer, archive: tuple[str, Path]) -> None:
    server = sftp_server("hoff", accounts=2)
    sha256, path = archive
    for number, name in enumerate(("hoff", "hoff-2"), start=1):
        with Inboxes(node(name)) as inboxes:
            assert inboxes.send_source(sha256, path, [name]) == {name: None}
            inboxes.send_ticket(name, "trees", number, b"{}")
    owners = {file.stat().st_uid for file in (server.inbox / "tickets").iterdir()}
    assert len(owners) == 2


def test_a_ticket_is_as_readable_as_its_folder(sftp_server: MakeServer) -> None:
    server = sftp_server("hoff")
    with Inboxes(node("hoff")) as inboxes:
        inboxes.connect()
    (server.inbox / "tickets").chmod(0o2750)
    with Inboxes(node("hoff")) as inboxes:
        inboxes.send_ticket("hoff", "trees", 1, b"{}")
    assert (server.inbox / "tickets/trees-0001.json").stat().st_mode & 0o777 == 0o640


def test_inside_a_running_event_loop(sftp_server: MakeServer) -> None:
    """As in a Jupyter notebook, whose cells run in one."""
    sftp_server("hoff")

    async def cell() -> list[str]:
        with Inboxes(node("hoff")) as inboxes:
            inboxes.send_ticket("hoff", "trees", 1, b"{}")
            return inboxes.tickets("hoff")

    assert asyncio.run(cell()) == ["trees-0001.json"]


def test_closing_ends_the_thread_and_using_it_again_reconnects(sftp_server: MakeServer) -> None:
    sftp_server("hoff")
    before = threading.active_count()
    inboxes = Inboxes(node("hoff"))
    assert inboxes.connect() == {"hoff": None}
    inboxes.close()
    assert threading.active_count() == before
    assert inboxes.tickets("hoff") == []
    inboxes.close()
    inboxes.close()
