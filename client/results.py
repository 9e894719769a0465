"""From a folder of runs to one tidy DataFrame.

A row for each configuration, replication and index value; the parameters are columns and keep
their types. What is not there yet, failed, or cannot be read is said in `frame.attrs` and never
raised: results are looked at while a sweep is running. A run is there as a whole or not at all.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any

import pandas as pd

from ludwig import errors
from ludwig.client import results_frame
from ludwig.client.results_cache import ResultsCache
from ludwig.client.results_join import Placed, join
from ludwig.client.results_read import Contents, Source, read_files, source
from ludwig.client.results_runs import Found, FoundRun, TaskNote, find_runs
from ludwig.drive import Drive

__all__ = ["FACTS", "STATISTICS", "Notes", "TaskNote", "read_results"]

FACTS = tuple(results_frame.FACTS)
STATISTICS = ("mean", "std", "sem", "min", "max", "median", "sum", "count")


class Notes(tuple[Any, ...]):
    """What `attrs` lists. Pandas copies `attrs` deeply at every step; these need not be copied."""

    __slots__ = ()

    def __deepcopy__(self, memo: object) -> Notes:
        return self


def read_results(
    drive: Drive,
    project: str,
    *,
    jobs: Sequence[int] | None = None,
    files: str | Sequence[str] | None = None,
    params: Sequence[str] | Mapping[str, object] | None = None,
    columns: Sequence[str] = (),
    last: bool = False,
    summary: str | Sequence[str] | None = None,
    cache: bool = True,
) -> pd.DataFrame:
    """The results of some jobs, or of the whole project.

    `files`: names or patterns ("loss", "eval_*.csv", "saves/*.csv"); normally every CSV file that
    is not in a sub-folder. `params`: the parameters to show, or a mapping to choose by: a value,
    or a list of values. `columns`: what else to show, of `FACTS`. `last`: one row per run with the
    last values. `summary`: one of `STATISTICS`, over replications; several give `loss_mean`, …

    `frame.attrs`: `params`, `index`, `files` (file → its columns) say what each column is;
    `unfinished` and `failed` are `TaskNote`s; `unparsable` is (path, why) for files passed over;
    `missing` are the folders of finished runs that are not there any more; `changed` are files that
    somebody wrote to after the task had ended; `empty` are runs without any such file.

    `NotFound` for a job that is not there, `DriveAway` if the drive does not answer.
    """
    _check_words(columns, FACTS, "column")
    statistics = [summary] if isinstance(summary, str) else list(summary or ())
    _check_words(statistics, STATISTICS, "summary")
    patterns = _patterns(files)
    with _no_collector():
        found = find_runs(
            drive, project, jobs, wanted=_chooser(params), deep=any("/" in p for p in patterns)
        )
        sources = _sources(found.runs, patterns)
        contents = read_files(
            drive,
            [one for _, of_run in sources for _, one in of_run],
            ResultsCache(drive.where, project) if cache else None,
        )
        runs, placed, notes = _place(sources, contents)
        joined = join(placed) if placed else None
        # The frame is about to be built: let go of what it is built from.
        del sources, contents, placed
    shown = None if params is None or isinstance(params, Mapping) else list(params)
    frame = results_frame.build(joined, runs, found.params, show_params=shown, facts=columns)
    frame.attrs |= notes | _task_notes(found, notes["missing"], notes["unparsable"])
    if last and joined is not None:
        frame = results_frame.keep_last(frame)
    if statistics and joined is not None:
        frame = results_frame.summarize(
            frame, statistics, rename=not isinstance(summary, str), per_index=not last
        )
    return frame


@contextmanager
def _no_collector() -> Iterator[None]:
    """Ten thousand runs are many objects and no cycles: looking for some is a third of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _check_words(given: Sequence[str], known: Sequence[str], what: str) -> None:
    for word in given:
        if word not in known:
            raise errors.UsageError(f"There is no {what} {word!r}. There are: {', '.join(known)}.")


def _patterns(files: str | Sequence[str] | None) -> list[str]:
    given = [files] if isinstance(files, str) else list(files if files is not None else ["*.csv"])
    return [p if p.endswith(".csv") else f"{p}.csv" for p in given]


def _sources(
    runs: Sequence[FoundRun], patterns: Sequence[str]
) -> list[tuple[FoundRun, list[tuple[str, Source]]]]:
    """The files of each run that match. Runs have the same few names again and again."""
    known: dict[str, bool] = {}
    sources = []
    for run in runs:
        chosen = []
        for file in run.files:
            if (wanted := known.get(file.path)) is None:
                wanted = known[file.path] = _matches(file.path, patterns)
            if wanted:
                path = f"{run.folder}/{file.path}"
                chosen.append((file.path, source(path, file, run.stamp)))
        sources.append((run, chosen))
    return sources


def _matches(path: str, patterns: Sequence[str]) -> bool:
    depth = path.count("/")
    return any(p.count("/") == depth and fnmatchcase(path, p) for p in patterns)


def _chooser(
    params: Sequence[str] | Mapping[str, object] | None,
) -> Callable[[Mapping[str, object]], bool]:
    if not isinstance(params, Mapping):
        return lambda _: True

    def wanted(configuration: Mapping[str, object]) -> bool:
        return all(
            name in configuration and _is_one_of(configuration[name], value)
            for name, value in params.items()
        )

    return wanted


def _is_one_of(value: object, wanted: object) -> bool:
    if bool(value == wanted):
        return True
    return isinstance(wanted, (list, set, frozenset, range)) and any(value == w for w in wanted)


def _place(
    sources: Sequence[tuple[FoundRun, list[tuple[str, Source]]]], contents: Contents
) -> tuple[list[FoundRun], list[Placed], dict[str, Any]]:
    """Runs that are complete, with the place of each of their files."""
    runs: list[FoundRun] = []
    placed: list[Placed] = []
    missing, empty, unparsable = [], [], []
    for run, files in sources:
        if any(one.path in contents.missing for _, one in files):
            missing.append(run.folder)
            continue
        before = len(placed)
        for name, one in files:
            if (place := contents.place(one)) is not None:
                placed.append(Placed(len(runs), name, *place))
            elif (why := contents.trouble(one)) is not None:
                unparsable.append((one.path, why))
        if len(placed) == before:
            empty.append(run.folder)
        else:
            runs.append(run)
    return (
        runs,
        placed,
        {
            "missing": Notes(missing),
            "empty": Notes(empty),
            "unparsable": Notes(unparsable),
            "changed": Notes(sorted(contents.changed)),
        },
    )


def _task_notes(found: Found, missing: Notes, unparsable: Notes) -> dict[str, Notes]:
    return {
        "unfinished": Notes(found.unfinished),
        "failed": Notes(found.failed),
        "missing": Notes([*found.removed, *missing]),
        "unparsable": Notes([*unparsable, *sorted(found.problems.items())]),
    }
