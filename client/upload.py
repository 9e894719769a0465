"""The inboxes of the nodes: sources and tickets, over SFTP or into a folder of this machine.

Owns the order and the atomicity of what reaches an inbox: every file is written under a temporary
name, flushed, measured, and only then renamed, so nobody ever sees a part of one. Nothing is
executed on a node. Synchronous outside; inside, one event loop in a thread of its own (so it works
where a loop is running already, as in Jupyter) talks to all nodes at once. asyncssh is imported
when the first node that is not a folder is used.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from concurrent import futures
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from ludwig import layout
from ludwig.client.inbox_folder import FolderInbox
from ludwig.config import NodeConfig
from ludwig.errors import NodeError, NodeUnreachable, UsageError

if TYPE_CHECKING:
    from ludwig.client.ssh import Connector

__all__ = ["Inbox", "Inboxes", "Sent"]

T = TypeVar("T")
CLEAN_UP_S = 3.0
"""How long Ctrl-C waits for temporary files to be removed from the nodes."""
Sent = Callable[[str, int], None]
"""Called with a node's name and the number of bytes just sent to it; in another thread."""


class Inbox(Protocol):
    """One node's inbox. Paths are those of `layout.inbox`. Raises `NodeError`s only."""

    async def size(self, path: str) -> int | None:
        """Of a file; None if there is none."""

    async def put(self, path: str, data: bytes | Path, sent: Callable[[int], None]) -> None:
        """Write a file, whole or not at all."""

    async def names(self, folder: str) -> list[str]:
        """The complete files of a folder, sorted."""

    async def close(self) -> None: ...


class Inboxes:
    """The inboxes of several nodes. A context manager; calls from one thread at a time.

    Connections are made on first use, or by `connect`. One that drops is made anew and the work
    begun again, once. Results are by node: what fails on one is no matter to the others.
    """

    def __init__(
        self,
        nodes: Mapping[str, NodeConfig],
        *,
        ssh_config: Path | None = None,
        connect_timeout_s: float = 10.0,
    ) -> None:
        self._nodes = dict(nodes)
        self._ssh_config = ssh_config
        self._timeout_s = connect_timeout_s
        self._open: dict[str, Inbox] = {}
        self._connector: Connector | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def connect(self) -> dict[str, NodeError | None]:
        """Connect to all nodes at once, and make the folders of their inboxes.

        None for a node that is ready; else why it is not.
        """

        async def nothing(inbox: Inbox) -> None:
            return None

        return self._run(self._each(self._nodes, nothing))

    def has_source(self, sha256: str, *, size: int | None = None) -> set[str]:
        """The nodes that have this source already (of this size, if given).

        Nodes that cannot be asked are not among them.
        """
        path = layout.inbox.source(sha256)
        found: dict[str, int] = {}

        def look(name: str) -> Callable[[Inbox], Awaitable[None]]:
            async def one(inbox: Inbox) -> None:
                length = await inbox.size(path)
                if length is not None and size in (None, length):
                    found[name] = length

            return one

        self._run(self._each_its_own({name: look(name) for name in self._nodes}))
        return set(found)

    def send_source(
        self, sha256: str, archive: Path, to: Iterable[str], progress: Sent | None = None
    ) -> dict[str, NodeError | None]:
        """Send a source to nodes, at once, but not to those that have it already.

        `progress` is told the archive's size in all for each node, sent or already there.
        """
        path, size = layout.inbox.source(sha256), archive.stat().st_size

        def send(name: str) -> Callable[[Inbox], Awaitable[None]]:
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

        return self._run(self._each_its_own({name: send(name) for name in to}))

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

        def send(data: bytes) -> Callable[[Inbox], Awaitable[None]]:
            async def one(inbox: Inbox) -> None:
                await inbox.put(path, data, lambda count: None)

            return one

        return self._run(self._each_its_own({name: send(data) for name, data in tickets.items()}))

    def tickets(self, node: str) -> list[str]:
        """The names of the tickets in a node's inbox. Raises the `NodeError`."""
        names: list[str] = []

        async def one(inbox: Inbox) -> None:
            names[:] = await inbox.names(layout.TICKETS)

        error = self._run(self._each([node], one))[node]
        if error is not None:
            raise error
        return names

    def close(self) -> None:
        """Give up all connections. The inboxes may be used again: they reconnect."""
        if self._loop is None or self._thread is None:
            return
        try:
            self._run(self._close_all())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop = self._thread = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it in the loop's thread; an interrupt here (Ctrl-C) cancels it there."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=_run_loop, args=(self._loop,), name="ludwig-upload", daemon=True
            )
            self._thread.start()
        ended = threading.Event()

        async def tracked() -> T:
            try:
                return await work
            finally:
                ended.set()

        future = asyncio.run_coroutine_threadsafe(tracked(), self._loop)
        try:
            # On Windows a wait without end would not hear Ctrl-C.
            while not futures.wait([future], timeout=0.5).done:
                pass
            return future.result()
        except BaseException:
            future.cancel()
            ended.wait(CLEAN_UP_S)
            raise

    async def _each(
        self, names: Iterable[str], work: Callable[[Inbox], Awaitable[None]]
    ) -> dict[str, NodeError | None]:
        return await self._each_its_own(dict.fromkeys(names, work))

    async def _each_its_own(
        self, work: Mapping[str, Callable[[Inbox], Awaitable[None]]]
    ) -> dict[str, NodeError | None]:
        if unknown := sorted(set(work) - set(self._nodes)):
            raise UsageError(f"No such node: {', '.join(unknown)}. There are: {self._names()}.")
        errors = await asyncio.gather(*(self._try(name, job) for name, job in work.items()))
        return dict(zip(work, errors, strict=True))

    def _names(self) -> str:
        return ", ".join(sorted(self._nodes)) or "none"

    async def _try(self, name: str, work: Callable[[Inbox], Awaitable[None]]) -> NodeError | None:
        """Do something with one inbox; once more, from scratch, when the connection drops."""
        try:
            inbox = await self._inbox(name)
            try:
                await work(inbox)
            except NodeUnreachable:
                await self._forget(name)
                await work(await self._inbox(name))
        except NodeError as error:
            await self._forget(name)
            return error
        return None

    async def _inbox(self, name: str) -> Inbox:
        if name not in self._open:
            self._open[name] = await self._open_inbox(name, self._nodes[name])
        return self._open[name]

    async def _open_inbox(self, name: str, node: NodeConfig) -> Inbox:
        if node.folder is not None:
            return await FolderInbox.open(f"node '{name}'", node.folder)
        from ludwig.client.inbox_sftp import SftpInbox
        from ludwig.client.ssh import Connector

        self._connector = self._connector or Connector(self._ssh_config)
        connection = await self._connector.connect(name, node, timeout_s=self._timeout_s)
        return await SftpInbox.open(
            f"node '{name}'", connection, node.inbox, timeout_s=self._timeout_s
        )

    async def _forget(self, name: str) -> None:
        inbox = self._open.pop(name, None)
        if inbox is not None:
            with contextlib.suppress(Exception):
                await inbox.close()

    async def _close_all(self) -> None:
        await asyncio.gather(*(self._forget(name) for name in list(self._open)))
        if self._connector is not None:
            await self._connector.close()
            self._connector = None


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()
