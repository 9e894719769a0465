"""`--follow`: watch a job until it is over. Ctrl-C asks whether to cancel it, leave it, or go on.

The job never depends on whoever watches: when the network breaks, the bar says so and goes on where
it was; when the terminal is closed, the job runs on.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Literal

from ludwig import errors, layout
from ludwig.client.hints import command
from ludwig.client.job import Job
from ludwig.client.logs import Follower
from ludwig.client.moments import Moment
from ludwig.client.progress import Display, make_display
from ludwig.client.status import in_words
from ludwig.config import load_lab

__all__ = ["attach"]

Answer = Literal["cancel", "detach", "go on"]
LOG_POLL_S = 0.5


class _Watching:
    """What must survive a Ctrl-C that is answered with "go on"."""

    def __init__(self, job: Job, *, logs: bool) -> None:
        self.job, self.logs = job, logs
        self.follower = Follower(job.lab.drive, layout.job_files(job.project, job.id))
        self.told = False

    def until_over(self, display: Display) -> Moment:
        moment = Moment(None)
        for moment in self.job.moments(poll_s=LOG_POLL_S if self.logs else 2.0):
            if self.logs:
                self._show_logs(moment, display)
            elif moment.status is not None and moment.status.failed and not self.told:
                display.say(str(moment.status.failed[0]))
                self.told = True
            display.show(moment)
        return moment

    def _show_logs(self, moment: Moment, display: Display) -> None:
        if moment.status is None or moment.away is not None:
            return
        started = {row.task for row in moment.status.tasks if row.attempt}
        try:
            for line in self.follower.read(started, time.monotonic(), over=moment.status.over):
                display.say(str(line))
        except errors.DriveAway:
            return  # the next look goes on where this one was


def attach(job: Job, *, logs: bool = False) -> int:
    """Watch until the job is over or the user leaves. The exit status: 1 if a task is not done."""
    watching = _Watching(job, logs=logs)
    while True:
        display = make_display(True)
        try:
            moment = watching.until_over(display)
            break
        except KeyboardInterrupt:
            display.close(keep=False)
            answer = _ask(job)
        finally:
            display.close()
        if answer == "detach" and job.lab.local:
            print(f"Job {job.id} ran on this machine, and ends with this command.")
            return 1
        if answer == "detach":
            look = command(f"status {job.id} --watch", job.project)
            print(f"Job {job.id} goes on without you: {look}")
            return 0
        if answer == "cancel":
            _cancel(job)
    status = moment.status
    if status is None:
        return 1
    print(f"Job {job.id} of {job.project} is over: {in_words(status.counts)}.")
    if status.failed_tasks:
        local = job.lab.local
        print(status.explain(most=0 if watching.told else 1, hints=not local), file=sys.stderr)
        if local:
            look = _command(job, "logs")
            print(f"Submit again to run them again. Their logs: {look} TASK", file=sys.stderr)
    if status.counts["done"]:
        print(f"Its results: {_command(job, 'results')}")
    return 0 if status.ok else 1


def _command(job: Job, name: str) -> str:
    """What to type next; a lab of this machine alone is not the one that is found by itself."""
    words, path = f"{name} {job.id}", job.lab.config.path
    if not job.lab.local or not path:
        return command(words, job.project)
    found = load_lab(environ={**os.environ, "LUDWIG_CONFIG": str(path)})
    return f"LUDWIG_CONFIG={path} {command(words, job.project, found)}"


def _cancel(job: Job) -> None:
    try:
        job.cancel()
        print(f"Asked the nodes to stop job {job.id}; waiting until they have.", file=sys.stderr)
    except errors.DriveError as error:
        print(f"ludwig: job {job.id} could not be cancelled: {error}", file=sys.stderr)


def _ask(job: Job) -> Answer:
    """Without anybody to ask, or on a second Ctrl-C, we leave."""
    if not sys.stdin.isatty():
        return "detach"
    print(f"\nJob {job.id} of {job.project} is not over. What now?", file=sys.stderr)
    answers: dict[str, Answer] = {"c": "cancel", "d": "detach", "g": "go on"}
    if job.lab.local:  # nobody would be left to run it
        del answers["d"]
        print("  c  cancel it    g  go on watching", file=sys.stderr)
    else:
        print("  c  cancel it    d  detach: leave it running    g  go on watching", file=sys.stderr)
    while True:
        question = " or ".join(", ".join(answers).rsplit(", ", 1))
        print(f"{question}? ", end="", file=sys.stderr, flush=True)
        try:
            word = sys.stdin.readline()
        except KeyboardInterrupt:
            print(file=sys.stderr)
            return "detach"
        if not word:
            return "detach"
        # The whole word: "clear", typed for the shell, must not cancel a night's work.
        word = word.strip().lower()
        for letter, answer in answers.items():
            if word in (letter, answer):
                return answer
