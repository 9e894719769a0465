"""`ludwig results`: one table of what the runs of a job, or of a project, have left."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from ludwig import errors
from ludwig.client.cli.options import (
    AsJson,
    JobNumber,
    Project,
    console,
    flag,
    open_job,
    open_project,
)
from ludwig.client.lookout import raise_unless_project

if TYPE_CHECKING:
    import pandas

__all__ = ["results", "show_best"]

ROWS_SHOWN = 40


def results(
    job: JobNumber = None,
    project: Project = None,
    everything: Annotated[
        bool, flag("-a", "--all", help="Of the whole project, not of one job.")
    ] = False,
    by: Annotated[
        str | None, typer.Option("--by", metavar="COLUMN", help="Sort by these last values.")
    ] = None,
    files: Annotated[
        list[str] | None,
        typer.Option("--files", metavar="PATTERN", help='Only these: "loss", "eval_*.csv".'),
    ] = None,
    rows: Annotated[bool, flag("--rows", help="The rows themselves, not a summary.")] = False,
    last: Annotated[bool, flag("--last", help="Only the last row of each run.")] = False,
    summary: Annotated[
        bool, flag("--summary", help="Mean, std and sem over replications, not each run.")
    ] = False,
    how: Annotated[
        list[str] | None,
        typer.Option("--how", metavar="NAME", help="With --summary: mean, std, sem, min, max …"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o", "--out", "--csv", "--parquet", metavar="FILE", help="Write a .csv or .parquet."
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw a .png, .pdf or .svg.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the results, best configuration first; or write all of them to a file."""
    statistics = (how or ["mean", "std", "sem"]) if summary or how else None
    options = {"files": files or None, "last": last, "summary": statistics}
    frame, what = _read(project, job, everything, options)
    _say_what_is_missing(frame, what)
    if out is not None:
        from ludwig.client.export import export_results

        print(f"{len(frame)} rows of {what} are in {export_results(frame, out)}.")
    if plot is not None:
        from ludwig.client.plot import save_plot

        curves = frame
        if statistics:  # the picture makes its own means, with a band
            curves, _ = _read(project, job, everything, {**options, "summary": None})
        print(f"The curves of {what} are in {save_plot(curves, plot)}.")
    if as_json:
        print(frame.to_json(orient="records", indent=2, date_format="iso", force_ascii=False))
    elif out is None and plot is None:
        _show(frame, what, by=by, rows=rows or last or bool(statistics))


def _read(
    project: str | None, job: int | None, everything: bool, options: dict[str, Any]
) -> tuple[pandas.DataFrame, str]:
    if not everything:
        _, one = open_job(project, job)
        return one.results(**options), f"job {one.id} of {one.project}"
    if job is not None:
        raise errors.UsageError("give a JOB or --all, not both.")
    from ludwig.client.results import read_results

    lab, name = open_project(project)
    raise_unless_project(lab, name)
    return read_results(lab.drive, name, **options), f"project {name}"


def _say_what_is_missing(frame: pandas.DataFrame, what: str) -> None:
    """Results are looked at while a sweep is running: say so, but not on stdout."""
    words = {
        "unfinished": "not finished",
        "failed": "failed or stopped",
        "unparsable": "not readable",
    }
    notes = [
        f"{len(frame.attrs[name])} {text}" for name, text in words.items() if frame.attrs.get(name)
    ]
    if notes:
        print(f"ludwig: not all of {what} is in the table: {', '.join(notes)}.", file=sys.stderr)


def _show(frame: pandas.DataFrame, what: str, *, by: str | None, rows: bool) -> None:
    if frame.empty:
        print(f"There are no results of {what} yet.")
    elif rows:
        _show_rows(frame)
    else:
        show_best(frame, by)


def show_best(frame: pandas.DataFrame, by: str | None = None) -> None:
    """A row for each configuration with the last values of its runs, the best first."""
    from ludwig.client.export import last_values_table

    found = last_values_table(frame, by=by)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in found.columns:
        table.add_column(name, justify="left" if name == "param_name" else "right")
    for row in found.rows:
        table.add_row(*row)
    screen = console()
    screen.print(table)
    order = "lowest" if found.lowest_first else "highest"
    hint = f"Last values of the runs, mean ± standard error; {order} {found.sorted_by} first"
    more = f"; {found.more} more" if found.more else ""
    screen.print(f"{hint}{more}. --rows shows all.", style="dim")


def _show_rows(frame: pandas.DataFrame) -> None:
    import pandas as pd

    shown = frame if len(frame) <= ROWS_SHOWN else pd.concat([frame.head(20), frame.tail(20)])
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    print(shown.to_string(index=False, line_width=width))
    if len(frame) > ROWS_SHOWN:
        print(f"… the first and last 20 of {len(frame)} rows; --out FILE writes all.")
