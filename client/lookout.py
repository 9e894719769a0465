"""Looks at the drive for a user: once for a command, again and again for a progress bar.

A `Lookout` remembers what it has read, so looking again is cheap: the cost grows with nodes and
unfinished jobs, not with tasks. It changes nothing on the drive but the probe that tells the file
server's time (see `server_clock.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ludwig import errors, job_records, layout
from ludwig.client.audit import audit
from ludwig.client.lab import Lab
from ludwig.client.logs import read_tail
from ludwig.client.server_clock import backdate, scan_nodes
from ludwig.client.status import Failed, JobStatus, JobSummary, NodeStatus
from ludwig.client.summaries import Summaries
from ludwig.drive import Drive
from ludwig.model import Beat, Done, Job
from ludwig.nodes import Observer
from ludwig.states import TaskStatus, counts, job_state, task_states
from ludwig.view import JobView

__all__ = ["Lookout", "find_job"]

FAILURES_READ = 3
"""Of how many failed tasks the end of the log is read."""
FULL_BYTES = 16 << 20
"""With less room than this, what a node wants to write may not fit."""
_NODES_EVERY_S = 1.0


class Lookout:
    """One pair of eyes. Raises `DriveError`s; after one, simply look again."""

    def __init__(self, lab: Lab, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._lab, self._drive, self._clock = lab, lab.drive, clock
        self.observer = Observer(lab.drive, silent_s=lab.silent_s, as_promised=True)
        self.problems: dict[str, str] = {}
        self._nodes_at: float | None = None
        self._views: dict[tuple[str, int], JobView] = {}
        self._tails: dict[tuple[str, int, int], str] = {}
        self._audits: dict[tuple[str, int, bool], dict[str, str]] = {}
        self._full = ""

    # --- one job -------------------------------------------------------------------------------

    def job(self, project: str, number: int, *, logs: bool = True) -> JobStatus:
        """A job now. `UsageError` if there is none; `DriveAway` if it cannot be seen just now."""
        view = self._view(project, number)
        if not self._drive.exists(layout.job_files(project, number).record):
            raise errors.DriveAway(
                "looking at",
                layout.job_files(project, number).folder,
                f"it is not there any more. Is {self._drive.where} still mounted?",
            )
        view.refresh()
        if not view.finished():
            self._look_at_nodes()
        return self._status(view, logs=logs)

    def record(self, project: str, number: int) -> Job:
        """What was submitted. Read once."""
        return self._view(project, number).job

    def _view(self, project: str, number: int) -> JobView:
        key = (project, number)
        if key not in self._views:
            try:
                record = job_records.read_job(self._drive, project, number)
            except errors.NotFound:
                raise errors.UsageError(self._no_such_job(project, number)) from None
            if record.abandoned:
                raise errors.UsageError(
                    f"job {number} of {project} was never submitted: its submission died half-way. "
                    "Submit it again."
                )
            self._views[key] = JobView(self._drive, record)
        return self._views[key]

    def _no_such_job(self, project: str, number: int) -> str:
        known = job_records.list_jobs(self._drive, project)
        if number in known:
            return (
                f"job {number} of {project} is being submitted just now, or its submission died "
                "half-way. `ludwig doctor` tells which."
            )
        place = f"{self._drive.where}/{project}"
        there = f"Its jobs are {_ranges(known)}." if known else "It has no jobs yet."
        return f"project {project} has no job {number} ({place}). {there}"

    def _status(self, view: JobView, *, logs: bool) -> JobStatus:
        trouble = self._audited(view) if logs else {}  # first: it may learn of claims
        rows = task_states(view, self.observer, self._clock())
        numbers = counts(rows)
        over = frozenset(
            row.task for row in rows if row.task in view.done or row.state == "stopped"
        )
        if self._full and not view.finished():
            trouble = {self._drive.where: self._full, **trouble}
        ends = [done for row in rows if (done := view.ended.get(row.task))]
        bad = [row for row in rows if row.state in ("failed", "lost") and row.task in view.done]
        return JobStatus(
            record=view.job,
            state=job_state(numbers),
            counts=numbers,
            tasks=tuple(rows),
            over=over,
            final=view.finished(),
            failed=tuple(self._failed(view, row) for row in bad[:FAILURES_READ]) if logs else (),
            refused=dict(view.refusals),
            problems={**trouble, **view.problems},
            seconds=tuple(done.seconds for done in ends if done.outcome == "done"),
        )

    def _audited(self, view: JobView) -> dict[str, str]:
        """At the first look, and once more when everything has ended."""
        key = (view.job.project, view.job.job, view.finished())
        if key not in self._audits:
            self._audits[key] = audit(self._drive, view)
        return self._audits[key]

    def _failed(self, view: JobView, row: TaskStatus) -> Failed:
        job = view.job
        path = layout.job_files(job.project, job.job).log_of(row.task, row.attempt)
        key = (job.project, job.job, row.task)
        if row.attempt and key not in self._tails:
            self._tails[key] = read_tail(self._drive, path)
        end: Done | None = view.ended.get(row.task)
        return Failed(
            task=row.task,
            outcome=row.state,
            node=row.node,
            attempt=row.attempt,
            why=_last_line(end.why if end and end.why else row.why),
            log_path=self._lab.where(path) if row.attempt else "",
            log_tail=self._tails.get(key, ""),
        )

    # --- all jobs of a project -----------------------------------------------------------------

    def jobs(self, project: str, *, user: str | None = None) -> list[JobSummary]:
        """The jobs of a project (of one user), oldest first. Finished ones come from a cache.

        Submissions that died, or are under way, are not jobs; one that makes no sense is passed
        over and named in `problems`. `UsageError` without a project.
        """
        folder = layout.project_files(project).jobs
        try:
            entries = self._drive.scan(folder)
        except errors.NotFound:
            raise_unless_project(self._lab, project)
            return []
        kept = Summaries(self._drive.where, project)
        found = []
        for number, folder_time in sorted(
            (number, entry.modified)
            for entry in entries
            if (number := layout.parse_job(entry.name)) is not None
        ):
            summary = kept.get(number, folder_time) or self._summary(project, number)
            if summary is None:
                continue
            kept.put(summary, folder_time)
            if user is None or summary.user == user:
                found.append(summary)
        kept.save()
        return found

    def _summary(self, project: str, number: int) -> JobSummary | None:
        try:
            return self.job(project, number, logs=False).summary()
        except errors.Malformed as error:
            self.problems[error.path] = error.reason
        except errors.UsageError:
            pass
        return None

    # --- nodes ---------------------------------------------------------------------------------

    def nodes(self) -> list[NodeStatus]:
        """Every node that is configured or has ever spoken, by name."""
        self._look_at_nodes()
        spoken = {host.lower() for host in self.observer.nodes}
        unheard = [name for name in self._lab.nodes if name.lower() not in spoken]
        return [self._node(host) for host in sorted([*self.observer.nodes, *unheard])]

    def _node(self, host: str) -> NodeStatus:
        seen = self.observer.nodes.get(host)
        if seen is None or not seen.counter:
            return NodeStatus(host, "silent", why="never heard of: is ludwig-worker running there?")
        beat, now = seen.beat, self._clock()
        age = seen.silent_for(now)
        if beat is None:
            return NodeStatus(host, "silent", why=seen.problem, silent_s=age)
        if self.observer.silent(host, now):
            why = _last_words(beat, age) + (f"; {self._full}" if self._full else "")
            return NodeStatus(host, "silent", why, beat, age)
        return NodeStatus(host, beat.state, beat.why, beat, age)

    def _look_at_nodes(self) -> None:
        now = self._clock()
        if self._nodes_at is None:
            beats, server_now = scan_nodes(self._drive)
            backdate(self.observer, beats, server_now, now)
        elif now - self._nodes_at < _NODES_EVERY_S:
            return
        self.observer.look(now)
        self._full = _too_full(self._drive)
        self._nodes_at = now


def _too_full(drive: Drive) -> str:
    """Nodes that cannot write fall silent and cannot say why: so whoever looks says it."""
    try:
        usage = drive.usage()
    except errors.DriveRefused:
        return ""
    if usage.free >= FULL_BYTES or not usage.total:
        return ""
    return (
        f"the drive is full ({usage.free / 1e6:.1f} MB free). Nodes wait, and cannot even say so; "
        "they go on when there is room"
    )


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2]


def _last_words(beat: Beat, age: float) -> str:
    said = f"; last said: {beat.why}" if beat.why else ""
    if beat.state == "draining":
        return f"was drained, and has been silent for {span(age)}{said}"
    return f"silent for {span(age)}{said}"


def span(seconds: float) -> str:
    """`40 s`, `12 min`, `3 h`, `2 days`: as exact as anybody needs it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 36 * 3600:
        return f"{seconds / 3600:.0f} h"
    return f"{seconds / 86400:.0f} days"


def _ranges(numbers: list[int]) -> str:
    return f"{numbers[0]} to {numbers[-1]}" if len(numbers) > 3 else ", ".join(map(str, numbers))


def list_projects(lab: Lab) -> list[str]:
    """The projects on the drive: folders that hold a `.ludwig/jobs`."""
    names = [entry.name for entry in lab.drive.scan("") if entry.is_folder]
    return sorted(
        name
        for name in names
        if not name.startswith(".") and lab.drive.exists(f"{name}/.ludwig/jobs")
    )


def raise_unless_project(lab: Lab, project: str) -> None:
    """`UsageError` that names the projects there are, if this is not one."""
    if lab.drive.exists(layout.project_files(project).folder):
        return
    known = list_projects(lab)
    there = f"There are: {', '.join(known[:12])}." if known else "There are none yet."
    raise errors.UsageError(
        f"there is no project '{project}' on {lab.drive.where}. {there} Name one with -p, or go to "
        "its folder."
    )


def find_job(lab: Lab, project: str, number: int | None) -> int:
    """The job a user means: the number given, else the project's last one.

    Numbers whose submission died or is still under way, or whose record makes no sense, are not
    "the last".
    """
    if number is not None:
        return number
    numbers = job_records.list_jobs(lab.drive, project)
    for candidate in reversed(numbers):
        try:
            if not job_records.read_job(lab.drive, project, candidate).abandoned:
                return candidate
        except (errors.NotFound, errors.Malformed):
            continue
    raise_unless_project(lab, project)
    raise errors.UsageError(f"project {project} has no jobs yet. `ludwig submit` makes one.")
