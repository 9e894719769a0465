"""Finds what a student would otherwise ask the administrator, and says the next step.

Each check is a function that yields `Finding`s; a check that cannot be made because an earlier one
failed is left out. Nothing is changed on the drive but probes that are removed again; `repair`
completes what died half-way, and only when asked.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import ludwig
from ludwig import errors, job_records, layout, queue, states
from ludwig.client.lab import Lab, open_lab, this_user
from ludwig.client.lookout import Lookout, list_projects, span
from ludwig.client.server_clock import scan_nodes
from ludwig.client.status import JobStatus
from ludwig.config import LabConfig, find_lab_config, load_lab
from ludwig.model import Origin
from ludwig.view import JobView

__all__ = ["Finding", "examine"]

FULL_PERCENT, NEARLY_FULL_PERCENT = 90.0, 80.0
DEAD_SUBMISSION_S = 900.0
TICKET_S = 300.0
"""Until then it is no problem that a node has not taken up its ticket."""

Level = Literal["ok", "warning", "problem"]


@dataclass(frozen=True)
class Finding:
    """What is so, and what to do about it."""

    check: str
    level: Level
    what: str
    todo: str = ""
    repair: Callable[[], str] | None = None
    """Puts it right and says what was done; None where only a person can."""


def _is_written() -> bool:
    try:
        file = find_lab_config()
    except errors.ConfigError:  # it is no TOML
        return True
    return file is not None and file.exists()


def examine(project: str | None = None, *, nodes: bool = True) -> Iterator[Finding]:
    """Everything there is to check, in the order in which things depend on each other.

    `project`: look at the jobs of this one only. `nodes=False` makes no connections to nodes.
    """
    try:
        config = load_lab()
    except errors.ConfigError as error:
        todo = "Correct it there." if _is_written() else "Run `ludwig init`."
        yield Finding("configuration", "problem", str(error), todo)
        return
    yield Finding("configuration", "ok", f"{config.path or 'from the environment'}")
    if not config.nodes:
        where = config.path or "LUDWIG_NODES"
        yield Finding(
            "configuration", "problem", f"{where} names no nodes.", "Add a [nodes.NAME] for each."
        )
    lab, findings = _drive(config)
    yield from findings
    if lab is None:
        if nodes:
            yield from _inboxes(config)
        return
    with lab:
        yield from _usage(lab)
        yield from _writing(lab)
        if nodes:
            yield from _inboxes(config)
        yield from _heartbeats(lab)
        yield from _jobs(lab, project)


# --- the drive ---------------------------------------------------------------------------------


def _drive(config: LabConfig) -> tuple[Lab | None, list[Finding]]:
    try:
        lab = open_lab(config)
    except errors.LudwigError as error:
        return None, [Finding("drive", "problem", str(error), _drive_todo(error))]
    return lab, [Finding("drive", "ok", f"{lab.drive.where} is there and Ludwig's")]


def _drive_todo(error: errors.LudwigError) -> str:
    if isinstance(error, errors.BadCredentials):
        return "Set LUDWIG_SMB_PASSWORD, or check `user` under [drive]."
    return ""


def _usage(lab: Lab) -> Iterator[Finding]:
    usage = lab.drive.usage()
    what = f"{usage.percent_full:.0f} % full, {usage.free / 1e9:.1f} GB free"
    if usage.percent_full >= FULL_PERCENT:
        todo = "Nothing can be submitted or started: remove old runs or data."
        yield Finding("room", "problem", what, todo)
    elif usage.percent_full >= NEARLY_FULL_PERCENT:
        yield Finding("room", "warning", what, f"Above {FULL_PERCENT:.0f} % nothing is submitted.")
    else:
        yield Finding("room", "ok", what)


def _writing(lab: Lab) -> Iterator[Finding]:
    """Whether this user may write, and the drive can publish."""
    path = f".ludwig/doctor-{secrets.token_hex(8)}"
    try:
        lab.drive.publish(path, b"removed at once: is publishing possible?\n")
        lab.drive.remove(path)
    except errors.NotAtomic as error:
        todo = "Use a share of Samba or Windows, or an NFS or local file system with hard links."
        yield Finding("writing", "problem", str(error), todo)
    except errors.DriveError as error:
        yield Finding("writing", "problem", str(error))
    else:
        yield Finding("writing", "ok", "you may write, and publishing works")


# --- the nodes ---------------------------------------------------------------------------------


def _inboxes(config: LabConfig) -> Iterator[Finding]:
    from ludwig.client.upload import Inboxes

    with Inboxes(config.nodes) as inboxes:
        answers = inboxes.connect()
    for name, error in sorted(answers.items()):
        if error is None:
            yield Finding(f"node {name}", "ok", "its inbox can be written to")
        else:
            yield Finding(f"node {name}", "problem", str(error))


def _heartbeats(lab: Lab) -> Iterator[Finding]:
    todo = {
        "silent": "Is the machine on? There: systemctl status ludwig-worker.",
        "quarantined": "See the reason; `ludwig-worker check` there tells more.",
        "draining": "It finishes its tasks and takes no new ones.",
    }
    for node in Lookout(lab).nodes():
        name = f"node {node.host}"
        if node.state in ("silent", "quarantined"):
            what = node.why if node.state == "silent" else f"quarantined: {node.why}"
            yield Finding(name, "problem", what, todo[node.state])
            continue
        if node.state == "draining":
            yield Finding(name, "warning", f"draining: {node.why}", todo["draining"])
        beat = node.beat
        if beat is not None and beat.ludwig and beat.ludwig != ludwig.__version__:
            what = f"its agent is ludwig {beat.ludwig}, and this is {ludwig.__version__}"
            yield Finding(name, "warning", what, "Install the same version on both.")
        for number, gpu in enumerate(beat.gpus if beat else ()):
            if gpu.state == "out":
                yield Finding(name, "warning", f"GPU {number} is out of service: {gpu.why}")
        if node.host not in lab.nodes:
            what = "works for the lab, but is not in your ludwig.toml, so your jobs do not use it"
            yield Finding(name, "warning", what, f"Add [nodes.{node.host}].")
        else:
            yield Finding(name, "ok", f"{node.state}, spoke {span(node.silent_s)} ago")


# --- the jobs ----------------------------------------------------------------------------------


def _jobs(lab: Lab, project: str | None) -> Iterator[Finding]:
    lookout = Lookout(lab)
    _, server_now = scan_nodes(lab.drive)
    names = list_projects(lab) if project is None else [project]
    trouble = False
    for name in names:
        for finding in _project_jobs(lab, lookout, name, server_now):
            trouble = True
            yield finding
    if not trouble:
        text = f"nothing left over in {', '.join(names)}" if names else "there are none yet"
        yield Finding("jobs", "ok", text)


def _project_jobs(
    lab: Lab, lookout: Lookout, project: str, server_now: float | None
) -> Iterator[Finding]:
    finished = {one.job for one in lookout.jobs(project) if one.finished}
    for entry in lab.drive.scan(layout.project_files(project).jobs):
        number = layout.parse_job(entry.name)
        if number is None:
            continue
        name = f"job {number} of {project}"
        age = (server_now - entry.modified) if server_now is not None else 0.0
        try:
            yield from _left_over(lab, project, number, name)
            if number not in finished:
                yield from _stuck(lookout.job(project, number, logs=False), name, age)
        except errors.NotFound:
            yield from _dead_submission(lab, project, number, name, age)
        except errors.UsageError:
            continue  # abandoned before: nothing to do
        except errors.Malformed as error:
            yield Finding(name, "problem", str(error), "Somebody changed it. Submit again.")


def _left_over(lab: Lab, project: str, number: int, name: str) -> Iterator[Finding]:
    """Results of ended tasks that are still on their way because whoever moved them died."""
    record = job_records.read_job(lab.drive, project, number)
    files = layout.job_files(project, number)
    try:
        staged = {key[0] for one in lab.drive.list(files.staging) if (key := _attempt(one))}
    except errors.NotFound:
        return
    if not staged:
        return
    view = JobView(lab.drive, record)
    view.look_at_ends()
    if stuck := staged & view.done:

        def repair() -> str:
            helped = queue.roll_forward(lab.drive, record)
            return f"moved the results of {len(helped)} tasks of {name}, removed the rest"

        yield Finding(
            name,
            "warning",
            f"{len(stuck)} ended tasks have results that are still staged",
            "`ludwig doctor --fix` moves them; agents do so by themselves, too.",
            repair,
        )


def _attempt(name: str) -> tuple[int, int] | None:
    return layout.parse_attempt(name)


def _stuck(status: JobStatus, name: str, age: float) -> Iterator[Finding]:
    fresh = [row for row in status.tasks if row.why.endswith(states.TICKET_LIES)]
    nobody = [*fresh, *(row for row in status.tasks if row.why.startswith(states.NOBODY))]
    too_early = age < TICKET_S and (fresh or any(" yet" in row.why for row in nobody))
    if nobody and not too_early:
        yield Finding(
            name,
            "problem",
            f"{len(nobody)} tasks wait, and nobody can run them: {nobody[0].why}",
            f"`ludwig status {status.job} -p {status.project}` tells more; cancel it, or put the "
            "nodes right.",
        )
    for path, reason in status.problems.items():
        yield Finding(name, "warning", f"'{path}' makes no sense: {reason}")


def _dead_submission(
    lab: Lab, project: str, number: int, name: str, age: float
) -> Iterator[Finding]:
    if age < DEAD_SUBMISSION_S:
        yield Finding(name, "ok", "is being submitted just now")
        return

    def repair() -> str:
        origin = Origin(user=this_user(), host="")
        nonce = secrets.token_hex(16)
        with suppress(errors.Exists):
            job_records.abandon_job(lab.drive, project, number, origin=origin, nonce=nonce)
        return f"gave up {name}"

    yield Finding(
        name,
        "warning",
        f"its submission died half-way, {span(age)} ago; its runs count as promised",
        "`ludwig doctor --fix` gives it up; then submit again.",
        repair,
    )
