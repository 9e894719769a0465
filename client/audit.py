"""What is wrong with the files of a job that only nodes write: gone, cut short, or not telling.

Nothing is decided by this: agents get along without the files it names. It is for people, who have
to know that somebody or something else writes to the drive. Costs two listings, and a few requests
for what looks wrong at first; what agents are about to write is not taken for missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from ludwig import errors, layout, queue, records
from ludwig.drive import Drive
from ludwig.model import Claim
from ludwig.view import JobView

__all__ = ["audit"]

LOOKED_INTO = 20
"""Of each kind of trouble: enough to know, and no load where a whole folder was removed."""
SHORT = 64
"""Bytes. What a node writes is longer; shorter files are read to see whether they make sense."""


def audit(drive: Drive, view: JobView) -> dict[str, str]:
    """path → what is wrong with it. `view` has just been refreshed."""
    checks = (_gone, _cut_short, _not_told)
    return {path: why for check in checks for path, why in check(drive, view)}


def _gone(drive: Drive, view: JobView) -> Iterator[tuple[str, str]]:
    """Events tell of it, but it is not there. Perhaps it came after the folder was listed."""
    files = layout.job_files(view.job.project, view.job.job)
    told = [files.done_of(task) for task in sorted(view.done - view.listed_ends)]
    claims = sorted(view.reasons.keys() - view.listed_claims)
    told += [files.claim_of(task, attempt) for task, attempt in claims]
    for path in told[:LOOKED_INTO]:
        if not drive.exists(path):
            yield path, "a node wrote it, and now it is gone: somebody removed it"


def _cut_short(drive: Drive, view: JobView) -> Iterator[tuple[str, str]]:
    files = layout.job_files(view.job.project, view.job.job)
    for name in islice(_short_names(drive, files.done), LOOKED_INTO):
        if task := layout.parse_task(name):
            try:
                queue.read_done(drive, view.job, task)
            except errors.Malformed as error:
                yield error.path, error.reason
    for name in islice(_short_names(drive, files.claims), LOOKED_INTO):
        if found := layout.parse_attempt(name):
            try:
                records.read_record(Claim, drive, files.claim_of(*found))
            except errors.NotFound:
                continue
            except errors.Malformed as error:
                if not _is_fresh(view, *found):
                    yield error.path, error.reason


def _short_names(drive: Drive, folder: str) -> Iterator[str]:
    try:
        entries = drive.scan(folder)
    except (errors.NotFound, errors.WrongKind):
        return
    yield from (entry.name for entry in entries if not entry.is_folder and entry.size < SHORT)


def _is_fresh(view: JobView, task: int, attempt: int) -> bool:
    """Whether its node may be about to write it, or to tell of it."""
    return task not in view.done and attempt == view.claims.get(task)


def _not_told(drive: Drive, view: JobView) -> Iterator[tuple[str, str]]:
    """There is a claim, but its node's events do not tell of it."""
    files = layout.job_files(view.job.project, view.job.job)
    silent = sorted(view.listed_claims - view.reasons.keys())
    for task, attempt in silent[:LOOKED_INTO]:
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
