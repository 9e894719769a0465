"""`SFTP.worker_names`: the lab's nodes, to read and to reassign.

The names are those of the lab's configuration, looked up when they are first asked for. A program
that assigns other names, or changes the list, restricts its later submissions to them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ludwig.config import load_lab

__all__ = ["SFTP"]


class _SFTP:
    def __init__(self) -> None:
        self._found: tuple[str, ...] = ()
        self._names: list[str] | None = None

    @property
    def worker_names(self) -> list[str]:
        """Raises `ConfigError` where no lab is configured."""
        if self._names is None:
            self._found = tuple(load_lab().nodes)
            self._names = list(self._found)
        return self._names

    @worker_names.setter
    def worker_names(self, names: Sequence[str]) -> None:
        self._names, self._found = list(names), ()

    @worker_names.deleter
    def worker_names(self) -> None:
        """Back to what the configuration says."""
        self._names, self._found = None, ()

    @property
    def chosen(self) -> list[str] | None:
        """The names that somebody wants instead of the lab's own; None for all of them."""
        if self._names is None or sorted(self._names) == sorted(self._found):
            return None
        return list(self._names)


SFTP = _SFTP()
