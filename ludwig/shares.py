"""What nobody has claimed of a job, home by home, and which task comes next.

Home first, from the front; then the node with the most left, from the back, so that helper and home
meet as late as possible. Decided from a `JobView` that was filled before. What was claimed, ended
or cancelled stays so: each share remembers how far it got, and asking for the next of a million
tasks costs what has changed since the last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ludwig.view import JobView

__all__ = ["Share", "Shares"]


class Share:
    """The tasks of one home, in order."""

    def __init__(self, view: JobView, tasks: Sequence[int]) -> None:
        self._view, self._tasks = view, tasks
        self._front, self._back = 0, len(tasks)

    def is_open(self, task: int) -> bool:
        return task not in self._view.claims and self._view.is_open(task)

    def first(self) -> int | None:
        """The next for the home itself."""
        while self._front < self._back and not self.is_open(self._tasks[self._front]):
            self._front += 1
        return self._tasks[self._front] if self._front < self._back else None

    def last(self) -> int | None:
        """The next for a helper."""
        while self._front < self._back and not self.is_open(self._tasks[self._back - 1]):
            self._back -= 1
        return self._tasks[self._back - 1] if self._front < self._back else None

    def left(self) -> int:
        """How many are open, those that were cancelled or lost in the middle included."""
        self.first()
        self.last()
        return self._back - self._front

    def exhausted(self) -> bool:
        return self.first() is None

    def helped(self) -> bool:
        """Whether somebody has taken from the back: then others have nothing left of their own."""
        return bool(self._tasks) and self._tasks[-1] in self._view.claims

    def __iter__(self) -> Iterator[int]:
        """Every open task from the front."""
        for index in range(self._front, self._back):
            if self.is_open(self._tasks[index]):
                yield self._tasks[index]


class Shares:
    """The shares of all homes of a job."""

    def __init__(self, view: JobView) -> None:
        self._view = view
        self._shares: dict[str, Share] = {}
        self._nothing = Share(view, ())

    def of(self, home: str) -> Share:
        if home not in self._shares:
            chunk = self._view.job.chunks.get(home)
            self._shares[home] = Share(self._view, chunk.numbers) if chunk else self._nothing
        return self._shares[home]

    def give_up(self, home: str) -> None:
        """What is left of a home cannot be read: it is nothing to us."""
        self._shares[home] = self._nothing

    def fullest(self, homes: Iterable[str]) -> str:
        """Of these, the one with the most left; "" if nothing is."""
        left, home = max(((self.of(home).left(), home) for home in homes), default=(0, ""))
        return home if left else ""

    def others(self, host: str) -> list[str]:
        """The other homes that have something left as far as we know."""
        homes = self._view.job.chunks
        return [home for home in homes if home != host and not self.of(home).exhausted()]

    def claimable(self, host: str, *, balance: bool) -> Iterator[int]:
        """Tasks in the order in which `host` should try them. Each must be claimed, or be found
        to be, before the next is asked for."""
        own = self.of(host)
        while (task := own.first()) is not None:
            yield task
        while balance and (home := self.fullest(self.others(host))):
            if (task := self.of(home).last()) is not None:
                yield task
