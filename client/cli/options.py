"""What several sub-commands have in common: options, the lab, and how output looks.

Output goes to stdout through one console: no colours and no folding to 80 columns when it is not a
terminal. `--json` is plain JSON on stdout and nothing else.
"""

from __future__ import annotations

import atexit
import json
import re
import sys
from pathlib import Path
from typing import Annotated, Any, TextIO, cast

import typer
from rich.console import Console

from ludwig import errors, layout
from ludwig.client.job import Job
from ludwig.client.lab import Lab, open_lab
from ludwig.client.lookout import find_job
from ludwig.config import LabConfig, load_lab

__all__ = [
    "AsJson",
    "JobNumber",
    "Project",
    "Watch",
    "console",
    "epilog",
    "flag",
    "open_for_command",
    "open_job",
    "open_project",
    "print_json",
]

PIPE_WIDTH = 160


def flag(*names: str, **more: Any) -> Any:
    """An option that is there or not: without the `<bool>` that typer would show in `--help`."""
    return typer.Option(*names, metavar="", **more)


Project = Annotated[
    str | None,
    typer.Option(
        "-p",
        "--project",
        metavar="NAME",
        help="The project; else `project` in ludwig.toml, else this folder's name.",
        show_default=False,
    ),
]
JobNumber = Annotated[
    int | None,
    typer.Argument(metavar="JOB", help="A job's number; default: the last.", show_default=False),
]
AsJson = Annotated[bool, flag("--json", help="Machine-readable, on stdout.")]
Watch = Annotated[bool, flag("-w", "--watch", help="Keep looking, until Ctrl-C.")]


def epilog(example: str, *variables: str) -> str:
    """The end of a `--help`: one example, and the environment variables that matter."""
    names = ["LUDWIG_CONFIG", "LUDWIG_PROJECT", "LUDWIG_SMB_PASSWORD", *variables]
    return f"[bold]Example:[/bold]  {example}\n\n[bold]Environment:[/bold]  {', '.join(names)}"


def console() -> Console:
    """For what a command says on stdout. What users and nodes wrote is text, never markup."""
    if sys.stdout.isatty():
        return Console(highlight=False, markup=False, emoji=False)
    file = cast("TextIO", _Trimmed(sys.stdout))
    return Console(file=file, highlight=False, markup=False, emoji=False, width=PIPE_WIDTH)


class _Trimmed:
    """A stream without the blanks with which rich fills the lines of a table."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(re.sub(r" +$", "", text, flags=re.MULTILINE))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def print_json(value: Any, *, one_line: bool = False) -> None:
    print(json.dumps(value, indent=None if one_line else 2, ensure_ascii=False), flush=True)


def project_name(config: LabConfig, given: str | None) -> str:
    """`-p`, else what the nearest ludwig.toml says, else the name of this folder."""
    name = given or config.project or Path.cwd().name
    try:
        return layout.check_project(name)
    except errors.NameNotAllowed as error:
        if given or config.project:
            raise
        raise errors.UsageError(
            f"this folder's name cannot be a project's ({error}) Name the project with -p, or "
            "`project` in ludwig.toml."
        ) from error


def open_project(given: str | None) -> tuple[Lab, str]:
    """The lab, and the project that is meant."""
    config = load_lab()
    name = project_name(config, given)
    return open_for_command(config), name


def open_for_command(config: LabConfig | None = None) -> Lab:
    """The lab, for as long as the command runs."""
    lab = open_lab(config)
    atexit.register(lab.close)
    return lab


def open_job(given: str | None, number: int | None) -> tuple[Lab, Job]:
    """The job that is meant. `UsageError` if there is none."""
    lab, project = open_project(given)
    job = Job(lab, project, find_job(lab, project, number))
    return lab, job
