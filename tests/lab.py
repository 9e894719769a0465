"""A whole lab on this machine: a drive, agents as real processes, jobs submitted to them.

    with Lab(tmp_path, hosts=("hoff", "hebb")) as lab:
        lab.start()
        job = lab.submit(RUN, [{"lr": 0.1}], reps=2)
        lab.wait(job)

Agents are told apart by `hostname =`. Nothing outlives the lab, the jobs of dead agents included.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from textwrap import dedent
from types import TracebackType
from typing import Any, Self, TypeVar

from ludwig import codec, job_records, layout, nodes, queue
from ludwig.client.job import Job
from ludwig.client.lab import Lab as ClientLab
from ludwig.client.submit import Submission, submit
from ludwig.config import DriveConfig, LabConfig, NodeConfig
from ludwig.drives import open_drive, write_format
from ludwig.model import Beat, Done, Event
from tests.harness import Daemon, SmbServer, wait_until
from tests.jobs import tasks_in

T = TypeVar("T")

PROJECT = "trees"
PATIENCE_S = 60.0
"""Tests wait for conditions; this is only how long it takes to give up."""

RUN = """
def main(param2val):
    print("hello from", param2val["job_name"])
    return {"acc": __import__("pandas").Series([1, 2], name="acc")} if param2val.get("pd") else None
"""


class Agent(Daemon):
    """`ludwig-worker run` for one node. Its jobs are its children, but not its to take along."""

    def __init__(self, lab: Lab, host: str, settings: Mapping[str, Any]) -> None:
        self.lab, self.host = lab, host
        self.folder = lab.folder / host
        self.inbox = self.folder / "inbox"
        self.work = self.folder / "work"
        self.config = self.folder / "worker.toml"
        for name in ("tickets", "sources"):
            (self.inbox / name).mkdir(parents=True, exist_ok=True)
        self.configure(**settings)
        super().__init__(
            self._command(), log=self.folder / "agent.log", env={**os.environ, **lab.env}
        )
        self.name = f"agent {host}"

    def _command(self, *words: str) -> list[str]:
        words = words or ("run",)
        return [sys.executable, "-m", "ludwig.worker", *words, "--config", str(self.config)]

    def configure(self, *, drive: Mapping[str, Any] | None = None, **settings: Any) -> None:
        """Write worker.toml. For a running agent it counts from its next start."""
        usual: dict[str, Any] = {
            "hostname": self.host,
            "inbox": str(self.inbox),
            "work": str(self.work),
            "slots": 2,
            "grace_s": 1.0,
            "disk_free_min_gb": 0.01,
            "disk_max_percent": 99,
            "python": sys.executable,
        }
        if os.geteuid() == 0:
            usual["user"] = "root"
        lines = [f"{key} = {toml(value)}" for key, value in {**usual, **settings}.items()]
        lines += ["[drive]"]
        drive = {**self.lab.drive_settings, **(drive or {})}
        lines += [f"{key} = {toml(value)}" for key, value in drive.items()]
        self.config.parent.mkdir(parents=True, exist_ok=True)
        self.config.write_text("\n".join(lines) + "\n")

    def wrap(self, *words: str) -> None:
        """Have the next start happen below another command, such as `unshare -u`."""
        self.command = [*words, *self._command()]

    def kill_alone(self) -> None:
        """SIGKILL for the agent itself: what it started goes on."""
        os.kill(self.pid, signal.SIGKILL)
        self.await_end()

    def terminate(self) -> int:
        """SIGTERM, as systemd does with KillMode=process. Returns the exit status."""
        os.kill(self.pid, signal.SIGTERM)
        return self.await_end()

    def await_end(self) -> int:
        wait_until(lambda: self.poll() is not None, what=f"the end of {self.name}", timeout=30)
        self.running.discard(self)
        status = self.poll()
        assert status is not None
        return status

    def says(self, text: str) -> bool:
        return self.log.exists() and text in self.log.read_text()

    def lines(self, what: str) -> list[str]:
        """The lines of its log about one kind of transition."""
        return [line for line in self.log.read_text().splitlines() if f": {what} " in line]


def toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(toml, value)) + "]"
    return str(value) if isinstance(value, (int, float)) else f'"{value}"'


class Lab:
    """One drive, some agents (not started), one project."""

    def __init__(
        self,
        folder: Path,
        *,
        hosts: Sequence[str] = ("hoff",),
        smb: SmbServer | None = None,
        drive_folder: Path | None = None,
        silent_s: float = 2.0,
        project: str = PROJECT,
        env: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        self.folder, self.project = folder, project
        self.env = {**dict(env or {})}
        self.root = drive_folder or (smb.folder if smb else folder / "drive")
        self.root.mkdir(parents=True, exist_ok=True)
        self.drive_settings: dict[str, Any] = {"url": str(self.root), "node_silent_s": silent_s}
        password = None
        if smb is not None:
            self.drive_settings.update(url=smb.url, user=smb.user)
            self.env["LUDWIG_SMB_PASSWORD"] = password = smb.password
        self.home = folder / "home"
        self.home.mkdir(parents=True, exist_ok=True)
        self.agents = {host: Agent(self, host, settings) for host in hosts}
        self.config = LabConfig(
            drive=DriveConfig(**self.drive_settings),
            nodes={
                host: NodeConfig(address=f"folder:{agent.inbox}")
                for host, agent in self.agents.items()
            },
        )
        self.drive = open_drive(
            self.drive_settings["url"], user=self.drive_settings.get("user"), password=password
        )
        write_format(self.drive)
        self.client = ClientLab(self.config, self.drive)

    def __getitem__(self, host: str) -> Agent:
        return self.agents[host]

    def start(self, *hosts: str) -> None:
        """Start agents (all of them), and wait for their first heartbeats."""
        before = {host: self.beat(host) for host in hosts or self.agents}
        for host in before:
            self[host].start()
        for host, old in before.items():
            self.until(partial(self._is_new, host, old), f"a heartbeat of {host}")

    def _is_new(self, host: str, old: Beat | None) -> bool:
        beat = self.beat(host)
        return beat is not None and (old is None or beat.boot != old.boot)

    def until(self, predicate: Callable[[], T], what: str = "", timeout: float = PATIENCE_S) -> T:
        """Wait for a condition, as long as the agents that should live do."""
        alive = [agent for agent in self.agents.values() if agent in Daemon.running]
        return wait_until(predicate, what=what, timeout=timeout, alive=alive, interval=0.02)

    # --- jobs ----------------------------------------------------------------------------------

    def submit(
        self,
        run: str | Mapping[str, str] = RUN,
        params: Sequence[Mapping[str, Any]] = ({"lr": 0.1},),
        **options: Any,
    ) -> Job:
        """Submit a project with this run.py (or these files). `nodes`, `retries` … as in submit."""
        files = {"run.py": run} if isinstance(run, str) else run
        for name, text in {"src/__init__.py": "", **files}.items():
            path = self.home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(dedent(text))
        submission = Submission(
            src_ps=[self.home / "src"], param2val_list=list(params), root=self.home, **options
        )
        submitted = submit(self.client, self.project, submission)
        assert submitted.job is not None, submitted
        return Job(self.client, self.project, submitted.job)

    def wait(self, job: Job, timeout: float = PATIENCE_S) -> dict[int, Done]:
        """Wait until every task has ended; how each did."""

        def all_ended() -> bool:
            status = job.status()
            assert status.finished, f"{status}: {[(t.task, t.state, t.why) for t in status.tasks]}"
            return True

        self.until(all_ended, f"the end of job {job.id}", timeout)
        return self.ends(job)

    def ends(self, job: Job) -> dict[int, Done]:
        """What is in done/, read by itself: no agent's word is taken for it."""
        record = job_records.read_job(self.drive, job.project, job.id)
        found = {task: queue.read_done(self.drive, record, task) for task in tasks_in(record)}
        return {task: done for task, done in found.items() if done is not None}

    def outcomes(self, job: Job) -> list[str]:
        return [done.outcome for _, done in sorted(self.ends(job).items())]

    def runs(self, job: Job) -> dict[int, list[Path]]:
        """The folders in runs/ of each task that has them."""
        record = job_records.read_job(self.drive, job.project, job.id)
        files = layout.project_files(job.project)
        return {
            task: [
                self.root / files.run(run.param_name, run.job_name)
                for run in spec.runs
                if (self.root / files.run(run.param_name, run.job_name)).is_dir()
            ]
            for task, (_, spec) in tasks_in(record).items()
        }

    def job_folder(self, job: Job) -> Path:
        return self.root / layout.job_files(job.project, job.id).folder

    def log(self, job: Job, task: int, attempt: int = 1) -> str:
        path = self.root / layout.job_files(job.project, job.id).log_of(task, attempt)
        return path.read_text() if path.exists() else ""

    def events(self, job: Job, what: str | None = None) -> list[Event]:
        """Of all nodes and boots."""
        found: list[Event] = []
        for path in sorted((self.job_folder(job) / "events").glob("*.jsonl")):
            events, _, problems = codec.decode_lines(Event, path.read_bytes(), str(path))
            assert not problems, problems
            found += [event for event in events if what in (None, event.what)]
        return found

    def claims(self, job: Job) -> list[str]:
        return sorted(path.name for path in (self.job_folder(job) / "claims").glob("*/*"))

    # --- nodes ---------------------------------------------------------------------------------

    def beat(self, host: str) -> Beat | None:
        """The latest heartbeat."""
        observer = nodes.Observer(self.drive, silent_s=60)
        observer.look(0.0, read=[host])
        return observer.beat(host)

    def processes(self) -> set[int]:
        """Every process of every attempt in this lab, by the mark in its environment."""
        mark = os.fsencode(f"LUDWIG_STOP={self.folder}")
        found = set()
        for entry in os.scandir("/proc"):
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    state = Path(entry.path, "stat").read_text().rpartition(")")[2].split()[0]
                    variables = Path(entry.path, "environ").read_bytes().split(b"\0")
                    if state != "Z" and any(v.startswith(mark) for v in variables):
                        found.add(int(entry.name))
        return found

    def close(self) -> None:
        for agent in self.agents.values():
            if agent.poll() is None:
                agent.kill()
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.drive.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
        if error is not None:
            for agent in self.agents.values():
                print(f"--- {agent.name}\n{agent.log_tail(60)}", file=sys.stderr)
