"""Trees of files to and from an SMB drive.

Small files go many at a time without waiting for each other's answers; long ones in parts, several
under way at a time. So a slow network costs its latency once for a batch, not once for a file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from ludwig import errors
from ludwig.drive import Drive, Progress
from ludwig.drives import smb_status as status
from ludwig.drives import smb_wire as wire
from ludwig.drives.smb_channel import Channel
from ludwig.drives.smb_requests import Requests, check, succeeded
from ludwig.drives.smb_status import StatusError
from ludwig.drives.trees import join, local_files, same_time
from ludwig.layout import TEMPORARY

__all__ = ["Trees"]

_SMALL = 1 << 16
_BATCH_FILES, _BATCH_BYTES = 64, 2 << 20
_WRITING = wire.WRITE_DATA | wire.READ_ATTRIBUTES | wire.WRITE_ATTRIBUTES | wire.DELETE


class _File(NamedTuple):
    name: str  # relative to the tree
    target: str  # on the drive
    data: bytes
    modified: float


class Trees:
    def __init__(self, requests: Requests, drive: Drive) -> None:
        self._requests = requests
        self._drive = drive

    def upload(
        self,
        tree: Path,
        path: str,
        *,
        files: Sequence[str] | None,
        progress: Progress | None,
        skip_same: bool,
    ) -> None:
        there = {path: self._enter(path, look=skip_same)}
        batch: list[_File] = []
        for name in files if files is not None else local_files(tree):
            target = join(path, name)
            self._requests.name(target)  # refuses what must not be a path
            folder = target.rpartition("/")[0]
            if folder not in there:
                there[folder] = self._enter(folder, look=skip_same)
            source = tree / name
            with _local(target):
                facts = source.stat()
            size, modified = there[folder].get(target.rpartition("/")[2], (-1, 0.0))
            if size == facts.st_size and same_time(modified, facts.st_mtime):
                if progress is not None:
                    progress(name, size)
            elif facts.st_size > _SMALL:
                self._send_long(source, name, target, whole=skip_same, progress=progress)
            else:
                with _local(target):
                    batch.append(_File(name, target, source.read_bytes(), facts.st_mtime))
                held = sum(len(file.data) for file in batch)
                if len(batch) == _BATCH_FILES or held >= _BATCH_BYTES:
                    self._send_batch(batch, whole=skip_same, progress=progress)
                    batch = []
        self._send_batch(batch, whole=skip_same, progress=progress)

    def _enter(self, folder: str, *, look: bool) -> dict[str, tuple[int, float]]:
        """Make a folder; with `look`, the size and time of each file in it."""
        self._drive.make_folders(folder)
        if not look:
            return {}
        entries = self._drive.scan(folder)
        return {e.name: (e.size, e.modified) for e in entries if not e.is_folder}

    def _send_batch(
        self, batch: Sequence[_File], *, whole: bool, progress: Progress | None
    ) -> None:
        if not batch:
            return

        def work(channel: Channel) -> list[int]:
            if not whole:
                return self._first_trouble(
                    channel,
                    (
                        (
                            self._opening(file.target, wire.OVERWRITE_IF),
                            wire.write(file.data, 0),
                            wire.close(),
                        )
                        for file in batch
                    ),
                )
            temporaries = [self._requests.temporary_beside(file.target) for file in batch]
            written = self._first_trouble(
                channel,
                (
                    (
                        self._opening(temporary, wire.CREATE_NEW),
                        wire.write(file.data, 0),
                        wire.basic_times(file.modified),
                        wire.close(),
                    )
                    for file, temporary in zip(batch, temporaries, strict=True)
                ),
            )
            # Only what is known to be whole gets its name.
            named = self._first_trouble(
                channel,
                (
                    (
                        self._opening(temporary, wire.OPEN),
                        wire.rename(self._requests.name(file.target), replace=True)
                        if trouble == status.SUCCESS
                        else wire.mark_for_removal(),
                        wire.close(),
                    )
                    for file, temporary, trouble in zip(batch, temporaries, written, strict=True)
                ),
            )
            left = [t for t, trouble in zip(temporaries, named, strict=True) if trouble]
            self._first_trouble(
                channel,
                (
                    (self._opening(t, wire.OPEN), wire.mark_for_removal(), wire.close())
                    for t in left
                ),
            )
            return [one or other for one, other in zip(written, named, strict=True)]

        for file, trouble in zip(
            batch, self._requests.run("uploading", batch[0].target, work), strict=True
        ):
            if trouble != status.SUCCESS:
                raise self._requests.explain(trouble, "uploading", file.target)
            if progress is not None:
                progress(file.name, len(file.data))

    def _opening(self, path: str, disposition: int) -> wire.Message:
        return wire.create(self._requests.name(path), _WRITING, disposition, wire.IS_FILE)

    def _first_trouble(
        self, channel: Channel, compounds: Iterable[Sequence[wire.Message]]
    ) -> list[int]:
        """For each compound the first status in it that is not success, or success."""
        return [
            next((a.status for a in answers if a.status != status.SUCCESS), status.SUCCESS)
            for answers in channel.pipeline(compounds, timeout=self._requests.timeout_s)
        ]

    def _send_long(
        self, source: Path, name: str, target: str, *, whole: bool, progress: Progress | None
    ) -> None:
        count = _Count(name, progress)
        ask, named = self._requests.ask, self._requests.name(target)

        def work(channel: Channel) -> None:
            count.again()
            if whole:
                temporary = self._requests.temporary_beside(target)
                file = self._requests.open(channel, self._opening(temporary, wire.CREATE_NEW))
            else:
                file = self._requests.open(channel, self._opening(target, wire.OVERWRITE_IF))
            try:
                with _local(target), source.open("rb") as content:
                    sizes: list[int] = []
                    parts = _parts(content, channel.max_write, file, sizes)
                    answers = channel.pipeline(parts, timeout=self._requests.timeout_s)
                    for number, (answer,) in enumerate(answers):
                        if succeeded(answer).written() != sizes[number]:
                            raise StatusError(status.DISK_FULL)
                        count.add(sizes[number])
                    modified = source.stat().st_mtime
                if whole:
                    check(ask(channel, wire.basic_times(modified, file)))
                    check(ask(channel, wire.rename(named, replace=True, file=file)))
            except (StatusError, errors.DriveError):
                if whole and channel.alive:
                    ask(channel, wire.mark_for_removal(file))
                if channel.alive:
                    ask(channel, wire.close(file))
                raise
            ask(channel, wire.close(file))

        self._requests.run("uploading", target, work)

    def download(
        self,
        path: str,
        tree: Path,
        *,
        files: Iterable[str] | None,
        progress: Progress | None,
    ) -> None:
        with _local(path):
            tree.mkdir(parents=True, exist_ok=True)
        names = iter(files if files is not None else self._files_below(path, ""))
        made: set[Path] = set()
        while batch := list(islice(names, _BATCH_FILES)):
            for name, size in self._fetch_batch(path, tree, batch, made):
                if size < 0:
                    self._fetch_long(join(path, name), tree / name, name, progress)
                elif progress is not None:
                    progress(name, size)

    def _files_below(self, path: str, below: str) -> Iterator[str]:
        for info in self._requests.listing(join(path, below) if below else path):
            name = join(below, info.name)
            if info.is_link or info.name.startswith(TEMPORARY):
                continue
            if info.is_folder:
                yield from self._files_below(path, name)
            else:
                yield name

    def _fetch_batch(
        self, path: str, tree: Path, names: Sequence[str], made: set[Path]
    ) -> list[tuple[str, int]]:
        """(name, bytes) for each; -1 bytes: it is long, and still to be fetched."""
        paths = [join(path, name) for name in names]
        for name in names:
            self._requests.name(name)  # refuses what must not be a path, there or here
        compounds = [
            (
                wire.create(self._requests.name(p), wire.READ_DATA, wire.OPEN, wire.IS_FILE),
                wire.read(_SMALL, 0),
                wire.close(),
            )
            for p in paths
        ]

        def work(channel: Channel) -> list[list[wire.Answer]]:
            return list(channel.pipeline(compounds, timeout=self._requests.timeout_s))

        results = []
        answers = self._requests.run("downloading", paths[0], work)
        for name, target, (opened, content, _) in zip(names, paths, answers, strict=True):
            if opened.status != status.SUCCESS:
                raise self._requests.explain(opened.status, "downloading", target)
            if content.status not in (status.SUCCESS, status.END_OF_FILE):
                raise self._requests.explain(content.status, "downloading", target)
            data = content.data() if content.status == status.SUCCESS else b""
            local = tree / name
            with _local(target):
                if local.parent not in made:
                    local.parent.mkdir(parents=True, exist_ok=True)
                    made.add(local.parent)
                if len(data) < _SMALL:
                    local.write_bytes(data)
            results.append((name, len(data) if len(data) < _SMALL else -1))
        return results

    def _fetch_long(self, path: str, local: Path, name: str, progress: Progress | None) -> None:
        count = _Count(name, progress)
        opening = wire.create(self._requests.name(path), wire.READ_DATA, wire.OPEN, wire.IS_FILE)

        def work(channel: Channel) -> None:
            count.again()
            file = self._requests.open(channel, opening)
            with _local(path), local.open("wb") as content:
                for part in self._requests.read_parts(channel, file, 0, None):
                    content.write(part)
                    count.add(len(part))
            self._requests.ask(channel, wire.close(file))

        self._requests.run("downloading", path, work)


class _Count:
    """Tells of progress with one long file, once for each byte however often it is begun."""

    def __init__(self, name: str, progress: Progress | None) -> None:
        self._name, self._progress = name, progress
        self._told = self._done = 0

    def again(self) -> None:
        self._done = 0

    def add(self, size: int) -> None:
        self._done += size
        if self._progress is not None and self._done > self._told:
            self._progress(self._name, self._done - self._told)
            self._told = self._done


def _parts(
    content: object, size: int, file: bytes, sizes: list[int]
) -> Iterator[tuple[wire.Message]]:
    at = 0
    while part := content.read(size):  # type: ignore[attr-defined]
        sizes.append(len(part))
        yield (wire.write(part, at, file),)
        at += len(part)


@contextlib.contextmanager
def _local(path: str) -> Iterator[None]:
    """What goes wrong with files on this machine, said so that nobody blames the drive."""
    try:
        yield
    except OSError as error:
        reason = f"on this machine, {error.filename or 'a file'}: {error.strerror}"
        raise errors.DriveRefused("copying", path, reason) from error
