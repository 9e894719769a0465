"""Parameters on the command line: `lr=0.1,0.2`. Pure.

A value is what Python would make of it (numbers, tuples, lists, 'quoted strings'), true, false and
none in any case, else the text itself.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from ludwig.errors import UsageError

__all__ = ["parse_grid", "parse_pairs", "parse_set", "parse_value"]

_WORDS: dict[str, Any] = {"true": True, "false": False, "none": None, "null": None}


def parse_value(text: str) -> Any:
    text = text.strip()
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return text


def parse_set(given: Sequence[str]) -> dict[str, Any]:
    """`--set epochs=10`: one value each."""
    return {name: parse_value(text) for name, text in parse_pairs(given, "--set").items()}


def parse_grid(given: Sequence[str]) -> dict[str, list[Any]]:
    """`--grid lr=0.1,0.2`: several values each; commas in brackets and quotes do not separate."""
    found: dict[str, list[Any]] = {}
    for name, text in parse_pairs(given, "--grid").items():
        values = [parse_value(part) for part in _split(text)]
        if not text.strip():
            raise UsageError(f"--grid {name}=: give it values, as in --grid {name}=1,2.")
        found[name] = values
    return found


def parse_pairs(given: Sequence[str], option: str) -> dict[str, str]:
    """NAME=TEXT, each name once."""
    found: dict[str, str] = {}
    for item in given:
        name, equals, text = item.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"{option} {item!r}: write {option} NAME=VALUE.")
        if name.strip() in found:
            raise UsageError(f"{option} {name.strip()!r} is given twice.")
        found[name.strip()] = text
    return found


def _split(text: str) -> list[str]:
    parts, depth, quote, start = [], 0, "", 0
    for at, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"" and not text[start:at].strip():
            quote = letter
        elif letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        elif letter == "," and depth <= 0:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]
