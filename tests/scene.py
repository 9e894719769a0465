"""A job of four tasks on two nodes, as an observer sees it, with time that the test passes."""

from pathlib import Path
from typing import Any

from ludwig import codec, job_records, layout, queue, states
from ludwig.drives.folder import FolderDrive
from ludwig.model import Beat, Claim, Event, RunningAttempt
from ludwig.nodes import Observer, write_beat
from ludwig.view import JobView
from tests.simsubmit import job_record

SILENT_S = 60.0


class Scene:
    """Four tasks: 1 and 3 at home on hoff, 2 and 4 on hebb. Time goes on in small steps."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.drive = FolderDrive(folder)
        self.job, chunks, params = job_record(
            "trees",
            1,
            {"param_001": {"lr": 1}},
            {"param_001": 4},
            hosts=["hoff", "hebb"],
            nonce="12345678",
            stamp="2026-11-18-10-00-00",
            **settings,
        )
        job_records.publish_job(self.drive, self.job, chunks, params)
        self.drive.make_folders(layout.NODES)
        self.files = layout.job_files("trees", 1)
        self.view = JobView(self.drive, self.job)
        self.observer = Observer(self.drive, silent_s=SILENT_S)
        self.now = 0.0
        self.counters: dict[str, int] = {}
        self.sent: dict[str, int] = {}

    def beat(self, host: str, *held: tuple[int, int], boot: str = "b", **fields: Any) -> None:
        self.counters[host] = counter = self.counters.get(host, 0) + 1
        phase = fields.pop("phase", "running")
        running = tuple(
            RunningAttempt(project="trees", job=1, task=task, attempt=attempt, phase=phase)
            for task, attempt in held
        )
        given = {"state": "busy" if held else "idle", **fields}
        beat = Beat(host=host, boot=boot, counter=counter, running=running, **given)
        write_beat(self.drive, beat)

    def event(self, host: str, **fields: Any) -> None:
        data = codec.encode(Event(**fields))
        at = self.sent.get(host, 0)
        self.drive.append(self.files.events_of(host, "b"), data, at=at)
        self.sent[host] = at + len(data)

    def serve(self, *hosts: str) -> None:
        for host in hosts:
            self.event(host, what="accepted")
            self.beat(host)

    def claim(self, host: str, task: int, attempt: int = 1, **fields: Any) -> None:
        given = {"boot": "b", "beat": self.counters.get(host, 0), **fields}
        claim = Claim(host=host, nonce=f"{host}-{task}-{attempt}-nonce", **given)
        assert queue.claim(self.drive, self.job, task, attempt, claim)

    def look(self) -> None:
        self.observer.look(self.now)
        self.view.refresh()

    def wait(self, seconds: float, *speaking: str) -> None:
        """Time passes; only the nodes named go on beating, holding nothing."""
        end = self.now + seconds
        while self.now < end:
            self.now += 10.0
            for host in speaking:
                self.beat(host)
            self.look()
            states.task_states(self.view, self.observer, self.now)

    def row(self, task: int) -> states.TaskStatus:
        self.look()
        rows = states.task_states(self.view, self.observer, self.now)
        assert all(row.why for row in rows)
        return rows[task - 1]

    def retakes(self, host: str = "hebb") -> dict[int, states.Retake]:
        self.look()
        found = states.retakes(self.view, self.observer, host, self.now)
        return {retake.task: retake for retake in found}
