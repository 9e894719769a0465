"""Which files of a source tree are sent: the walk, and what it leaves out.

Owns the rules: what `.gitignore` and `.ludwigignore` say, in every folder from the top of the
repository down, as git reads them; and what is never sent, whatever they say. Links are followed
while they stay inside. The same on every system: names are matched with their case.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pathspec import GitIgnoreSpec

from ludwig.errors import UsageError

__all__ = ["IGNORE_FILES", "NEVER_SENT", "walk"]

IGNORE_FILES = (".gitignore", ".ludwigignore")
"""In one folder the second is read after the first, so that it can take a file back in with `!`."""

NEVER_SENT = frozenset(
    {
        ".DS_Store",
        ".eggs",
        ".git",
        ".hg",
        ".hypothesis",
        ".ipynb_checkpoints",
        ".ludwig",
        ".mypy_cache",
        ".nox",
        ".pytest_cache",
        ".ruff_cache",
        ".svn",
        ".tox",
        "Thumbs.db",
        "__pycache__",
        "desktop.ini",
        "node_modules",
    }
)
_MARKS_OF_ENVIRONMENTS = ("pyvenv.cfg", "conda-meta")


class _Rules(NamedTuple):
    """The ignore files of one folder."""

    folder: Path
    spec: GitIgnoreSpec


def walk(folder: Path, *, inside: Path) -> Iterator[tuple[str, Path]]:
    """The files of a source folder that are sent: (path relative to it, file), sorted by folder.

    A link that leads out of both `folder` and `inside` (the project), nowhere, or round in
    circles is a `UsageError`, unless it is ignored.
    """
    yield from _walk(folder, "", _rules_above(folder), _Bounds(folder, inside))


class _Bounds:
    """Where links may lead."""

    def __init__(self, *folders: Path) -> None:
        self._folders = [folder.resolve() for folder in folders]

    def check(self, link: Path, *, above: Path) -> None:
        try:
            target = link.resolve(strict=True)
        except (OSError, RuntimeError) as error:
            raise UsageError(f"'{link}' is a link that leads nowhere. {_ADVICE}") from error
        if not any(target.is_relative_to(folder) for folder in self._folders):
            raise UsageError(
                f"'{link}' is a link to '{target}', outside of what is sent. {_ADVICE}"
            )
        if target.is_dir() and above.resolve().is_relative_to(target):
            raise UsageError(f"'{link}' is a link to a folder that it is in. {_ADVICE}")


_ADVICE = "Remove it, put a copy in its place, or list it in .ludwigignore."


def _walk(
    folder: Path, prefix: str, rules: list[_Rules], bounds: _Bounds
) -> Iterator[tuple[str, Path]]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise UsageError(f"'{folder}' cannot be read: {error.strerror}.") from error
    names = {entry.name for entry in entries}
    if prefix and not names.isdisjoint(_MARKS_OF_ENVIRONMENTS):
        return
    rules = _with_rules_of(folder, names, rules)
    for entry in entries:
        path = folder / entry.name
        is_link = entry.is_symlink()
        is_folder = path.is_dir() if is_link else entry.is_dir()
        if _is_left_out(path, entry.name, rules, is_folder=is_folder and not is_link):
            continue
        if is_link:
            if is_folder and _is_left_out(path, entry.name, rules, is_folder=True):
                continue
            bounds.check(path, above=folder)
        if is_folder:
            yield from _walk(path, f"{prefix}{entry.name}/", rules, bounds)
        elif entry.is_file():
            yield f"{prefix}{entry.name}", path


def _is_left_out(path: Path, name: str, rules: list[_Rules], *, is_folder: bool) -> bool:
    if name in NEVER_SENT or name.endswith((".pyc", ".pyo")):
        return True
    for rule in reversed(rules):
        relative = path.relative_to(rule.folder).as_posix() + ("/" if is_folder else "")
        found = rule.spec.check_file(relative).include
        if found is not None:
            return found
    return False


def _with_rules_of(folder: Path, names: set[str], rules: list[_Rules]) -> list[_Rules]:
    lines: list[str] = []
    for name in IGNORE_FILES:
        if name in names and (folder / name).is_file():
            text = (folder / name).read_text(encoding="utf-8-sig", errors="replace")
            lines += text.splitlines()
    if not lines:
        return rules
    try:
        return [*rules, _Rules(folder, GitIgnoreSpec.from_lines(lines))]
    except ValueError as error:
        raise UsageError(f"The ignore files in '{folder}' cannot be read: {error}.") from error


def _rules_above(folder: Path) -> list[_Rules]:
    """Those of the folders above, up to the top of the repository that it is in (if it is)."""
    above: list[Path] = []
    here = folder.absolute()
    while not (here / ".git").exists():
        if here.parent == here:
            return []
        here = here.parent
        above.append(here)
    rules: list[_Rules] = []
    for parent in reversed(above):
        rules = _with_rules_of(parent, set(IGNORE_FILES), rules)
    return rules
