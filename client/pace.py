"""How fast a job advances and how long it will take. Pure: time is passed in."""

from __future__ import annotations

from collections import deque

from ludwig.client.lookout import span
from ludwig.client.status import JobStatus

__all__ = ["Pace"]

WINDOW_S = 900.0
ENOUGH = 3


class Pace:
    """Tasks per second: as seen lately, or, before there is much to see, as tasks took so far."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def note(self, status: JobStatus, now: float) -> None:
        ended = len(status.over)
        if not self._seen or self._seen[-1][1] != ended:
            self._seen.append((now, ended))
        while len(self._seen) > 2 and now - self._seen[0][0] > WINDOW_S:
            self._seen.popleft()

    def rate(self, status: JobStatus, now: float) -> float | None:
        """Tasks per second; None while nobody can tell."""
        if self._seen:
            (since, before), (_, after) = self._seen[0], self._seen[-1]
            if after - before >= ENOUGH and now > since:
                return (after - before) / (now - since)
        running = status.counts["running"]
        if running and status.seconds and (total := sum(status.seconds)) > 0:
            return running * len(status.seconds) / total
        return None

    def words(self, status: JobStatus, now: float) -> str:
        """`4.2/min, 3 min left`; "" while nobody can tell, or when it is over."""
        rate = self.rate(status, now)
        if not rate or status.finished:
            return ""
        left = (status.total - len(status.over)) / rate
        return f"{_rate(rate)}, {span(max(1.0, left))} left"


def _rate(per_second: float) -> str:
    for factor, unit in ((1, "s"), (60, "min"), (3600, "h")):
        if per_second * factor >= 1:
            return (
                f"{per_second * factor:.2g}/{unit}"
                if per_second * factor < 100
                else (f"{per_second * factor:.0f}/{unit}")
            )
    return f"{per_second * 86400:.2g}/day"
