"""The inboxes of the nodes: sources and tickets, over SFTP or into a folder of this machine.

Owns the order and the atomicity of what reaches an inbox: every file is written under a temporary
name, flushed, measured, and only then renamed, so nobody ever sees a part of one. Nothing is
executed on a node. Synchronous outside; inside, one event loop (see `connections.py`) talks to all
nodes at once. asyncssh is imported when the first node that is not a folder is used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path

from ludwig import layout
from ludwig.client.connections import Connections, Inbox, Session
from ludwig.closing import Closing
from ludwig.config import NodeConfig
from ludwig.errors import NodeError, NodeUnreachable, UsageError

__all__ = ["Inbox", "Inboxes", "Sent"]

Work = Callable[[Inbox], Awaitable[None]]
Sent = Callable[[str, int], None]
"""Called with a node's name and the number of bytes just sent to it; in another thread."""


class Inboxes(Closing):
    """The inboxes of several nodes. A context manager; calls from one thread at a time.

    Connections are made on first use, or by `connect`; those of `connections` are used, and left
    open for the next user. One that drops is made anew and the work begun again, once. Results are
    by node: what fails on one is no matter to the others.
    """

    def __init__(
        self,
        nodes: Mapping[str, NodeConfig],
        *,
        connections: Connections | None = None,
        ssh_config: Path | None = None,
        connect_timeout_s: float = 10.0,
    ) -> None:
        self._nodes = dict(nodes)
        self._own = connections is None
        self._connections = connections or Connections(
            ssh_config=ssh_config, connect_timeout_s=connect_timeout_s
        )
        self._prepared: dict[str, Inbox] = {}
        """Those that were made ready, and so found to be alive, by us."""
        self._session: Session | None = None
        self._held = ExitStack()
        """Keeps the session from ending, from the first use until `close`."""

    def begin(self) -> None:
        """Begin to connect to all nodes, and return at once. Changes nothing on them."""
        session = self._hold()
        for name, node in self._nodes.items():
            session.start(name, node)

    def connect(self) -> dict[str, NodeError | None]:
        """Connect to all nodes at once, and make the folders of their inboxes.

        None for a node that is ready; else why it is not.
        """

        async def nothing(inbox: Inbox) -> None:
            return None

        return self._run(dict.fromkeys(self._nodes, nothing))

    def has_source(self, sha256: str, *, size: int | None = None) -> set[str]:
        """The nodes that have this source already (of this size, if given).

        Nodes that cannot be asked are not among them.
        """
        path = layout.inbox.source(sha256)
        found: dict[str, int] = {}

        def look(name: str) -> Work:
            async def one(inbox: Inbox) -> None:
                length = await inbox.size(path)
                if length is not None and size in (None, length):
                    found[name] = length

            return one

        self._run({name: look(name) for name in self._nodes})
        return set(found)

    def send_source(
        self, sha256: str, archive: Path, to: Iterable[str], progress: Sent | None = None
    ) -> dict[str, NodeError | None]:
        """Send a source to nodes, at once, but not to those that have it already.

        `progress` is told the archive's size in all for each node, sent or already there.
        """
        path, size = layout.inbox.source(sha256), archive.stat().st_size

        def send(name: str) -> Work:
            told = 0

            async def one(inbox: Inbox) -> None:
                nonlocal told
                done = 0

                def sent(count: int) -> None:
                    # After a dropped connection the first bytes are sent again, not told again.
                    nonlocal told, done
                    done += count
                    if progress and done > told:
                        progress(name, done - told)
                    told = max(told, done)

                if await inbox.size(path) == size:
                    sent(size)
                else:
                    await inbox.put(path, archive, sent)

            return one

        return self._run({name: send(name) for name in to})

    def send_ticket(self, node: str, project: str, job: int, data: bytes) -> None:
        """Put one ticket into an inbox. Raises the `NodeError`."""
        error = self.send_tickets(project, job, {node: data})[node]
        if error is not None:
            raise error

    def send_tickets(
        self, project: str, job: int, tickets: Mapping[str, bytes]
    ) -> dict[str, NodeError | None]:
        """Put the tickets of a job into the inboxes, by node, at once."""
        path = layout.inbox.ticket(project, job)

        def send(data: bytes) -> Work:
            async def one(inbox: Inbox) -> None:
                await inbox.put(path, data, lambda count: None)

            return one

        return self._run({name: send(data) for name, data in tickets.items()})

    def tickets(self, node: str) -> list[str]:
        """The names of the tickets in a node's inbox. Raises the `NodeError`."""
        names: list[str] = []

        async def one(inbox: Inbox) -> None:
            names[:] = await inbox.names(layout.TICKETS)

        error = self._run({node: one})[node]
        if error is not None:
            raise error
        return names

    def close(self) -> None:
        """Give up connections that are ours. The inboxes may be used again: they reconnect."""
        self._session = None
        self._held.close()
        if self._own:
            self._connections.close()

    def _run(self, work: Mapping[str, Work]) -> dict[str, NodeError | None]:
        """Do something with each of some inboxes, at once."""
        if unknown := sorted(set(work) - set(self._nodes)):
            there = ", ".join(sorted(self._nodes)) or "none"
            raise UsageError(f"No such node: {', '.join(unknown)}. There are: {there}.")
        session = self._hold()
        return session.run(self._each(session, work))

    def _hold(self) -> Session:
        if self._session is None:
            self._session = self._held.enter_context(self._connections.session())
        return self._session

    async def _each(
        self, session: Session, work: Mapping[str, Work]
    ) -> dict[str, NodeError | None]:
        errors = await asyncio.gather(
            *(self._try(session, name, one) for name, one in work.items())
        )
        return dict(zip(work, errors, strict=True))

    async def _try(self, session: Session, name: str, work: Work) -> NodeError | None:
        """Do something with one inbox; once more, from scratch, when the connection drops."""
        try:
            try:
                await self._with_inbox(session, name, work)
            except _Dropped:
                await self._with_inbox(session, name, work)
        except NodeError as error:
            return error
        except _Dropped as dropped:
            return dropped.error
        return None

    async def _with_inbox(self, session: Session, name: str, work: Work) -> None:
        """`_Dropped` if it had been connected; `NodeError` for all else. Neither is kept."""
        node = self._nodes[name]
        inbox = await session.inbox(name, node)
        try:
            if self._prepared.get(name) is not inbox:
                await inbox.prepare()
                self._prepared[name] = inbox
            await work(inbox)
        except NodeUnreachable as error:
            session.forget(name, node, inbox)
            raise _Dropped(error) from error
        except BaseException:  # also when it was cut short, in the middle of who knows what
            session.forget(name, node, inbox)
            raise


class _Dropped(Exception):
    """A connection was there, and is not any more."""

    def __init__(self, error: NodeError) -> None:
        self.error = error
