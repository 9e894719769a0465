"""What state a task is in and why, what of it others may take over, and what a failure leads to.

Pure: everything is decided from a `JobView` and an `Observer` that were filled before, and from the
observer's own monotonic time. Whatever a user is told about waiting, running and lost tasks is said
here, and agents act on the same words. Which of the unclaimed tasks comes next is in `shares.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from ludwig.model import ATTEMPT_LIMIT, Claim, Done, Failure, Job, TaskState
from ludwig.nodes import Observer
from ludwig.view import JobView

__all__ = [
    "NOBODY",
    "TICKET_LIES",
    "Retake",
    "TaskStatus",
    "abandoned_stops",
    "after_failure",
    "counts",
    "job_state",
    "left_over",
    "others_serving",
    "retakes",
    "task_states",
]

NOBODY = "no node can run it now"
"""How the reason begins for which nobody works on a task."""
TICKET_LIES = "to take up the ticket"
"""How it ends while no node has noticed the job."""
_UNHEARD = "not heard of yet"
_TICKET_WAITS = "has not taken up its ticket yet"
_PATIENCE = (_UNHEARD, _TICKET_WAITS)
"""Why a node does not work on a job yet, but may at any moment."""

STATES: tuple[TaskState, ...] = ("queued", "running", "done", "failed", "lost", "stopped")


@dataclass(frozen=True)
class TaskStatus:
    """One row of `ludwig status JOB`."""

    task: int
    state: TaskState
    why: str
    node: str = ""
    attempt: int = 0
    param_name: str = ""
    job_name: str = ""
    again: str = ""
    """Why one attempt was not enough. Part of `why` once the task has ended."""


@dataclass(frozen=True)
class Holding:
    """What is known of the latest attempt of a task that has not ended."""

    state: Literal["held", "waiting", "abandoned", "handed over", "unclear"]
    node: str
    attempt: int
    why: str


@dataclass(frozen=True)
class Retake:
    """An attempt that nobody works on any more, and what the next one will say."""

    task: int
    attempt: int
    why: str
    failures: tuple[Failure, ...]
    lost: bool
    """The task was tried too often: it is to be ended as lost."""


# --- who holds a task --------------------------------------------------------------------------


def holding(view: JobView, observer: Observer, task: int, now: float) -> Holding | None:
    """Who has the latest attempt of a task. None if it was never claimed."""
    attempt = view.claims.get(task)
    if attempt is None:
        return None
    given_up = (task, attempt) in view.failed or (task, attempt) in view.released
    if not given_up and (listed := _listed(view, observer, task, now)) is not None:
        return listed
    claim = view.owner(task)
    if claim is None:  # whoever claimed it may have died before it wrote a byte
        over = _is_over(view, observer, task, now)
        why = "a node claimed it but has not said which"
        return Holding("abandoned" if over else "unclear", "", attempt, why)
    host = claim.host
    observer.first_look([host], now)
    if failed := view.failed.get((task, attempt)):
        return Holding("handed over", host, attempt, f"failed on {host}: {_short(failed.why)}")
    if released := view.released.get((task, attempt)):
        return Holding(
            "handed over", host, attempt, f"given back by {host}: {_short(released.why)}"
        )
    if observer.silent(host, now):
        seconds = int(observer.nodes[host].silent_for(now))
        return Holding("abandoned", host, attempt, f"{host} has been silent for {seconds} s")
    return _not_listed(view, observer, task, claim, now=now)


def _listed(view: JobView, observer: Observer, task: int, now: float) -> Holding | None:
    """What the heartbeats say. They are read anyway, so that most claims need not be."""
    attempt = view.claims[task]
    found = observer.holder((view.job.project, view.job.job, task, attempt))
    if found is None or observer.silent(found[0], now):
        return None
    host, running = found
    if running.phase == "waiting":
        return Holding("waiting", host, attempt, f"next on {host}")
    claim = view.owner(task) if attempt > 1 else None
    return Holding("held", host, attempt, (claim.why if claim else "") or f"on {host}")


def _not_listed(
    view: JobView, observer: Observer, task: int, claim: Claim, *, now: float
) -> Holding:
    """Every heartbeat after the one a claim names lists the attempt, until it has ended."""
    attempt, host = view.claims[task], claim.host
    beat = observer.beat(host)
    fresh = claim.why or f"just claimed by {host}"
    if beat is None or (beat.counter <= claim.beat and beat.boot == claim.boot):
        return Holding("held", host, attempt, fresh)
    # Newer than the beat, or of a node that counts anew because somebody removed its beats.
    if beat.counter <= claim.beat and not _is_over(view, observer, task, now):
        return Holding("held", host, attempt, fresh)
    return Holding("abandoned", host, attempt, f"{host} does not know of it any more")


def _is_over(view: JobView, observer: Observer, task: int, now: float) -> bool:
    """Whether it has been unclear who holds a task for as long as a node may be silent."""
    since = view.unclear.setdefault((task, view.claims[task]), now)
    return now - since >= observer.silent_s


# --- what a user is told -----------------------------------------------------------------------


def task_states(view: JobView, observer: Observer, now: float) -> list[TaskStatus]:
    """The state of every task and why it is in it, in the order of the tasks."""
    waiting = _Waiting(view, observer, now)
    rows = []
    for number, (home, task) in sorted(view.tasks.items()):
        run = task.runs[0]
        state, why, node, attempt = _one(view, observer, waiting, number=number, home=home, now=now)
        more = f" (+{len(task.runs) - 1} more)" if len(task.runs) > 1 else ""
        again = _why_again(view, number, attempt)
        ended_well = number in view.done and state in ("done", "stopped")
        rows.append(
            TaskStatus(
                task=number,
                state=state,
                why=f"{why}; {again}" if again and ended_well else why,
                node=node,
                attempt=attempt,
                param_name=run.param_name,
                job_name=run.job_name + more,
                again=again,
            )
        )
    return rows


def _one(
    view: JobView, observer: Observer, waiting: _Waiting, *, number: int, home: str, now: float
) -> tuple[TaskState, str, str, int]:
    """The state of one task, why, on which node, and in which attempt."""
    if number in view.done:
        done = view.end_of(number)
        if done is None:
            return "lost", "its end is on the drive but cannot be read", "", 0
        return done.outcome, _how_it_ended(done), done.host, done.attempt
    held = holding(view, observer, number, now)
    if held and held.state == "abandoned" and view.left_results(number):
        done = view.ended[number]
        return done.outcome, _how_it_ended(done), done.host, done.attempt
    if view.stopped(number):
        if held and held.state in ("held", "waiting"):
            # A beat may be older than the start: only the published end says that it is over.
            state: TaskState = "running" if held.state == "held" else "queued"
            return state, f"being stopped on {held.node}", held.node, held.attempt
        if held:
            return "stopped", f"cancelled; {held.why}", held.node, held.attempt
        return "stopped", "cancelled before it started", "", 0
    if held is None:
        return "queued", waiting.why(home), "", 0
    if held.state == "held":
        return "running", held.why, held.node, held.attempt
    if held.state == "waiting":
        return "queued", held.why, held.node, held.attempt
    if held.state == "abandoned":
        return "lost", f"{held.why}; {waiting.who_takes_over()}", held.node, held.attempt
    return "queued", f"{held.why}; {waiting.who_takes_over()}", held.node, held.attempt


def _how_it_ended(done: Done) -> str:
    if done.outcome == "done":
        return done.why or f"finished on {done.host} after {done.seconds:.1f} s"
    return done.why or f"{done.outcome} on {done.host}"


def _why_again(view: JobView, task: int, shown: int) -> str:
    """What the latest attempt says of the one before. Reads the claim only if no event tells.

    `shown` is the attempt that ended the task: not the latest if its node was only cut off.
    """
    attempt = view.claims.get(task, 0)
    if attempt < 2:
        return ""
    why = view.reasons.get((task, attempt))
    if not why:
        claim = view.owner(task)
        why = claim.why if claim else ""
    why = _short(why) or f"attempt {attempt - 1} was given up, and nobody can tell why any more"
    if task in view.done and 0 < shown < attempt:
        return f"attempt {attempt} was not needed in the end ({why})"
    return why


class _Waiting:
    """Why tasks that nobody has claimed are waiting, worked out once per job."""

    def __init__(self, view: JobView, observer: Observer, now: float) -> None:
        self._hosts = {host: _serving(view, observer, host, now) for host in view.job.chunks}
        self._can = [host for host, trouble in self._hosts.items() if not trouble]

    def why(self, home: str) -> str:
        if not self._can:
            if self._hosts and set(self._hosts.values()) == {_TICKET_WAITS}:
                return f"waits for {', '.join(sorted(self._hosts)[:3])} {TICKET_LIES}"
            reasons = "; ".join(f"{host}: {why}" for host, why in self._hosts.items())
            return f"{NOBODY} ({reasons or 'the job has no nodes'})"
        if trouble := self._hosts.get(home):
            return f"{home} cannot ({trouble}); {self.who_takes_over()}"
        return f"waits for a free slot on {home}"

    def who_takes_over(self) -> str:
        if not self._can:
            return "no other node can take over now"
        names = ", ".join(sorted(self._can)[:3]) + (" …" if len(self._can) > 3 else "")
        return f"{names} will take over"


def _serving(view: JobView, observer: Observer, host: str, now: float) -> str:
    """Empty when a node works on this job, else why it does not."""
    if host in view.refusals:
        return f"refused: {_short(view.refusals[host])}"
    if observer.silent(host, now):
        return f"silent for {int(observer.nodes[host].silent_for(now))} s"
    beat = observer.beat(host)
    if beat is None:
        return _UNHEARD if host not in view.accepted else ""
    if beat.state in ("draining", "silent"):
        return f"{beat.state}" + (f": {_short(beat.why)}" if beat.why else "")
    if beat.state == "quarantined" and not beat.set_aside:
        return f"quarantined: {_short(beat.why)}"
    if f"{view.job.project}/{view.job.job}" in beat.set_aside:
        return f"has set this job aside: {_short(beat.why)}"
    if host not in view.accepted and not beat.running:
        return _TICKET_WAITS
    return ""


def _short(text: str, limit: int = 160) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def counts(rows: list[TaskStatus]) -> dict[TaskState, int]:
    found = Counter(row.state for row in rows)
    return {state: found.get(state, 0) for state in STATES}


def job_state(numbers: Mapping[TaskState, int]) -> TaskState:
    """One word for a whole job."""
    for state in ("running", "queued", "lost", "failed", "stopped"):
        if numbers.get(state):
            return state
    return "done"


# --- what a node does --------------------------------------------------------------------------


def left_over(view: JobView, observer: Observer, host: str, now: float) -> Iterator[int]:
    """Unclaimed tasks of other nodes that will not come to them: claimed also without `balance`."""
    for home, chunk in view.job.chunks.items():
        if home != host and _serving(view, observer, home, now) not in ("", *_PATIENCE):
            for task in chunk.numbers:
                if task not in view.claims and view.is_open(task):
                    yield task


def retakes(view: JobView, observer: Observer, host: str, now: float) -> Iterator[Retake]:
    """Attempts that nobody works on any more and that `host` may claim anew."""
    for task in sorted(filter(view.is_open, view.claims.keys() - view.done)):
        held = holding(view, observer, task, now)
        if held is None or held.state in ("held", "waiting", "unclear"):
            continue
        if held.state == "abandoned" and view.left_results(task):
            continue
        claim = view.owner(task)
        failures = claim.failures if claim else ()
        if failed := view.failed.get((task, held.attempt)):
            failure = Failure(attempt=held.attempt, host=held.node, why=failed.why)
            failures = (*failures, failure)
        yield Retake(
            task=task,
            attempt=held.attempt + 1,
            why=f"attempt {held.attempt}: {held.why}",
            failures=failures,
            lost=held.attempt >= ATTEMPT_LIMIT,
        )


def abandoned_stops(
    view: JobView, observer: Observer, now: float
) -> Iterator[tuple[int, int, str]]:
    """Cancelled tasks that nobody holds any more, though they were claimed: (task, attempt, why).

    Whoever sees them ends them as stopped, lest a node that comes back ends them otherwise.
    """
    if not view.stops:
        return
    for task in sorted(view.claims.keys() - view.done):
        if view.stopped(task):
            held = holding(view, observer, task, now)
            if held is not None and held.state in ("abandoned", "handed over"):
                if view.left_results(task):
                    continue
                yield task, held.attempt, f"cancelled; {held.why}"


def others_serving(view: JobView, observer: Observer, host: str, now: float) -> list[str]:
    """The other nodes that work on this job as far as one can tell."""
    return [
        other
        for other in view.job.chunks
        if other != host
        and other in view.accepted
        and not _serving(view, observer, other, now)
        and (beat := observer.beat(other)) is not None
        and beat.state in ("idle", "busy", "quarantined")
    ]


def after_failure(
    job: Job, failures: tuple[Failure, ...], host: str, *, others: bool
) -> Literal["retry", "hand over", "give up"]:
    """What comes after the last of `failures`, which happened on `host`.

    A task is tried `retries` times more on the same node, then once on another if there is one: a
    node may be the reason. Attempts that were lost with their node do not count.
    """
    if job.retries == 0 or any(failure.host != host for failure in failures):
        return "give up"
    if len(failures) <= job.retries:
        return "retry"
    return "hand over" if others else "give up"
