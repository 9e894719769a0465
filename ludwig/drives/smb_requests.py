"""What all operations of an SMB drive have in common: names, trying again, errors, whole files.

A request that finds its connection gone is made once more on a new one, if that is harmless.
Something that somebody else has in hand is tried again for a moment. Then the caller is told, in
our own errors.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from ludwig import errors
from ludwig.drives import smb_status as status
from ludwig.drives import smb_wire as wire
from ludwig.drives.smb_channel import Channel, Lost, TimedOut
from ludwig.drives.smb_session import Pool, Server
from ludwig.drives.smb_status import StatusError, as_drive_error
from ludwig.layout import TEMPORARY

__all__ = ["PATIENCE_S", "Requests", "check", "succeeded"]

T = TypeVar("T")

PATIENCE_S = (0.005, 0.02, 0.05, 0.1, 0.2, 0.4)
"""Pauses between tries at something that somebody else has in hand."""

_FORBIDDEN = re.compile(r'[\x00-\x1f\\:?*|<>"]')
_READ_ONLY_VOLUME = 0x00080000
_AHEAD = 8  # requests under way at a time when a long file is read


def succeeded(answer: wire.Answer) -> wire.Answer:
    if answer.status != status.SUCCESS:
        raise StatusError(answer.status)
    return answer


def check(answers: Sequence[wire.Answer]) -> None:
    """Raise for the first that failed."""
    for answer in answers:
        succeeded(answer)


class Requests:
    def __init__(self, server: Server, folder: str) -> None:
        self._server = server
        self.pool = Pool(server)
        self.folder = folder.strip("/")
        self.timeout_s = server.timeout_s

    @property
    def where(self) -> str:
        host = f"[{self._server.host}]" if ":" in self._server.host else self._server.host
        port = "" if self._server.port == 445 else f":{self._server.port}"
        folder = f"/{self.folder}" if self.folder else ""
        return f"smb://{host}{port}/{self._server.share}{folder}"

    def name(self, path: str) -> str:
        """A path as the server spells it, after making sure that it stays on the drive."""
        parts = path.split("/") if path else []
        for part in parts:
            if part in ("", ".", "..") or part[-1] in ". " or _FORBIDDEN.search(part):
                raise errors.NameNotAllowed(f"{path!r} is not a path that an SMB share can store.")
        if self.folder:
            parts = self.folder.split("/") + parts
        return "\\".join(parts)

    def temporary_beside(self, path: str) -> str:
        folder, _, _ = path.rpartition("/")
        return f"{folder}/{TEMPORARY}{secrets.token_hex(8)}".lstrip("/")

    def run(
        self,
        doing: str,
        path: str,
        work: Callable[[Channel], T],
        *,
        again: bool = True,
        gone: bool = False,
    ) -> T:
        """Do `work` on a connection.

        `again`: it may be repeated when the connection is lost. `gone`: what is being removed
        counts as not there.
        """
        pauses = iter(PATIENCE_S)
        tries = 2 if again else 1
        while True:
            try:
                with self.pool.lend() as channel:
                    return work(channel)
            except TimedOut as error:
                raise errors.DriveTimeout(
                    doing, path, f"{self.where}: {error}; it may have happened all the same"
                ) from None
            except (Lost, struct.error) as error:
                tries -= 1
                if not tries:
                    reason = f"{self.where} cannot be reached just now ({error})"
                    raise errors.DriveAway(doing, path, reason) from None
            except StatusError as error:
                if error.status in status.SESSION_OVER and tries > 1:
                    tries -= 1
                    self.pool.close()
                    continue
                if gone and error.status == status.DELETE_PENDING:
                    raise errors.NotFound(doing, path) from None
                if error.status in status.BUSY and (pause := next(pauses, None)) is not None:
                    time.sleep(pause)
                    continue
                raise self.explain(error.status, doing, path) from error
            except errors.BadCredentials as error:
                self._server.credentials.refused()
                raise errors.BadCredentials(doing, path, error.reason) from None
            except errors.DriveRefused as error:
                if error.path or not error.doing.startswith("logging in"):
                    raise
                raise type(error)(doing, path, error.reason) from None

    def explain(self, found: int, doing: str, path: str) -> errors.DriveError:
        error = as_drive_error(found, doing, path)
        if isinstance(error, errors.BadCredentials):
            self._server.credentials.refused()
            user = self._server.credentials.user
            return errors.BadCredentials(
                doing,
                path,
                f"{self.where} does not accept user {user!r} with this password. It comes from "
                "LUDWIG_SMB_PASSWORD, else from the keyring, else it is asked for.",
            )
        if found == status.PATH_NOT_FOUND and self._file_above(path):
            return errors.WrongKind(doing, path, "a file is where a folder should be above it")
        if found == status.ACCESS_DENIED and self._is_read_only():
            return errors.DriveReadOnly(doing, path)
        return error

    def _file_above(self, path: str) -> bool:
        """Whether some parent of a path is a file; servers say only that it is not found."""
        with contextlib.suppress(StatusError, Lost), self.pool.lend() as channel:
            while path := path.rpartition("/")[0]:
                opening = wire.create(self.name(path), wire.READ_ATTRIBUTES, wire.OPEN, 0)
                answer = self.ask(channel, opening, wire.close())[0]
                if answer.status == status.SUCCESS:
                    return not answer.created().is_folder
        return False

    def _is_read_only(self) -> bool:
        opening = wire.create("", wire.READ_ATTRIBUTES, wire.OPEN, wire.IS_FOLDER)
        with contextlib.suppress(StatusError, Lost), self.pool.lend() as channel:
            answers = self.ask(channel, opening, wire.query_fs(wire.FS_ATTRIBUTES), wire.close())
            return bool(wire.fs_attributes(succeeded(answers[1]).buffer()) & _READ_ONLY_VOLUME)
        return False

    def ask(self, channel: Channel, *messages: wire.Message) -> list[wire.Answer]:
        return channel.exchange(*messages, timeout=self.timeout_s)

    def open(self, channel: Channel, opening: wire.Message) -> bytes:
        return succeeded(self.ask(channel, opening)[0]).created().file

    def write_new(self, channel: Channel, name: str, data: bytes) -> None:
        """Exclusively create a file. If it cannot be written whole it is removed again."""
        access = wire.WRITE_DATA | wire.DELETE
        opening = wire.create(name, access, wire.CREATE_NEW, wire.IS_FILE)
        if len(data) > channel.max_write:
            file = self.open(channel, opening)
            self._write_or_remove(channel, file, data)
            check(self.ask(channel, wire.close(file)))
            return
        answers = self.ask(channel, opening, wire.write(data, 0), wire.close())
        if answers[0].status == status.FILE_IS_A_DIRECTORY:
            raise StatusError(status.NAME_COLLISION)
        check(answers[:1])
        if (trouble := _not_written(answers[1], len(data))) is not None:
            options = wire.IS_FILE | wire.DELETE_ON_CLOSE
            self.ask(channel, wire.create(name, wire.DELETE, wire.OPEN, options), wire.close())
            raise trouble

    def write_temporary(self, channel: Channel, name: str, data: bytes) -> bytes:
        """Write a file that nobody looks at, durably, and leave it open."""
        access = wire.WRITE_DATA | wire.DELETE | wire.READ_ATTRIBUTES | wire.WRITE_ATTRIBUTES
        opening = wire.create(name, access, wire.CREATE_NEW, wire.IS_FILE)
        if len(data) > channel.max_write:
            file = self.open(channel, opening)
            self._write_or_remove(channel, file, data)
            check(self.ask(channel, wire.flush(file)))
            return file
        answers = self.ask(channel, opening, wire.write(data, 0), wire.flush())
        file = succeeded(answers[0]).created().file
        trouble = _not_written(answers[1], len(data))
        if trouble is None and answers[2].status != status.SUCCESS:
            trouble = StatusError(answers[2].status)
        if trouble is not None:
            self.ask(channel, wire.mark_for_removal(file), wire.close(file))
            raise trouble
        return file

    def _write_or_remove(self, channel: Channel, file: bytes, data: bytes) -> None:
        try:
            self.write_all(channel, file, data)
        except StatusError:
            self.ask(channel, wire.mark_for_removal(file), wire.close(file))
            raise

    def write_all(self, channel: Channel, file: bytes, data: bytes, *, at: int = 0) -> None:
        """Write to an open file, several requests under way at a time."""
        view, size = memoryview(data), channel.max_write
        starts = range(0, len(data), size)
        requests = ((wire.write(view[i : i + size], at + i, file),) for i in starts)
        trouble: StatusError | None = None
        answers = channel.pipeline(requests, timeout=self.timeout_s)
        for start, (answer,) in zip(starts, answers, strict=True):
            trouble = trouble or _not_written(answer, min(size, len(data) - start))
        if trouble is not None:
            raise trouble

    def read_parts(
        self, channel: Channel, file: bytes, at: int, limit: int | None
    ) -> Iterator[bytes]:
        """The rest of an open file, or `limit` bytes of it, several requests under way at once."""
        size, left, short = channel.max_read, limit, False
        while not short and left != 0:
            many = _AHEAD if left is None else min(_AHEAD, -(-left // size))
            requests = [(wire.read(size, at + i * size, file),) for i in range(many)]
            for (answer,) in channel.pipeline(requests, timeout=self.timeout_s):
                part = b"" if answer.status == status.END_OF_FILE else succeeded(answer).data()
                short = short or len(part) < size
                part = part if left is None else part[:left]
                left = None if left is None else left - len(part)
                if part:
                    yield part
            at += many * size

    def listing(self, path: str) -> list[wire.NameInfo]:
        return [
            info
            for buffer in self._directory(path, wire.DIRECTORY_INFORMATION)
            for info in wire.directory_entries(buffer)
            if info.name not in (".", "..")
        ]

    def names(self, path: str) -> list[str]:
        return [
            name
            for buffer in self._directory(path, wire.NAMES_INFORMATION)
            for name in wire.directory_names(buffer)
            if name not in (".", "..")
        ]

    def _directory(self, path: str, kind: int) -> list[bytes]:
        opening = wire.create(self.name(path), wire.READ_DATA, wire.OPEN, wire.IS_FOLDER)

        def work(channel: Channel) -> list[bytes]:
            size = channel.max_read
            # The second query only has to say "no more": then all came in one round trip.
            asked = (wire.query_directory(kind, size), wire.query_directory(kind, 1 << 16))
            answers = self.ask(channel, opening, *asked, wire.close())
            check(answers[:1])
            if answers[1].status in (status.NO_MORE_FILES, status.NO_SUCH_FILE):
                return []
            if answers[2].status == status.NO_MORE_FILES:
                return [succeeded(answers[1]).buffer()]
            file = self.open(channel, opening)
            buffers = []
            while True:
                (answer,) = self.ask(channel, wire.query_directory(kind, size, file))
                if answer.status in (status.NO_MORE_FILES, status.NO_SUCH_FILE):
                    break
                buffers.append(succeeded(answer).buffer())
            self.ask(channel, wire.close(file))
            return buffers

        return self.run("listing", path, work, gone=True)


def _not_written(answer: wire.Answer, size: int) -> StatusError | None:
    if answer.status != status.SUCCESS:
        return StatusError(answer.status)
    return None if answer.written() == size else StatusError(status.DISK_FULL)
