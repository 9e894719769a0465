"""Who submits, from where, with what. For people; nothing depends on it."""

from __future__ import annotations

import platform
import socket
from datetime import datetime
from pathlib import Path

import msgspec

import ludwig
from ludwig.client.git import git_snapshot
from ludwig.client.lab import this_user
from ludwig.client.snapshot import Source
from ludwig.model import Origin

__all__ = ["origin_of", "with_git"]


def origin_of(root: Path) -> Origin:
    """This user, this machine, this folder, now."""
    return Origin(
        user=this_user(),
        host=socket.gethostname(),
        folder=str(root.resolve()),
        ludwig=ludwig.__version__,
        python=platform.python_version(),
        system=platform.platform(),
        when=datetime.now().astimezone().isoformat(timespec="seconds"),
    )


def with_git(origin: Origin, root: Path, source: Source, *, project: str, job: int) -> Origin:
    """With the state of the repository, and a snapshot of exactly what was sent."""
    git = git_snapshot(root, source, project=project, job=job)
    return msgspec.structs.replace(origin, git=git)
