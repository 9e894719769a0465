"""What is wrong with the files of a job that only nodes write: gone, cut short, or not telling.

Nothing is decided by this: agents get along without the files it names. It is for people, who have
to know that somebody or something else writes to the drive. Costs two listings for each thousand
tasks, and a few requests for what looks wrong at first; what agents are about to write is not taken
for missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from ludwig import errors, layout, queue, records
from ludwig.drive import Drive, Entry
from ludwig.model import Claim
from ludwig.view import JobView

__all__ = ["audit"]

LOOKED_INTO = 20
"""Of each kind of trouble: enough to know, and no load where a whole folder was removed."""
SHORT = 64
"""Bytes. What a node writes is longer; shorter files are read to see whether they make sense."""


def audit(drive: Drive, view: JobView) -> dict[str, str]:
    """path → what is wrong with it. `view` has just been refreshed."""
    found = _Listed(drive, view)
    checks = (_gone, _cut_short, _not_told)
    return {path: why for check in checks for path, why in check(drive, view, found)}


class _Listed:
    """What the folders hold, in the buckets that are looked into, as far as the view knows of it.

    What came after the view was refreshed is too new to be judged.
    """

    def __init__(self, drive: Drive, view: JobView) -> None:
        self.files = layout.job_files(view.job.project, view.job.job)
        self.buckets = set(islice(sorted(layout.buckets_of(view.tasks)), LOOKED_INTO))
        self.ends: dict[int, int] = {}
        """task → bytes."""
        self.claims: dict[tuple[int, int], int] = {}
        for bucket in self.buckets:
            for entry in _entries(drive, self.files.done_in(bucket)):
                task = layout.parse_task(entry.name)
                if task is not None and task in view.tasks:
                    self.ends[task] = entry.size
            for entry in _entries(drive, self.files.claims_in(bucket)):
                found = layout.parse_attempt(entry.name)
                if found and found[0] in view.done:
                    # Of a bucket that has ended a view lists no claims: what it knows of them it
                    # has from events, which may be gone.
                    view.note_claim(*found)
                if found and found[1] <= view.claims.get(found[0], 0):
                    self.claims[found] = entry.size

    def covers(self, task: int) -> bool:
        return layout.bucket_of(task) in self.buckets


def _entries(drive: Drive, folder: str) -> list[Entry]:
    try:
        return [entry for entry in drive.scan(folder) if not entry.is_folder]
    except (errors.NotFound, errors.WrongKind):
        return []


def _gone(drive: Drive, view: JobView, found: _Listed) -> Iterator[tuple[str, str]]:
    """Events tell of it, but it is not there."""
    ends = sorted(task for task in view.done - found.ends.keys() if found.covers(task))
    claims = sorted(
        key for key in view.reasons.keys() - found.claims.keys() if found.covers(key[0])
    )
    told = [found.files.done_of(task) for task in ends]
    told += [found.files.claim_of(task, attempt) for task, attempt in claims]
    for path in told[:LOOKED_INTO]:
        if not drive.exists(path):
            yield path, "a node wrote it, and now it is gone: somebody removed it"


def _cut_short(drive: Drive, view: JobView, found: _Listed) -> Iterator[tuple[str, str]]:
    for task in islice(sorted(t for t, size in found.ends.items() if size < SHORT), LOOKED_INTO):
        try:
            queue.read_done(drive, view.job, task)
        except errors.Malformed as error:
            yield error.path, error.reason
    short = sorted(key for key, size in found.claims.items() if size < SHORT)
    for key in short[:LOOKED_INTO]:
        try:
            records.read_record(Claim, drive, found.files.claim_of(*key))
        except errors.NotFound:
            continue
        except errors.Malformed as error:
            if not _is_fresh(view, *key):
                yield error.path, error.reason


def _is_fresh(view: JobView, task: int, attempt: int) -> bool:
    """Whether its node may be about to write it, or to tell of it."""
    return task not in view.done and attempt == view.claims.get(task)


def _not_told(drive: Drive, view: JobView, found: _Listed) -> Iterator[tuple[str, str]]:
    """There is a claim, but its node's events do not tell of it."""
    files = found.files
    silent = sorted(found.claims.keys() - view.reasons.keys())
    # A node's tasks are in a row: some of each node's, if there are more than one may look into.
    for task, attempt in silent[:: len(silent) // LOOKED_INTO + 1]:
        if _is_fresh(view, task, attempt):
            continue
        try:
            claim = records.read_record(Claim, drive, files.claim_of(task, attempt))
        except (errors.NotFound, errors.Malformed):
            continue
        path = files.events_of(claim.host, claim.boot)
        if drive.exists(path):
            what = f"attempt {attempt} of task {task}, which {claim.host} claimed"
            why = "the agent was killed just then, or somebody changed the file"
            yield path, f"it does not tell of {what}: {why}"
        else:
            yield path, f"{claim.host} worked on this job, and its events are gone"
