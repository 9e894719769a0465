"""The agent's own log: one line per transition, `what key=value …`, to be read and to be searched.

Owns the spelling of these lines and nothing else; where they go is decided by the command line.
"""

from __future__ import annotations

import json
import logging
import re

__all__ = ["facts", "note"]

_PLAIN = re.compile(r"[^\s\"'=\\]+")


def note(log: logging.Logger, what: str, *, level: int = logging.INFO, **known: object) -> None:
    """Write one line. Facts that are empty are left out."""
    if log.isEnabledFor(level):
        log.log(level, "%s", " ".join([what, *facts(**known)]))


def facts(**known: object) -> list[str]:
    """`key=value` for each, quoted as in JSON where it is more than one plain word."""
    return [
        f"{key}={text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)}"
        for key, value in known.items()
        if value is not None and (text := str(value))
    ]
