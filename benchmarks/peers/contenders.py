"""What runs fresh processes besides Ludwig: each `run(number)` returns when all have ended.

Every contender runs the same script under the same interpreter on two slots.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Protocol

from benchmarks.peers.packages import Missing, debian, python_with
from benchmarks.peers.slurm import Slurm

__all__ = ["SLOTS", "Bare", "Contender", "Inside", "Parallel", "SlurmArray", "Spooler"]

SLOTS = 2
QUIET = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


class Contender(Protocol):
    name: str
    share: float
    """Of the tasks of a block: less for what is so slow that fewer tell as much."""

    def run(self, number: int) -> None: ...

    def close(self) -> None: ...


class Bare:
    """`subprocess` in two threads: nothing is remembered, nothing survives. The limit."""

    def __init__(self, name: str, commands: Sequence[Sequence[str]]) -> None:
        self.name, self.share = name, 1.0
        self._commands = itertools.cycle(commands)

    def run(self, number: int) -> None:
        todo = iter([next(self._commands) for _ in range(number)])
        lock = threading.Lock()

        def work() -> None:
            while True:
                with lock:
                    command = next(todo, None)
                if command is None:
                    return
                subprocess.run(command, check=True, **QUIET)  # type: ignore[call-overload]

        threads = [threading.Thread(target=work) for _ in range(SLOTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def close(self) -> None:
        pass


class Parallel:
    name, share = "GNU parallel", 1.0

    def __init__(self, task: Sequence[str], folder: Path) -> None:
        self._command = [debian("parallel", "parallel"), f"-j{SLOTS}", *task]
        (folder / "parallel").mkdir()
        (folder / "parallel" / "will-cite").touch()
        self._env = {**os.environ, "PARALLEL_HOME": str(folder / "parallel")}

    def run(self, number: int) -> None:
        lines = "\n".join(map(str, range(number))).encode()
        subprocess.run(
            self._command, input=lines, env=self._env, check=True, stdout=subprocess.DEVNULL
        )

    def close(self) -> None:
        pass


class Spooler:
    """task-spooler: a client per task hands it to a server that runs two at a time."""

    name, share = "task-spooler", 1.0

    def __init__(self, task: Sequence[str], folder: Path) -> None:
        self._tsp, self._task = debian("tsp", "task-spooler"), list(task)
        self._env = {**os.environ, "TS_SOCKET": str(folder / "tsp"), "TS_MAXCONN": "3000"}
        self._env |= {"TS_SLOTS": str(SLOTS), "TMPDIR": str(folder)}
        self._call("-S", str(SLOTS))

    def _call(self, *words: str) -> str:
        run = [self._tsp, *words]
        done = subprocess.run(
            run, env=self._env, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        return done.stdout.strip()

    def run(self, number: int) -> None:
        ids = [self._call(*self._task) for _ in range(number)]
        for job in ids[-2 * SLOTS :]:
            self._call("-w", job)
        self._call("-C")

    def close(self) -> None:
        self._call("-K")


class SlurmArray:
    name, share = "Slurm, sbatch --array", 0.5

    def __init__(self, task: Sequence[str], folder: Path) -> None:
        self._task = task
        self._slurm = Slurm(folder / "slurm")

    def run(self, number: int) -> None:
        self._slurm.run(number, self._task)

    def close(self) -> None:
        self._slurm.close()


class Inside:
    """A peer that is a Python package: driven in its own environment, see `inside.py`."""

    def __init__(
        self,
        name: str,
        package: str,
        *more: str,
        task: Sequence[str],
        folder: Path,
        share: float = 1.0,
    ) -> None:
        self.name, self.share = name, share
        theirs = python_with("distributed" if package == "dask" else package, *more)
        inside = Path(__file__).with_name("inside.py")
        command = [str(theirs), str(inside), package, str(folder / package), *task]
        self._errors = (folder / f"{package}.log").open("w+b")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=folder,
            env={**os.environ, "TMPDIR": str(folder)},  # what they leave there goes with it
        )
        self._await("ready")

    def _await(self, word: str) -> None:
        output: IO[bytes] = self._process.stdout  # type: ignore[assignment]
        for line in output:
            if line.strip() == word.encode():
                return
        self._errors.seek(0)
        last = self._errors.read().decode(errors="replace").strip().splitlines()[-1:]
        raise Missing(f"{self.name} gave up: {' '.join(last)}")

    def run(self, number: int) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{number}\n".encode())
        self._process.stdin.flush()
        self._await("done")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._errors.close()
