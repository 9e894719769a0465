"""One call of `submit()`: from the user's folder to tickets in the nodes' inboxes.

Owns the order of things. Checks come first, all of them, and change nothing. Then data and source
(harmless, and skipped when done again), then the promise and the job, and the tickets last. Cut
anywhere, it leaves a job or nothing; done again, it completes what was left.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ludwig import errors, layout, registry
from ludwig.client import data, legacy, replications, sweep
from ludwig.client.contract import contract_of
from ludwig.client.delivery import (
    Progress,
    complete_earlier,
    connect,
    send_source,
    send_tickets,
)
from ludwig.client.lab import Lab
from ludwig.client.nodes_choice import choose_nodes
from ludwig.client.provenance import origin_of, with_git
from ludwig.client.publish_job import Code, publish
from ludwig.client.retry import retry
from ludwig.client.snapshot import Source, find_tree
from ludwig.client.source_cache import SourceCache
from ludwig.client.submission import Submission, Submitted
from ludwig.client.upload import Inboxes
from ludwig.drive import Drive
from ludwig.model import Job, Origin

__all__ = ["Submission", "Submitted", "retry", "submit"]

FULL_PERCENT = 90.0


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
    tree = find_tree(
        submission.src_ps,
        root=submission.root,
        entry=submission.run_f_name,
        extra_ps=submission.extra_ps,
    )
    contract = contract_of(tree.entry_text, name=tree.entry)
    plan = data.check_data(project, submission.data_ps, root=submission.root)
    chosen = choose_nodes(lab, worker=submission.worker, nodes=submission.nodes)
    with (
        Inboxes(chosen, connections=lab.connections) as inboxes,
        tempfile.TemporaryDirectory(prefix="ludwig-") as temporary,
    ):
        # What a user may have got wrong is known by now. The nodes answer while we pack.
        inboxes.begin()
        _check_drive(lab.drive)
        source = SourceCache().pack(tree, out=Path(temporary))
        code = Code(source.sha256, source.entry, source.package, contract)
        hosts, warnings = connect(inboxes, chosen)
        warnings = [*_size_warning(source), *warnings]
        if test:
            count = len(configurations) * submission.reps
            return Submitted(project, None, count, tuple(hosts), tuple(warnings))
        lab.drive.make_folders(layout.project_files(project).runs)
        data.upload_data(lab.drive, project, plan, _told(progress, "data"))
        hosts, left_out = send_source(inboxes, source, hosts, progress)
        order = _Order(lab, project, submission, inboxes, hosts, [*warnings, *left_out])
        return order.place(configurations, code, source)


class _Order:
    """The part of a submission that changes the project: names, promise, job, tickets."""

    def __init__(
        self,
        lab: Lab,
        project: str,
        submission: Submission,
        inboxes: Inboxes,
        hosts: Sequence[str],
        warnings: Sequence[str],
    ) -> None:
        self.lab, self.drive, self.project = lab, lab.drive, project
        self.submission, self.inboxes, self.hosts = submission, inboxes, hosts
        self.warnings = list(warnings)
        self.nonce = secrets.token_hex(16)
        self.origin: Origin = origin_of(submission.root)
        self.census = replications.Census()

    def place(
        self, configurations: Sequence[sweep.Configuration], code: Code, source: Source
    ) -> Submitted:
        """Do it. Raises before or after, never between a job and its promise."""
        known = registry.read_registry(self.drive, self.project)
        self._import_legacy(known)
        configurations = legacy.known_as(configurations, known)
        number = registry.reserve_job(self.drive, self.project)
        needed = self._promise(known, configurations, number)
        completed, more = complete_earlier(
            self.drive, self.census.open_views, self.inboxes, self.hosts, self.submission.env
        )
        self.warnings += more
        if not needed:
            self.drive.remove_folder(layout.job_files(self.project, number).folder)
            return self._submitted(None, 0, self.hosts, completed)
        names = known.by_hash()
        named = {names[one.hash]: one.params for one in configurations}
        job, record = publish(
            self.lab,
            self.project,
            number,
            self.submission,
            code,
            named={name: named[name] for name in needed},
            needed=needed,
            origin=with_git(
                self.origin, self.submission.root, source, project=self.project, job=number
            ),
            hosts=self.hosts,
            nonce=self.nonce,
        )
        reached, lost = send_tickets(self.inboxes, job, record, self.hosts, self.submission.env)
        self.warnings += lost
        tasks = sum(len(chunk.numbers) for chunk in job.chunks.values())
        return self._submitted(number, tasks, reached, completed)

    def _submitted(
        self, number: int | None, tasks: int, nodes: Sequence[str], completed: Sequence[int]
    ) -> Submitted:
        return Submitted(
            self.project, number, tasks, tuple(nodes), tuple(self.warnings), tuple(completed)
        )

    def _promise(
        self,
        known: registry.Registry,
        configurations: Sequence[sweep.Configuration],
        number: int,
    ) -> Mapping[str, int]:
        """Say what this job will run, having counted what is there or promised by others."""
        records: dict[int, Job | None] = {}

        def decide(current: registry.Registry) -> tuple[Mapping[str, str], Mapping[str, int]]:
            fresh = current.name_new(one.hash for one in configurations)
            names = {**current.by_hash(), **{hash_: name for name, hash_ in fresh.items()}}
            wanted = {names[one.hash]: self.submission.reps for one in configurations}
            self.census = replications.take_census(
                self.drive, current, origin=self.origin, nonce=self.nonce, jobs=records
            )
            if self.submission.again:
                return fresh, wanted
            return fresh, self.census.needed(self.drive, self.project, wanted)

        return registry.promise(
            self.drive, known, decide, job=number, nonce=self.nonce, by=replications.this_process()
        )

    def _import_legacy(self, known: registry.Registry) -> None:
        """Give the old system's configurations their place in the plans, once."""

        def decide(current: registry.Registry) -> tuple[Mapping[str, str], Mapping[str, int]]:
            return legacy.legacy_names(self.drive, current), {}

        registry.promise(self.drive, known, decide, job=0, nonce=f"{self.nonce}-old")


def _check_drive(drive: Drive) -> None:
    usage = drive.usage()
    if usage.percent_full >= FULL_PERCENT:
        raise errors.SubmitError(
            f"the drive {drive.where} is {usage.percent_full:.0f} % full "
            f"({usage.free / 1e9:.1f} GB free). Remove old runs or data, then submit again."
        )


def _size_warning(source: Source) -> list[str]:
    if not source.largest:
        return []
    rows = "".join(f"\n  {size / 1e6:8.1f} MB  {path}" for path, size in source.largest)
    return [
        f"the source is {source.bytes / 1e6:.0f} MB; exclude what is not code with .ludwigignore, "
        f"and send data with data_ps. The largest paths:{rows}"
    ]


def _told(progress: Progress | None, what: str) -> Callable[[int, int], None] | None:
    return (lambda done, total: progress(what, done, total)) if progress else None
