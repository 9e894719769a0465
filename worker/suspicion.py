"""Whether this node does more harm than good: a bad node must not burn through a queue.

Pure: it is told how attempts ended and what time it is (monotonic), and answers. Two suspicions:

*A job is set aside* when `DEATHS` different tasks of it died within `QUICK_S` of starting here,
with no success of the job in between. Other jobs go on. After a pause one task of it is tried; the
pause doubles each time that fails. If no other node can do better, the fault is the job's, not
ours: then it runs on and fails as it should (`others_fine`).

*The node is quarantined* when two jobs are set aside that others can run, with no success of any
job since, or when `DEATHS` attempts in a row died before the user's code was reached (a broken
interpreter, a broken driver). It claims nothing but one task after each pause, of whatever job.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["DEATHS", "PAUSE_MAX_S", "PAUSE_S", "QUICK_S", "Suspicion"]

DEATHS = 3
QUICK_S = 10.0
PAUSE_S = 60.0
PAUSE_MAX_S = 1800.0
ANOTHER_FIRST_S = 5.0
"""How much later the job whose trial failed may be tried again than another job."""


@dataclass
class Pause:
    """A pause that doubles, and the one trial at its end."""

    until: float
    seconds: float = PAUSE_S
    trial: str = ""
    """The job that is being tried."""
    failed: str = ""
    """The job whose trial failed last."""

    def over(self, job: str, now: float) -> bool:
        later = ANOTHER_FIRST_S if job == self.failed else 0.0
        return not self.trial and now >= self.until + later

    def lengthen(self, job: str, now: float) -> None:
        self.seconds = min(2 * self.seconds, PAUSE_MAX_S)
        self.until = now + self.seconds
        self.trial, self.failed = "", job


@dataclass
class Record:
    """What is held against one job here."""

    deaths: set[int] = field(default_factory=set)
    """Tasks that died at once since the job's last success here."""
    aside: Pause | None = None
    others_fine: bool = True
    """As last heard: whether another live node has not set it aside."""
    since_success: bool = True
    """Set aside after the last success of any job here."""


class Suspicion:
    """What speaks against this node. Jobs are named as in heartbeats: `project/17`."""

    def __init__(self) -> None:
        self._jobs: dict[str, Record] = {}
        self._unreached = 0
        self._unreached_pause: Pause | None = None
        self._node_pause: Pause | None = None

    def ended(
        self,
        job: str,
        task: int,
        now: float,
        *,
        seconds: float,
        failed: bool,
        user_code_reached: bool,
    ) -> None:
        """An attempt ended by itself after `seconds`. Not for attempts that were stopped or lost
        their GPU: those say nothing about job or node, and are `withdrawn`."""
        if failed and not user_code_reached:
            self._died_unreached(job, now)
        else:
            self._unreached, self._unreached_pause = 0, None
        if not failed:
            self._succeeded(job)
        elif seconds < QUICK_S:
            self._died(job, task, now)
        else:
            self._lasted(job)
        if self._node_pause and self._node_pause.trial == job:
            if failed and seconds < QUICK_S:
                self._node_pause.lengthen(job, now)
            else:
                self._node_pause.trial = ""
        self._judge_node(now)

    def claimed(self, job: str, now: float) -> None:
        """A task of the job was claimed: if it is the trial at the end of a pause, it is the only
        one until it ended."""
        for pause in self._pauses(job):
            if pause.over(job, now):
                pause.trial = job

    def withdrawn(self, job: str) -> None:
        """An attempt ended without a verdict: stopped, or never started. Another may be tried."""
        for pause in self._pauses(job):
            if pause.trial == job:
                pause.trial = ""

    def forget(self, job: str) -> None:
        """The job is over: nothing is held against it, nor against the node for its sake."""
        self.withdrawn(job)
        self._jobs.pop(job, None)
        if len(self._against_node()) < 2:
            self._node_pause = None

    def may_claim(self, job: str, now: float, others_fine: bool) -> bool:
        """Whether a task of the job may be started here now.

        `others_fine`: another live node works on the job and has not set it aside.
        """
        record = self._jobs.get(job)
        if record is not None:
            record.others_fine = others_fine
            self._judge_node(now)
        if not all(pause.over(job, now) for pause in self._node_pauses()):
            return False
        if record is None or record.aside is None or not others_fine:
            return True
        return record.aside.over(job, now)

    def suspects(self, job: str) -> bool:
        """Whether `may_claim` depends on more than that there is room."""
        return job in self._jobs or bool(self._node_pauses())

    def state(self, now: float) -> tuple[bool, str, tuple[str, ...]]:
        """Whether the node is quarantined, why (also for jobs set aside), and which jobs are.

        A job stays listed while it runs here for want of a better node, or two nodes would each
        take the other for that.
        """
        set_aside = tuple(sorted(job for job, record in self._jobs.items() if record.aside))
        if self._unreached_pause:
            why = f"{self._unreached} attempts in a row died before the job's own code was reached"
            return True, why + again(self._unreached_pause, now), set_aside
        if self._node_pause:
            why = f"tasks of {' and '.join(self._against_node())} die at once here"
            return True, why + again(self._node_pause, now), set_aside
        reasons = [
            f"tasks of {job} die at once here" + again(record.aside, now)
            for job, record in sorted(self._jobs.items())
            if record.aside and record.others_fine
        ]
        return False, "; ".join(reasons), set_aside

    def _died_unreached(self, job: str, now: float) -> None:
        self._unreached += 1
        if self._unreached_pause:
            if self._unreached_pause.trial == job:
                self._unreached_pause.lengthen(job, now)
        elif self._unreached >= DEATHS:
            self._unreached_pause = Pause(now + PAUSE_S)

    def _succeeded(self, job: str) -> None:
        self._jobs.pop(job, None)
        for record in self._jobs.values():
            record.since_success = False

    def _died(self, job: str, task: int, now: float) -> None:
        record = self._jobs.setdefault(job, Record())
        record.deaths.add(task)
        if record.aside:
            if record.aside.trial == job:
                record.aside.lengthen(job, now)
        elif len(record.deaths) >= DEATHS:
            record.aside = Pause(now + PAUSE_S)
            record.since_success = True

    def _lasted(self, job: str) -> None:
        """It failed, but not at once: no success, yet whatever killed the others is gone."""
        record = self._jobs.get(job)
        if record and record.aside:
            del self._jobs[job]

    def _judge_node(self, now: float) -> None:
        if len(self._against_node()) < 2:
            self._node_pause = None
        elif self._node_pause is None:
            self._node_pause = Pause(now + PAUSE_S)

    def _against_node(self) -> list[str]:
        """Jobs that are set aside, that others can run, and no success since."""
        return sorted(
            job
            for job, record in self._jobs.items()
            if record.aside and record.others_fine and record.since_success
        )

    def _node_pauses(self) -> list[Pause]:
        return [pause for pause in (self._unreached_pause, self._node_pause) if pause]

    def _pauses(self, job: str) -> list[Pause]:
        record = self._jobs.get(job)
        own = [record.aside] if record and record.aside else []
        return [*self._node_pauses(), *own]


def again(pause: Pause, now: float) -> str:
    if pause.trial:
        return f"; a task of {pause.trial} is being tried"
    return f"; the next trial is in {max(0, round(pause.until - now))} s"
