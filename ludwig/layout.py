"""How every file of the drive and of an inbox is called. No other module spells a name.

Names that come from outside are checked here before they become part of a path. The rules are those
of the pickiest drive, a Windows share: no name differs from another by case alone, and none holds a
character that such a share would store as another. `PROTOCOL.md` says what is in the files.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable

from ludwig.errors import NameNotAllowed

__all__ = [
    "BUCKET",
    "CHUNK_SUFFIX",
    "FORMAT",
    "NODES",
    "SOURCES",
    "TEMPORARY",
    "TICKETS",
    "InboxFiles",
    "JobFiles",
    "ProjectFiles",
    "attempt_name",
    "beat_path",
    "bucket_of",
    "buckets_of",
    "check_boot",
    "check_host",
    "check_project",
    "check_relative",
    "inbox",
    "is_run",
    "job_files",
    "parse_attempt",
    "parse_beat",
    "parse_events",
    "parse_job",
    "parse_param",
    "parse_plan",
    "parse_refusal",
    "parse_source",
    "parse_stop",
    "parse_task",
    "project_files",
    "task_name",
]

FORMAT = ".ludwig/format.json"
NODES = ".ludwig/nodes"
SOURCES = "sources"
TICKETS = "tickets"
CHUNK_SUFFIX = "_param2val_chunk.pkl"
TEMPORARY = ".tmp-"
"""Prefix of what `publish` writes before it has its name. Never listed, never read."""
BUCKET = 1000
"""How many tasks share a folder of claims, ends, logs or GPU traces: a server that does not tell
upper from lower case goes through a whole folder for every new name."""

_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_WINDOWS_DEVICE = re.compile(r"(?i)(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(\..*)?")
_FORBIDDEN = re.compile(r'[\x00-\x1f\x7f<>:"/\\|?*]')
_BOOT = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MANGLED = re.compile(r"[0-9A-Z_]{1,6}~[0-9A-Z]")
_NUMBER = re.compile(r"[0-9]{1,15}")


def _check_name(kind: str, name: str) -> str:
    """One path component that means the same on every drive and system."""
    if not name or name != unicodedata.normalize("NFC", name):
        raise NameNotAllowed(f"{kind} {name!r} is empty or not in Unicode's normal form NFC.")
    if len(name.encode("utf-8", "surrogatepass")) > 200:
        raise NameNotAllowed(f"{kind} {name[:40]!r}… is too long: at most 200 bytes.")
    if any(unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") for c in name):
        raise NameNotAllowed(f"{kind} {name!r} holds a character that cannot be printed.")
    if bad := _FORBIDDEN.search(name):
        raise NameNotAllowed(
            f"{kind} {name!r} holds {bad.group()!r}, which a Windows share cannot store. "
            "Use letters, digits, '_' and '-'."
        )
    if name[0] in ". " or name[-1] in ". ":
        raise NameNotAllowed(f"{kind} {name!r} begins or ends with a dot or a space.")
    if _WINDOWS_DEVICE.fullmatch(name):
        raise NameNotAllowed(f"{kind} {name!r} is the name of a device on Windows.")
    return name


def check_project(name: str) -> str:
    """The name of a project, or `NameNotAllowed`."""
    return _check_name("project name", name)


def check_host(name: str) -> str:
    """The name of a node, or `NameNotAllowed`."""
    if not _HOST.fullmatch(name) or ".." in name or _WINDOWS_DEVICE.fullmatch(name):
        raise NameNotAllowed(
            f"host name {name!r}: use letters, digits, '-', '_' and '.', at most 63 of them."
        )
    return name


def _is_host(name: str) -> bool:
    try:
        check_host(name)
    except NameNotAllowed:
        return False
    return True


def check_boot(name: str) -> str:
    """What tells the runs of an agent apart, or `NameNotAllowed`."""
    if not _BOOT.fullmatch(name):
        raise NameNotAllowed(
            f"boot {name!r}: use letters, digits, '-' and '_', at most 64 of them."
        )
    return name


def check_relative(path: str, *, what: str = "path") -> str:
    """A relative path with forward slashes that stays where it starts, each part storable."""
    if not path or len(path) > 1000:
        raise NameNotAllowed(f"{what} {path[:60]!r} is empty or longer than 1000 characters.")
    for part in path.split("/"):
        if part.startswith(".") and part.strip(".") and not part.endswith((".", " ")):
            _check_name(what, part[1:] if len(part) > 1 and part[1] != "." else part.lstrip("."))
        else:
            _check_name(what, part)
    return path


def _number(text: str) -> int | None:
    return int(text) if _NUMBER.fullmatch(text) and int(text) > 0 else None


def task_name(task: int) -> str:
    return f"{task:04d}"


def bucket_of(task: int) -> int:
    """The number of the folder for a task: its own without the last three digits."""
    return task // BUCKET


def buckets_of(tasks: Iterable[int]) -> Counter[int]:
    """How many of these tasks are in each bucket; of a range, without going through it."""
    if not isinstance(tasks, range) or tasks.step != 1:
        return Counter(map(bucket_of, tasks))
    found: Counter[int] = Counter()
    first, end = tasks.start, tasks.stop
    while first < end:
        bucket = bucket_of(first)
        following = min(end, (bucket + 1) * BUCKET)
        found[bucket] = following - first
        first = following
    return found


def _in_bucket(folder: str, bucket: int) -> str:
    return f"{folder}/{bucket:04d}"


def parse_task(name: str) -> int | None:
    """The task of a name in `done/`, None for a stranger's file."""
    number = _number(name)
    return number if number is not None and name == task_name(number) else None


def attempt_name(task: int, attempt: int) -> str:
    return f"{task:04d}.{attempt}"


def parse_attempt(name: str) -> tuple[int, int] | None:
    """(task, attempt) of a name in `claims/` or `staging/`, None for a stranger's file."""
    first, _, second = name.partition(".")
    task, attempt = parse_task(first), _number(second)
    if task is None or attempt is None or second != str(attempt):
        return None
    return task, attempt


def parse_job(name: str) -> int | None:
    """The number of a job's folder."""
    number = _number(name)
    return number if number is not None and name == f"{number:04d}" else None


def parse_param(name: str) -> int | None:
    """The number in `param_001`, or in an old drive's `param_1`."""
    return _number(name.removeprefix("param_")) if name.startswith("param_") else None


def is_run(name: str) -> bool:
    """Whether a folder in `runs/param_…` is a run. Those of the old system have colons in their
    names, which a file server that speaks SMB may show as eight characters of its own."""
    return "num" in name or _MANGLED.fullmatch(name) is not None


def parse_plan(name: str) -> int | None:
    """The number of a plan in `params/`."""
    number = _number(name.removesuffix(".json"))
    return number if number is not None and name == f"{number:06d}.json" else None


def parse_events(name: str) -> tuple[str, str] | None:
    """(host, boot) of a file in `events/`."""
    host, _, boot = name.removesuffix(".jsonl").rpartition(".")
    if not name.endswith(".jsonl") or not _is_host(host) or not _BOOT.fullmatch(boot):
        return None
    return host, boot


def parse_stop(name: str) -> int | None:
    """The task of `stop.0007`, 0 for `stop` (the whole job), None for anything else."""
    if name == "stop":
        return 0
    return parse_task(name.removeprefix("stop.")) if name.startswith("stop.") else None


def parse_beat(name: str) -> tuple[str, int] | None:
    """(host, counter) of a heartbeat's name."""
    host, _, digits = name.removesuffix(".json").rpartition(".")
    counter = _number(digits)
    if counter is None or not _is_host(host) or name != _beat_name(host, counter):
        return None
    return host, counter


def _beat_name(host: str, counter: int) -> str:
    return f"{host}.{counter:08d}.json"


def beat_path(host: str, counter: int) -> str:
    return f"{NODES}/{_beat_name(check_host(host), counter)}"


def parse_refusal(name: str) -> str | None:
    """The host of a name in `refused/`."""
    host = name.removesuffix(".json")
    return host if name.endswith(".json") and _is_host(host) else None


class JobFiles:
    """The files of one job. All paths are relative to the drive."""

    def __init__(self, project: str, job: int) -> None:
        self.project = check_project(project)
        self.number = job
        self.folder = f"{self.project}/.ludwig/jobs/{job:04d}"
        self.record = f"{self.folder}/job.json"
        self.params = f"{self.folder}/params.json"
        self.chunks = f"{self.folder}/chunks"
        self.claims = f"{self.folder}/claims"
        self.events = f"{self.folder}/events"
        self.logs = f"{self.folder}/logs"
        self.gpu = f"{self.folder}/gpu"
        self.staging = f"{self.folder}/staging"
        self.done = f"{self.folder}/done"
        self.refused = f"{self.folder}/refused"

    def folders(self, tasks: Iterable[int]) -> list[str]:
        """What must be there before the `job.json` of these tasks is published, parents first."""
        by_bucket = (self.claims, self.logs, self.gpu, self.done)
        buckets = sorted(buckets_of(tasks))
        return [
            *(self.chunks, self.events, self.staging, self.refused, *by_bucket),
            *(_in_bucket(folder, bucket) for folder in by_bucket for bucket in buckets),
        ]

    def claims_in(self, bucket: int) -> str:
        return _in_bucket(self.claims, bucket)

    def done_in(self, bucket: int) -> str:
        return _in_bucket(self.done, bucket)

    def logs_in(self, bucket: int) -> str:
        return _in_bucket(self.logs, bucket)

    def chunk_of(self, host: str) -> str:
        return f"{self.chunks}/{check_host(host)}.pkl"

    def table_of(self, host: str) -> str:
        return f"{self.chunks}/{check_host(host)}.json"

    def claim_of(self, task: int, attempt: int) -> str:
        return f"{_in_bucket(self.claims, bucket_of(task))}/{attempt_name(task, attempt)}"

    def events_of(self, host: str, boot: str) -> str:
        return f"{self.events}/{check_host(host)}.{check_boot(boot)}.jsonl"

    def log_of(self, task: int, attempt: int) -> str:
        return f"{_in_bucket(self.logs, bucket_of(task))}/{attempt_name(task, attempt)}.log"

    def gpu_of(self, task: int, attempt: int) -> str:
        return f"{_in_bucket(self.gpu, bucket_of(task))}/{attempt_name(task, attempt)}.csv"

    def staging_of(self, task: int, attempt: int) -> str:
        return f"{self.staging}/{attempt_name(task, attempt)}"

    def staged_run(self, task: int, attempt: int, run: int) -> str:
        """Where the results of the `run`-th param2val of a task wait (0 but for `per="chunk"`).

        Complete, or not there at all.
        """
        return f"{self.staging_of(task, attempt)}/{run}"

    def arriving_run(self, task: int, attempt: int, run: int) -> str:
        """Where they are while they are being uploaded."""
        return f"{self.staging_of(task, attempt)}/{run}.part"

    def done_of(self, task: int) -> str:
        return f"{_in_bucket(self.done, bucket_of(task))}/{task_name(task)}"

    def refused_by(self, host: str) -> str:
        return f"{self.refused}/{check_host(host)}.json"

    def stop(self, task: int | None = None) -> str:
        return f"{self.folder}/stop" + (f".{task_name(task)}" if task else "")


class ProjectFiles:
    """The files of one project. All paths are relative to the drive."""

    def __init__(self, project: str) -> None:
        self.project = check_project(project)
        self.folder = self.project
        self.jobs = f"{self.project}/.ludwig/jobs"
        self.params = f"{self.project}/.ludwig/params"
        self.stamps = f"{self.project}/.ludwig/stamps"
        self.runs = f"{self.project}/runs"

    def job(self, number: int) -> JobFiles:
        return JobFiles(self.project, number)

    def plan(self, number: int) -> str:
        return f"{self.params}/{number:06d}.json"

    def stamp(self, stamp: str) -> str:
        """Holds the second that makes the job_names of one job different from all others."""
        return f"{self.stamps}/{stamp}"

    def param(self, param_name: str) -> str:
        return f"{self.runs}/{_check_name('param_name', param_name)}"

    def param2val(self, param_name: str) -> str:
        return f"{self.param(param_name)}/param2val.yaml"

    def run(self, param_name: str, job_name: str) -> str:
        return f"{self.param(param_name)}/{_check_name('job_name', job_name)}"

    def seed_chunk(self, host: str) -> str:
        """The one file that is overwritten: where the script contract looks for its chunk."""
        return f"{self.project}/{check_host(host)}{CHUNK_SUFFIX}"


class InboxFiles:
    """The files of a node's inbox, relative to it."""

    sources = SOURCES
    tickets = TICKETS

    def source(self, sha256: str) -> str:
        if not re.fullmatch(r"[0-9a-f]{64}", sha256):
            raise NameNotAllowed(f"{sha256[:80]!r} is not a SHA-256.")
        return f"{SOURCES}/{sha256}.tar.gz"

    def ticket(self, project: str, job: int) -> str:
        return f"{TICKETS}/{check_project(project)}-{job:04d}.json"


inbox = InboxFiles()


def parse_source(name: str) -> str | None:
    """The SHA-256 that the file of a source is called by."""
    sha256 = name.removesuffix(".tar.gz")
    try:
        return sha256 if inbox.source(sha256) == f"{SOURCES}/{name}" else None
    except NameNotAllowed:
        return None


def project_files(project: str) -> ProjectFiles:
    return ProjectFiles(project)


def job_files(project: str, job: int) -> JobFiles:
    return JobFiles(project, job)
