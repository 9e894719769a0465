"""Looking into the record of a small job, whose tasks are all in `job.json`."""

from __future__ import annotations

from ludwig.model import Job, Task

__all__ = ["tasks_in"]


def tasks_in(job: Job) -> dict[int, tuple[str, Task]]:
    """number → (home, task). Without those in tables: `job_records.tasks_of` has all."""
    return {task.task: (home, task) for home, chunk in job.chunks.items() for task in chunk.tasks}
