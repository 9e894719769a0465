"""What the drive says of one job right now, read with few requests.

A `JobView` lists (claims, ends, stop files, refusals) and reads those event files that have grown,
each from where it left off; so the cost grows with the nodes that have something to tell, not with
the tasks. Decides nothing: `states.py` does.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeVar

from ludwig import codec, errors, job_records, layout, queue, records
from ludwig.drive import Drive, Entry
from ludwig.model import Claim, Done, Event, Job, Refusal

__all__ = ["RECORD_LOST", "JobView"]

T = TypeVar("T")

_EVENTS_LIMIT = 64 << 20
"""How much of an event file is read at once; no line is longer."""

OTHER_BUCKETS = 8
"""Of how many buckets beside its own share's a node looks at the claims and ends at a time."""

RECORD_LOST = "its results are in runs/; the record of its end was lost"
"""Why of an end that is known by its results alone."""

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
        self.tasks = job_records.tasks_of(drive, job)
        self._homes: dict[str, tuple[int, ...]] = {}
        self._unended: Counter[int] = Counter()
        """bucket → how many of its tasks have not ended. One without any is not listed again."""
        for home, chunk in job.chunks.items():
            found = layout.buckets_of(chunk.numbers)
            self._homes[home] = tuple(found)
            self._unended.update(found)
        self.claims: dict[int, int] = {}
        """task → its latest attempt."""
        self.done: set[int] = set()
        self.stops: set[int] = set()
        """Stopped tasks; 0 is the whole job."""
        self.ended: dict[int, Done] = {}
        self.failed: dict[tuple[int, int], Event] = {}
        self.released: dict[tuple[int, int], Event] = {}
        self.reasons: dict[tuple[int, int], str] = {}
        """(task, attempt) → why it was claimed; empty for the first."""
        self.accepted: set[str] = set()
        self.refusals: dict[str, str] = {}
        self.unclear: dict[tuple[int, int], float] = {}
        """When (by our clock) an attempt was first seen whose claim does not say whose it is."""
        self.problems: dict[str, str] = {}
        """path → what is wrong with it."""
        self.there = True
        """Whether `job.json` was in the job's folder at the last look at the stops."""

    def refresh(self) -> None:
        """Look again at everything that can still change."""
        self.look_at_ends()
        self.look_at_claims()
        self.look_at_stops()
        self.look_at_refusals()
        self.look_at_events()

    def refresh_for(self, home: str, *, first: bool = False) -> None:
        """Look again, as one of many nodes: at what others say, at our own share, and at some
        of the rest. What everybody has done of a large job, no node has to know at once.

        At the `first` look nothing is taken over yet. A share that nobody has begun has no story
        to read then, though every node has an event file; and of a large job, other buckets can
        wait: else all nodes would read about all, at the moment when a job starts.
        """
        if not first:
            self.look_at_events()
        own = self._homes.get(home, ())
        others = sorted(self._unended.keys() - set(own))
        if len(others) > OTHER_BUCKETS:
            others = [] if first else random.sample(others, OTHER_BUCKETS)
        self.look_at_buckets([*own, *others])
        self.look_at_stops()
        self.look_at_refusals()
        if first and self._is_begun(home):
            self.look_at_events()

    def _is_begun(self, home: str) -> bool:
        """Whether anything of a share was claimed or has ended; a home without one: of the job."""
        chunk = self.job.chunks.get(home)
        if chunk is None or not chunk.numbers:
            return bool(self.claims or self.done)
        return any(task in self.claims or task in self.done for task in chunk.numbers)

    def look_at_buckets(self, buckets: Iterable[int]) -> None:
        """At the ends and claims of these: ends first, as for every judgement on a state."""
        buckets = list(buckets)
        self.look_at_ends(buckets)
        self.look_at_claims(buckets)

    def look_at_shares(self, homes: Iterable[str]) -> None:
        """At what is left of these nodes' shares, in order to claim it: what has ended was claimed
        before."""
        self.look_at_claims({b for home in homes for b in self._homes.get(home, ())})

    def look_at_claim(self, task: int) -> bool:
        """Whether somebody has claimed this one. Listing its bucket costs the server as much as
        some dozens of these."""
        if self._drive.exists(self._files.claim_of(task, 1)):
            self.note_claim(task, 1)
            return True
        return False

    def homes_in(self, buckets: Iterable[int]) -> list[str]:
        """Whose tasks are all in these buckets."""
        known = set(buckets)
        return [home for home, own in self._homes.items() if own and known.issuperset(own)]

    def buckets_of(self, home: str) -> tuple[int, ...]:
        return self._homes.get(home, ())

    def _open_buckets(self, wanted: Iterable[int] | None) -> list[int]:
        return sorted(self._unended if wanted is None else self._unended.keys() & set(wanted))

    def _list(self, folder: str) -> list[str]:
        return self._what_is_in(folder, self._drive.list)

    def _scan(self, folder: str) -> list[Entry]:
        return self._what_is_in(folder, self._drive.scan)

    def _what_is_in(self, folder: str, look: Callable[[str], list[T]]) -> list[T]:
        try:
            return look(folder)
        except errors.NotFound:
            return []
        except errors.WrongKind as error:
            self.problems[folder] = error.reason
            return []

    def look_at_ends(self, buckets: Iterable[int] | None = None) -> None:
        """In these buckets, or in all that have tasks which have not ended."""
        for bucket in self._open_buckets(buckets):
            for name in self._list(self._files.done_in(bucket)):
                task = layout.parse_task(name)
                if task is not None:
                    self.note_end(task)

    def look_at_claims(self, buckets: Iterable[int] | None = None) -> None:
        """In these buckets, or in all that have tasks which have not ended."""
        for bucket in self._open_buckets(buckets):
            for name in self._list(self._files.claims_in(bucket)):
                if found := layout.parse_attempt(name):
                    self.note_claim(*found)

    def note_claim(self, task: int, attempt: int) -> None:
        if task in self.tasks:
            self.claims[task] = max(attempt, self.claims.get(task, 0))

    def note_end(self, task: int) -> None:
        if task in self.tasks and task not in self.done:
            self.done.add(task)
            bucket = layout.bucket_of(task)
            self._unended[bucket] -= 1
            if self._unended[bucket] <= 0:
                del self._unended[bucket]

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
        if event.what in _CLAIMED and event.attempt:
            # Should somebody have removed the claim: its number must not be used again.
            self.note_claim(event.task, event.attempt)
        if event.what == "claimed" and event.task in self.tasks:
            self.reasons[key] = event.why
        if event.what == "accepted":
            self.accepted.add(host)
        elif event.what == "failed":
            self.failed[key] = event
        elif event.what == "released":
            self.released[key] = event
        elif event.what == "ended" and event.done and event.done.task in self.tasks:
            # Counts even if somebody has removed done/<task> since: it must not run again.
            self.ended.setdefault(event.done.task, event.done)
            self.note_end(event.done.task)

    def end_of(self, task: int) -> Done | None:
        """How a task ended: from the events, else from its own file."""
        if task not in self.done:
            return None
        if task not in self.ended:
            path = self._files.done_of(task)
            found = None
            try:
                found = queue.read_done(self._drive, self.job, task)
            except errors.Malformed as error:
                self.problems[path] = error.reason
            if found is not None:
                self.ended[task] = found
            elif not self.left_results(task):
                return None
        return self.ended[task]

    def left_results(self, task: int) -> bool:
        """Whether a task ended well though nobody has told so, or nobody can read it any more.

        Only whoever had published the end moved results to `runs/`: they outlive every record of
        it. Scripts, which may write there before they have ended, prove nothing.
        """
        if self.job.contract != "function":
            return False
        files = layout.project_files(self.job.project)
        runs = self.tasks[task][1].runs
        if not all(self._drive.exists(files.run(r.param_name, r.job_name)) for r in runs):
            return False
        path = self._files.done_of(task)
        found = None
        try:  # it may have ended since we looked
            found = queue.read_done(self._drive, self.job, task)
        except errors.Malformed as error:
            self.problems[path] = error.reason
        else:
            if found is None:
                self.problems[path] = "somebody removed it, and no event tells of that end"
        self.ended[task] = found or self._end_without_record(task)
        self.note_end(task)
        return True

    def _end_without_record(self, task: int) -> Done:
        claim = self.owner(task)
        return Done(
            task=task,
            attempt=self.claims.get(task, 0),
            outcome="done",
            host=claim.host if claim else "",
            nonce="",
            why=RECORD_LOST,
            moved=False,  # there is no list of its files: whoever wants them looks
        )

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

    def is_open(self, task: int) -> bool:
        """Whether a task of the job has not ended and is not cancelled."""
        return task not in self.done and not self.stopped(task)

    def open_tasks(self) -> set[int]:
        """Tasks that have not ended and are not cancelled."""
        if 0 in self.stops:
            return set()
        return set(self.tasks) - self.done - self.stops

    def finished(self) -> bool:
        """Whether every task has ended."""
        return len(self.done) >= len(self.tasks)

    def over(self) -> bool:
        """Whether no task is open any more."""
        return self.finished() or not self.open_tasks()
