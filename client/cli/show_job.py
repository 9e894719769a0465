"""How jobs look in a terminal of 80 columns. Pure: from a status to something rich can draw."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ludwig.client.hints import command
from ludwig.client.lookout import span
from ludwig.client.progress import COLOURS
from ludwig.client.status import JobStatus, JobSummary, in_words
from ludwig.model import TaskState
from ludwig.states import TaskStatus

__all__ = ["job_page", "jobs_table", "ranges"]

REASONS_SHOWN = 6
ROWS_SHOWN = 8
INDENT = (0, 0, 0, 2)


def when(text: str) -> str:
    """`2026-11-18T10:00:00+01:00`, or the stamp `2026-11-18-10-00-00`, to the minute."""
    if "T" in text:
        return text.replace("T", " ")[:16]
    parts = text.split("-")
    return f"{'-'.join(parts[:3])} {':'.join(parts[3:5])}" if len(parts) >= 5 else text


def jobs_table(jobs: Sequence[JobSummary], *, users: bool) -> Table:
    """One line per job."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("JOB", justify="right")
    table.add_column("STATE")
    table.add_column("DONE", justify="right", no_wrap=True)
    table.add_column("THE REST", ratio=1)
    if users:
        table.add_column("WHO", no_wrap=True, overflow="ellipsis", max_width=12)
    table.add_column("SUBMITTED", no_wrap=True)
    for job in jobs:
        rest: dict[TaskState, int] = {k: v for k, v in job.counts.items() if k != "done"}
        row: list[RenderableType] = [
            str(job.job),
            Text(job.state, style=COLOURS[job.state]),
            f"{job.counts['done']}/{job.total}",
            in_words(rest),
        ]
        row += [job.user] if users else []
        table.add_row(*row, when(job.when))
    return table


def ranges(numbers: Iterable[int], *, most: int = 8) -> str:
    """`1–4, 7, 9–12`; long lists end in `… (31 in all)`."""
    ordered = sorted(numbers)
    parts: list[tuple[int, int]] = []
    for number in ordered:
        if parts and number == parts[-1][1] + 1:
            parts[-1] = (parts[-1][0], number)
        else:
            parts.append((number, number))
    shown = [str(a) if a == b else f"{a}–{b}" for a, b in parts[:most]]
    return ", ".join(shown) + (f" … ({len(ordered)} in all)" if len(parts) > most else "")


def job_page(status: JobStatus, *, all_tasks: bool = False) -> RenderableType:
    """Everything `ludwig status JOB` says."""
    parts: list[RenderableType] = [_headline(status), _provenance(status), Text()]
    if all_tasks:
        parts.append(_tasks_table(status.tasks))
    else:
        parts += _by_state(status)
    parts += _failures(status)
    parts += _trouble(status)
    return Group(*parts)


def _headline(status: JobStatus) -> Text:
    text = Text.assemble(
        (f"Job {status.job}", "bold"),
        f" of {status.project}: ",
        (status.state, f"bold {COLOURS[status.state]}"),
    )
    words = in_words(status.counts)
    tasks = "1 task" if status.total == 1 else f"{status.total} tasks"
    return text.append(f" – {words} ({tasks})" if words else " – no tasks")


def _provenance(status: JobStatus) -> RenderableType:
    record, origin = status.record, status.record.origin
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    place = origin.host + (f":{origin.folder}" if origin.folder else "")
    at = when(origin.when or record.stamp)
    grid.add_row("submitted", f"{at} by {origin.user} from {place}")
    if record.retry_of:
        grid.add_row("again", f"the tasks of job {record.retry_of} that did not end well")
    if git := origin.git:
        text = f"commit {git.commit[:10]}" + (f" ({git.branch})" if git.branch else "")
        text += ", with changes" if git.dirty else ""
        grid.add_row("source", text + (f"; git diff {git.ref}" if git.ref else ""))
    runs = f"{record.entry} ({record.contract})"
    slots = "" if record.gpus is None else f", {record.gpus} GPUs each"
    grid.add_row("runs", f"{runs} on {', '.join(sorted(record.chunks))}{slots}")
    versions = [f"ludwig {origin.ludwig}"] if origin.ludwig else []
    versions += [f"Python {origin.python}"] if origin.python else []
    if versions:
        grid.add_row("from", ", ".join(versions))
    return Padding(grid, INDENT)


def _by_state(status: JobStatus) -> Iterator[RenderableType]:
    order: tuple[TaskState, ...] = ("running", "queued", "lost", "failed", "stopped", "done")
    for state in order:
        rows = [row for row in status.tasks if row.state == state]
        if not rows:
            continue
        head = Text(f"{len(rows)} {state}", style=f"bold {COLOURS[state]}")
        if state == "done" and status.seconds:
            mean = sum(status.seconds) / len(status.seconds)
            took = f"{mean:.1f} s" if mean < 10 else span(mean)
            yield head.append(f"  {took} each on average", style="not bold default")
            yield from _tried_again(rows)
            continue
        yield head
        if state == "running":
            yield _tasks_table(rows[:ROWS_SHOWN])
            if len(rows) > ROWS_SHOWN:
                yield Text(f"  … and {len(rows) - ROWS_SHOWN} more: --tasks shows all")
        elif state != "done":
            yield from _reasons(rows)


def _tried_again(rows: Sequence[TaskStatus]) -> Iterator[RenderableType]:
    """What went wrong on the way to a good end."""
    if again := [replace(row, why=row.again) for row in rows if row.again]:
        yield Text(f"  {len(again)} of them needed more than one attempt:", style="dim")
        yield from _reasons(again)


def _reasons(rows: Sequence[TaskStatus]) -> Iterator[RenderableType]:
    """Equal reasons once, the most frequent first."""
    groups: dict[str, list[int]] = {}
    for row in rows:
        groups.setdefault(" ".join(row.why.split()), []).append(row.task)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[1]))
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(max_width=30)
    grid.add_column(ratio=1)
    for why, tasks in ordered[:REASONS_SHOWN]:
        grid.add_row(ranges(tasks), why or "–")
    yield Padding(grid, INDENT)
    if len(ordered) > REASONS_SHOWN:
        yield Text(f"  … and {len(ordered) - REASONS_SHOWN} other reasons: --tasks shows all")


def _tasks_table(rows: Sequence[TaskStatus]) -> Table:
    table = Table(box=None, pad_edge=True, padding=(0, 1), header_style="dim")
    table.add_column("TASK", justify="right")
    table.add_column("STATE")
    table.add_column("NODE", no_wrap=True, overflow="ellipsis", max_width=14)
    table.add_column("TRY", justify="right")
    table.add_column("CONFIGURATION", no_wrap=True)
    table.add_column("WHY", ratio=1, no_wrap=True, overflow="ellipsis")
    for row in rows:
        table.add_row(
            str(row.task),
            Text(row.state, style=COLOURS[row.state]),
            row.node,
            str(row.attempt or ""),
            row.param_name,
            "" if row.why == f"on {row.node}" else " ".join(row.why.split()),
        )
    return table


def _failures(status: JobStatus) -> Iterator[RenderableType]:
    """The end of the first failed task's log: mostly the traceback."""
    for failure in status.failed[:1]:
        if failure.log_tail:
            lines = failure.log_tail.splitlines()[-12:]
            yield Text(f"\nThe end of the log of task {failure.task}:", style="bold")
            yield Text("\n".join(f"  {line}" for line in lines))
        if failure.log_path:
            yield Text(f"  whole log: {failure.log_path}", style="dim")
        others = command(f"logs {status.job} TASK", status.project)
        yield Text(f"`{others}` shows others.", style="dim")


def _trouble(status: JobStatus) -> Iterator[RenderableType]:
    for host, why in sorted(status.refused.items()):
        yield Text.assemble(("\nRefused", "bold red"), f" by {host}: {why}")
    if status.problems:
        yield Text("\nTrouble on the drive, which Ludwig got along with:", style="bold")
        for path, reason in list(status.problems.items())[:REASONS_SHOWN]:
            yield Text(f"  {path}: {reason}")
        if len(status.problems) > REASONS_SHOWN:
            yield Text(f"  … and {len(status.problems) - REASONS_SHOWN} more: --json shows all")
