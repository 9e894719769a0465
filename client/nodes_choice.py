"""Which nodes a job goes to, and how much each gets."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from ludwig import errors
from ludwig.client.lab import Lab
from ludwig.config import NodeConfig
from ludwig.nodes import Observer

__all__ = ["choose_nodes", "weights"]


def choose_nodes(
    lab: Lab, *, worker: str | None, nodes: Sequence[str] | None
) -> dict[str, NodeConfig]:
    """The nodes a user asked for, else all of the lab."""
    if not lab.nodes:
        raise errors.ConfigError(
            f"{lab.config.path or 'the environment'}: there are no nodes. Add a [nodes.NAME] for "
            "each, or let `ludwig init` do it."
        )
    wanted = (
        [worker] if worker is not None else list(nodes) if nodes is not None else list(lab.nodes)
    )
    if not wanted:
        raise errors.UsageError("nodes=[] leaves no node to run on.")
    by_name = {name.lower(): name for name in lab.nodes}
    chosen: dict[str, NodeConfig] = {}
    for name in wanted:
        known = by_name.get(name.lower())
        if known is None:
            near = difflib.get_close_matches(name, lab.nodes, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise errors.UsageError(
                f"there is no node {name!r}; the lab has {', '.join(sorted(lab.nodes))}.{hint}"
            )
        chosen[known] = lab.nodes[known]
    return chosen


def weights(lab: Lab, hosts: Iterable[str], gpus: int | None) -> dict[str, int]:
    """How many such tasks each node runs at once, by its last heartbeat; 1 if that is not known."""
    observer = Observer(lab.drive, silent_s=lab.config.drive.node_silent_s)
    found: dict[str, int] = {}
    try:
        observer.look(0.0)
    except errors.DriveError:
        return dict.fromkeys(hosts, 1)
    for host in hosts:
        beat = observer.beat(host)
        if beat is None:
            found[host] = 1
        elif gpus == 0 or not beat.slots.gpus:
            found[host] = max(1, beat.slots.cpus)
        else:
            found[host] = max(1, beat.slots.gpus // (gpus or 1))
    return found
