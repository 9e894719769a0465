"""Grid Engine of one node, if it can be had."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.packages import Missing

__all__ = ["GridEngineArray"]


class GridEngineArray:
    name, share = "Grid Engine, qsub -t", 0.5

    def __init__(self, task: Sequence[str], folder: Path) -> None:
        raise Missing("not yet")

    def run(self, number: int) -> None: ...

    def close(self) -> None: ...
