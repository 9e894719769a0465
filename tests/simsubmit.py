"""A submission in the order of the protocol, without files of a user: for tests and the simulator.

Mirrors `client/submit.py`: data, source, number, promise, second, chunks, job.json. The tickets,
which come last, are the caller's: `Submission.hosts` says who would get one.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from ludwig import codec, errors, job_records, layout, registry
from ludwig.drive import Drive
from ludwig.model import Chunk, Job, Origin, Run, Task

__all__ = ["ORIGIN", "Submission", "job_record", "submit"]

ORIGIN = Origin(user="ana", host="laptop")


@dataclass(frozen=True)
class Submission:
    job: Job
    record: bytes

    @property
    def hosts(self) -> list[str]:
        return list(self.job.chunks)


def submit(
    drive: Drive,
    project: str,
    configurations: Sequence[Mapping[str, Any]],
    *,
    hosts: Sequence[str],
    nonce: str,
    reps: int = 1,
    when: datetime = datetime(2026, 11, 18, 10, 0, 0),
    data: Path | None = None,
    **settings: Any,
) -> Submission | None:
    """None when enough is finished or promised already."""
    if data is not None:
        drive.upload(data, f"{project}/{data.name}", skip_same=True)
    by_hash = {codec.params_hash(params): params for params in configurations}
    number = registry.reserve_job(drive, project)
    known = registry.read_registry(drive, project)

    def decide(now: registry.Registry) -> tuple[Mapping[str, str], Mapping[str, int]]:
        names = now.name_new(by_hash)
        of_hash = now.by_hash() | {hash_: name for name, hash_ in names.items()}
        promised = _living_promises(drive, project, now, nonce)
        missing = {of_hash[h]: reps - promised.get(of_hash[h], 0) for h in by_hash}
        return names, {name: count for name, count in missing.items() if count > 0}

    runs = registry.promise(drive, known, decide, job=number, nonce=nonce)
    if not runs:
        job_records.abandon_job(drive, project, number, origin=ORIGIN, nonce=nonce)
        return None
    stamp = registry.reserve_stamp(drive, project, when, nonce)
    params = {name: dict(by_hash[known.names[name]]) for name in runs}
    job, chunks, encoded = job_record(
        project, number, params, runs, hosts=hosts, nonce=nonce, stamp=stamp, **settings
    )
    return Submission(job, job_records.publish_job(drive, job, chunks, encoded))


def _living_promises(
    drive: Drive, project: str, known: registry.Registry, nonce: str
) -> dict[str, int]:
    """What other jobs will run. A submission that died half-way is declared dead: here, at once;
    a real client waits first, in case it is only slow."""
    total: dict[str, int] = {}
    for number, runs in known.promised.items():
        with suppress(errors.NotFound):
            job_records.abandon_job(
                drive, project, number, origin=ORIGIN, nonce=f"{nonce}-{number}"
            )
        if job_records.read_job(drive, project, number).abandoned:
            continue
        for name, count in runs.items():
            total[name] = total.get(name, 0) + count
    return total


def job_record(
    project: str,
    number: int,
    params: Mapping[str, Mapping[str, Any]],
    runs: Mapping[str, int],
    *,
    hosts: Sequence[str],
    nonce: str,
    stamp: str,
    in_turn: bool = True,
    shares: Mapping[str, int] | None = None,
    **settings: Any,
) -> tuple[Job, dict[str, bytes], bytes]:
    """A job, the bytes of its chunks and of its params.json.

    Tasks are dealt to hosts in turn; or, as clients do, so that each has numbers in a row, in equal
    shares or in these.
    """
    dealt: dict[str, list[Task]] = {host: [] for host in hosts}
    chunks: dict[str, bytearray] = {host: bytearray() for host in hosts}
    names = [name for name, count in runs.items() for _ in range(count)]
    order = [
        hosts[i % len(hosts) if in_turn else i * len(hosts) // len(names)]
        for i in range(len(names))
    ]
    if shares is not None:
        order = [host for host, share in shares.items() for _ in range(share)]
    for index, name in enumerate(names):
        host = order[index]
        job_name = f"{stamp}_{host}_num{index + 1}"
        data = pickle.dumps([{**params[name], "param_name": name, "job_name": job_name}])
        task = Task(
            task=index + 1,
            offset=len(chunks[host]),
            length=len(data),
            sha256=codec.sha256(data),
            runs=(Run(name, job_name),),
        )
        chunks[host] += data
        dealt[host].append(task)
    encoded = codec.encode_params(params)
    job = Job(
        project=project,
        job=number,
        nonce=nonce,
        stamp=stamp,
        contract="function",
        entry="run.py",
        source="5" * 64,
        params_sha256=codec.sha256(encoded),
        chunks={host: Chunk(tasks=tuple(tasks)) for host, tasks in dealt.items()},
        origin=ORIGIN,
        **settings,
    )
    return job, {host: bytes(data) for host, data in chunks.items()}, encoded


def project_of(drive: Drive, project: str) -> None:
    """An empty project folder."""
    drive.make_folders(layout.project_files(project).runs)
