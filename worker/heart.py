"""The heartbeat: tells the lab that this node lives, what it holds, and how it is.

A thread of its own, so that neither a large upload nor a slow job stops the heart. Owns this host's
files under `.ludwig/nodes/` and the counter that claims refer to.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from ludwig import errors, nodes
from ludwig.drive import Drive
from ludwig.model import Beat

__all__ = ["Heart"]

log = logging.getLogger(__name__)


class Heart:
    """`compose` makes a beat for a counter; it must list every attempt held at that moment."""

    def __init__(
        self,
        drive: Drive,
        *,
        host: str,
        boot: str,
        every_s: float,
        compose: Callable[[int], Beat],
        on_rival: Callable[[str], None],
    ) -> None:
        self._drive, self._host, self._boot = drive, host, boot
        self._every_s = every_s
        self._compose = compose
        self._on_rival = on_rival
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heart", daemon=True)
        self._lock = threading.Lock()
        self._beating = threading.Lock()
        self._counter: int | None = None
        self._composing = 0

    @property
    def counter(self) -> int:
        """The latest counter that a beat was composed for: what a new claim refers to."""
        return self._composing

    def start(self) -> None:
        self._thread.start()

    def soon(self) -> None:
        """Beat before it is due: something changed that others want to know."""
        self._wake.set()

    def stop(self) -> None:
        """Say a last word (`compose` knows that we are leaving) and stop."""
        self._stop.set()
        self._wake.set()
        self._thread.join(timeout=20)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._try()
            self._wake.wait(self._every_s)
            self._wake.clear()
            # Changes come in bursts: one beat tells them all.
            self._stop.wait(min(0.2, self._every_s / 10))
        self._try()

    def _try(self) -> None:
        try:
            self.beat()
        except errors.DriveError as error:
            log.warning("no heartbeat: %s", error)

    def beat(self) -> None:
        """Write one beat now."""
        with self._beating:
            if self._counter is None:
                self._counter = nodes.last_counter(self._drive, self._host)
                self._composing = max(self._composing, self._counter)
            counter = self._counter + 1
            self._composing = counter
            beat = self._compose(counter)
            try:
                nodes.write_beat(self._drive, beat)
            except errors.Exists:
                self._counter = None
                self._on_rival(
                    f"another agent beats as {self._host!r}: two agents must not share a hostname"
                )
                return
            self._counter = counter
