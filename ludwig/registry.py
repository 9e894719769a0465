"""Which configuration has which param_name, and which job has promised which replications.

A project's plans are a log: plan n+1 is published by somebody who has read plans 1 to n, and only
one can be. So configurations are numbered without gaps or races, and two people who submit the
same sweep at the same moment do not run it twice: the second one sees the first one's promise.
Owns `.ludwig/params/`, `.ludwig/stamps/` and the numbers of jobs; knows nothing of tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from ludwig import codec, errors, layout, records
from ludwig.drive import Drive
from ludwig.model import Plan

__all__ = ["Registry", "promise", "read_registry", "reserve_job", "reserve_stamp"]

STAMP_FORMAT = "%Y-%m-%d-%H-%M-%S"
PLAN_LIMIT = 64 << 20


@dataclass
class Registry:
    """Everything the plans of a project say together."""

    project: str
    plans: int = 0
    names: dict[str, str] = field(default_factory=dict)
    """param_name → hash of its configuration."""
    promised: dict[int, dict[str, int]] = field(default_factory=dict)
    """job → how many replications of each configuration it promised."""
    promised_by: dict[int, str] = field(default_factory=dict)
    """job → `Plan.by`."""
    imported: set[str] = field(default_factory=set)
    """Names of plans that are for no job: configurations that were there before Ludwig."""
    by_nonce: dict[str, Plan] = field(default_factory=dict)
    """Whoever lost the answer to a publication finds here that it happened."""

    def add(self, plan: Plan) -> None:
        self.plans += 1
        self.by_nonce.setdefault(plan.nonce, plan)
        for name, hash_ in plan.names.items():
            self.names.setdefault(name, hash_)
        if plan.job:
            self.promised[plan.job] = dict(plan.runs)
            self.promised_by[plan.job] = plan.by
        else:
            self.imported.update(plan.names)

    def by_hash(self) -> dict[str, str]:
        """hash → param_name: the oldest, should a configuration have several."""
        known: dict[str, str] = {}
        for name in sorted(self.names, key=lambda name: layout.parse_param(name) or 0):
            known.setdefault(self.names[name], name)
        return known

    def name_new(self, hashes: Iterable[str]) -> dict[str, str]:
        """Names for the configurations that have none yet, from the next free number on."""
        known = self.by_hash()
        number = max((layout.parse_param(name) or 0 for name in self.names), default=0)
        fresh: dict[str, str] = {}
        for hash_ in hashes:
            if hash_ not in known and hash_ not in fresh:
                number += 1
                fresh[hash_] = f"param_{number:03d}"
        return {name: hash_ for hash_, name in fresh.items()}


def read_registry(drive: Drive, project: str, *, onto: Registry | None = None) -> Registry:
    """All plans of a project, or those that are new since `onto` was read.

    A plan that is missing or does not decode is an error: to go on without it would number things
    twice.
    """
    files = layout.project_files(project)
    registry = onto or Registry(project)
    try:
        last = max((layout.parse_plan(name) or 0 for name in drive.list(files.params)), default=0)
    except errors.NotFound:
        return registry
    while registry.plans < last:
        registry.add(_read_plan(drive, files.plan(registry.plans + 1)))
    return registry


def _read_plan(drive: Drive, path: str) -> Plan:
    """By its name, since a listing may show a plan and miss the one before it."""
    try:
        plan = records.read_record(Plan, drive, path, limit=PLAN_LIMIT)
    except errors.NotFound as error:
        raise errors.Malformed(path, "later plans are there, but this one is gone") from error
    for name in plan.names:
        if layout.parse_param(name) is None:
            raise errors.Malformed(path, f"{name!r} is not the name of a configuration")
    return plan


def promise(
    drive: Drive,
    registry: Registry,
    decide: Callable[[Registry], tuple[Mapping[str, str], Mapping[str, int]]],
    *,
    job: int,
    nonce: str,
    by: str = "",
) -> Mapping[str, int]:
    """Publish a plan: new names, and the replications `job` will run.

    `decide` is called with the registry as it is now, and again whenever somebody else published
    first. Returns the promise that stands; nothing is published when it is empty. May be repeated
    with the same nonce after an error: a promise that was made all the same is found again.
    """
    files = layout.project_files(registry.project)
    drive.make_folders(files.params)
    while True:
        if (made := registry.by_nonce.get(nonce)) is not None:
            return made.runs
        names, runs = decide(registry)
        if not runs and not names:
            return runs
        number = registry.plans + 1
        plan = Plan(nonce=nonce, job=job if runs else 0, names=dict(names), runs=dict(runs), by=by)
        try:
            drive.publish(files.plan(number), codec.encode(plan))
        except errors.Exists:
            before = registry.plans
            read_registry(drive, registry.project, onto=registry)
            if registry.plans == before:  # listed late: read it by its name
                registry.add(_read_plan(drive, files.plan(number)))
            continue
        registry.add(plan)
        return runs


def reserve_job(drive: Drive, project: str) -> int:
    """A number that no other job of the project has or will have."""
    files = layout.project_files(project)
    drive.make_folders(files.jobs)
    number = max((layout.parse_job(name) or 0 for name in drive.list(files.jobs)), default=0) + 1
    while True:
        try:
            drive.mkdir(files.job(number).folder)
            return number
        except errors.Exists:
            number += 1


def reserve_stamp(drive: Drive, project: str, when: datetime, nonce: str) -> str:
    """A second that belongs to one job of the project: it makes its job_names different."""
    files = layout.project_files(project)
    drive.make_folders(files.stamps)
    while True:
        stamp = when.strftime(STAMP_FORMAT)
        try:
            drive.create(files.stamp(stamp), nonce.encode())
            return stamp
        except errors.Exists:
            when += timedelta(seconds=1)
