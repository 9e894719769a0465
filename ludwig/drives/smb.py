"""A drive that is an SMB share, spoken to directly.

Each operation is one compound request where that is safe, so it costs one round trip; `publish`
costs two, because the link must not be made before the write is known to be whole. What happens
when a connection is lost half-way is in `smb_requests.py`.
"""

from __future__ import annotations

import builtins
import contextlib
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from ludwig import errors
from ludwig.drive import Drive, Entry, Progress, Usage, Watch
from ludwig.drives import smb_status as status
from ludwig.drives import smb_wire as wire
from ludwig.drives.credentials import Credentials
from ludwig.drives.smb_channel import Channel
from ludwig.drives.smb_many import read_many
from ludwig.drives.smb_requests import PATIENCE_S, Requests, check, succeeded
from ludwig.drives.smb_session import Server
from ludwig.drives.smb_status import StatusError
from ludwig.drives.smb_trees import Trees
from ludwig.drives.smb_watch import Hub
from ludwig.layout import TEMPORARY

__all__ = ["SmbDrive"]

_FIRST_READ = 1 << 16
_NO_HARD_LINKS = {
    status.NOT_SUPPORTED,
    0xC0000010,  # invalid device request
    0xC0000003,  # invalid info class
}


class SmbDrive(Drive):
    """`timeout_s` is the deadline of every single request, connecting included."""

    def __init__(
        self,
        host: str,
        share: str,
        *,
        credentials: Credentials,
        port: int = 445,
        folder: str = "",
        encrypt: bool = False,
        timeout_s: float = 15.0,
        mount: Path | None = None,
    ) -> None:
        server = Server(
            host, share, port=port, credentials=credentials, encrypt=encrypt, timeout_s=timeout_s
        )
        self._requests = Requests(server, folder)
        self._hub = Hub(server)
        self._mount = mount

    @property
    def where(self) -> str:
        return self._requests.where

    def __repr__(self) -> str:
        return f"SmbDrive({self.where!r})"

    @property
    def mount(self) -> Path | None:
        return self._mount

    def create(self, path: str, data: bytes) -> None:
        name = self._requests.name(path)
        try:
            self._requests.run(
                "creating", path, lambda channel: self._requests.write_new(channel, name, data)
            )
        except errors.Exists:
            if not self._holds(path, data):
                raise

    def publish(self, path: str, data: bytes) -> None:
        name = self._requests.name(path)

        def work(channel: Channel) -> None:
            # Named anew each time: that of a try whose answer was lost may still be there.
            temporary = self._requests.name(self._requests.temporary_beside(path))
            file = self._requests.write_temporary(channel, temporary, data)
            answers = self._requests.ask(
                channel, wire.link(name, file), wire.mark_for_removal(file), wire.close(file)
            )
            check(answers[:1])

        try:
            self._requests.run("publishing", path, work)
        except errors.Exists:
            if not self._holds(path, data):
                raise
        except errors.DriveRefused as error:
            if isinstance(error.__cause__, StatusError) and error.__cause__.status in (
                status.NOT_SUPPORTED,
                0xC0000010,  # invalid device request
                0xC0000003,  # invalid info class
            ):
                raise errors.NotAtomic("publishing", path) from error
            raise

    def append(self, path: str, data: bytes, *, at: int) -> None:
        opening = wire.create(
            self._requests.name(path), wire.WRITE_DATA, wire.OPEN_IF, wire.IS_FILE
        )

        def work(channel: Channel) -> None:
            if len(data) <= channel.max_write:
                check(self._requests.ask(channel, opening, wire.write(data, at), wire.close()))
            else:
                file = self._requests.open(channel, opening)
                self._requests.write_all(channel, file, data, at=at)
                self._requests.ask(channel, wire.close(file))

        self._requests.run("appending to", path, work)

    def replace(self, path: str, data: bytes) -> None:
        name = self._requests.name(path)

        def work(channel: Channel) -> None:
            # Named anew each time: that of a try whose answer was lost may still be there.
            temporary = self._requests.name(self._requests.temporary_beside(path))
            file = self._requests.write_temporary(channel, temporary, data)
            for pause in (*PATIENCE_S, None):
                renamed = self._requests.ask(channel, wire.rename(name, replace=True, file=file))[0]
                if renamed.status == status.SUCCESS:
                    self._requests.ask(channel, wire.close(file))
                    return
                # Samba's word for "somebody is reading it".
                if pause is None or renamed.status not in (*status.BUSY, status.ACCESS_DENIED):
                    break
                time.sleep(pause)
            self._requests.ask(channel, wire.mark_for_removal(file), wire.close(file))
            if renamed.status == status.ACCESS_DENIED:
                raise StatusError(status.SHARING_VIOLATION)
            raise StatusError(renamed.status)

        self._requests.run("writing", path, work)

    def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        opening = wire.create(self._requests.name(path), wire.READ_DATA, wire.OPEN, wire.IS_FILE)

        def work(channel: Channel) -> bytes:
            first = _FIRST_READ if limit is None else min(limit, channel.max_read)
            answers = self._requests.ask(channel, opening, wire.read(first, offset), wire.close())
            check(answers[:1])
            data = b"" if answers[1].status == status.END_OF_FILE else succeeded(answers[1]).data()
            if len(data) < first or len(data) == limit:
                return data
            # From the start: it may have been replaced since, and half of each is neither.
            file = self._requests.open(channel, opening)
            parts = [*self._requests.read_parts(channel, file, offset, limit)]
            self._requests.ask(channel, wire.close(file))
            return b"".join(parts)

        return self._requests.run("reading", path, work, gone=True)

    def read_many(self, paths: Sequence[str]) -> builtins.list[bytes | errors.LudwigError]:
        """Each file's bytes, or its error; many requests under way at a time."""
        return read_many(self._requests, paths, self.read)

    def list(self, path: str) -> builtins.list[str]:
        return [n for n in self._requests.names(path) if not n.startswith(TEMPORARY)]

    def scan(self, path: str) -> builtins.list[Entry]:
        return [
            Entry(info.name, info.is_folder, info.size, info.modified)
            for info in self._requests.listing(path)
            if not info.name.startswith(TEMPORARY)
        ]

    def exists(self, path: str) -> bool:
        opening = wire.create(
            self._requests.name(path), wire.READ_ATTRIBUTES, wire.OPEN, wire.OPEN_LINK_ITSELF
        )

        def work(channel: Channel) -> bool:
            found = self._requests.ask(channel, opening, wire.close())[0].status
            if found not in (*status.GONE, status.NOT_A_DIRECTORY, status.SUCCESS):
                raise StatusError(found)
            return found == status.SUCCESS

        return self._requests.run("looking for", path, work)

    def mkdir(self, path: str) -> None:
        opening = self._folder(path, wire.CREATE_NEW)
        # Not repeated when the answer is lost: there are no bytes by which to know our own.
        self._requests.run(
            "making folder",
            path,
            lambda c: check(self._requests.ask(c, opening, wire.close())),
            again=False,
        )

    def _folder(self, path: str, disposition: int) -> wire.Message:
        return wire.create(
            self._requests.name(path),
            wire.READ_ATTRIBUTES,
            disposition,
            wire.IS_FOLDER,
            wire.ATTRIBUTE_FOLDER,
        )

    def make_folders(self, *paths: str) -> None:
        """All in one round trip, unless something above them is missing."""
        paths = tuple(filter(None, paths))
        compounds = [(self._folder(path, wire.OPEN_IF), wire.close()) for path in paths]

        def work(channel: Channel) -> builtins.list[int]:
            answers = channel.pipeline(compounds, timeout=self._requests.timeout_s)
            found = [opened.status for opened, _ in answers]
            for one in found:
                if one not in (status.SUCCESS, status.PATH_NOT_FOUND, status.NOT_A_DIRECTORY):
                    raise StatusError(one)
            return found

        if not paths:
            return
        for path, found in zip(
            paths, self._requests.run("making folder", paths[-1], work), strict=True
        ):
            if found == status.NOT_A_DIRECTORY:
                raise errors.WrongKind("making folder", path, "a file has that name")
            if found == status.PATH_NOT_FOUND:
                self._make_above(path)
                self.make_folders(path)

    def _make_above(self, path: str) -> None:
        parent = path.rpartition("/")[0]
        if not parent:
            reason = f"the share has no folder {self._requests.folder!r}"
            raise errors.NoSuchShare("making folder", path, reason)
        self.make_folders(parent)

    def move(self, source: str, target: str) -> None:
        opening = wire.create(
            self._requests.name(source),
            wire.DELETE | wire.READ_ATTRIBUTES,
            wire.OPEN,
            wire.IS_FOLDER,
        )
        renaming = wire.rename(self._requests.name(target), replace=False)
        try:
            self._requests.run(
                "moving",
                source,
                lambda channel: check(self._requests.ask(channel, opening, renaming, wire.close())),
                again=False,
            )
        except errors.Exists:
            raise errors.Exists("moving", target) from None

    def remove(self, path: str) -> None:
        opening = self._for_removal(path, wire.IS_FILE)

        def work(channel: Channel) -> None:
            if trouble := _not_removed(self._requests.ask(channel, opening, wire.close())):
                raise StatusError(trouble)

        self._requests.run("removing", path, work)

    def _for_removal(self, path: str, kind: int) -> wire.Message:
        options = kind | wire.DELETE_ON_CLOSE | wire.OPEN_LINK_ITSELF
        return wire.create(self._requests.name(path), wire.DELETE, wire.OPEN, options)

    def remove_folder(self, path: str) -> None:
        # Most often it is empty, and that is known soonest by trying.
        for pause in (0.0, *PATIENCE_S, None):  # somebody may add to it at the same time
            try:
                self._requests.run("removing", path, lambda c: self._remove_empty(c, path))
                return
            except errors.NotFound:
                return
            except errors.DriveRefused as error:
                cause = error.__cause__
                busy = isinstance(cause, StatusError) and cause.status == status.DIRECTORY_NOT_EMPTY
                if pause is None or not busy:
                    raise
            time.sleep(pause)
            with contextlib.suppress(errors.NotFound):
                self._remove_below(path)

    def _remove_below(self, path: str) -> None:
        infos = self._requests.listing(path)
        folders = [i for i in infos if i.is_folder and not i.is_link]
        for info in folders:
            self._remove_below(f"{path}/{info.name}")

        def work(channel: Channel) -> None:
            compounds = [
                (
                    self._for_removal(
                        f"{path}/{i.name}", wire.IS_FOLDER if i.is_folder else wire.IS_FILE
                    ),
                    wire.close(),
                )
                for i in infos
            ]
            worst = status.SUCCESS
            for answers in channel.pipeline(compounds, timeout=self._requests.timeout_s):
                worst = _not_removed(answers) or worst
            if worst != status.SUCCESS:
                raise StatusError(worst)

        self._requests.run("removing", path, work)

    def _remove_empty(self, channel: Channel, path: str) -> None:
        opening = wire.create(self._requests.name(path), wire.DELETE, wire.OPEN, wire.IS_FOLDER)
        # By disposition, not by delete-on-close: only the former says that it is not empty.
        check(self._requests.ask(channel, opening, wire.mark_for_removal(), wire.close()))

    def _holds(self, path: str, data: bytes) -> bool:
        """Whether a file that is in the way is our own, from a call whose answer was lost."""
        try:
            return self.read(path, limit=len(data) + 1) == data
        except (errors.NotFound, errors.WrongKind, errors.NoPermission):
            return False

    def watch(self, path: str) -> Watch:
        return self._hub.watch(self._requests.name(path))

    def usage(self) -> Usage:
        opening = wire.create(
            self._requests.name(""), wire.READ_ATTRIBUTES, wire.OPEN, wire.IS_FOLDER
        )

        def work(channel: Channel) -> Usage:
            answers = self._requests.ask(
                channel, opening, wire.query_fs(wire.FS_FULL_SIZE), wire.close()
            )
            check(answers)
            return Usage(*wire.fs_size(answers[1].buffer()))

        return self._requests.run("measuring", "", work)

    def upload(
        self,
        tree: Path,
        path: str,
        *,
        files: Sequence[str] | None = None,
        progress: Progress | None = None,
        skip_same: bool = False,
    ) -> None:
        Trees(self._requests, self).upload(
            tree, path, files=files, progress=progress, skip_same=skip_same
        )

    def download(
        self,
        path: str,
        tree: Path,
        *,
        files: Iterable[str] | None = None,
        progress: Progress | None = None,
    ) -> None:
        Trees(self._requests, self).download(path, tree, files=files, progress=progress)

    def close(self) -> None:
        self._requests.pool.close()
        self._hub.close()


def _not_removed(answers: Sequence[wire.Answer]) -> int:
    """What kept something from being removed, if anything; some say it only when it is closed."""
    for answer in answers:
        if answer.status in status.GONE:
            break
        if answer.status != status.SUCCESS:
            return answer.status
    return status.SUCCESS
