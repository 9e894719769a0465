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
from ludwig.drives import check_format
from ludwig.model import Beat
from ludwig.worker.identity import AnotherAgent, await_silence_of_others
from ludwig.worker.journal import note
from ludwig.worker.threads import Threaded

__all__ = ["Heart"]

log = logging.getLogger(__name__)

BURST_S = 0.2
"""Changes come in bursts: one beat tells them all."""


class Heart(Threaded):
    """`compose` makes a beat for a counter; it must list every attempt held at that moment."""

    def __init__(
        self,
        drive: Drive,
        *,
        host: str,
        every_s: float,
        silent_s: float,
        ours: set[str],
        compose: Callable[[int], Beat],
        on_fatal: Callable[[str], None],
    ) -> None:
        self._drive, self._host, self._ours = drive, host, ours
        self._every_s, self._silent_s = every_s, silent_s
        self._compose = compose
        self._on_fatal = on_fatal
        self._wake = threading.Event()
        self._stop = threading.Event()
        super().__init__("heart")
        self._counter: int | None = None
        self._composing = 0
        self.begun = threading.Event()
        """The first beat is out: claims may refer to it."""
        self.trouble = ""

    @property
    def counter(self) -> int:
        """The latest counter that a beat was composed for: what a new claim refers to."""
        return self._composing

    def soon(self) -> None:
        """Beat before it is due: something changed that others want to know."""
        self._wake.set()

    def stop(self) -> None:
        """Say a last word (`compose` knows that we are leaving) and stop."""
        self._stop.set()
        self._wake.set()
        self._join(20)

    # --- its thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._begin()
            while not self._stop.is_set():
                well = self._try()
                self._wake.wait(self._every_s if well else min(1.0, self._every_s))
                self._wake.clear()
                self._stop.wait(min(BURST_S, self._every_s / 10))
            if self.begun.is_set():
                self._try()
        except errors.LudwigError as error:
            self._on_fatal(str(error))
        except Exception as error:
            log.exception("the heart stopped")
            self._on_fatal(f"the heart stopped: {error!r}")

    def _begin(self) -> None:
        """Wait for the drive, and for the name to be free."""
        while not self._stop.is_set():
            try:
                check_format(self._drive)
                await_silence_of_others(
                    self._drive,
                    self._host,
                    self._ours,
                    silent_s=self._silent_s,
                    wait=self._stop.wait,
                )
                return
            except errors.DriveAway as error:
                self._stumble(error)
                self._stop.wait(1.0)

    def _try(self) -> bool:
        try:
            self.beat()
        except errors.DriveError as error:
            self._stumble(error)
            return False
        if self.trouble:
            note(log, "beats-again")
        self.trouble = ""
        self.begun.set()
        return True

    def _stumble(self, error: errors.DriveError) -> None:
        if str(error) != self.trouble:
            note(log, "no-heartbeat", level=logging.WARNING, why=error)
        self.trouble = str(error)

    def beat(self) -> None:
        """Write one beat now."""
        if self._counter is None:
            self._counter = nodes.last_counter(self._drive, self._host)
            self._composing = max(self._composing, self._counter)
        counter = self._counter + 1
        self._composing = counter
        beat = self._compose(counter)
        try:
            nodes.write_beat(self._drive, beat)
        except errors.Exists as error:
            raise AnotherAgent(
                f"another agent beats as {self._host!r}. Give each node a hostname of its own in "
                "worker.toml."
            ) from error
        self._counter = counter
