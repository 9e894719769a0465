"""Grid Engine of one node: nobody has written down yet how to set it up unattended."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.packages import Missing

__all__ = ["GridEngineArray"]


class GridEngineArray:
    name, share = "Grid Engine, qsub -t", 0.5

    def __init__(self, task: Sequence[str], folder: Path) -> None:
        raise Missing("its unattended set-up has not been written (Debian: gridengine-master)")

    def run(self, number: int) -> None: ...

    def close(self) -> None: ...
