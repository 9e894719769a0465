"""The progress bar of a job: in a terminal, in a notebook, or as plain lines.

Draws what it is told and knows nothing of drives. Writes to stderr, so that a script's own output
stays its own; without a terminal or notebook nothing is shown unless asked for.
"""

from __future__ import annotations

import html
import importlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from rich.console import Console, Group, RenderableType
from rich.constrain import Constrain
from rich.live import Live
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ludwig.client.lab import in_notebook
from ludwig.client.moments import Moment
from ludwig.client.pace import Pace
from ludwig.client.status import JobStatus

__all__ = [
    "Display",
    "Lines",
    "NotebookBar",
    "Silent",
    "TerminalBar",
    "make_display",
    "make_transfer",
]

COLOURS = {
    "running": "cyan",
    "queued": "default",
    "done": "green",
    "failed": "red",
    "lost": "magenta",
    "stopped": "yellow",
}


class Display(Protocol):
    """Shows a job's progress. A context manager would hide that `close` may come early."""

    def show(self, moment: Moment) -> None: ...

    def say(self, text: str) -> None:
        """A line that stays, above the bar."""

    def close(self, *, keep: bool = True) -> None:
        """Stop drawing; without `keep`, leave no bar behind. May be called again."""


def make_display(progress: bool | None = None) -> Display:
    """None: a bar where somebody is looking. True: plain lines where nobody is. False: nothing."""
    if progress is False:
        return Silent()
    if in_notebook():
        return NotebookBar()
    console = Console(stderr=True)
    if console.is_terminal:
        return TerminalBar(console)
    return Lines(console) if progress else Silent()


class Silent:
    def show(self, moment: Moment) -> None:
        return None

    def say(self, text: str) -> None:
        return None

    def close(self, *, keep: bool = True) -> None:
        return None


def counted(status: JobStatus) -> Text:
    """`3 running  1 failed`: what the bar itself does not say."""
    text = Text()
    for state in ("running", "failed", "lost", "stopped"):
        if number := status.counts[state]:
            text.append(f"  {number} {state}", style=COLOURS[state])
    return text


class TerminalBar:
    """One line that is redrawn, and a second one while the drive is away."""

    def __init__(self, console: Console, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pace = Pace()
        self._moment: Moment | None = None
        # Its own refresh keeps the seconds running while a request hangs.
        self._live = Live(
            get_renderable=self._render,
            console=console,
            refresh_per_second=4,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()

    def show(self, moment: Moment) -> None:
        self._moment = moment
        if moment.status is not None:
            self._pace.note(moment.status, self._clock())
        self._live.refresh()

    def say(self, text: str) -> None:
        self._live.console.print(Text(text))

    def close(self, *, keep: bool = True) -> None:
        self._live.transient = not keep
        self._live.stop()

    def _render(self) -> RenderableType:
        moment = self._moment
        if moment is None or moment.status is None:
            return Text(moment.note if moment else "Looking at the drive …")
        status = moment.status
        line = Table.grid(expand=True)
        line.add_column(no_wrap=True)
        line.add_column(ratio=1, min_width=6)
        line.add_column(no_wrap=True)
        bar = ProgressBar(total=max(1, status.total), completed=len(status.over))
        right = Text(f"  {len(status.over)}/{status.total}") + counted(status)
        if words := self._pace.words(status, self._clock()):
            right.append(f"  {words}", style="dim")
        line.add_row(f"job {status.job}  ", bar, right)
        # Room for the ^C that a terminal shows: else it would wrap, and the bar stay behind.
        bar_line = Constrain(line, max(20, self._live.console.width - 3))
        return Group(bar_line, Text(moment.note, style="yellow")) if moment.note else bar_line


class NotebookBar:
    """An HTML bar that is updated in place; needs nothing but IPython."""

    def __init__(self) -> None:
        self._display: Any = importlib.import_module("IPython.display")
        self._pace = Pace()
        self._notes: list[str] = []
        self._handle = self._display.display(self._display.HTML(""), display_id=True)

    def show(self, moment: Moment) -> None:
        if moment.status is not None:
            self._pace.note(moment.status, time.monotonic())
        self._handle.update(self._display.HTML(notebook_html(moment, self._pace, self._notes)))

    def say(self, text: str) -> None:
        self._notes.append(text)

    def close(self, *, keep: bool = True) -> None:
        return None


def notebook_html(moment: Moment, pace: Pace, notes: list[str]) -> str:
    status = moment.status
    if status is None:
        return f"<div>{html.escape(moment.note)}</div>"
    words = counted(status).plain + "  " + pace.words(status, time.monotonic())
    text = f"job {status.job}: {len(status.over)}/{status.total}{words}"
    parts = [
        f'<progress value="{len(status.over)}" max="{max(1, status.total)}"></progress> '
        f"<code>{html.escape(text.strip())}</code>"
    ]
    parts += [f"<pre>{html.escape(note)}</pre>" for note in notes]
    if moment.note:
        parts.append(f"<i>{html.escape(moment.note)}</i>")
    return "<div>" + "".join(parts) + "</div>"


class Lines:
    """A plain line whenever something has changed, at most every few seconds: for log files."""

    def __init__(
        self,
        console: Console,
        *,
        every_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console, self._every_s, self._clock = console, every_s, clock
        self._last: tuple[str, float] = ("", float("-inf"))

    def show(self, moment: Moment) -> None:
        status, now = moment.status, self._clock()
        text = moment.note.partition(" for ")[0] if moment.note else str(status or "")
        final = status is not None and status.finished
        if text and text != self._last[0] and (final or now - self._last[1] >= self._every_s):
            self._last = (text, now)
            self.say(moment.note or text)

    def say(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)

    def close(self, *, keep: bool = True) -> None:
        sys.stderr.flush()


@contextmanager
def make_transfer(progress: bool | None = None) -> Iterator[Callable[[str, int, int], None] | None]:
    """Shows what is being sent, in bytes, and disappears when it has arrived.

    Called with what it is ("data", "source"), how far it is and how far it has to go.
    """
    console = Console(stderr=True)
    if progress is False or in_notebook() or not console.is_terminal:
        yield None
        return
    columns = (
        TextColumn("sending {task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=console, transient=True) as bars:
        known: dict[str, TaskID] = {}

        def told(what: str, done: int, total: int) -> None:
            if what not in known:
                for earlier in known.values():
                    bars.update(earlier, visible=False)
                known[what] = bars.add_task(what, total=total)
            bars.update(known[what], completed=done, total=total)

        yield told
