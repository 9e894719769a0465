"""`ludwig retry`: a new job with the tasks that did not end well."""

from __future__ import annotations

from typing import Annotated

import typer

from ludwig.client.cli.follow import attach
from ludwig.client.cli.options import AsJson, JobNumber, Project, flag, open_job
from ludwig.client.cli.submitted import print_submitted, say_warnings

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
    new, done = one._retry(tasks or None)
    say_warnings(done)
    if as_json:
        print_submitted(done)
    else:
        count = "1 task" if done.tasks == 1 else f"{done.tasks} tasks"
        print(f"Job {new.id} of {new.project}: {count} of job {one.id} again.")
    if follow:
        raise typer.Exit(attach(new))
