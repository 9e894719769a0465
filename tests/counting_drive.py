"""A drive that counts what is asked of it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from ludwig.drive import Drive


class CountingDrive:
    """Passes everything on; `calls` counts (operation, path)."""

    def __init__(self, drive: Drive) -> None:
        self._drive = drive
        self._lock = threading.Lock()
        self.calls: Counter[tuple[str, str]] = Counter()

    @property
    def where(self) -> str:
        return self._drive.where

    @property
    def mount(self) -> Any:
        return self._drive.mount

    def forget(self) -> None:
        with self._lock:
            self.calls.clear()

    def number(self, operation: str) -> int:
        with self._lock:
            return sum(n for (what, _), n in self.calls.items() if what == operation)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._drive, name)

        def counted(*args: Any, **options: Any) -> Any:
            path = str(args[0]) if args else ""
            with self._lock:
                self.calls[(name, path)] += 1
            return method(*args, **options)

        return counted
