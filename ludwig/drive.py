"""The one seam to storage.

A `Drive` is the lab's shared drive: a mounted folder (`drives/folder.py`) or an SMB share spoken to
directly (`drives/smb.py`). Paths are relative, with forward slashes, in the spelling of
`layout.py`; `""` is the drive itself. A drive knows nothing of jobs and tasks.

Every method raises `DriveError`s only: `DriveAway` when trying again may help, `DriveRefused` when
it will not. **After `DriveAway` the operation may have happened**: look before you conclude.
`create` and `publish` look by themselves: they raise `Exists` only for somebody else's bytes, so a
caller may simply repeat a call that failed (its bytes must then be its own: put a nonce in them).
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from ludwig.closing import Closing

__all__ = ["Drive", "Entry", "Progress", "Usage", "Watch"]

Progress = Callable[[str, int], None]
"""Called with a path (relative to the tree) and the number of bytes just done or skipped."""


class Entry(NamedTuple):
    """One name in a folder. `modified` is by the file server's clock: not to be mixed with ours."""

    name: str
    is_folder: bool
    size: int
    modified: float


class Usage(NamedTuple):
    """Bytes on the drive."""

    total: int
    free: int

    @property
    def percent_full(self) -> float:
        return 100.0 * (1.0 - self.free / self.total) if self.total else 0.0


class Watch(Closing, Protocol):
    """Tells that something in a folder may have changed. A hint: look from time to time anyway."""

    def wait(self, timeout: float) -> bool:
        """Wait for a change since the last call. False after `timeout` seconds without one.

        Never raises while the server is away: it reconnects by itself, and reports a change then,
        since one may have been missed.
        """

    def close(self) -> None:
        """Let go of the folder. A `wait` in another thread returns False soon after."""


class Drive(Protocol):
    """See the module's words for errors. All methods may be called from several threads."""

    @property
    def where(self) -> str:
        """How a person names this drive: its path or its URL, never with a password."""

    @property
    def mount(self) -> Path | None:
        """Where programs on this machine find the drive as a folder, if they do."""

    def create(self, path: str, data: bytes) -> None:
        """Write a new file. Of racing callers one succeeds; the others get `Exists`.

        A caller that dies half-way leaves an empty or partial file that says only
        "somebody was here".
        """

    def publish(self, path: str, data: bytes) -> None:
        """Write a new file, whole or not at all. Of racing callers one succeeds."""

    def append(self, path: str, data: bytes, *, at: int) -> None:
        """Put `data` at offset `at`, the end of a file that only this caller writes.

        Creates the file when missing. Repeating the call is harmless.
        """

    def replace(self, path: str, data: bytes) -> None:
        """Write a file anew. Only for the seed's chunk, which its one host alone writes.

        A reader sees one whole version, or for a moment none: Samba looks a name up and then opens
        it, and what is replaced in between it calls `NotFound`.
        """

    def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        """The bytes from `offset` to the end, or `limit` of them. `NotFound` without a file."""

    def list(self, path: str) -> builtins.list[str]:
        """The names in a folder, unsorted; temporary names of `publish` are left out.

        `NotFound` if there is no such folder.
        """

    def scan(self, path: str) -> builtins.list[Entry]:
        """As `list`, with kind, size and time."""

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder. Up to a second late about what others just made."""

    def mkdir(self, path: str) -> None:
        """Make one folder. Of racing callers one succeeds; the others get `Exists`."""

    def make_folders(self, *paths: str) -> None:
        """Make folders, in this order, and what is missing above. No error if they are there."""

    def move(self, source: str, target: str) -> None:
        """Rename a folder. `Exists` if the target is there, `NotFound` if the source is not.

        Decides nothing between racing callers: only for whoever has already won.
        """

    def remove(self, path: str) -> None:
        """Remove a file. No error if it is gone already."""

    def remove_folder(self, path: str) -> None:
        """Remove a folder and everything in it. No error if it is gone already."""

    def watch(self, path: str) -> Watch:
        """Watch the names of one folder (not what is below its folders)."""

    def usage(self) -> Usage:
        """How full the drive is."""

    def upload(
        self,
        tree: Path,
        path: str,
        *,
        files: Sequence[str] | None = None,
        progress: Progress | None = None,
        skip_same: bool = False,
    ) -> None:
        """Copy the files of a local folder to a folder on the drive, made if missing.

        `files` restricts it to these paths relative to `tree`. With `skip_same`, each file arrives
        whole and with its modification time, and a file whose size and time are the same (to two
        seconds) is left alone: so an upload that was cut short goes on where it was. A mount may
        give sizes and times that are a second old.
        """

    def download(
        self,
        path: str,
        tree: Path,
        *,
        files: Iterable[str] | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Copy a folder on the drive to a local folder, made if missing."""

    def close(self) -> None:
        """Give up connections. The drive may be used again: it reconnects."""
