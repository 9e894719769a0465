"""Attempts for tests: a folder like the agent makes it, started by the real runner."""

import pickle
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

from ludwig.model import Run
from ludwig.worker import runner, workspace
from ludwig.worker.runner import Exit, Order, Process
from tests.harness import wait_until

PROJECT = "trees"
NAMES = {"param_name": "param_001", "job_name": "2026-11-18-10-00-00_hoff_num0"}
RUN = Run(NAMES["param_name"], NAMES["job_name"])


class Attempt:
    """One attempt of project `trees`, job 1, task 1. As root it runs as root, unless told."""

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
