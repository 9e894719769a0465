"""`ludwig cancel`: stop a job, or one task of it."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ludwig import errors
from ludwig.client.cli.options import JobNumber, Project, flag, open_job
from ludwig.client.hints import command
from ludwig.client.lab import this_user
from ludwig.client.status import in_words

__all__ = ["cancel"]


def cancel(
    job: JobNumber = None,
    task: Annotated[
        int | None,
        typer.Argument(metavar="TASK", help="Only this task.", show_default=False),
    ] = None,
    project: Project = None,
    yes: Annotated[bool, flag("-y", "--yes", help="Do not ask.")] = False,
) -> None:
    """Stop a job, or one task of it. What has ended stays."""
    _, one = open_job(project, job)
    status = one.status()
    owner = status.record.origin.user
    what = f"task {task} of job {one.id}" if task else f"job {one.id}"
    if status.finished:
        print(f"Job {one.id} of {one.project} is over ({in_words(status.counts)}).")
        return
    if not yes and (job is None or owner != this_user()):
        whose = f"{owner}'s " if owner != this_user() else ""
        _confirm(f"Stop {whose}{what} of {one.project} ({in_words(status.counts)})?")
    one.cancel(task)
    look = command(f"status {one.id}", one.project)
    print(f"Asked the nodes to stop {what} of {one.project}; `{look}` shows it.")


def _confirm(question: str) -> None:
    if not sys.stdin.isatty():
        raise errors.UsageError(f"{question} Name the job and add --yes to say so.")
    if not typer.confirm(question):
        raise typer.Exit(1)
