"""The tasks of a job, wherever they are written: in `job.json`, or in a table for each host.

Numbers and homes are known from `job.json` in either case. What a task of a large job *is* (its
slice, its hash, its runs) is in its home's table, which is read and verified when it is first asked
for: so a node of many reads its own, and those of the nodes it helps.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping

from ludwig.model import Job, Task

__all__ = ["Tasks"]


class Tasks(Mapping[int, tuple[str, Task]]):
    """number → (home, task), in the order of the homes. Asking for a task may read from the drive,
    and raise what that raises; asking whether there is one, or for its home, never does."""

    def __init__(self, job: Job, read_table: Callable[[str], tuple[Task, ...]]) -> None:
        self._job, self._read_table = job, read_table
        self._here = {
            task.task: (home, task) for home, chunk in job.chunks.items() for task in chunk.tasks
        }
        self._tables = sorted(
            (chunk.numbers[0], chunk.numbers[-1], home)
            for home, chunk in job.chunks.items()
            if chunk.table is not None
        )
        self._firsts = [first for first, _, _ in self._tables]
        self._read: dict[str, tuple[Task, ...]] = {}
        self._count = sum(len(chunk.numbers) for chunk in job.chunks.values())

    def home(self, number: int) -> str | None:
        """The host whose share a task belongs to. None if there is no such task."""
        if number in self._here:
            return self._here[number][0]
        if self._tables:
            _, last, home = self._tables[max(0, bisect_right(self._firsts, number) - 1)]
            if self._firsts[0] <= number <= last:
                return home
        return None

    def load(self, home: str) -> None:
        """Make sure that the tasks of a host are known."""
        chunk = self._job.chunks[home]
        if chunk.table is not None and home not in self._read:
            self._read[home] = self._read_table(home)

    def __getitem__(self, number: int) -> tuple[str, Task]:
        if number in self._here:
            return self._here[number]
        home = self.home(number)
        if home is None:
            raise KeyError(number)
        self.load(home)
        return home, self._read[home][number - self._job.chunks[home].numbers[0]]

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and self.home(number) is not None

    def __iter__(self) -> Iterator[int]:
        return self._job.numbers()

    def __len__(self) -> int:
        return self._count
