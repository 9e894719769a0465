"""Attempts for tests: a folder like the agent makes it, started by the real runner."""

import pickle
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any, ClassVar

import pytest

from ludwig.model import Run
from ludwig.worker import runner, workspace
from ludwig.worker.attempt import Exit, Process
from ludwig.worker.nursery import Kind, Nursery
from ludwig.worker.runner import Order
from tests.harness import wait_until

PROJECT = "trees"
NAMES = {"param_name": "param_001", "job_name": "2026-11-18-10-00-00_hoff_num0"}
RUN = Run(NAMES["param_name"], NAMES["job_name"])


class EagerNursery(Nursery):
    """Starts every attempt from a warm interpreter, unless there can be none."""

    def __init__(self) -> None:
        super().__init__()
        self.forks = 0

    def start(self, kind: Kind, how: Mapping[str, Any], **order: Any) -> int | None:
        if kind not in self._warm:
            self._hatch(kind, how, order["mark"][0], time.monotonic())
        warm = self._warm.get(kind)
        if warm is not None:
            wait_until(lambda: warm.is_ready() or warm.process.poll() is not None)
        pid = super().start(kind, how, **order)
        self.forks += pid is not None
        return pid


@pytest.fixture(params=["cold", "warm"])
def nursery(request: pytest.FixtureRequest) -> Iterator[Nursery | None]:
    """Every test that uses it runs twice: attempts start both ways, and nobody may notice."""
    if request.param == "cold":
        yield None
        return
    Attempt.nursery = EagerNursery()
    yield Attempt.nursery
    Attempt.nursery.close()
    Attempt.nursery = None


class Attempt:
    """One attempt of project `trees`, job 1, task 1. As root it runs as root, unless told."""

    nursery: ClassVar[Nursery | None] = None

    def __init__(
        self,
        work: Path,
        files: Mapping[str, str],
        *,
        contract: Any = "script",
        entry: str = "run.py",
        chunk: Sequence[Mapping[str, Any]] = ({"lr": 0.1, **NAMES},),
        runs: tuple[Run, ...] = (RUN,),
        number: int = 1,
        user: str | None = None,
        python: str = sys.executable,
        **order: Any,
    ) -> None:
        self.work, self.user, self.python = work, user, Path(python)
        self.folder = work / "attempts" / f"{PROJECT}-1-1-{number}"
        self.tree = self.folder / "tree" / PROJECT
        self.order = Order(
            project=PROJECT,
            job=1,
            task=1,
            attempt=number,
            contract=contract,
            entry=entry,
            source_name="src",
            runs=runs,
            **{"project_path": str(work / "drive" / PROJECT), **order},
        )
        master = work / "sources" / f"master-{number}"
        for name, text in files.items():
            path = master / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(dedent(text))
        self.process: Process | None = None
        workspace.prepare(
            self.folder,
            source=master,
            project=PROJECT,
            chunk=pickle.dumps([dict(each) for each in chunk]),
            user=user,
            allow_root=user is None,
        )
        shutil.rmtree(master)

    def start(self) -> Process:
        self.process = runner.start(
            self.order,
            self.folder,
            python=self.python,
            user=self.user,
            allow_root=self.user is None,
            nursery=self.nursery,
        )
        return self.process

    def run(self) -> Exit:
        """Start it and wait for its end."""
        return ending(self.start())

    @property
    def results(self) -> Path:
        return self.tree / runner.result_folder(self.order, self.order.runs[0])

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def says(self, text: str) -> None:
        """Wait for a text in the log."""
        wait_until(lambda: text in self.log, what=f"{text!r} in the log", timeout=30)


def ending(process: Process) -> Exit:
    found = wait_until(process.exit, what="the end of the attempt", timeout=60)
    assert found is not None
    return found
