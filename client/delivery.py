"""What goes to the nodes' inboxes, and what is said when some of it does not arrive.

A node that cannot be reached is left out with a warning; that none can be reached is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ludwig import codec, errors, layout
from ludwig.client.snapshot import Source
from ludwig.client.upload import Inboxes
from ludwig.drive import Drive
from ludwig.model import Job, Ticket
from ludwig.view import JobView

__all__ = ["Progress", "complete_earlier", "connect", "send_source", "send_tickets"]

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how far it is, and how far it has to go."""


def connect(inboxes: Inboxes, chosen: Mapping[str, object]) -> tuple[list[str], list[str]]:
    answers = inboxes.connect()
    ready = [name for name in chosen if answers[name] is None]
    failed = {name: error for name, error in answers.items() if error is not None}
    if not ready:
        tried = "\n".join(f"  {name}: {error}" for name, error in failed.items())
        raise errors.SubmitError(f"no node can be reached, so nothing was submitted:\n{tried}")
    return ready, [f"left out {name}: {error}" for name, error in failed.items()]


def send_source(
    inboxes: Inboxes, source: Source, ready: Sequence[str], progress: Progress | None
) -> tuple[list[str], list[str]]:
    total = source.archive.stat().st_size * len(ready)
    done = 0

    def sent(node: str, count: int) -> None:
        nonlocal done
        done += count
        if progress:
            progress("source", done, total)

    answers = inboxes.send_source(source.sha256, source.archive, ready, sent)
    good = [name for name in ready if answers[name] is None]
    if not good:
        tried = "\n".join(f"  {name}: {error}" for name, error in answers.items())
        raise errors.SubmitError(f"the source reached no node; nothing was submitted:\n{tried}")
    return good, [f"left out {n}: {e}" for n, e in answers.items() if e is not None]


def send_tickets(
    inboxes: Inboxes, job: Job, record: bytes, hosts: Sequence[str], env: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    ticket = codec.encode(
        Ticket(project=job.project, job=job.job, sha256=codec.sha256(record), env=dict(env))
    )
    answers = inboxes.send_tickets(job.project, job.job, dict.fromkeys(hosts, ticket))
    good = [name for name in hosts if answers[name] is None]
    bad = [f"no ticket for {name}: {error}" for name, error in answers.items() if error]
    if not good:
        raise errors.SubmitError(
            f"job {job.job} is on the drive, but no node got its ticket; submit again to send it:\n"
            + "\n".join(f"  {line}" for line in bad)
        )
    return good, bad


def complete_earlier(
    drive: Drive,
    views: Sequence[JobView],
    inboxes: Inboxes,
    ready: Sequence[str],
    env: Mapping[str, str],
) -> tuple[list[int], list[str]]:
    """Send the tickets of earlier jobs to nodes that never took them up.

    A submission that died before its tickets arrived is completed so. To a node that has the ticket
    it makes no difference.
    """
    completed, warnings = [], []
    for view in views:
        job = view.job
        silent = [
            h for h in ready if h in job.chunks and h not in view.accepted | set(view.refusals)
        ]
        if not silent or view.accepted:
            continue
        if tuple(sorted(env)) != job.env_names:
            warnings.append(
                f"job {job.job} was never taken up, and needs env {', '.join(job.env_names)}: "
                "submit it as before, or cancel it."
            )
            continue
        record = drive.read(layout.job_files(job.project, job.job).record)
        send_tickets(inboxes, job, record, silent, env)
        completed.append(job.job)
    return completed, warnings
