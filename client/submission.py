"""What a user asks for when submitting, and what can be known to be wrong with it at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ludwig import errors

__all__ = ["Submission", "Submitted"]


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
    again: bool = False
    """Run `reps` of each whatever is there: for trying things out."""
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
