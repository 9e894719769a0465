"""Removes folders that nobody needs any more, while others get on with their work.

A source of a thousand files takes longer to remove than many a task to run. What is left when the
agent ends is removed by the next one (`recover.py`).
"""

from __future__ import annotations

import queue as fifo
from pathlib import Path

from ludwig.worker.threads import Threaded
from ludwig.worker.workspace import remove

__all__ = ["Janitor"]


class Janitor(Threaded):
    """`remove` returns at once, from every thread."""

    def __init__(self) -> None:
        self._queue: fifo.SimpleQueue[Path | None] = fifo.SimpleQueue()
        super().__init__("janitor")

    def stop(self) -> None:
        """Stop after what is at hand."""
        self._queue.put(None)
        self._join(5)

    def remove(self, folder: Path) -> None:
        self._queue.put(folder)

    def _run(self) -> None:
        while (folder := self._queue.get()) is not None:
            remove(folder)
