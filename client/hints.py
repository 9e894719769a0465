"""What to type next, in the words of the `ludwig` command."""

from __future__ import annotations

import shlex
from pathlib import Path

from ludwig import errors
from ludwig.config import LabConfig, load_lab

__all__ = ["command", "default_project"]


def default_project(config: LabConfig) -> str:
    """What `ludwig` takes for the project without `-p`: `ludwig.toml`'s, else the folder's name."""
    return config.project or Path.cwd().name


def command(words: str, project: str, config: LabConfig | None = None) -> str:
    """`ludwig WORDS`, with `-p` where the command would by itself mean another project.

    Jobs of every project are numbered from 1: without it, one could retry somebody else's.
    """
    try:
        meant = default_project(config or load_lab())
    except errors.ConfigError:
        meant = Path.cwd().name
    return f"ludwig {words}" + ("" if meant == project else f" -p {shlex.quote(project)}")
