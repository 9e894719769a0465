"""The command `ludwig`: one module per sub-command."""

from __future__ import annotations

import os
import sys
import textwrap
import traceback
from collections.abc import Sequence

from ludwig.errors import LudwigError, UsageError

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. Exits 0, 1 for "it failed", 2 for wrong usage, 130 after Ctrl-C."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    before, after = _split(given)
    debug = "--debug" in before or bool(os.environ.get("LUDWIG_DEBUG"))
    given = [word for word in before if word != "--debug"] + after
    try:
        sys.exit(_run(given))
    except LudwigError as error:
        if debug:
            traceback.print_exc()
        complain(str(error))
        sys.exit(2 if isinstance(error, UsageError) else 1)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # Whoever read our output has gone: say nothing more, not even when Python flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _run(given: list[str]) -> int:
    if given[:1] and given[0].startswith("-"):
        from ludwig.client.cli import old_spelling

        if old_spelling.is_old(given):
            return old_spelling.run(given)
    from ludwig.client.cli.app import run

    return run(given or ["--help"])


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """What follows `--` belongs to the user."""
    at = words.index("--") if "--" in words else len(words)
    return words[:at], words[at:]


def complain(message: str) -> None:
    """`ludwig: what, where, what next` on stderr, folded for a terminal."""
    lines = []
    for line in message.splitlines() or [""]:
        if sys.stderr.isatty():
            indent = " " * (len(line) - len(line.lstrip()))
            lines += textwrap.wrap(
                line,
                width=max(40, os.get_terminal_size(sys.stderr.fileno()).columns - 9),
                subsequent_indent=indent,
                break_long_words=False,
                break_on_hyphens=False,
            ) or [""]
        else:
            lines.append(line)
    print("ludwig: " + "\n        ".join(lines), file=sys.stderr)
