"""`ludwig status`: my jobs; or one job, its tasks, and why they wait."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from ludwig import errors
from ludwig.client.cli.options import (
    AsJson,
    JobNumber,
    Project,
    Watch,
    console,
    flag,
    open_project,
    print_json,
)
from ludwig.client.cli.show_job import job_page, jobs_table
from ludwig.client.job import Job
from ludwig.client.lab import Lab, this_user
from ludwig.client.lookout import Lookout
from ludwig.client.status import JobSummary

__all__ = ["status"]

EVERY_S = 2.0


def status(
    job: JobNumber = None,
    project: Project = None,
    everybody: Annotated[bool, flag("-a", "--all", help="Everybody's jobs.")] = False,
    tasks: Annotated[bool, flag("--tasks", help="Every task of JOB, in a table.")] = False,
    last: Annotated[
        int,
        typer.Option("-n", "--last", metavar="N", min=1, help="How many finished jobs to list."),
    ] = 15,
    watch: Watch = False,
    as_json: AsJson = False,
) -> None:
    """Show my jobs; with JOB, its tasks and why each of them waits."""
    lab, name = open_project(project)
    if job is not None:
        _one(Job(lab, name, job), all_tasks=tasks, watch=watch, as_json=as_json)
        return
    user = None if everybody else this_user()
    lookout = Lookout(lab)
    if not watch:
        found = lookout.jobs(name, user=user)
        if as_json:
            print_json(_as_json(name, found))
        else:
            console().print(_overview(lab, name, found, user=user, last=last))
            for path, reason in lookout.problems.items():
                print(f"ludwig: '{path}' was passed over: {reason}", file=sys.stderr)
        return
    _watch_all(lookout, lab, name, user=user, last=last, as_json=as_json)


def _as_json(project: str, jobs: list[JobSummary]) -> dict[str, object]:
    return {"project": project, "jobs": [one.as_json() for one in jobs]}


def _overview(
    lab: Lab, project: str, jobs: list[JobSummary], *, user: str | None, last: int
) -> RenderableType:
    whose = f"{user}'s jobs" if user else "all jobs"
    head = Text.assemble((project, "bold"), f" on {lab.drive.where}: {whose}")
    if not jobs:
        hint = "`ludwig status --all` shows everybody's." if user else "`ludwig submit` makes one."
        return Group(head, Text(f"None yet. {hint}"))
    finished = [one for one in jobs if one.finished]
    hidden = {one.job for one in finished[:-last]}
    parts: list[RenderableType] = [
        head,
        jobs_table([one for one in jobs if one.job not in hidden], users=user is None),
    ]
    if hidden:
        parts.append(Text(f"… and {len(hidden)} older ones: -n {len(jobs)} lists all", style="dim"))
    return Group(*parts)


def _one(job: Job, *, all_tasks: bool, watch: bool, as_json: bool) -> None:
    if not watch:
        now = job.status()
        if as_json:
            print_json({"project": job.project, "jobs": [now.as_json()]})
        else:
            console().print(job_page(now, all_tasks=all_tasks))
        return
    if as_json:
        for moment in job.moments():
            if moment.status is not None and moment.away is None:
                jobs = [moment.status.as_json()]
                print_json({"project": job.project, "jobs": jobs}, one_line=True)
        return
    with Live(console=console(), auto_refresh=False, vertical_overflow="ellipsis") as live:
        for moment in job.moments():
            parts: list[RenderableType] = []
            if moment.status is not None:
                parts.append(job_page(moment.status, all_tasks=all_tasks))
            if moment.note:
                parts.append(Text(moment.note, style="yellow"))
            live.update(Group(*parts), refresh=True)


def _watch_all(
    lookout: Lookout, lab: Lab, project: str, *, user: str | None, last: int, as_json: bool
) -> None:
    found: list[JobSummary] = []
    with Live(console=console(), auto_refresh=False, vertical_overflow="ellipsis") as live:
        while True:
            note = Text()
            try:
                found = lookout.jobs(project, user=user)
            except errors.DriveAway as error:
                note = Text(f"{error} Trying again.", style="yellow")
            if as_json:
                print_json(_as_json(project, found), one_line=True)
            else:
                page = _overview(lab, project, found, user=user, last=last)
                live.update(Group(page, note) if note else page, refresh=True)
            time.sleep(EVERY_S)
