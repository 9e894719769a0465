"""Removes folders that nobody needs any more, while others get on with their work.

A source of a thousand files takes longer to remove than many a task to run. What is left when the
agent ends is removed by the next one (`recover.py`).
"""

from __future__ import annotations

import queue as fifo
import threading
from pathlib import Path

from ludwig.worker.workspace import remove

__all__ = ["Janitor"]


class Janitor:
    """`remove` returns at once, from every thread."""

    def __init__(self) -> None:
        self._queue: fifo.SimpleQueue[Path | None] = fifo.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="janitor", daemon=True)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop after what is at hand."""
        self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def remove(self, folder: Path) -> None:
        self._queue.put(folder)

    def _run(self) -> None:
        while (folder := self._queue.get()) is not None:
            remove(folder)
