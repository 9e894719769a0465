"""From a ticket in the inbox to the first line of its task, and where that time goes.

    python -m benchmarks.first_process [--tries 20]

One agent and one free slot. The source is what a submission of `benchmarks.submit` has: `unchanged`
as the node has it from an earlier job, `new` as it has just been sent. Time begins when the client
asks the node's sshd to give the ticket its name; what passes before that is `benchmarks.submit`'s.
The agent is an ordinary one, started by this file so that it writes down when each step was over
(`--agent`).
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import measure
from benchmarks.submit import lab_of, make_project, timed_submit
from ludwig.client.inbox_sftp import SftpInbox
from ludwig.client.lab import Lab
from tests.harness import SftpServer, wait_until

STEPS = ("seen", "source", "accepted", "claimed", "prepared", "started")
"""What the agent does, in this order; then the interpreter starts, up to the task's first line."""
TRACE = "BENCHMARK_TRACE"
PAUSE_S = 0.5
"""After each, until the node has put away what the last one left."""


# --- in the agent --------------------------------------------------------------------------------


def run_agent(arguments: list[str]) -> None:
    from ludwig.worker import floor
    from ludwig.worker.cli import main
    from ludwig.worker.doorman import Doorman
    from ludwig.worker.prepare import Preparer
    from ludwig.worker.stockroom import Stockroom
    from ludwig.worker.tickets import TicketStore

    trace = Path(os.environ[TRACE])

    def note(owner: Any, name: str, step: str, *, before: bool = False) -> None:
        call: Callable[..., Any] = getattr(owner, name)

        @functools.wraps(call)
        def noted(*given: Any, **named: Any) -> Any:
            begun = time.time()
            result = call(*given, **named)
            moment = begun if before else time.time()
            with trace.open("a") as file:
                file.write(json.dumps([step, moment]) + "\n")
            return result

        setattr(owner, name, noted)

    note(Doorman, "_admit", "seen", before=True)
    note(Stockroom, "unpack", "source")
    note(TicketStore, "keep", "accepted")
    note(Preparer, "take_in", "claimed")
    note(Preparer, "prepare", "prepared")
    note(floor.runner, "start", "started")
    sys.argv = ["ludwig-worker", *arguments]
    main()


@contextmanager
def agent_of(lab: Lab, server: SftpServer, folder: Path) -> Iterator[Path]:
    """A running agent, and the file that it writes its steps to."""
    config, trace = folder / "worker.toml", folder / "trace"
    config.write_text(
        f'hostname = "{server.name}"\ninbox = "{server.inbox}"\nslots = 1\n'
        f'work = "{folder}/work"\nuser = "root"\ndisk_max_percent = 100\n'
        f'[drive]\nurl = "{lab.config.drive.url}"\nuser = "{lab.config.drive.user}"\n'
    )
    command = [sys.executable, "-m", "benchmarks.first_process", "--agent", "run"]
    with (folder / "agent.log").open("wb") as log:
        agent = subprocess.Popen(
            [*command, "--config", str(config)],
            stdout=log,
            stderr=log,
            env={**os.environ, TRACE: str(trace)},
        )
    try:
        nodes = ".ludwig/nodes"
        wait_until(
            lambda: lab.drive.exists(nodes) and lab.drive.list(nodes),
            timeout=30,
            what="a heartbeat",
            alive=[agent],
        )
        yield trace
    finally:
        agent.terminate()
        agent.wait(timeout=30)


# --- in the client -------------------------------------------------------------------------------


def tickets_noted() -> list[float]:
    """Filled with the time of every ticket from now on."""
    times: list[float] = []
    rename = SftpInbox._rename

    async def noted(self: SftpInbox, source: str, target: str) -> None:
        if "/tickets/" in target:
            times.append(time.time())
        await rename(self, source, target)

    SftpInbox._rename = noted  # type: ignore[method-assign]
    return times


def one_try(lab: Lab, root: Path, project: str, trace: Path, tickets: list[float]) -> list[float]:
    """Milliseconds from the ticket to the end of each step, to the first line, and, last, from the
    return of submit() to the first line."""
    lines = root / "lines"
    lines.unlink(missing_ok=True)
    known = len(trace.read_text().splitlines()) if trace.exists() else 0
    timed_submit(lab, project, root, 1)
    returned = time.time()
    wait_until(
        lambda: lines.exists() and lines.read_text().endswith("\n"), timeout=30, interval=0.001
    )
    first_line = float(lines.read_text())
    time.sleep(PAUSE_S)
    steps = dict(json.loads(line) for line in trace.read_text().splitlines()[known:])
    moments = [*(steps[step] for step in STEPS), first_line]
    return [(moment - tickets[-1]) * 1000 for moment in moments] + [(first_line - returned) * 1000]


def rows_of(what: str, tries: list[list[float]]) -> Iterator[tuple[str, ...]]:
    middles = [statistics.median(column) for column in zip(*tries, strict=True)]
    worst = max(one[-2] for one in tries)
    parts = [after - before for before, after in zip([0.0, *middles], middles[:-1], strict=False)]
    yield (what, *(f"{part:.0f}" for part in parts), f"{middles[-2]:.0f}", f"{worst:.0f}")


def first_process(tries: int) -> None:
    with tempfile.TemporaryDirectory() as temporary, lab_of(1, Path(temporary)) as parts:
        lab, _, servers = parts
        root = Path(temporary) / "project"
        make_project(root, 0)
        tickets = tickets_noted()
        unchanged, new = [], []
        with agent_of(lab, servers[0], Path(temporary)) as trace:
            for number in range(-2, tries):
                kept = one_try(lab, root, f"kept{number + 2}", trace, tickets)
                if number >= 0:
                    unchanged.append(kept)
            for number in range(max(3, tries // 4)):
                (root / "src" / "module_000.py").write_text(f"EDIT = {number}\n")
                new.append(one_try(lab, root, f"new{number}", trace, tickets))
        head = ("ticket to first line, ms", *STEPS, "first line", "median", "worst")
        print(measure.table(head, [*rows_of("unchanged", unchanged), *rows_of("new", new)]))
        returned = [one[-1] for one in unchanged]
        print(
            f"\nsubmit() to first line of the task: median {statistics.median(returned):.0f} ms, "
            f"worst of {len(returned)}: {max(returned):.0f} ms; {measure.load()}"
        )


def main() -> None:
    if sys.argv[1:2] == ["--agent"]:
        run_agent(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tries", type=int, default=20)
    first_process(parser.parse_args().tries)


if __name__ == "__main__":
    main()
