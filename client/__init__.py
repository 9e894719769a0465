"""What a user runs: submitting, watching and collecting. Imported as `ludwig.client`.

The public names load on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ludwig.client.client import Client
    from ludwig.client.job import Job, LudwigWarning
    from ludwig.client.lab import Lab, open_lab
    from ludwig.client.status import JobStatus, JobSummary, NodeStatus, TaskStatus

__all__ = [
    "Client",
    "Job",
    "JobStatus",
    "JobSummary",
    "Lab",
    "LudwigWarning",
    "NodeStatus",
    "TaskStatus",
    "open_lab",
]

_LAZY = {
    "Client": "ludwig.client.client",
    "Job": "ludwig.client.job",
    "JobStatus": "ludwig.client.status",
    "JobSummary": "ludwig.client.status",
    "Lab": "ludwig.client.lab",
    "LudwigWarning": "ludwig.client.job",
    "NodeStatus": "ludwig.client.status",
    "TaskStatus": "ludwig.client.status",
    "open_lab": "ludwig.client.lab",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
