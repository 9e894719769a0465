"""Makes `tests/golden/v1/`: a small drive as version 1 writes it. Run once, and never again.

    python -m tests.golden.make FOLDER

The committed drive must stay readable for ever (`tests/unit/test_golden.py`). A new kind of file
that version 1 may hold goes into a folder of its own, not into the old one.
"""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path

from ludwig import codec, job_records, layout, queue
from ludwig.drives import write_format
from ludwig.drives.folder import FolderDrive
from ludwig.model import Event, Refusal, Stop
from tests.simnode import SimNode
from tests.simsubmit import Submission, submit

SWEEP = [
    {"lr": 0.1, "layers": (64, 64), "name": "Größe"},
    {"lr": 0.2, "layers": (64,), "name": "on"},
    {"lr": float("inf"), "layers": (), "big": 2**60},
]


def make(folder: Path, disk: Path) -> None:
    drive = FolderDrive(folder)
    write_format(drive)
    first = _submit(drive, SWEEP[:2], 2, "golden-first", datetime(2026, 11, 18, 10, 0, 0))
    hoff, hebb = (_node(drive, first, host, disk / "first") for host in ("hoff", "hebb"))
    hoff.tick()
    hebb.tick()
    # hoff holds 1 and 3, hebb 2 and 4: one is done, one fails for good, one is cancelled, one runs.
    hoff.exits((1, 1), "done")
    hebb.exits((2, 1), "failed", "ValueError: no such corpus")
    queue.stop(drive, first.job, Stop(user="ana", host="laptop", nonce="golden-stop"), task=3)
    for _ in range(2):
        hoff.tick()
        hebb.tick()
    hebb.exits((2, 2), "failed", "ValueError: no such corpus, again")
    for _ in range(2):
        hebb.tick()
        hoff.tick()
    hoff.exits((2, 3), "failed", "ValueError: no such corpus, here neither")
    hebb.draining = True
    for _ in range(2):
        hoff.tick()
        hebb.tick()
    _log(drive, first, 1, 1, "hello from task 1\n")
    _log(drive, first, 2, 2, "Traceback …\nValueError: no such corpus, again\n")

    second = _submit(drive, SWEEP, 3, "golden-second", datetime(2026, 11, 18, 10, 0, 0))
    hoff = _node(drive, second, "hoff", disk / "second")
    hoff.boots = 1
    hoff.boot()
    hoff.tick()
    for key in list(hoff.held):
        hoff.exits(key, "done")
    hoff.tick()
    refusal = Refusal(host="hebb", why="it has no GPU", nonce="golden-refusal")
    queue.refuse(drive, "trees", second.job.job, refusal)
    queue.stop(drive, second.job, Stop(user="bob", host="laptop", nonce="golden-stop-2"))
    for _ in range(2):
        hoff.tick()
    files = layout.job_files("trees", second.job.job)
    partial = codec.encode(Event(what="note", why="cut short"))[:-9]
    drive.append(files.events_of("hebb", "boot1"), partial, at=0)
    drive.create(layout.project_files("trees").seed_chunk("hoff"), b"the seed's chunk")


def _submit(
    drive: FolderDrive, sweep: list[dict[str, object]], reps: int, nonce: str, when: datetime
) -> Submission:
    hosts = ["hoff", "hebb"]
    made = submit(drive, "trees", sweep, hosts=hosts, nonce=nonce, reps=reps, when=when)
    assert made is not None
    return made


def _node(drive: FolderDrive, submission: Submission, host: str, disk: Path) -> SimNode:
    params = job_records.read_params(drive, submission.job)
    node = SimNode(
        host=host, drive=drive, job=submission.job, params=params, disk=disk, clock=lambda: 0.0
    )
    node.boot()
    return node


def _log(drive: FolderDrive, submission: Submission, task: int, attempt: int, text: str) -> None:
    files = layout.job_files("trees", submission.job.job)
    drive.append(files.log_of(task, attempt), text.encode(), at=0)
    drive.append(files.gpu_of(task, attempt), b"seconds,utilization\n0.0,97\n", at=0)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir()
    make(target, target.with_name(target.name + ".disk"))
