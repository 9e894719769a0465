"""Connections to the nodes, kept open between uses: a handshake costs more than a small job.

Owns the event loop that talks to all nodes, in a thread of its own (so it works where a loop is
running already, as in Jupyter), and how it ends: when nobody has used it for a minute, when it is
closed, when its owner is collected, at the end of the program; a node that does not answer delays
none of these for long. A forked child begins with none. That a kept connection still works is for
its user to check (`Inbox.prepare`).
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent import futures
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ludwig.client.inbox_folder import FolderInbox
from ludwig.config import NodeConfig

if TYPE_CHECKING:
    from ludwig.client.ssh import Connector

__all__ = ["Connections", "Inbox", "Session"]

_log = logging.getLogger(__name__)
T = TypeVar("T")
IDLE_S = 60.0
CLEAN_UP_S = 3.0
"""How long Ctrl-C waits for temporary files to be removed from the nodes."""
CLOSE_S = 5.0
EXIT_S = 0.5
"""How long the end of the program waits for goodbyes to be said."""


class Inbox(Protocol):
    """One node's inbox. Paths are those of `layout.inbox`. Raises `NodeError`s only."""

    async def prepare(self) -> None:
        """Make its folders if they are missing. Fails soon if a kept connection is dead."""

    async def size(self, path: str) -> int | None:
        """Of a file; None if there is none."""

    async def put(self, path: str, data: bytes | Path, sent: Callable[[int], None]) -> None:
        """Write a file, whole or not at all."""

    async def names(self, folder: str) -> list[str]:
        """The complete files of a folder, sorted."""

    async def close(self) -> None: ...


class Connections:
    """The open inboxes of nodes. From any thread, also from several at once."""

    def __init__(
        self,
        *,
        ssh_config: Path | None = None,
        connect_timeout_s: float = 10.0,
        idle_s: float = IDLE_S,
    ) -> None:
        self._settings = (ssh_config, connect_timeout_s, idle_s)
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._finalizer: weakref.finalize[[], Connections] | None = None

    @contextlib.contextmanager
    def session(self) -> Iterator[Session]:
        """The present session, which does not end meanwhile; a new one if there is none."""
        session = self._enter()
        try:
            yield session
        finally:
            session.leave()

    def begin(self, nodes: Mapping[str, NodeConfig]) -> None:
        """Begin to connect to nodes, and return at once. Changes nothing on them.

        What comes of it is told when they are used; what is not used is closed after a while.
        """
        with self.session() as session:
            for name, node in nodes.items():
                session.start(name, node)

    def close(self) -> None:
        """Give up all connections, or let their last user do so. They may be used again."""
        session, self._session = self._session, None
        if session is not None:
            session.retire()

    def _enter(self) -> Session:
        if self._session is not None and self._session.inherited:
            # Of the process we were forked from: even to close its sockets would disturb it.
            _inherited.append(self._session)
            self._session, self._lock = None, threading.Lock()
        with self._lock:
            if self._session is None or not self._session.enter():
                self._session = Session(*self._settings)
                self._session.enter()
                if self._finalizer is not None:
                    self._finalizer.detach()
                self._finalizer = weakref.finalize(self, self._session.end)
                self._finalizer.atexit = False  # `_end_sessions` does that, and waits
            return self._session


class Session:
    """One event loop with the connections that were made in it. Ended once, for good."""

    def __init__(self, ssh_config: Path | None, timeout_s: float, idle_s: float) -> None:
        self._ssh_config, self._timeout_s, self._idle_s = ssh_config, timeout_s, idle_s
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._users, self._left = 0, time.monotonic()
        self._retired = self._ended = self._leaving = False
        self._open: dict[tuple[str, NodeConfig], asyncio.Task[Inbox]] = {}
        self._goodbyes: set[asyncio.Task[None]] = set()
        self._connectors: list[Connector] = []
        """The last one is used; the others hold the jump hosts of earlier connections."""
        self._made_by: dict[Inbox, Connector] = {}
        self._loop = asyncio.new_event_loop()
        self._loop.call_later(idle_s, self._end_if_idle)
        self._thread = threading.Thread(target=self._live, name="ludwig-upload", daemon=True)
        self._thread.start()
        _sessions.add(self)

    # --- from any thread -----------------------------------------------------------------------

    @property
    def inherited(self) -> bool:
        """Whether this is a copy, in a forked child: without its thread, with shared sockets."""
        return self._pid != os.getpid()

    def enter(self) -> bool:
        """Keep it from ending of idleness until `leave`. False if it has ended."""
        with self._lock:
            self._users += not self._ended
            return not self._ended

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            self._left = time.monotonic()
            last = self._retired and not self._users
        if last:
            self.end(wait_s=CLOSE_S)

    def retire(self) -> None:
        """End it now, or when its last user has left."""
        if self.inherited:
            return
        with self._lock:
            self._retired = True
            used = self._users
        if not used:
            self.end(wait_s=CLOSE_S)

    def end(self, *, wait_s: float = 0.0) -> None:
        """End it, whoever uses it. Takes no lock: it is called by the garbage collector too."""
        if self.inherited:
            return
        self._ended = True
        with contextlib.suppress(RuntimeError):  # the loop is closed already
            self._loop.call_soon_threadsafe(self._say_goodbye)
        if wait_s and threading.current_thread() is not self._thread:
            self._thread.join(wait_s)

    def start(self, name: str, node: NodeConfig) -> None:
        """Begin to connect, unless that is done. What comes of it, `inbox` tells."""
        self._loop.call_soon_threadsafe(self._opened, name, node, True)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it in the loop's thread; an interrupt here (Ctrl-C) cancels it there."""
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

    # --- in the loop's thread ------------------------------------------------------------------

    async def inbox(self, name: str, node: NodeConfig) -> Inbox:
        """The inbox of a node: the kept one, else a new one. Raises `NodeError`."""
        task = self._opened(name, node, False)
        try:
            return await asyncio.shield(task)
        except Exception:
            if self._open.get((name, node)) is task:
                del self._open[name, node]
            raise

    def forget(self, name: str, node: NodeConfig, inbox: Inbox) -> None:
        """Close an inbox, and connect anew when it is asked for again."""
        task = self._open.get((name, node))
        if task is not None and _opened_inbox(task) is inbox:
            del self._open[name, node]
        maker = self._made_by.pop(inbox, None)
        if self._connectors and self._connectors[-1] is maker:
            # Perhaps it is the jump host in between that has died.
            self._connectors.append(maker.anew())
        self._close_later(inbox)

    def _opened(self, name: str, node: NodeConfig, again: bool) -> asyncio.Task[Inbox]:
        """The attempt to connect; with `again`, a new one if it has failed."""
        task = self._open.get((name, node))
        if task is None or (again and task.done() and _opened_inbox(task) is None):
            task = self._loop.create_task(self._open_inbox(name, node))
            # Nobody may be left to hear of a failure.
            task.add_done_callback(lambda task: task.cancelled() or task.exception())
            self._open[name, node] = task
        return task

    async def _open_inbox(self, name: str, node: NodeConfig) -> Inbox:
        if node.folder is not None:
            return await FolderInbox.open(f"node '{name}'", node.folder)
        # Imported here: a lab of folders needs no SSH.
        from ludwig.client.inbox_sftp import SftpInbox
        from ludwig.client.ssh import Connector

        if not self._connectors:
            self._connectors.append(Connector(self._ssh_config))
        connector = self._connectors[-1]
        connection = await connector.connect(name, node, timeout_s=self._timeout_s)
        inbox = await SftpInbox.open(
            f"node '{name}'", connection, node.inbox, timeout_s=self._timeout_s
        )
        self._made_by[inbox] = connector
        return inbox

    def _close_later(self, inbox: Inbox) -> None:
        task = self._loop.create_task(_close(inbox))
        self._goodbyes.add(task)
        task.add_done_callback(self._goodbyes.discard)

    def _end_if_idle(self) -> None:
        with self._lock:
            rest = self._idle_s if self._users else self._left + self._idle_s - time.monotonic()
            self._ended = self._ended or rest <= 0
        if self._ended:
            self._say_goodbye()
        else:
            self._loop.call_later(rest, self._end_if_idle)

    def _say_goodbye(self) -> None:
        """Close everything, then stop the loop."""
        if self._leaving:
            return
        self._leaving = True
        for task in self._open.values():
            if (inbox := _opened_inbox(task)) is not None:
                self._close_later(inbox)
            else:
                task.cancel()
        self._open = {}
        self._loop.create_task(self._stop())

    async def _stop(self) -> None:
        await asyncio.gather(*self._goodbyes, return_exceptions=True)
        closing = (connector.close() for connector in self._connectors)
        await asyncio.gather(*closing, return_exceptions=True)
        self._loop.stop()

    def _live(self) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        loop.set_exception_handler(_left_over)
        try:
            loop.run_forever()
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            loop.close()


def _opened_inbox(task: asyncio.Task[Inbox]) -> Inbox | None:
    if not task.done() or task.cancelled() or task.exception() is not None:
        return None
    return task.result()


async def _close(inbox: Inbox) -> None:
    with contextlib.suppress(Exception):
        await inbox.close()


def _left_over(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What asyncssh's own tasks say about a lost connection, whose user has been told already."""
    _log.debug(context.get("message", ""), exc_info=context.get("exception"))


_inherited: list[Session] = []
_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


@atexit.register
def _end_sessions() -> None:
    """Daemon threads would just be cut off; so the nodes hear it, if they listen."""
    sessions = [session for session in _sessions if not session.inherited]
    for session in sessions:
        session.end()
    deadline = time.monotonic() + EXIT_S
    for session in sessions:
        session.end(wait_s=max(0.01, deadline - time.monotonic()))
