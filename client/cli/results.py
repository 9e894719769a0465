"""`ludwig results`: one table of what the runs of a job, or of a project, have left."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ludwig import errors
from ludwig.client.cli.options import AsJson, JobNumber, Project, flag, open_job, open_project
from ludwig.client.lookout import raise_unless_project

if TYPE_CHECKING:
    import pandas

__all__ = ["results"]

ROWS_SHOWN = 40


def results(
    job: JobNumber = None,
    project: Project = None,
    everything: Annotated[
        bool, flag("-a", "--all", help="Of the whole project, not of one job.")
    ] = False,
    files: Annotated[
        list[str] | None,
        typer.Option("--files", metavar="PATTERN", help='Only these: "loss", "eval_*.csv".'),
    ] = None,
    last: Annotated[bool, flag("--last", help="Only the last value of each run.")] = False,
    summary: Annotated[
        list[str] | None,
        typer.Option("--summary", metavar="HOW", help="Over replications: mean, std, sem, …"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--out",
            metavar="FILE",
            help="Write to a .csv, .parquet or .json.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the results as one table, parameters as columns; or write them to a file."""
    options = {"files": files or None, "last": last, "summary": summary or None}
    if everything:
        if job is not None:
            raise errors.UsageError("give a JOB or --all, not both.")
        from ludwig.client.results import read_results

        lab, name = open_project(project)
        raise_unless_project(lab, name)
        frame = read_results(lab.drive, name, **options)  # type: ignore[arg-type]
        what = f"project {name}"
    else:
        _, one = open_job(project, job)
        frame = one.results(**options)
        what = f"job {one.id} of {one.project}"
    _say_what_is_missing(frame, what)
    if out is not None:
        write_table(frame, out)
        print(f"{len(frame)} rows of {what} are in {out}.")
    elif as_json:
        print(frame.to_json(orient="records", indent=2, date_format="iso", force_ascii=False))
    else:
        _show(frame, what)


def _say_what_is_missing(frame: pandas.DataFrame, what: str) -> None:
    """Results are looked at while a sweep is running: say so, but not on stdout."""
    words = {"unfinished": "not over yet", "failed": "failed", "unparsable": "not readable"}
    notes = [
        f"{len(frame.attrs[name])} {text}" for name, text in words.items() if frame.attrs.get(name)
    ]
    if notes:
        print(f"ludwig: not all of {what} is in the table: {', '.join(notes)}.", file=sys.stderr)


def _show(frame: pandas.DataFrame, what: str) -> None:
    if frame.empty:
        print(f"There are no results of {what} yet.")
        return
    import pandas as pd

    width = None if sys.stdout.isatty() else 10_000
    shown = frame if len(frame) <= ROWS_SHOWN else pd.concat([frame.head(20), frame.tail(20)])
    with pd.option_context("display.width", width, "display.max_columns", None):
        text = shown.to_string(index=False, line_width=_columns())
    print(text)
    if len(frame) > ROWS_SHOWN:
        print(f"… the first and last 20 of {len(frame)} rows; --out FILE writes all.")


def _columns() -> int | None:
    import shutil

    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def write_table(frame: pandas.DataFrame, path: Path) -> None:
    """By the file's ending. `UsageError` for one that is not known."""
    kind = path.suffix.lower()
    if kind == ".csv":
        frame.to_csv(path, index=False)
    elif kind == ".json":
        frame.to_json(path, orient="records", indent=2, date_format="iso", force_ascii=False)
    elif kind == ".parquet":
        try:
            frame.to_parquet(path, index=False)
        except ImportError as error:
            raise errors.UsageError(
                f"{path}: writing parquet needs pyarrow: pip install 'ludwigcluster[fast]'."
            ) from error
    else:
        raise errors.UsageError(f"{path}: name a file that ends in .csv, .parquet or .json.")
