"""How often a node looks at a job, and how much of it.

A *glance* is two listings: the counters of the heartbeats, which tell who is silent (of a large
lab, only some nodes watch that), and the job's folder, which tells of stops. A *whole look* reads
what others have said since, and so grows with the nodes; if every node took one as often as a small
lab does, the file server's work would grow with their square. Pure: time and chance are passed in.
"""

from __future__ import annotations

from ludwig.nodes import GAP

__all__ = ["LOOKERS", "chance", "glance_s", "help_s", "look_s", "watching", "whole_s"]

LOOKERS = 64
"""However many nodes a job has, no more looking is done than by so many."""
HELP_LOOK_S = 1.0
"""How old a listing of claims may be when helping another node, in a small lab."""


def look_s(silent_s: float) -> float:
    """How often a node of a small lab looks."""
    return max(0.2, min(15.0, silent_s / 8))


def glance_s(silent_s: float, nodes: int) -> float:
    """How often a node glances at a job of so many nodes.

    As seldom as can be without being late to notice silence: of a longer pause an `Observer` counts
    only this much.
    """
    usual = look_s(silent_s)
    return max(usual, min(usual * nodes / LOOKERS, silent_s * GAP))


def watching(nodes: int) -> float:
    """Which share of the nodes list the heartbeats at every glance, though they are busy.

    The root of their number: so the server's work grows slower than with the square, and still
    enough of them notice at once when a tenth dies to take over all that those held.
    """
    return float(min(1.0, LOOKERS / max(1, nodes)) ** 0.5)


def help_s(nodes: int) -> float:
    """How old what a helper knows of a share may be. That it is too late for a task, it is told
    when it claims; only how much is left for others does it know from a listing."""
    return float(HELP_LOOK_S * max(1.0, nodes / LOOKERS) ** 2)


def whole_s(silent_s: float, nodes: int, *, room: bool) -> float:
    """How often a node looks at the whole job: the square keeps the sum of all looks the same.

    One that has no room could start nothing of what it finds; yet in a long job somebody has to
    find what was handed over, and with so many nodes somebody does within about `silent_s`.
    """
    if room:
        return look_s(silent_s) * max(1.0, nodes / LOOKERS) ** 2
    return silent_s * max(1.0, 2 * nodes / LOOKERS) ** 2


def chance(nodes: int) -> float:
    """With which chance a node that notices a silent one looks at the whole job at once.

    Those that are `watching` notice, and some of them are enough to take over what it held.
    """
    return min(1.0, LOOKERS / max(1, nodes))
