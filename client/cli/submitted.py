"""What `ludwig submit` and `ludwig retry` say about a job that was just made."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ludwig.client.cli.options import print_json

if TYPE_CHECKING:
    from ludwig.client.submission import Submitted

__all__ = ["print_submitted", "say_warnings"]


def say_warnings(done: Submitted) -> None:
    for warning in done.warnings:
        print(f"ludwig: warning: {warning}", file=sys.stderr)


def print_submitted(done: Submitted) -> None:
    """As DESIGN §2 has it; `job` is null when there was nothing to do."""
    print_json(
        {"project": done.project, "job": done.job, "tasks": done.tasks, "nodes": list(done.nodes)}
    )
