"""A lab on this machine alone: a folder as the drive, and an agent of its own. For debugging.

The hook for `Client(…, local=True)` and `ludwig submit --local`: everything after it is the same
code as with a real lab.
"""

from __future__ import annotations

from ludwig.client.lab import Lab
from ludwig.errors import UsageError

__all__ = ["open_local_lab"]


def open_local_lab(project: str) -> Lab:
    """A `Lab` with `local=True` whose `closing` ends what was started for it."""
    raise UsageError(f"running '{project}' on this machine alone is not there yet.")
