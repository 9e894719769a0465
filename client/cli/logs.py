"""`ludwig logs`: what tasks have printed, and are printing."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ludwig import errors
from ludwig.client.cli.options import Project, flag, open_job
from ludwig.client.cli.show_job import ranges
from ludwig.client.hints import command
from ludwig.client.job import Job

__all__ = ["logs"]


def logs(
    job: Annotated[
        int | None,
        typer.Argument(metavar="JOB", help="Default: the last.", show_default=False),
    ] = None,
    tasks: Annotated[
        list[int] | None,
        typer.Argument(
            metavar="TASK",
            help="Default: the first that failed; with -f, all that have not ended.",
            show_default=False,
        ),
    ] = None,
    project: Project = None,
    follow: Annotated[bool, flag("-f", "--follow", help="Until the tasks end.")] = False,
    attempt: Annotated[
        int | None,
        typer.Option(
            "--attempt", metavar="N", min=1, help="Default: the last.", show_default=False
        ),
    ] = None,
    lines: Annotated[
        int | None,
        typer.Option(
            "-n", "--lines", metavar="N", min=1, help="Only the last lines.", show_default=False
        ),
    ] = None,
) -> None:
    """Show what tasks have printed; with -f, as they print it."""
    _, one = open_job(project, job)
    chosen = tasks or []
    if follow:
        _follow(one, chosen)
        return
    for task in chosen or [_first_failed(one)]:
        text = one.logs(task, attempt)
        if lines is not None:
            text = "".join(text.splitlines(keepends=True)[-lines:])
        if len(chosen) > 1:
            text = "".join(f"{task:04d} | {line}\n" for line in text.splitlines())
        sys.stdout.write(text)
        if text and not text.endswith("\n"):
            sys.stdout.write("\n")
        if not text:
            print(f"ludwig: task {task} of job {one.id} has printed nothing yet.", file=sys.stderr)


def _first_failed(job: Job) -> int:
    status = job.status()
    if bad := status.failed_tasks:
        return bad[0].task
    if status.total == 1:
        return status.tasks[0].task
    follow = command(f"logs {job.id} -f", job.project)
    raise errors.UsageError(
        f"name a task of job {job.id}: no task has failed, and its tasks are "
        f"{ranges(row.task for row in status.tasks)}. `{follow}` follows all."
    )


def _follow(job: Job, tasks: list[int]) -> None:
    for line in job.follow(*tasks):
        print(line.text if len(tasks) == 1 else line, flush=True)
