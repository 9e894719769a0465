"""What the agent's threads have in common."""

from __future__ import annotations

import threading

__all__ = ["Threaded"]


class Threaded:
    """Runs `_run` in a thread of its own, which does not keep the agent from ending.

    How it is told to stop is up to each; then it calls `_join`.
    """

    def __init__(self, name: str) -> None:
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        raise NotImplementedError

    def _join(self, timeout: float) -> None:
        if self._thread.is_alive():
            self._thread.join(timeout)
