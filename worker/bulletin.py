"""How this node is, in the words of its heartbeat. Asks only what is known already."""

from __future__ import annotations

from collections.abc import Callable

import ludwig
from ludwig.config import WorkerConfig
from ludwig.model import Beat, NodeState
from ludwig.worker.bench import Bench
from ludwig.worker.identity import LEFT
from ludwig.worker.machine import Machine

__all__ = ["Bulletin"]


class Bulletin:
    """Safe from every thread."""

    def __init__(
        self,
        config: WorkerConfig,
        *,
        boot: str,
        mounted: bool,
        machine: Machine,
        bench: Bench,
        clock: Callable[[], str],
        leaving: Callable[[], bool],
        trouble: Callable[[], str],
    ) -> None:
        self._config, self._boot, self._mounted = config, boot, mounted
        self._machine, self._bench, self._clock = machine, bench, clock
        self._leaving, self._trouble = leaving, trouble

    def beat(self, counter: int) -> Beat:
        """Lists every attempt held at this moment."""
        gpus, places = self._machine.snapshot()
        state, why = self.state()
        return Beat(
            host=self._config.hostname,
            boot=self._boot,
            counter=counter,
            state=state,
            why=why,
            every_s=self._config.beat_s,
            silent_s=self._config.drive.node_silent_s,
            ludwig=ludwig.__version__,
            mounted=self._mounted,
            slots=places,
            gpus=gpus,
            running=self._bench.listed(),
            set_aside=self._machine.suspicion()[2],
            at=self._clock(),
            disk_free=self._machine.disk_free,
            extra={LEFT: True} if self._leaving() else {},
        )

    def state(self) -> tuple[NodeState, str]:
        """One word, and why."""
        if self._leaving():
            return "draining", "the agent was told to stop; what runs goes on without it"
        if closed := self._machine.closed():
            return "draining", closed
        quarantined, suspicious, set_aside = self._machine.suspicion()
        busy = bool(self._bench.running())
        if quarantined or (set_aside and suspicious and not busy):
            return "quarantined", suspicious
        return "busy" if busy else "idle", self._trouble() or suspicious

    def gist(self) -> tuple[object, ...]:
        """What others want to know at once when it changes (reasons may count seconds)."""
        gpus, _ = self._machine.snapshot()
        state = self.state()[0]
        return state, self._machine.suspicion()[2], tuple((gpu.uuid, gpu.state) for gpu in gpus)
