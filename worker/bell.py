"""What the agent's loop waits for: somebody rings, or a process ends, or time is over.

Linux only (eventfd, pidfd), like everything else that runs on a node.
"""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Callable

__all__ = ["Bell"]


class Bell:
    """One waits, anybody rings. Rings are not counted: one wakes for all that happened."""

    def __init__(self) -> None:
        self._rope = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._tell: dict[int, Callable[[], None]] = {}
        self._poll.register(self._rope, select.POLLIN)

    def ring(self) -> None:
        """Safe from every thread, and (unlike `threading.Event.set`) from a signal handler."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_write(self._rope, 1)

    def listen(self, pid: int, tell: Callable[[], None]) -> None:
        """Have `wait` call `tell`, once, when this process has ended, be it our child or not.

        Only for the one who waits.
        """
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:  # gone already
            tell()
            self.ring()
            return
        self._tell[descriptor] = tell
        self._poll.register(descriptor, select.POLLIN)

    def wait(self, timeout: float) -> None:
        """Come back at the next ring, at the latest after `timeout` seconds."""
        for descriptor, _ in self._poll.poll(max(0, round(timeout * 1000))):
            if descriptor == self._rope:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(descriptor)
            else:
                self._poll.unregister(descriptor)
                os.close(descriptor)
                self._tell.pop(descriptor)()
