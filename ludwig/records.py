"""Reading one file of the drive as the record it should hold.

Owns the one rule for files that make no sense: whatever is wrong with a file – cut short, not ours,
too large, a folder where a file should be, not readable by us – is a `Malformed` that names it. So
callers tell "not there" from "of no use" from "the drive is away", and nothing else.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from ludwig import codec, errors
from ludwig.drive import Drive

__all__ = ["RECORD_LIMIT", "read_bytes", "read_record"]

T = TypeVar("T", bound=msgspec.Struct)

RECORD_LIMIT = 8 << 20
"""No small record is larger. `job.json`, `params.json` and `done/` have limits of their own."""


def read_bytes(drive: Drive, path: str, *, limit: int = RECORD_LIMIT) -> bytes:
    """The bytes of a file. `NotFound`, or `Malformed` for what cannot be read as a file."""
    try:
        data = drive.read(path, limit=limit + 1)
    except (errors.WrongKind, errors.NoPermission) as error:
        raise errors.Malformed(path, error.reason) from error
    if len(data) > limit:
        raise errors.Malformed(path, f"it is larger than {limit:,} bytes")
    return data


def read_record(kind: type[T], drive: Drive, path: str, *, limit: int = RECORD_LIMIT) -> T:
    """The record in a file. `NotFound`, or `Malformed`."""
    return codec.decode(kind, read_bytes(drive, path, limit=limit), path)
