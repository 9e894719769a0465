"""One call of `submit()`: from the user's folder to tickets in the nodes' inboxes.

Owns the order of things. Checks come first, all of them, and change nothing. Then data and source
(harmless, and skipped when done again), then the promise and the job, and the tickets last. Cut
anywhere, it leaves a job or nothing; done again, it completes what was left.
"""

from __future__ import annotations

import getpass
import platform
import random
import secrets
import socket
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import ludwig
from ludwig import codec, errors, layout, queue, registry
from ludwig.client import data, replications, sweep
from ludwig.client.contract import contract_of
from ludwig.client.git import git_snapshot
from ludwig.client.lab import Lab
from ludwig.client.nodes_choice import choose_nodes, weights
from ludwig.client.snapshot import Source, pack
from ludwig.client.upload import Inboxes
from ludwig.drive import Drive
from ludwig.model import Contract, Git, Job, Origin, Ticket
from ludwig.view import JobView

__all__ = ["Submission", "Submitted", "retry", "submit"]

FULL_PERCENT = 90.0

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how far it is, and how far it has to go."""


@dataclass(frozen=True)
class Submitted:
    """What `submit` did."""

    project: str
    job: int | None
    """None when nothing had to be done (or with `test=True`)."""
    tasks: int
    nodes: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    completed: tuple[int, ...] = ()
    """Earlier jobs whose tickets had not arrived, and were sent again."""


@dataclass(frozen=True, kw_only=True)
class Submission:
    """What a user asks for. `check` says what is wrong with it."""

    src_ps: Sequence[Path] = ()
    data_ps: Sequence[Path] = ()
    param2val_list: Sequence[Mapping[str, Any]] = ()
    reps: int = 1
    worker: str | None = None
    nodes: Sequence[str] | None = None
    run_f_name: str = "run.py"
    per: str = "task"
    env: Mapping[str, str] = field(default_factory=dict)
    retries: int = 1
    gpus: int | None = None
    python: str | None = None
    balance: bool = True
    extra_ps: Sequence[Path] = ()
    """Sent along with the source, but the entry is not looked for there."""
    root: Path = field(default_factory=Path.cwd)

    def check(self) -> None:
        """`UsageError` for the first thing that cannot work."""
        whole = {"reps": (self.reps, 1), "retries": (self.retries, 0)}
        if self.gpus is not None:
            whole["gpus"] = (self.gpus, 0)
        for name, (value, least) in whole.items():
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise errors.UsageError(
                    f"{name}={value!r}: must be a whole number from {least} on."
                )
        if self.per not in ("task", "chunk"):
            raise errors.UsageError(f"per={self.per!r}: must be 'task' or 'chunk'.")
        for variable, text in self.env.items():
            if not variable or "=" in variable or not isinstance(text, str):
                raise errors.UsageError(f"env: {variable!r} must be a name with a string as value.")
            if variable.startswith("LUDWIG_"):
                raise errors.UsageError(f"env: {variable} is set by Ludwig itself.")


def submit(
    lab: Lab,
    project: str,
    submission: Submission,
    *,
    test: bool = False,
    progress: Progress | None = None,
) -> Submitted:
    """Submit a sweep. With `test`, check everything and start nothing."""
    layout.check_project(project)
    submission.check()
    configurations = sweep.check_params(submission.param2val_list)
    with tempfile.TemporaryDirectory(prefix="ludwig-") as temporary:
        source = pack(
            submission.src_ps,
            root=submission.root,
            entry=submission.run_f_name,
            extra_ps=submission.extra_ps,
            out=Path(temporary),
        )
        contract = contract_of(source.entry_text, name=source.entry)
        plan = data.check_data(project, submission.data_ps, root=submission.root)
        _check_drive(lab.drive)
        chosen = choose_nodes(lab, worker=submission.worker, nodes=submission.nodes)
        with Inboxes(chosen) as inboxes:
            ready, warnings = _connect(inboxes, chosen)
            warnings = [*_size_warning(source), *warnings]
            if test:
                count = len(configurations) * submission.reps
                return Submitted(project, None, count, tuple(ready), tuple(warnings))
            lab.drive.make_folders(layout.project_files(project).runs)
            data.upload_data(lab.drive, project, plan, _told(progress, "data"))
            ready, more = _send_source(inboxes, source, ready, progress)
            work = _Work(configurations, submission.reps, source, contract)
            return _submit_to(lab, project, submission, work, inboxes, ready, [*warnings, *more])


@dataclass(frozen=True)
class _Work:
    configurations: Sequence[sweep.Configuration]
    reps: int
    source: Source
    contract: Contract

    def code(self) -> _Code:
        return _Code(self.source.sha256, self.source.entry, self.source.package, self.contract)


@dataclass(frozen=True)
class _Code:
    """What a job runs."""

    sha256: str
    entry: str
    package: str
    contract: Contract


def _submit_to(
    lab: Lab,
    project: str,
    submission: Submission,
    work: _Work,
    inboxes: Inboxes,
    ready: Sequence[str],
    warnings: Sequence[str],
) -> Submitted:
    """Everything that changes the project: names, promise, job, tickets."""
    drive, nonce = lab.drive, secrets.token_hex(16)
    origin = _origin(submission.root)
    known = registry.read_registry(drive, project)
    _import_legacy(drive, known, nonce)
    records: dict[int, Job | None] = {}
    census = replications.Census()
    number = registry.reserve_job(drive, project)

    def decide(current: registry.Registry) -> tuple[Mapping[str, str], Mapping[str, int]]:
        nonlocal census
        fresh = current.name_new(one.hash for one in work.configurations)
        by_hash = {**current.by_hash(), **{hash_: name for name, hash_ in fresh.items()}}
        wanted = {by_hash[one.hash]: work.reps for one in work.configurations}
        census = replications.take_census(drive, current, origin=origin, nonce=nonce, jobs=records)
        replications.count_legacy(drive, current, census, wanted)
        return fresh, census.needed(wanted)

    needed = registry.promise(drive, known, decide, job=number, nonce=nonce)
    completed, more = _complete_earlier(drive, census.open_views, inboxes, ready, submission.env)
    warnings = [*warnings, *more]
    if not needed:
        drive.remove_folder(layout.job_files(project, number).folder)
        return Submitted(project, None, 0, tuple(ready), tuple(warnings), tuple(completed))
    by_hash = known.by_hash()
    named = {by_hash[one.hash]: one.params for one in work.configurations}
    job, record = _publish(
        lab,
        project,
        number,
        submission,
        work.code(),
        named={name: named[name] for name in needed},
        needed=needed,
        origin=_with_git(origin, submission.root, work.source, project, number),
        hosts=ready,
        nonce=nonce,
    )
    reached, lost = _send_tickets(inboxes, job, record, ready, submission.env)
    tasks = sum(len(chunk.tasks) for chunk in job.chunks.values())
    return Submitted(project, number, tasks, tuple(reached), (*warnings, *lost), tuple(completed))


def _publish(
    lab: Lab,
    project: str,
    number: int,
    submission: Submission,
    code: _Code,
    *,
    named: Mapping[str, dict[str, Any]],
    needed: Mapping[str, int],
    origin: Origin,
    hosts: Sequence[str],
    nonce: str,
    retry_of: int | None = None,
) -> tuple[Job, bytes]:
    stamp = registry.reserve_stamp(lab.drive, project, datetime.now(), nonce)
    chunks, payloads = sweep.chunks(
        named,
        needed,
        weights=weights(lab, hosts, submission.gpus),
        stamp=stamp,
        per=submission.per,
        random=random.Random(nonce),  # noqa: S311 – a shuffle
    )
    params = codec.encode_params(named)
    job = Job(
        project=project,
        job=number,
        nonce=nonce,
        stamp=stamp,
        contract=code.contract,
        entry=code.entry,
        package=code.package,
        source=code.sha256,
        params_sha256=codec.sha256(params),
        chunks=chunks,
        per="chunk" if submission.per == "chunk" else "task",
        retries=submission.retries,
        gpus=submission.gpus,
        python=submission.python,
        balance=submission.balance,
        env_names=tuple(sorted(submission.env)),
        origin=origin,
        retry_of=retry_of,
    )
    try:
        return job, queue.publish_job(lab.drive, job, payloads, params)
    except errors.Exists as error:
        raise errors.SubmitError(
            f"job {number} took so long to submit that somebody else's submission gave it up. "
            "Nothing was started: submit again."
        ) from error


# --- checks --------------------------------------------------------------------------------------


def _check_drive(drive: Drive) -> None:
    usage = drive.usage()
    if usage.percent_full >= FULL_PERCENT:
        raise errors.SubmitError(
            f"the drive {drive.where} is {usage.percent_full:.0f} % full "
            f"({usage.free / 1e9:.1f} GB free). Remove old runs or data, then submit again."
        )


def _connect(inboxes: Inboxes, chosen: Mapping[str, object]) -> tuple[list[str], list[str]]:
    answers = inboxes.connect()
    ready = [name for name in chosen if answers[name] is None]
    failed = {name: error for name, error in answers.items() if error is not None}
    if not ready:
        tried = "\n".join(f"  {name}: {error}" for name, error in failed.items())
        raise errors.SubmitError(f"no node can be reached, so nothing was submitted:\n{tried}")
    return ready, [f"left out {name}: {error}" for name, error in failed.items()]


def _size_warning(source: Source) -> list[str]:
    if not source.largest:
        return []
    rows = "".join(f"\n  {size / 1e6:8.1f} MB  {path}" for path, size in source.largest)
    return [
        f"the source is {source.bytes / 1e6:.0f} MB; exclude what is not code with .ludwigignore, "
        f"and send data with data_ps. The largest paths:{rows}"
    ]


# --- sending -------------------------------------------------------------------------------------


def _told(progress: Progress | None, what: str) -> Callable[[int, int], None] | None:
    return (lambda done, total: progress(what, done, total)) if progress else None


def _send_source(
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


def _send_tickets(
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


def _complete_earlier(
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
        _send_tickets(inboxes, job, record, silent, env)
        completed.append(job.job)
    return completed, warnings


# --- provenance ----------------------------------------------------------------------------------


def _origin(root: Path) -> Origin:
    return Origin(
        user=getpass.getuser(),
        host=socket.gethostname(),
        folder=str(root.resolve()),
        ludwig=ludwig.__version__,
        python=platform.python_version(),
        system=platform.platform(),
        when=datetime.now().astimezone().isoformat(timespec="seconds"),
    )


def _with_git(origin: Origin, root: Path, source: Source, project: str, number: int) -> Origin:
    git: Git | None = git_snapshot(root, source, project=project, job=number)
    return Origin(
        user=origin.user,
        host=origin.host,
        folder=origin.folder,
        ludwig=origin.ludwig,
        python=origin.python,
        system=origin.system,
        when=origin.when,
        git=git,
    )


def _import_legacy(drive: Drive, known: registry.Registry, nonce: str) -> None:
    """Give the old system's configurations their place in the plans, once."""

    def decide(current: registry.Registry) -> tuple[Mapping[str, str], Mapping[str, int]]:
        return replications.legacy_names(drive, current), {}

    registry.promise(drive, known, decide, job=0, nonce=f"{nonce}-old")


# --- retrying ------------------------------------------------------------------------------------


def retry(lab: Lab, project: str, number: int, *, tasks: Sequence[int] | None = None) -> Submitted:
    """A new job with the tasks of an old one that did not end well (or with these)."""
    old = queue.read_job(lab.drive, project, number)
    view = JobView(lab.drive, old)
    view.refresh()
    chosen = [task for task in sorted(old.tasks()) if _to_retry(view, task, tasks)]
    if not chosen:
        raise errors.UsageError(f"job {number} of {project} has no task to retry.")
    if old.env_names:
        raise errors.UsageError(
            f"job {number} was given env {', '.join(old.env_names)}, which is written nowhere. "
            "Submit again with them: finished runs count."
        )
    runs = [run for task in chosen for run in old.tasks()[task][1].runs]
    params = queue.read_params(lab.drive, old)
    needed = {
        name: sum(r.param_name == name for r in runs) for name in {r.param_name for r in runs}
    }
    nodes = {name: lab.nodes[name] for name in old.chunks if name in lab.nodes}
    with Inboxes(nodes) as inboxes:
        ready, warnings = _connect(inboxes, nodes)
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
    return (done is not None and done.outcome != "done") or (
        done is None and task not in view.done and view.stopped(task)
    )


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
    job, record = _publish(
        lab,
        old.project,
        number,
        submission,
        _Code(old.source, old.entry, old.package, old.contract),
        named={name: dict(params[name]) for name in needed},
        needed=needed,
        origin=_origin(Path.cwd()),
        hosts=ready,
        nonce=nonce,
        retry_of=old.job,
    )
    reached, lost = _send_tickets(inboxes, job, record, ready, {})
    count = sum(len(chunk.tasks) for chunk in job.chunks.values())
    return Submitted(old.project, number, count, tuple(reached), (*warnings, *lost))
