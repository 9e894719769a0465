"""Builds projects on a drive the way submitters and agents do, without either."""

from __future__ import annotations

import itertools
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from ludwig import codec, job_records, layout, queue, registry
from ludwig.drive import Drive
from ludwig.model import Chunk, Contract, Done, Event, GpuSummary, Job, Origin, Outcome, Run, Task
from tests.jobs import tasks_in

Content = bytes | str | pd.Series | pd.DataFrame

_ZEROS = "0" * 64
_WHEN = datetime(2026, 11, 18, 10, 0, 0)


def as_bytes(content: Content) -> bytes:
    """A file as a task writes it: a Series or a DataFrame with its index."""
    if isinstance(content, bytes):
        return content
    if isinstance(content, str):
        return content.encode()
    return content.to_csv().encode()


class LabDrive:
    """One project. Every job's tasks belong to one host."""

    def __init__(self, drive: Drive, project: str = "trees", *, host: str = "hoff") -> None:
        self.drive, self.project, self.host = drive, project, host
        self.boot = secrets.token_hex(4)
        self._offsets: dict[int, int] = {}
        self._params: dict[int, dict[str, dict[str, Any]]] = {}

    def submit(
        self,
        configurations: Sequence[Mapping[str, Any]],
        *,
        reps: int = 1,
        contract: Contract = "function",
        chunk: int = 1,
    ) -> Job:
        """A job of `reps` runs per configuration, `chunk` of them a task."""
        nonce = secrets.token_hex(8)
        number = registry.reserve_job(self.drive, self.project)
        known = registry.read_registry(self.drive, self.project)
        hashes = [codec.params_hash(params) for params in configurations]

        def decide(now: registry.Registry) -> tuple[Mapping[str, str], Mapping[str, int]]:
            fresh = now.name_new(hashes)
            by_hash = now.by_hash() | {hash_: name for name, hash_ in fresh.items()}
            return fresh, {by_hash[hash_]: reps for hash_ in hashes}

        promised = registry.promise(self.drive, known, decide, job=number, nonce=nonce)
        names = {hash_: name for name, hash_ in known.names.items()}
        params = {names[h]: dict(p) for h, p in zip(hashes, configurations, strict=True)}
        stamp = registry.reserve_stamp(self.drive, self.project, _WHEN, nonce)
        count = itertools.count()
        runs = [
            Run(name, f"{stamp}_{self.host}_num{next(count)}")
            for name, times in promised.items()
            for _ in range(times)
        ]
        tasks = tuple(
            Task(i // chunk + 1, i, 1, _ZEROS, tuple(runs[i : i + chunk]))
            for i in range(0, len(runs), chunk)
        )
        data = codec.encode_params(params)
        job = Job(
            project=self.project,
            job=number,
            nonce=nonce,
            stamp=stamp,
            contract=contract,
            entry="run.py",
            source=_ZEROS,
            params_sha256=codec.sha256(data),
            chunks={self.host: Chunk(tasks=tasks)},
            origin=Origin(user="ana", host="laptop"),
        )
        job_records.publish_job(self.drive, job, {self.host: bytes(len(runs))}, data)
        self._params[number] = params
        return job

    def params_of(self, job: Job) -> dict[str, dict[str, Any]]:
        return self._params[job.job]

    def adopt(self, number: int, params: dict[str, dict[str, Any]]) -> Job:
        """A job that another process submitted."""
        self._params[number] = params
        return job_records.read_job(self.drive, self.project, number)

    def finish_all(self, job: Job, results: Mapping[int, Sequence[Mapping[str, Content]]]) -> None:
        """End many tasks, several at a time: most of it is waiting for the disk."""
        with ThreadPoolExecutor(8) as pool:
            ends = pool.map(
                lambda task: self.finish(job, task, *results[task], tell=False), results
            )
            events = [Event(what="ended", task=d.task, attempt=1, done=d) for d in ends]
        self.tell(job, *events)

    def finish(
        self,
        job: Job,
        task: int,
        *runs: Mapping[str, Content],
        outcome: Outcome = "done",
        tell: bool = True,
        settle: bool = True,
        gpu: GpuSummary | None = None,
        why: str = "",
    ) -> Done:
        """End a task with these files, one mapping per run of it.

        `tell=False`: the agent dies before it writes the event; `settle=False`: before it moves
        the results to `runs/`.
        """
        record = tasks_in(job)[task][1]
        with tempfile.TemporaryDirectory() as scratch:
            folders = _write(Path(scratch), runs)
            done = Done(
                task=task,
                attempt=1,
                outcome=outcome,
                host=self.host,
                nonce=secrets.token_hex(8),
                why=why,
                seconds=60.0 + task,
                files=(),
                gpu=gpu,
            )
            params = self._params[job.job]
            if outcome == "done":
                manifest = queue.stage(self.drive, job, record, 1, folders=folders, params=params)
                done = msgspec.structs.replace(done, files=manifest)
            if settle:
                queue.finish(self.drive, job, record, done, folders=folders, params=params)
            else:
                queue.end(self.drive, job, done)
        if tell:
            self.tell(job, Event(what="ended", task=task, attempt=1, done=done))
        return done

    def tell(self, job: Job, *events: Event) -> None:
        line = b"".join(codec.encode(event) for event in events)
        at = self._offsets.get(job.job, 0)
        path = layout.job_files(self.project, job.job).events_of(self.host, self.boot)
        self.drive.append(path, line, at=at)
        self._offsets[job.job] = at + len(line)


def _write(scratch: Path, runs: Sequence[Mapping[str, Content]]) -> list[Path]:
    folders = []
    for index, files in enumerate(runs):
        folder = scratch / str(index)
        folder.mkdir()
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(as_bytes(content))
        folders.append(folder)
    return folders
