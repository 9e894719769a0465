"""A new job from the tasks of an old one that did not end well."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from ludwig import errors, job_records, registry
from ludwig.client.delivery import connect, send_tickets
from ludwig.client.lab import Lab
from ludwig.client.provenance import origin_of
from ludwig.client.publish_job import Code, publish
from ludwig.client.submission import Submission, Submitted
from ludwig.client.upload import Inboxes
from ludwig.model import Job
from ludwig.view import JobView

__all__ = ["retry"]


def retry(lab: Lab, project: str, number: int, *, tasks: Sequence[int] | None = None) -> Submitted:
    """A new job with the tasks of an old one that did not end well (or with these)."""
    old = job_records.read_job(lab.drive, project, number)
    view = JobView(lab.drive, old)
    view.refresh()
    if unknown := set(tasks or ()) - set(view.tasks):
        raise errors.UsageError(f"job {number} of {project} has no task {min(unknown)}.")
    chosen = [task for task in sorted(view.tasks) if _to_retry(view, task, tasks)]
    if not chosen:
        raise errors.UsageError(f"job {number} of {project} has no task to retry.")
    if old.env_names:
        raise errors.UsageError(
            f"job {number} was given env {', '.join(old.env_names)}, which is written nowhere. "
            "Submit again with them: finished runs count."
        )
    runs = [run for task in chosen for run in view.tasks[task][1].runs]
    params = job_records.read_params(lab.drive, old)
    needed = Counter(run.param_name for run in runs)
    nodes = {name: lab.nodes[name] for name in old.chunks if name in lab.nodes}
    with Inboxes(nodes, connections=lab.connections) as inboxes:
        ready, warnings = connect(inboxes, nodes)
        have = inboxes.has_source(old.source)
        ready = [name for name in ready if name in have]
        if not ready:
            raise errors.SubmitError(
                f"no node has the source of job {number} any more. Submit again from its folder: "
                "finished runs count."
            )
        return _retry_on(lab, old, params, needed, inboxes, ready, warnings)


def _to_retry(view: JobView, task: int, wanted: Sequence[int] | None) -> bool:
    if wanted is not None:
        return task in wanted
    done = view.end_of(task)
    if done is None:  # cancelled before it began, or its end cannot be read and left nothing
        return task in view.done or view.stopped(task)
    return done.outcome != "done"


def _retry_on(
    lab: Lab,
    old: Job,
    params: Mapping[str, dict[str, object]],
    needed: Mapping[str, int],
    inboxes: Inboxes,
    ready: Sequence[str],
    warnings: Sequence[str],
) -> Submitted:
    nonce = secrets.token_hex(16)
    known = registry.read_registry(lab.drive, old.project)
    number = registry.reserve_job(lab.drive, old.project)
    registry.promise(lab.drive, known, lambda _: ({}, needed), job=number, nonce=nonce)
    submission = Submission(
        per=old.per,
        retries=old.retries,
        gpus=old.gpus,
        python=old.python,
        balance=old.balance,
    )
    job, record = publish(
        lab,
        old.project,
        number,
        submission,
        Code(old.source, old.entry, old.package, old.contract),
        named={name: dict(params[name]) for name in needed},
        needed=needed,
        origin=origin_of(Path.cwd()),
        hosts=ready,
        nonce=nonce,
        retry_of=old.job,
    )
    reached, lost = send_tickets(inboxes, job, record, ready, {})
    count = sum(len(chunk.numbers) for chunk in job.chunks.values())
    return Submitted(old.project, number, count, tuple(reached), (*warnings, *lost))
