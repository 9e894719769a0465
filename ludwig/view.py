"""What the drive says of one job right now, read with few requests.

A `JobView` lists (claims, ends, stop files, refusals) and reads those event files that have grown,
each from where it left off; so the cost grows with the nodes that have something to tell, not with
the tasks. Decides nothing: `states.py` does.
"""

from __future__ import annotations

from contextlib import suppress

from ludwig import codec, errors, layout, queue, records
from ludwig.drive import Drive, Entry
from ludwig.model import Claim, Done, Event, Job, Refusal

__all__ = ["JobView"]

_EVENTS_LIMIT = 64 << 20
"""How much of an event file is read at once; no line is longer."""

_CLAIMED = frozenset({"claimed", "started", "failed", "released"})


class JobView:
    """Call `refresh` to look again. Files that make no sense are passed over and named in
    `problems`; they never raise."""

    def __init__(self, drive: Drive, job: Job) -> None:
        self.job = job
        self._drive = drive
        self._files = layout.job_files(job.project, job.job)
        self._offsets: dict[str, int] = {}
        self._claims_read: dict[tuple[int, int], Claim | None] = {}
        self._tasks = frozenset(job.tasks())
        self.claims: dict[int, int] = {}
        """task → its latest attempt."""
        self.done: set[int] = set()
        self.stops: set[int] = set()
        """Stopped tasks; 0 is the whole job."""
        self.ended: dict[int, Done] = {}
        self.failed: dict[tuple[int, int], Event] = {}
        self.released: dict[tuple[int, int], Event] = {}
        self.accepted: set[str] = set()
        self.refusals: dict[str, str] = {}
        self.unclear: dict[tuple[int, int], float] = {}
        """When (by our clock) an attempt was first seen whose claim does not say whose it is."""
        self.problems: dict[str, str] = {}
        """path → what is wrong with it."""
        self.there = True
        """Whether `job.json` was in the job's folder at the last look at the stops."""

    def get_to_know(self) -> None:
        """A first look, before anything is claimed: a job that nobody has begun has no story to
        read, though every node has an event file by then."""
        self.look_at_ends()
        self.look_at_claims()
        self.look_at_stops()
        self.look_at_refusals()
        if self.claims or self.done:
            self.look_at_events()

    def refresh(self) -> None:
        """Look again at everything."""
        self.look_at_ends()
        self.look_at_claims()
        self.look_at_stops()
        self.look_at_refusals()
        self.look_at_events()

    def _list(self, folder: str) -> list[str]:
        try:
            return self._drive.list(folder)
        except errors.NotFound:
            return []
        except errors.WrongKind as error:
            self.problems[folder] = error.reason
            return []

    def _scan(self, folder: str) -> list[Entry]:
        try:
            return self._drive.scan(folder)
        except errors.NotFound:
            return []
        except errors.WrongKind as error:
            self.problems[folder] = error.reason
            return []

    def look_at_ends(self) -> None:
        for name in self._list(self._files.done):
            task = layout.parse_task(name)
            if task in self._tasks:
                self.done.add(task)

    def look_at_claims(self) -> None:
        for name in self._list(self._files.claims):
            found = layout.parse_attempt(name)
            if found and found[0] in self._tasks:
                task, attempt = found
                self.claims[task] = max(attempt, self.claims.get(task, 0))

    def look_at_stops(self) -> None:
        """One listing, which also tells whether the job is still there."""
        names = self._list(self._files.folder)
        self.there = self._files.record.rpartition("/")[2] in names
        for name in names:
            task = layout.parse_stop(name)
            if task is not None:
                self.stops.add(task)

    def look_at_refusals(self) -> None:
        """A node that lets the job in after all takes its refusal back."""
        names = self._list(self._files.refused)
        found = {host for name in names if (host := layout.parse_refusal(name))}
        for taken_back in self.refusals.keys() - found:
            del self.refusals[taken_back]
        for host in found & self.job.chunks.keys() - self.refusals.keys():
            path = self._files.refused_by(host)
            try:
                self.refusals[host] = records.read_record(Refusal, self._drive, path).why
            except errors.Malformed as error:
                self.problems[path] = error.reason
                self.refusals[host] = "it does not say why"
            except errors.NotFound:
                continue

    def look_at_events(self) -> None:
        """Read what has been appended. The size that a mount tells may be a second old: what is
        behind it is read at a later look, when the size has come after."""
        for entry in self._scan(self._files.events):
            name, found = entry.name, layout.parse_events(entry.name)
            if found is None or not (entry.is_folder or entry.size > self._offsets.get(name, 0)):
                continue
            host, boot = found
            path = self._files.events_of(host, boot)
            with suppress(errors.NotFound):
                try:
                    events = self._new_events(name, path)
                except (errors.WrongKind, errors.NoPermission) as error:
                    self.problems[path] = error.reason
                    continue
                for event in events:
                    self._note(host, event)

    def _new_events(self, name: str, path: str) -> list[Event]:
        offset = self._offsets.get(name, 0)
        data = self._drive.read(path, offset=offset, limit=_EVENTS_LIMIT)
        events, used, problems = codec.decode_lines(Event, data, path)
        if not used and len(data) == _EVENTS_LIMIT:
            used, problems = len(data), [f"a line of more than {_EVENTS_LIMIT:,} bytes"]
        self._offsets[name] = offset + used
        if problems:
            self.problems[path] = problems[-1]
        return events

    def _note(self, host: str, event: Event) -> None:
        key = (event.task, event.attempt)
        if event.what in _CLAIMED and event.attempt and event.task in self._tasks:
            # Should somebody have removed the claim: its number must not be used again.
            self.claims[event.task] = max(event.attempt, self.claims.get(event.task, 0))
        if event.what == "accepted":
            self.accepted.add(host)
        elif event.what == "failed":
            self.failed[key] = event
        elif event.what == "released":
            self.released[key] = event
        elif event.what == "ended" and event.done and event.done.task in self._tasks:
            # Counts even if somebody has removed done/<task> since: it must not run again.
            self.ended.setdefault(event.done.task, event.done)
            self.done.add(event.done.task)

    def end_of(self, task: int) -> Done | None:
        """How a task ended: from the events, else from its own file."""
        if task not in self.done:
            return None
        if task not in self.ended:
            path = self._files.done_of(task)
            try:
                found = queue.read_done(self._drive, self.job, task)
            except errors.Malformed as error:
                self.problems[path] = error.reason
                return None
            if found is None:
                return None
            self.ended[task] = found
        return self.ended[task]

    def owner(self, task: int) -> Claim | None:
        """Who holds the latest attempt. None when the claim does not say (yet)."""
        attempt = self.claims.get(task)
        if attempt is None:
            return None
        if (known := self._claims_read.get((task, attempt))) is not None:
            return known
        path = self._files.claim_of(task, attempt)
        try:
            claim = records.read_record(Claim, self._drive, path)
        except errors.NotFound:
            return None
        except errors.Malformed as error:
            self.problems[path] = error.reason
            return None
        self._claims_read[(task, attempt)] = claim
        return claim

    def stopped(self, task: int) -> bool:
        return 0 in self.stops or task in self.stops

    def open_tasks(self) -> set[int]:
        """Tasks that have not ended and are not cancelled."""
        if 0 in self.stops:
            return set()
        return set(self._tasks) - self.done - self.stops

    def finished(self) -> bool:
        """Whether every task has ended."""
        return self.done >= self._tasks

    def over(self) -> bool:
        """Whether no task is open any more."""
        return len(self.done) >= len(self._tasks) or not self.open_tasks()
