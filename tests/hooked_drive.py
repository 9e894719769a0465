"""A drive that tells every call to a hook, which may count it, refuse it, or cut the process off.

The hook is called twice, before the call and after it took effect, so a test decides whether a
process died before or after, or only lost the answer. An upload is many calls: one for each file,
and a cut in the middle of it leaves a file half-written, as a real one does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal, TypeVar

from ludwig import errors
from ludwig.drive import Drive, Entry, Progress, Usage, Watch
from ludwig.drives.trees import local_files

__all__ = ["Count", "Cut", "CutAt", "Hook", "HookedDrive", "Moment"]

T = TypeVar("T")
Moment = Literal["before", "after"]
Hook = Callable[[str, str, Moment], None]


class Cut(BaseException):
    """The process ends here. Not an `Exception`: nothing may catch it and go on."""


class CutAt:
    """Raises at the n-th call (from 1), before or after it took effect; counts all of them."""

    def __init__(self, n: int, moment: Moment, error: BaseException | None = None) -> None:
        self.n, self.moment, self.error = n, moment, error or Cut()
        self.calls = 0
        self.last = ""

    def __call__(self, name: str, path: str, moment: Moment) -> None:
        if moment == "before":
            self.calls += 1
        if self.calls == self.n and moment == self.moment:
            self.last = f"{moment} {name} {path}"
            raise self.error


class Count:
    """How often each method was called."""

    def __init__(self) -> None:
        self.calls: dict[str, int] = {}

    def __call__(self, name: str, path: str, moment: Moment) -> None:
        if moment == "before":
            self.calls[name] = self.calls.get(name, 0) + 1

    @property
    def total(self) -> int:
        return sum(self.calls.values())


def _nothing(name: str, path: str, moment: Moment) -> None:
    return None


class HookedDrive(Drive):
    """Every call goes to `inner`, and to `hook` before and after."""

    def __init__(self, inner: Drive, hook: Hook = _nothing) -> None:
        self.inner = inner
        self.hook: Hook = hook

    def unhook(self) -> None:
        self.hook = _nothing

    def _call(self, name: str, path: str, action: Callable[[], T]) -> T:
        self.hook(name, path, "before")
        try:
            result = action()
        except errors.DriveError:
            self.hook(name, path, "after")
            raise
        self.hook(name, path, "after")
        return result

    @property
    def where(self) -> str:
        return self.inner.where

    @property
    def mount(self) -> Path | None:
        return self.inner.mount

    def create(self, path: str, data: bytes) -> None:
        self._call("create", path, lambda: self.inner.create(path, data))

    def publish(self, path: str, data: bytes) -> None:
        self._call("publish", path, lambda: self.inner.publish(path, data))

    def append(self, path: str, data: bytes, *, at: int) -> None:
        self._call("append", path, lambda: self.inner.append(path, data, at=at))

    def replace(self, path: str, data: bytes) -> None:
        self._call("replace", path, lambda: self.inner.replace(path, data))

    def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        return self._call("read", path, lambda: self.inner.read(path, offset=offset, limit=limit))

    def scan(self, path: str) -> list[Entry]:
        return self._call("scan", path, lambda: self.inner.scan(path))

    def list(self, path: str) -> list[str]:
        return self._call("list", path, lambda: self.inner.list(path))

    def exists(self, path: str) -> bool:
        return self._call("exists", path, lambda: self.inner.exists(path))

    def mkdir(self, path: str) -> None:
        self._call("mkdir", path, lambda: self.inner.mkdir(path))

    def make_folders(self, *paths: str) -> None:
        for path in paths:  # one may be made, and the next not
            self._call("make_folders", path, lambda p=path: self.inner.make_folders(p))  # type: ignore[misc]

    def move(self, source: str, target: str) -> None:
        self._call("move", source, lambda: self.inner.move(source, target))

    def remove(self, path: str) -> None:
        self._call("remove", path, lambda: self.inner.remove(path))

    def remove_folder(self, path: str) -> None:
        self._call("remove_folder", path, lambda: self.inner.remove_folder(path))

    def watch(self, path: str) -> Watch:
        return self.inner.watch(path)

    def usage(self) -> Usage:
        return self.inner.usage()

    def upload(
        self,
        tree: Path,
        path: str,
        *,
        files: Sequence[str] | None = None,
        progress: Progress | None = None,
        skip_same: bool = False,
    ) -> None:
        self._call("upload", path, lambda: self.inner.upload(tree, path, files=[]))
        for name in files if files is not None else local_files(tree):
            target = f"{path}/{name}"
            if not skip_same:
                folder = target.rpartition("/")[0]
                self._call("upload", folder, lambda f=folder: self.inner.make_folders(f))  # type: ignore[misc]
                half = (tree / name).read_bytes()[: (tree / name).stat().st_size // 2]
                self._call("upload", target, lambda t=target, h=half: self.inner.replace(t, h))  # type: ignore[misc]
            self._call(
                "upload",
                target,
                lambda n=name: self.inner.upload(  # type: ignore[misc]
                    tree, path, files=[n], progress=progress, skip_same=skip_same
                ),
            )

    def download(
        self,
        path: str,
        tree: Path,
        *,
        files: Iterable[str] | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._call(
            "download",
            path,
            lambda: self.inner.download(path, tree, files=files, progress=progress),
        )

    def close(self) -> None:
        self.inner.close()
