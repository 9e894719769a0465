"""`ludwig retry`: a new job with the tasks that did not end well."""

from __future__ import annotations

from typing import Annotated

import typer

from ludwig.client.cli.follow import attach
from ludwig.client.cli.options import AsJson, JobNumber, Project, flag, open_job, print_json

__all__ = ["retry"]


def retry(
    job: JobNumber = None,
    tasks: Annotated[
        list[int] | None,
        typer.Argument(
            metavar="TASK",
            help="Default: all that failed, were lost or were stopped.",
            show_default=False,
        ),
    ] = None,
    project: Project = None,
    follow: Annotated[bool, flag("-f", "--follow", help="Watch it until it ends.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run the tasks that failed, were lost or were stopped again, as a new job."""
    _, one = open_job(project, job)
    new = one.retry(tasks or None)
    now = new.status()
    nodes = sorted(now.record.chunks)
    if as_json:
        print_json({"project": new.project, "job": new.id, "tasks": now.total, "nodes": nodes})
    else:
        print(f"Job {new.id} of {new.project}: {now.total} tasks of job {one.id} again.")
    if follow:
        raise typer.Exit(attach(new))
