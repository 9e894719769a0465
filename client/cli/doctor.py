"""`ludwig doctor`: what is wrong, and the next step."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from ludwig import errors
from ludwig.client.cli.options import AsJson, console, print_json
from ludwig.client.doctor import Finding, examine

__all__ = ["doctor"]

_SIGNS = {
    "ok": ("ok     ", "green"),
    "warning": ("warning", "yellow"),
    "problem": ("problem", "red"),
}


def doctor(
    project: Annotated[
        str | None,
        typer.Option("-p", "--project", metavar="NAME", help="Only its jobs; default: all."),
    ] = None,
    fix: Annotated[
        bool, typer.Option("--fix", help="Complete what died half-way on the drive.")
    ] = False,
    nodes: Annotated[bool, typer.Option("--nodes/--no-nodes", help="Connect to the nodes.")] = True,
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


def _show(screen: object, finding: Finding, fixed: str) -> None:
    sign, colour = _SIGNS[finding.level]
    text = Text.assemble((sign, colour), "  ", (finding.check, "bold"), f": {finding.what}")
    lines = [text]
    if fixed:
        lines.append(Text(f"         → {fixed}", style="green"))
    elif finding.todo:
        lines.append(Text(f"         → {finding.todo}"))
    for line in lines:
        console().print(line)
