"""A lab whose agents are the test itself: jobs, claims, heartbeats, logs and ends by hand."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ludwig import codec, job_records, layout, nodes, queue, registry
from ludwig.client.lab import Lab, this_user
from ludwig.config import DriveConfig, LabConfig, NodeConfig
from ludwig.drive import Drive, Watch
from ludwig.drives import write_format
from ludwig.drives.folder import FolderDrive
from ludwig.model import (
    Beat,
    Chunk,
    Claim,
    Done,
    Event,
    Git,
    Gpu,
    Job,
    Origin,
    Outcome,
    Refusal,
    Run,
    RunningAttempt,
    Slots,
    Task,
)

ZEROS = "0" * 64
GB = 1_000_000_000


class Bells:
    """Tells when changes of a drive are waited for, and whether a change ended the wait."""

    def __init__(self, drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
        self.armed = threading.Event()
        self.rang: list[bool] = []
        self._watch = drive.watch
        monkeypatch.setattr(drive, "watch", self._watched)

    def _watched(self, path: str) -> Watch:
        watch = self._watch(path)
        plain = watch.wait

        def wait(timeout: float) -> bool:
            self.armed.set()
            self.rang.append(plain(timeout))
            return self.rang[-1]

        watch.wait = wait  # type: ignore[method-assign]
        return watch


class FakeLab:
    """A folder drive with a project, and `ludwig.toml` beside it."""

    def __init__(
        self,
        folder: Path,
        *,
        project: str = "trees",
        hosts: Sequence[str] = ("hoff", "hebb"),
        silent_s: float = 60.0,
    ) -> None:
        self.folder, self.project, self.hosts = folder, project, tuple(hosts)
        self.root = folder / "drive"
        self.root.mkdir(parents=True, exist_ok=True)
        self.home = folder / project
        self.home.mkdir(exist_ok=True)
        self.drive = FolderDrive(self.root, poll_s=0.05)
        write_format(self.drive)
        self.drive.make_folders(layout.NODES)
        self.drive.make_folders(project)
        self.boot = secrets.token_hex(4)
        self._offsets: dict[tuple[int, str], int] = {}
        self._log_ends: dict[str, int] = {}
        self._counters: dict[str, int] = {}
        self.silent_s = silent_s
        self.toml = folder / "ludwig.toml"
        text = f'[drive]\nurl = "{self.root}"\nnode_silent_s = {silent_s}\n'
        for host in hosts:
            (folder / f"inbox-{host}").mkdir(exist_ok=True)
            text += f'\n[nodes.{host}]\naddress = "folder:{folder / f"inbox-{host}"}"\n'
        self.toml.write_text(text)

    @property
    def lab(self) -> Lab:
        addresses = {
            host: NodeConfig(address=f"folder:{self.folder}/inbox-{host}") for host in self.hosts
        }
        settings = DriveConfig(url=str(self.root), mount=self.root, node_silent_s=self.silent_s)
        return Lab(LabConfig(drive=settings, nodes=addresses), self.drive)

    @property
    def environment(self) -> dict[str, str]:
        """For the command `ludwig`."""
        return {
            **os.environ,
            "LUDWIG_CONFIG": str(self.toml),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "HOME": str(self.folder),
        }

    def submit(
        self,
        tasks: int = 4,
        *,
        user: str | None = None,
        hosts: Sequence[str] | None = None,
        **more: Any,
    ) -> Job:
        """A job whose tasks are dealt out to the hosts in turn."""
        number = registry.reserve_job(self.drive, self.project)
        stamp = f"2026-11-18-10-{number % 60:02d}-00"
        where = list(hosts or self.hosts)
        chunks: dict[str, list[Task]] = {host: [] for host in where}
        for index in range(tasks):
            host = where[index * len(where) // max(1, tasks)]
            run = Run(f"param_{index % 3 + 1:03d}", f"{stamp}_{host}_num{index}")
            offset = len(chunks[host])
            chunks[host].append(Task(index + 1, offset, 1, ZEROS, (run,)))
        params = codec.encode_params({f"param_{n:03d}": {"lr": n / 10} for n in (1, 2, 3)})
        git = Git(commit="4f0c9a1be2" * 4, dirty=True, ref=f"refs/ludwig/{number}", branch="main")
        origin = Origin(
            user=user or this_user(),
            host="laptop",
            folder="/home/ana/trees",
            ludwig="0.1.0",
            python="3.11.2",
            when=f"2026-11-18T10:{number % 60:02d}:00+01:00",
            git=git,
        )
        values: dict[str, Any] = {
            "project": self.project,
            "job": number,
            "nonce": secrets.token_hex(8),
            "stamp": stamp,
            "contract": "function",
            "entry": "run.py",
            "source": ZEROS,
            "params_sha256": codec.sha256(params),
            "chunks": {host: Chunk(tasks=tuple(given)) for host, given in chunks.items()},
            "origin": origin,
        }
        job = Job(**{**values, **more})
        job_records.publish_job(
            self.drive, job, {h: bytes(len(c)) for h, c in chunks.items() if c}, params
        )
        return job

    def accept(self, job: Job, *hosts: str) -> None:
        for host in hosts or self.hosts:
            self.tell(job, host, Event(what="accepted"))

    def tell(self, job: Job, host: str, event: Event) -> None:
        line = codec.encode(event)
        at = self._offsets.get((job.job, host), 0)
        path = layout.job_files(self.project, job.job).events_of(host, self.boot)
        self.drive.append(path, line, at=at)
        self._offsets[job.job, host] = at + len(line)

    def start(self, job: Job, task: int, host: str, attempt: int = 1) -> RunningAttempt:
        by = Claim(
            host=host,
            boot=self.boot,
            beat=self._counters.get(host, 0),
            nonce=secrets.token_hex(8),
        )
        assert queue.claim(self.drive, job, task, attempt, by)
        return RunningAttempt(
            project=self.project,
            job=job.job,
            task=task,
            attempt=attempt,
            user=job.origin.user,
            since="2026-11-18T10:02:11",
            gpus=("GPU-0",),
        )

    def log(self, job: Job, task: int, data: bytes, attempt: int = 1) -> None:
        path = layout.job_files(self.project, job.job).log_of(task, attempt)
        at = self._log_ends.get(path, 0)
        self.drive.append(path, data, at=at)
        self._log_ends[path] = at + len(data)

    def end(
        self,
        job: Job,
        task: int,
        outcome: Outcome = "done",
        *,
        host: str = "hoff",
        attempt: int = 1,
        why: str = "",
        tell: bool = True,
    ) -> Done:
        done = Done(
            task=task,
            attempt=attempt,
            outcome=outcome,
            host=host,
            nonce=secrets.token_hex(8),
            why=why,
            seconds=42.0,
            moved=False,
            files=((),),
        )
        queue.end(self.drive, job, done)
        if tell:
            self.tell(job, host, Event(what="ended", task=task, attempt=attempt, done=done))
        return done

    def refuse(self, job: Job, host: str, why: str) -> None:
        queue.refuse(self.drive, self.project, job.job, Refusal(host=host, why=why))

    def beat(self, host: str, *, age: float = 0.0, **more: Any) -> Beat:
        """A heartbeat, as old as the file server's clock has it."""
        counter = self._counters[host] = self._counters.get(host, 0) + 1
        values: dict[str, Any] = {
            "host": host,
            "boot": self.boot,
            "counter": counter,
            "state": "idle",
            "ludwig": "0.1.0",
            "slots": Slots(gpus=1, gpus_free=1),
            "gpus": (gpu(),),
        }
        beat = Beat(**{**values, **more})
        nodes.write_beat(self.drive, beat)
        if age:
            path = self.root / layout.beat_path(host, counter)
            then = path.stat().st_mtime - age
            os.utime(path, (then, then))
        return beat


def gpu(number: int = 0, **more: Any) -> Gpu:
    values: dict[str, Any] = {
        "name": "NVIDIA GeForce RTX 3090",
        "uuid": f"GPU-{number}",
        "utilization": 0.0,
        "memory_used": GB // 2,
        "memory_total": 24 * GB,
        "temperature": 41.0,
        "power": 30.0,
    }
    return Gpu(**{**values, **more})
