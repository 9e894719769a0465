"""`ludwig nodes`: which GPU is free, who uses the others, and which nodes do not work."""

from __future__ import annotations

import time

from rich.console import Group
from rich.live import Live
from rich.text import Text

from ludwig import errors
from ludwig.client.cli.options import AsJson, Watch, console, open_for_command, print_json
from ludwig.client.cli.show_nodes import nodes_page
from ludwig.client.lookout import Lookout
from ludwig.client.status import NodeStatus

__all__ = ["nodes"]

EVERY_S = 2.0


def nodes(watch: Watch = False, as_json: AsJson = False) -> None:
    """Show the nodes: which GPU is free, who uses the others since when, and what is wrong."""
    lookout = Lookout(open_for_command())
    if not watch:
        found = lookout.nodes()
        if as_json:
            print_json([one.as_json() for one in found])
        else:
            console().print(nodes_page(found))
        return
    found = []
    with Live(console=console(), auto_refresh=False, vertical_overflow="ellipsis") as live:
        while True:
            found, note = _look(lookout, found)
            if as_json:
                print_json([one.as_json() for one in found], one_line=True)
            else:
                page = nodes_page(found)
                live.update(Group(page, note) if note else page, refresh=True)
            time.sleep(EVERY_S)


def _look(lookout: Lookout, before: list[NodeStatus]) -> tuple[list[NodeStatus], Text]:
    try:
        return lookout.nodes(), Text()
    except errors.DriveAway as error:
        return before, Text(f"{error} Trying again.", style="yellow")
