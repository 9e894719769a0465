"""Heartbeats: that a node lives, how it is, and when it has fallen silent.

No clock of another machine is compared with ours: a node is silent when its counter has stood still
for `silent_s` seconds of *our* monotonic clock, which is passed in. Owns `.ludwig/nodes/`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ludwig import codec, errors, layout, records
from ludwig.drive import Drive
from ludwig.model import Beat, RunningAttempt

__all__ = ["Observer", "Sighting", "last_counter", "write_beat"]


GAP = 0.25
"""The share of `silent_s` that counts, at most, between two looks."""
BEATS_MISSED = 4
"""An agent beats so many times in the seconds it may be silent, unless it is told otherwise."""


def write_beat(drive: Drive, beat: Beat) -> None:
    """Write a heartbeat and remove the one before.

    `Exists` means that somebody else beats under this host's name. A beat of ours that is there
    already, from a call whose answer was lost, will do: the next one says what has changed since.
    """
    path = layout.beat_path(beat.host, beat.counter)
    try:
        drive.publish(path, codec.encode(beat))
    except errors.Exists:
        if _boot_of(drive, path) != beat.boot:
            raise
    if beat.counter > 1:
        drive.remove(layout.beat_path(beat.host, beat.counter - 1))


def _boot_of(drive: Drive, path: str) -> str | None:
    try:
        return records.read_record(Beat, drive, path).boot
    except (errors.NotFound, errors.Malformed):
        return None


def last_counter(drive: Drive, host: str) -> int:
    """The counter an agent goes on from after a restart; older heartbeats of it are removed."""
    drive.make_folders(layout.NODES)
    found = sorted(
        counter
        for name, counter in map(_parsed, drive.list(layout.NODES))
        if name.lower() == host.lower()
    )
    for old in found[:-1]:
        drive.remove(layout.beat_path(host, old))
    return found[-1] if found else 0


def _parsed(name: str) -> tuple[str, int]:
    return layout.parse_beat(name) or ("", 0)


@dataclass
class Sighting:
    """What this observer knows of one node. `beat` is the latest that made sense."""

    counter: int
    changed: float
    """Our monotonic time when the counter last changed (or when we first looked)."""
    beat: Beat | None = None
    problem: str = ""

    def silent_for(self, now: float) -> float:
        return now - self.changed


class Observer:
    """Watches the heartbeats of all nodes. Costs one listing a look, and a read per new beat that
    is asked for.

    `as_promised` is for those who only look, and are told so by each node: it is silent once the
    other nodes of its lab act on its silence (`Beat.silent_s`), whatever `silent_s` we were given.
    """

    def __init__(self, drive: Drive, *, silent_s: float, as_promised: bool = False) -> None:
        self._drive = drive
        self.silent_s = silent_s
        self._as_promised = as_promised
        self.nodes: dict[str, Sighting] = {}
        self._looked: float | None = None
        self._holders: dict[tuple[str, int, int, int], tuple[str, RunningAttempt]] | None = None

    def look(self, now: float, *, read: Iterable[str] | None = None) -> None:
        """Take note of every counter; read the new beats (only of the hosts in `read`)."""
        self.count(now)
        self.read(self.nodes if read is None else read)

    def count(self, now: float) -> None:
        """Take note of every counter, which is enough to know who is silent: one listing."""
        try:
            names = self._drive.list(layout.NODES)
        except errors.NotFound:
            names = []
        self._forgive_gap(now)
        newest: dict[str, int] = {}
        for host, counter in map(_parsed, names):
            if host:
                newest[host] = max(counter, newest.get(host, 0))
        for host, counter in newest.items():
            seen = self.nodes.get(host)
            if seen is None:
                seen = self.nodes[host] = Sighting(counter=counter, changed=now)
            elif counter != seen.counter:
                # Smaller after somebody has cleared the folder: the node began to count anew.
                seen.counter, seen.changed = counter, now

    def read(self, hosts: Iterable[str]) -> None:
        """Read the beats of these hosts that are newer than what was read of them."""
        for host in list(hosts):
            seen = self.nodes.get(host)
            if seen is not None and seen.counter:
                self._read(host, seen)

    def _forgive_gap(self, now: float) -> None:
        """Time in which we did not look counts little.

        When the file server comes back after an hour, everybody has been silent for an hour: the
        first to look must not take that for death, but give the others time to speak.
        """
        if self._looked is not None and now - self._looked > self.silent_s * GAP:
            excess = now - self._looked - self.silent_s * GAP
            for seen in self.nodes.values():
                seen.changed = min(now, seen.changed + excess)
        self._looked = now

    def _read(self, host: str, seen: Sighting) -> None:
        if seen.beat is not None and seen.beat.counter == seen.counter:
            return
        path = layout.beat_path(host, seen.counter)
        try:
            beat = records.read_record(Beat, self._drive, path)
            if (beat.host, beat.counter) != (host, seen.counter):
                raise errors.Malformed(path, f"it is beat {beat.counter} of {beat.host!r}")
        except errors.NotFound:
            pass  # a newer one has taken its place: the next look finds it
        except errors.Malformed as error:
            seen.problem = str(error)
        else:
            seen.beat, seen.problem = beat, ""
            self._holders = None

    def beat(self, host: str) -> Beat | None:
        seen = self.nodes.get(host)
        return seen.beat if seen else None

    def holder(self, key: tuple[str, int, int, int]) -> tuple[str, RunningAttempt] | None:
        """Whose latest heartbeat lists the attempt (project, job, task, attempt)."""
        if self._holders is None:
            self._holders = {
                (running.project, running.job, running.task, running.attempt): (host, running)
                for host, seen in self.nodes.items()
                if seen.beat is not None
                for running in seen.beat.running
            }
        return self._holders.get(key)

    def silent(self, host: str, now: float) -> bool:
        """Whether a node has been silent for long enough to act on it.

        A node never seen is not silent: it has had no chance to speak to this observer.
        Use `first_look` to start its time. Nor has anybody fallen silent while we did not look.
        """
        seen = self.nodes.get(host)
        if self._looked is not None:
            now = min(now, self._looked + self.silent_s * GAP)
        return seen is not None and seen.silent_for(now) >= self._patience(seen)

    def _patience(self, seen: Sighting) -> float:
        if self._as_promised and seen.beat is not None:
            if seen.beat.silent_s > 0:
                return seen.beat.silent_s
            if seen.beat.every_s > 0:  # of an agent that did not say yet; unless set by hand
                return seen.beat.every_s * BEATS_MISSED
        return self.silent_s

    def first_look(self, hosts: Iterable[str], now: float) -> None:
        """Start the clock for nodes that have never been seen."""
        for host in hosts:
            self.nodes.setdefault(host, Sighting(counter=0, changed=now))
