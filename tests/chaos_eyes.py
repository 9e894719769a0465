"""Whether a user can see what the adversary did, and why: in what `ludwig status` and `nodes` say.

Every look is a new process of the real command, as a person in a terminal would start it.

Logs are not judged: they are the user's own words, and `ludwig logs` shows them as they are. Nor
are heartbeats: the next one takes the place of one that was harmed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ludwig import codec, errors, layout
from ludwig.client.audit import LOOKED_INTO
from ludwig.client.job import Job
from ludwig.model import Claim, Done, Event
from tests.harness import wait_until

__all__ = ["Eyes"]

JUDGED = ("claims", "events", "done")
GIVE_UP_S = 30.0
COMMAND_S = 120.0


@dataclass
class Eyes:
    """Looks afresh every time, as a command does. What cannot be seen is handed to `say`."""

    root: Path
    environment: Mapping[str, str]
    """In which the command `ludwig` finds the lab."""
    say: Callable[[str], None]
    harmed: dict[str, bytes] = field(default_factory=dict)
    """path → what was in it before it was first harmed."""
    seen: int = 0
    """How many things were looked for and found."""

    def run(self, *words: str) -> str:
        """What the command prints. It may fail as commands do when the drive is away, no worse."""
        command = [str(Path(sys.executable).with_name("ludwig")), *words]
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=COMMAND_S
        )
        if "Traceback" in done.stderr or done.returncode not in (0, 1):
            self.say(f"`ludwig {' '.join(words)}` ended with {done.returncode}: {done.stderr}")
        assert done.returncode == 0, done.stderr
        return done.stdout

    def status(self, job: Job) -> dict[str, Any]:
        shown = json.loads(self.run("status", "-p", job.project, str(job.id), "--json"))
        (found,) = shown["jobs"]
        assert isinstance(found, dict)
        return found

    # --- while it happens ------------------------------------------------------------------------

    def expect_silent(self, host: str) -> None:
        """For a node that has been dead or cut off for longer than it may be silent."""

        def shown() -> bool:
            rows = json.loads(self.run("nodes", "--json"))
            (row,) = (row for row in rows if row["host"] == host)
            assert row["state"] == "silent" and row["why"], row
            return True

        self._expect(shown, f"{host} is silent")

    def expect_full(self, job: Job) -> None:
        def shown() -> bool:
            status = self.status(job)
            text = str(status["problems"])
            over = not status["counts"]["running"] and not status["counts"]["queued"]
            assert "the drive is full" in text or over, text
            return True

        self._expect(shown, "the drive is full")

    def _expect(self, shown: Callable[[], bool], what: str) -> None:
        try:
            wait_until(shown, timeout=GIVE_UP_S, interval=0.1)
            self.seen += 1
        except AssertionError as error:
            self.say(f"nobody could see that {what}: {error}")

    def note_harm(self, path: Path, before: bytes) -> None:
        self.harmed.setdefault(str(path.relative_to(self.root)), before)

    # --- in the end ------------------------------------------------------------------------------

    def judge(self, job: Job) -> None:
        """Every retry, every cancelled task and every harmed file of a job has a reason to read."""
        shown = wait_until(lambda: self.status(job), timeout=GIVE_UP_S, what="`ludwig status`")
        folder = self.root / layout.job_files(job.project, job.id).folder
        tries = _tries(folder)
        for row in shown["tasks"]:
            for trouble in _unexplained(row, tries.get(row["task"], 1)):
                self.say(f"{job.project} task {row['task']}: {trouble}: {row}")
            self.seen += tries.get(row["task"], 1) > 1 or row["state"] == "stopped"
        inside = f"{folder.relative_to(self.root)}/"
        for path in (path for path in self.harmed if path.startswith(inside)):
            if path in shown["problems"]:
                self.seen += 1
            elif self._must_show(path):
                self.say(f"{path} was harmed, and nobody could see it: {shown['problems']}")

    def _must_show(self, path: str) -> bool:
        """Unless it is whole again, or everything that told of it was harmed as well."""
        project, _, _, number, kind = Path(path).parts[:5]
        files, now = layout.job_files(project, int(number)), _content(self.root / path)
        if kind not in JUDGED:
            return False
        if kind == "events":
            untold = _told(self.harmed[path]) - _told(now or b"")
            harmed = [self.harmed[one] for one in self.harmed if one.startswith(files.events)]
            if len(untold) < sum(len(_told(one)) for one in harmed) / LOOKED_INTO * 2:
                return False  # a few of very many: a look at some of them may miss these
            return any(_reads(Claim, _content(self.root / files.claim_of(*one))) for one in untold)
        if now is not None:
            return not _reads(Claim if kind == "claims" else Done, now)
        attempt = layout.parse_attempt(Path(path).name) if kind == "claims" else None
        events = (self.root / files.events).glob("*.jsonl")
        return attempt is None or any(attempt in _told(file.read_bytes()) for file in events)


def _tries(folder: Path) -> dict[int, int]:
    """task → how many attempts there were, by the claims that are left."""
    found: dict[int, int] = {}
    for path in (folder / "claims").glob("*/*"):
        task, attempt = layout.parse_attempt(path.name) or (0, 0)
        found[task] = max(attempt, found.get(task, 0))
    return found


def _unexplained(row: dict[str, Any], tries: int) -> Iterator[str]:
    if not row["why"]:
        yield "no reason is given"
    if tries > 1 and "attempt" not in row["why"]:
        yield f"nobody can see why there were {tries} attempts"
    if row["state"] == "stopped" and "cancel" not in row["why"]:
        yield "nobody can see that it was cancelled"


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _reads(kind: type[Claim] | type[Done], data: bytes | None) -> bool:
    try:
        return data is not None and bool(codec.decode(kind, data, ""))
    except errors.Malformed:
        return False


def _told(data: bytes) -> set[tuple[int, int]]:
    events, _, _ = codec.decode_lines(Event, data, "")
    return {(event.task, event.attempt) for event in events if event.what == "claimed"}
