"""An inbox behind SFTP: a chroot-jailed account without a shell is enough.

Owns the requests; `ssh.py` makes the connection. A file is as readable as its folder is: whoever
sets up a node decides with the mode of `tickets/` who may read the tickets of others.
"""

from __future__ import annotations

import asyncio
import contextlib
import posixpath
import secrets
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import asyncssh

from ludwig import layout
from ludwig.client.inbox_folder import pieces
from ludwig.client.ssh import close_connection
from ludwig.client.ssh_errors import explain_sftp
from ludwig.errors import NodeError, NodeUnreachable

__all__ = ["SftpInbox"]

FOLDERS = (layout.SOURCES, layout.TICKETS)
PIECE = 1 << 20
"""Written at a time, as many requests in flight: large enough to fill a link with latency."""
STALL_S = 60.0
"""How long one step (a request, a piece) may take: a hung disk does not stop SSH's keep-alive."""
KEPT_S = 3.0
"""How long a kept connection may take to show that it is alive, until a new one is made."""
CLOSE_S = 2.0


class SftpInbox:
    """See `connections.Inbox`."""

    def __init__(
        self,
        label: str,
        connection: asyncssh.SSHClientConnection,
        sftp: asyncssh.SFTPClient,
        folder: str,
        timeout_s: float,
    ) -> None:
        self._label = label
        self._connection = connection
        self._sftp = sftp
        self._folder = folder
        self._timeout_s = timeout_s
        self._modes: dict[str, int] = {}
        """Of the folders in the inbox."""
        self._kept = False

    @classmethod
    async def open(
        cls, label: str, connection: asyncssh.SSHClientConnection, folder: str, *, timeout_s: float
    ) -> SftpInbox:
        """Start SFTP, and look. Nothing is changed yet."""
        try:
            async with asyncio.timeout(timeout_s):
                try:
                    sftp = await connection.start_sftp_client(env=None, send_env=None)
                except (asyncssh.Error, OSError, ValueError) as error:
                    raise NodeError(
                        f"{label} accepts the login, but offers no SFTP: {error}. "
                        "Its sshd needs `Subsystem sftp internal-sftp`."
                    ) from error
                inbox = cls(label, connection, sftp, folder, timeout_s)
                await asyncio.gather(*map(inbox._look, FOLDERS))
                return inbox
        except TimeoutError as error:
            connection.abort()
            raise _does_not_answer(label, timeout_s) from error
        except BaseException:
            connection.abort()
            raise

    async def prepare(self) -> None:
        timeout_s = KEPT_S if self._kept else self._timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                if self._kept:
                    await asyncio.gather(*map(self._look, FOLDERS))
                await asyncio.gather(*map(self._make, set(FOLDERS).difference(self._modes)))
        except TimeoutError as error:
            self._connection.abort()
            raise _does_not_answer(self._label, timeout_s) from error
        self._kept = True

    async def size(self, path: str) -> int | None:
        async with self._explained("looking at", path), asyncio.timeout(STALL_S):
            try:
                return (await self._sftp.stat(self._at(path))).size
            except asyncssh.SFTPNoSuchFile:
                return None

    async def put(self, path: str, data: bytes | Path, sent: Callable[[int], None]) -> None:
        folder = posixpath.dirname(path)
        temporary = self._at(f"{folder}/{layout.TEMPORARY}{secrets.token_hex(8)}")
        mode = 0o600 | self._modes[folder] & 0o044
        async with self._explained("writing", path):
            try:
                await self._write(temporary, data, mode, sent)
                async with asyncio.timeout(STALL_S):
                    await self._rename(temporary, self._at(path))
            except BaseException:
                with contextlib.suppress(asyncssh.Error, OSError):
                    async with asyncio.timeout(CLOSE_S):
                        await self._sftp.remove(temporary)
                raise

    async def names(self, folder: str) -> list[str]:
        async with self._explained("listing", folder), asyncio.timeout(STALL_S):
            names = [str(name) for name in await self._sftp.listdir(self._at(folder))]
        hidden = (layout.TEMPORARY, ".")
        return sorted(name for name in names if not name.startswith(hidden))

    async def close(self) -> None:
        self._sftp.exit()
        await close_connection(self._connection)

    async def _write(
        self, path: str, data: bytes | Path, mode: int, sent: Callable[[int], None]
    ) -> None:
        attributes = asyncssh.SFTPAttrs(permissions=mode)
        size = 0
        async with asyncio.timeout(STALL_S):
            file = await self._sftp.open(path, "xb", attributes, encoding=None)
        try:
            for piece in pieces(data, PIECE):
                async with asyncio.timeout(STALL_S):
                    await file.write(piece)
                size += len(piece)
                sent(len(piece))
            async with asyncio.timeout(STALL_S):
                await self._finish(file, size, mode)
                await file.close()
        except BaseException:
            # Closing is a request too: whoever does not answer now will not answer that.
            with contextlib.suppress(asyncssh.Error, OSError):
                async with asyncio.timeout(CLOSE_S):
                    await file.close()
            raise

    async def _finish(self, file: asyncssh.SFTPClientFile, size: int, mode: int) -> None:
        """Make sure that it is all there, on the disk, and readable for whom it is meant."""
        with contextlib.suppress(asyncssh.SFTPOpUnsupported):
            await file.fsync()
        found = await file.stat()
        if found.size != size:
            raise asyncssh.SFTPFailure(f"{found.size} bytes arrived of {size}")
        if stat.S_IMODE(found.permissions or 0) != mode:
            # The server's umask is stricter than the folder. It may forbid to say so.
            with contextlib.suppress(asyncssh.SFTPPermissionDenied, asyncssh.SFTPFailure):
                await file.chmod(mode)

    async def _rename(self, source: str, target: str) -> None:
        try:
            await self._sftp.posix_rename(source, target)
        except asyncssh.SFTPOpUnsupported:
            await self._sftp.rename(source, target)

    async def _look(self, name: str) -> None:
        """Take note of a folder of the inbox, and whether it is there."""
        self._modes.pop(name, None)
        async with self._explained("looking at", name):
            with contextlib.suppress(asyncssh.SFTPNoSuchFile):
                found = await self._sftp.stat(self._at(name))
                self._modes[name] = stat.S_IMODE(found.permissions or 0o755)

    async def _make(self, name: str) -> None:
        """Make a folder of the inbox, as accessible as the inbox is."""
        path = self._at(name)
        async with self._explained("making", name):
            inbox = await self._sftp.stat(self._folder)
            mode = stat.S_IMODE(inbox.permissions or 0o755)
            # Somebody else may have made it meanwhile; then it is theirs to open.
            with contextlib.suppress(asyncssh.SFTPFailure):
                await self._sftp.mkdir(path)
                await self._sftp.chmod(path, mode)
            found = await self._sftp.stat(path)
        self._modes[name] = stat.S_IMODE(found.permissions or 0o755)

    def _at(self, path: str) -> str:
        return posixpath.join(self._folder, path)

    @contextlib.asynccontextmanager
    async def _explained(self, doing: str, path: str) -> AsyncIterator[None]:
        try:
            yield
        except (asyncssh.Error, OSError) as error:
            raise explain_sftp(self._label, doing, path, error) from error


def _does_not_answer(label: str, timeout_s: float) -> NodeUnreachable:
    return NodeUnreachable(
        f"{label} accepts the login, but SFTP does not answer within {timeout_s:g} s."
    )
