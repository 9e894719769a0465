"""Whether a user can see what the adversary did, and why: in what `ludwig status` and `nodes` say.

Logs are not judged: they are the user's own words, and `ludwig logs` shows them as they are. Nor
are heartbeats: the next one takes the place of one that was harmed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ludwig import codec, errors, layout
from ludwig.client.job import Job
from ludwig.client.lab import Lab
from ludwig.client.lookout import Lookout
from ludwig.model import Claim, Done, Event
from tests.harness import wait_until

__all__ = ["Eyes"]

JUDGED = ("claims", "events", "done")
GIVE_UP_S = 10.0


@dataclass
class Eyes:
    """Looks afresh every time, as a command does. What cannot be seen is handed to `say`."""

    lab: Lab
    root: Path
    say: Callable[[str], None]
    harmed: dict[str, bytes] = field(default_factory=dict)
    """path → what was in it before it was first harmed."""
    seen: int = 0
    """How many things were looked for and found."""

    # --- while it happens ------------------------------------------------------------------------

    def expect_silent(self, host: str) -> None:
        """For a node that has been dead or cut off for longer than it may be silent."""

        def shown() -> bool:
            rows = [node.as_json() for node in Lookout(self.lab).nodes()]
            (row,) = (row for row in rows if row["host"] == host)
            assert row["state"] == "silent" and row["why"], row
            return True

        self._expect(shown, f"{host} is silent")

    def expect_full(self, job: Job) -> None:
        def shown() -> bool:
            status = Job(self.lab, job.project, job.id).status()
            text = str(status.as_json()["problems"])
            assert "the drive is full" in text or status.finished, text
            return True

        self._expect(shown, "the drive is full")

    def _expect(self, shown: Callable[[], bool], what: str) -> None:
        def looked() -> bool:
            try:
                return shown()
            except errors.DriveError as error:
                raise AssertionError(str(error)) from error

        try:
            wait_until(looked, timeout=GIVE_UP_S, interval=0.1)
            self.seen += 1
        except AssertionError as error:
            self.say(f"nobody could see that {what}: {error}")

    def note_harm(self, path: Path, before: bytes) -> None:
        self.harmed.setdefault(str(path.relative_to(self.root)), before)

    # --- in the end ------------------------------------------------------------------------------

    def judge(self, job: Job) -> None:
        """Every retry, every cancelled task and every harmed file of a job has a reason to read."""
        shown = Job(self.lab, job.project, job.id).status().as_json()
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
        kind, now = Path(path).parent.name, _content(self.root / path)
        if kind not in JUDGED:
            return False
        if kind == "events":
            claims = self.root / Path(path).parents[1] / "claims"
            names = {layout.attempt_name(*one) for one in _told(self.harmed[path])}
            now_told = {layout.attempt_name(*one) for one in _told(now or b"")}
            return any(_reads(Claim, _content(claims / name)) for name in names - now_told)
        if now is not None:
            return not _reads(Claim if kind == "claims" else Done, now)
        attempt = layout.parse_attempt(Path(path).name) if kind == "claims" else None
        events = (self.root / Path(path).parents[1] / "events").glob("*.jsonl")
        return attempt is None or any(attempt in _told(file.read_bytes()) for file in events)


def _tries(folder: Path) -> dict[int, int]:
    """task → how many attempts there were, by the claims that are left."""
    found: dict[int, int] = {}
    for path in (folder / "claims").iterdir():
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
