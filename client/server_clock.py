"""How long ago a node spoke, by the file server's own clock. For display only.

A command that looks once cannot watch a counter for a minute. It makes a file on the drive and
compares the time the server gave it with the times the server gave the heartbeats: one clock, not
ours and not a node's. Agents never decide anything by this; they watch (`ludwig.nodes`).
"""

from __future__ import annotations

import secrets
from contextlib import suppress

from ludwig import errors, layout
from ludwig.drive import Drive, Entry
from ludwig.nodes import Observer, Sighting

__all__ = ["PROBE", "backdate", "scan_nodes"]

PROBE = "clock-"
"""Prefix of the probe's name beside the heartbeats. It has no ending, so it is never one."""

_FORGOTTEN_S = 600.0


def scan_nodes(drive: Drive) -> tuple[list[Entry], float | None]:
    """The heartbeats, and the server's time now; None where it cannot be told.

    Three requests. A user who may not write gets the time of the newest heartbeat, so that nodes
    are at least compared with each other. Probes of commands that were killed are removed.
    """
    probe = f"{layout.NODES}/{PROBE}{secrets.token_hex(8)}"
    try:
        drive.create(probe, b"removed at once: tells the server's time\n")
    except errors.NotFound:  # nobody has ever beaten
        return [], None
    except (errors.DriveRefused, errors.Exists):
        pass
    try:
        entries = drive.scan(layout.NODES)
    except errors.NotFound:
        return [], None
    finally:
        with suppress(errors.DriveError):
            drive.remove(probe)
    times = {entry.name: entry.modified for entry in entries}
    now = times.get(probe.rpartition("/")[2])
    beats = [entry for entry in entries if layout.parse_beat(entry.name)]
    if now is None:
        return beats, max((entry.modified for entry in beats), default=None)
    for name, modified in times.items():
        if name.startswith(PROBE) and now - modified > _FORGOTTEN_S:
            with suppress(errors.DriveError):
                drive.remove(f"{layout.NODES}/{name}")
    return beats, now


def backdate(observer: Observer, beats: list[Entry], server_now: float | None, now: float) -> None:
    """Give an observer that has just begun the sightings it would have had by now."""
    if server_now is None:
        return
    newest: dict[str, tuple[int, float]] = {}
    for entry in beats:
        host, counter = layout.parse_beat(entry.name) or ("", 0)
        if counter > newest.get(host, (0, 0.0))[0]:
            newest[host] = (counter, entry.modified)
    for host, (counter, modified) in newest.items():
        age = max(0.0, server_now - modified)
        observer.nodes.setdefault(host, Sighting(counter=counter, changed=now - age))
