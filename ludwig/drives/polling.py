"""Notices changes of a folder by listing it: for drives that are folders."""

from __future__ import annotations

import time
from threading import Event

from ludwig import errors
from ludwig.drive import Drive, Watch

__all__ = ["PollingWatch"]


class PollingWatch(Watch):
    """Lists the folder: inotify does not see what other machines do to a mount."""

    def __init__(self, drive: Drive, path: str, poll_s: float) -> None:
        self._drive, self._path, self._poll_s = drive, path, poll_s
        self._closed = Event()
        self._seen = self._look(None)

    def _look(self, otherwise: frozenset[str] | None) -> frozenset[str] | None:
        try:
            return frozenset(self._drive.list(self._path))
        except errors.NotFound:
            return None
        except errors.DriveError:
            return otherwise

    def wait(self, timeout: float) -> bool:
        end = time.monotonic() + timeout
        while not self._closed.is_set():
            now = self._look(self._seen)
            if now != self._seen:
                self._seen = now
                return True
            left = end - time.monotonic()
            if left <= 0 or self._closed.wait(min(self._poll_s, left)):
                break
        return False

    def close(self) -> None:
        self._closed.set()
