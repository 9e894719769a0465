"""`ludwig doctor`: what is wrong, and the next step."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ludwig import errors
from ludwig.client.cli.options import AsJson, console, flag, print_json
from ludwig.client.doctor import Finding, examine

__all__ = ["doctor"]

_COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}


def doctor(
    project: Annotated[
        str | None,
        typer.Option("-p", "--project", metavar="NAME", help="Only its jobs; default: all."),
    ] = None,
    fix: Annotated[bool, flag("--fix", help="Complete what died half-way on the drive.")] = False,
    nodes: Annotated[bool, flag("--nodes/--no-nodes", help="Connect to the nodes.")] = True,
    as_json: AsJson = False,
) -> None:
    """Check the configuration, the drive, the nodes and the jobs; say what to do next."""
    screen = console()
    found: list[tuple[Finding, str]] = []
    for finding in examine(project, nodes=nodes):
        fixed = _repair(finding) if fix and finding.repair else ""
        found.append((finding, fixed))
        if not as_json:
            _show(screen, finding, fixed)
    left = [finding for finding, fixed in found if finding.level == "problem" and not fixed]
    if as_json:
        print_json(
            [
                {
                    "check": one.check,
                    "level": one.level,
                    "what": one.what,
                    "todo": one.todo,
                    "fixed": fixed,
                }
                for one, fixed in found
            ]
        )
    elif not left:
        screen.print("Nothing stands in the way.")
    if left:
        raise typer.Exit(1)


def _repair(finding: Finding) -> str:
    assert finding.repair is not None  # noqa: S101 – the caller has looked
    try:
        return finding.repair()
    except errors.DriveError as error:
        return f"could not: {error}"


def _show(screen: Console, finding: Finding, fixed: str) -> None:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True, min_width=7)
    grid.add_column(ratio=1)
    text = Text.assemble((finding.check, "bold"), f": {finding.what}")
    grid.add_row(Text(finding.level, style=_COLOURS[finding.level]), text)
    if fixed:
        grid.add_row("", Text(f"→ {fixed}", style="green"))
    elif finding.todo:
        grid.add_row("", f"→ {finding.todo}")
    screen.print(grid)
