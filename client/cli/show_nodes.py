"""How nodes look in a terminal of 80 columns: which GPU is free, and who uses it since when."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ludwig.client.status import NodeStatus
from ludwig.model import Beat, Gpu, RunningAttempt

__all__ = ["nodes_page"]

COLOURS = {
    "idle": "green",
    "busy": "cyan",
    "draining": "yellow",
    "quarantined": "red",
    "silent": "magenta",
}


def nodes_page(nodes: Sequence[NodeStatus]) -> RenderableType:
    """One line per GPU (or per task, on a node without), and why a node does not work."""
    if not nodes:
        return Text("There are no nodes: none in ludwig.toml, and none has ever spoken.")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("NODE", no_wrap=True, overflow="ellipsis", max_width=16)
    table.add_column("STATE", no_wrap=True)
    table.add_column("SLOT", no_wrap=True, overflow="ellipsis", max_width=18)
    table.add_column("USE", justify="right", no_wrap=True)
    table.add_column("MEMORY", justify="right", no_wrap=True)
    table.add_column("WHO", ratio=1, no_wrap=True, overflow="ellipsis")
    notes: list[RenderableType] = []
    for node in nodes:
        rows = _rows(node)
        for index, row in enumerate(rows):
            name, state = (node.host, node.state) if index == 0 else ("", "")
            table.add_row(name, Text(state, style=COLOURS.get(state, "")), *row)
        notes += _notes(node)
    return Group(table, *([Text(), *notes] if notes else []))


def _notes(node: NodeStatus) -> list[RenderableType]:
    notes: list[RenderableType] = []
    if node.why:
        notes.append(Text.assemble((f"{node.host}: ", "bold"), node.why))
    for number, gpu in enumerate(node.beat.gpus if node.beat else ()):
        if gpu.why:
            notes.append(Text.assemble((f"{node.host} GPU {number}: ", "bold"), gpu.why))
    if node.beat and node.beat.set_aside:
        jobs = ", ".join(node.beat.set_aside)
        notes.append(Text.assemble((f"{node.host}: ", "bold"), f"has set aside {jobs}"))
    return notes


def _rows(node: NodeStatus) -> list[tuple[RenderableType, ...]]:
    beat = node.beat
    if beat is None:
        return [("", "", "", "")]
    if node.state == "silent":
        return [("", "", "", Text("?", style="dim"))]
    rows = [_gpu_row(number, gpu, beat, _free(node)) for number, gpu in enumerate(beat.gpus)]
    placed = {id(one) for number, gpu in enumerate(beat.gpus) for one in _on(gpu, number, beat)}
    rest = [one for one in beat.running if id(one) not in placed]
    rows += [("cpu", "", "", Text(_who(one))) for one in rest]
    free = beat.slots.cpus_free
    if not beat.gpus and (free or not rest):
        rows.append((f"{free} of {beat.slots.cpus} cpu", "", "", _free(node)))
    return rows or [("", "", "", "")]


def _free(node: NodeStatus) -> Text:
    """What is free on a node that takes no tasks is of no use to anybody."""
    return Text("free", style="green") if node.state in ("idle", "busy") else Text("not used")


def _gpu_row(number: int, gpu: Gpu, beat: Beat, free: Text) -> tuple[RenderableType, ...]:
    memory = f"{gpu.memory_used / 1e9:.0f}/{gpu.memory_total / 1e9:.0f} GB"
    users = _on(gpu, number, beat)
    if users:
        who = Text("; ".join(_who(one) for one in users))
    elif gpu.state == "free":
        who = free
    elif gpu.state == "foreign":
        who = Text("somebody outside Ludwig", style="yellow")
    else:
        who = Text({"busy": "busy", "out": "out of service"}[gpu.state], style="red")
    return f"{number} {_short_name(gpu.name)}", f"{gpu.utilization:.0f} %", memory, who


def _short_name(name: str) -> str:
    for word in ("NVIDIA ", "GeForce ", "Quadro "):
        name = name.removeprefix(word)
    return name


def _on(gpu: Gpu, number: int, beat: Beat) -> list[RunningAttempt]:
    """The attempts on a GPU, which a heartbeat names by uuid, or by number."""
    keys = {gpu.uuid, str(number)} - {""}
    return [one for one in beat.running if keys & set(one.gpus)]


def _who(one: RunningAttempt) -> str:
    """`ana trees 17.4 since 10:02`: user, project, job and task."""
    since = one.since.replace("T", " ")[11:16] if len(one.since) >= 16 else one.since
    text = f"{one.user} " if one.user else ""
    text += f"{one.project} {one.job}.{one.task}"
    text += f" since {since}" if since else ""
    return text + (" (waits)" if one.phase == "waiting" else "")
