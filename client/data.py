"""Data for the drive: checked before anything is changed, then sent once.

Owns which names data may have in a project's folder. A file that is on the drive already, with the
same size and time, is not sent again, so an upload that was cut short goes on where it was.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ludwig import layout
from ludwig.drive import Drive
from ludwig.errors import NameNotAllowed, UsageError

__all__ = ["DataPlan", "check_data", "upload_data"]

Done = Callable[[int, int], None]
"""Called with the bytes done (sent, or there already) and the bytes in all."""

_JUNK = frozenset({".DS_Store", "Thumbs.db", "desktop.ini"})


@dataclass(frozen=True)
class _Part:
    """One folder to send, or single files of one: `files` of `tree` go to `path`."""

    tree: Path
    path: str
    files: list[str]


@dataclass(frozen=True)
class DataPlan:
    """What will be sent, with every name checked."""

    parts: list[_Part] = field(default_factory=list)
    files: int = 0
    bytes: int = 0


def check_data(project: str, data_ps: Sequence[Path], *, root: Path | None = None) -> DataPlan:
    """Everything that can be known before sending: all is there, all names can be stored.

    Paths are relative to `root` (default: the current folder). A folder goes to
    `<project>/<its name>/`, a file to `<project>/<its name>`. Raises `UsageError`.
    """
    folder = layout.project_files(project).folder
    parts: list[_Part] = []
    seen: dict[str, Path] = {}
    count = total = 0
    for given in dict.fromkeys(data_ps):
        path = _existing(given, root or Path.cwd())
        _check_top_name(given, path.name)
        # The name is the link's, the content that of the folder it leads to.
        real = path.resolve()
        single = real.is_file()
        if single and real.name != path.name:
            raise UsageError(_link_message(path))
        names = [path.name] if single else sorted(_files(real))
        for name in names:
            where = name if single else f"{path.name}/{name}"
            _check_name(where, path if single else path / name, seen)
            total += (real if single else real / name).stat().st_size
        if single:
            parts.append(_Part(real.parent, folder, names))
        else:
            _check_name(path.name, path, seen)
            parts.append(_Part(real, f"{folder}/{path.name}", names))
        count += len(names)
    return DataPlan(parts, count, total)


def upload_data(
    drive: Drive,
    project: str,
    data_ps: Sequence[Path] | DataPlan,
    progress: Done | None = None,
) -> DataPlan:
    """Check the data (unless a plan says that this is done), and send what is not there yet."""
    plan = data_ps if isinstance(data_ps, DataPlan) else check_data(project, data_ps)
    done = 0

    def told(path: str, count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(done, plan.bytes)

    if progress is not None and plan.bytes:
        progress(0, plan.bytes)  # A large file takes a while to be the first that is done.
    for part in plan.parts:
        drive.upload(part.tree, part.path, files=part.files, progress=told, skip_same=True)
    return plan


def _existing(given: Path, root: Path) -> Path:
    path = Path(root.absolute(), given.expanduser())
    if path.name in ("", ".."):
        path = path.resolve()
    if not path.exists():
        raise UsageError(f"Data '{given}' does not exist: there is no '{path}'.")
    if not path.is_dir() and not path.is_file():
        raise UsageError(f"Data '{given}' is neither a folder nor a file.")
    return path


def _check_top_name(given: Path, name: str) -> None:
    """Not one of the names that Ludwig uses in a project's folder; as the drive compares them."""
    folded = name.casefold()
    if folded in ("runs", ".ludwig") or folded.endswith(layout.CHUNK_SUFFIX):
        raise UsageError(
            f"Data '{given}' cannot be called '{name}' on the drive: Ludwig keeps its own files "
            "under that name. Rename it."
        )


def _check_name(where: str, path: Path, seen: dict[str, Path]) -> None:
    try:
        layout.check_relative(where, what="data path")
    except NameNotAllowed as error:
        raise UsageError(f"'{path}' cannot be stored on the drive: {error}") from error
    while where:
        other = seen.setdefault(where.casefold(), path)
        if other != path:
            raise UsageError(
                f"'{other}' and '{path}' would be one and the same on the drive, which does not "
                "tell capital from small letters. Rename one."
            )
        where, path = where.rpartition("/")[0], path.parent


def _files(folder: Path) -> Iterator[str]:
    """Relative paths of the files to send."""
    for place, subfolders, names in os.walk(folder, onerror=_unreadable):
        subfolders.sort()
        for name in (*subfolders, *names):
            if (Path(place) / name).is_symlink():
                raise UsageError(_link_message(Path(place) / name))
        for name in names:
            path = Path(place) / name
            if name not in _JUNK and not name.startswith(layout.TEMPORARY):
                if not path.is_file():
                    raise UsageError(f"Data '{path}' is neither a folder nor a file.")
                yield path.relative_to(folder).as_posix()


def _unreadable(error: OSError) -> None:
    raise UsageError(f"Data '{error.filename}' cannot be read: {error.strerror}.") from error


def _link_message(path: Path) -> str:
    return (
        f"Data '{path}' is a link. The drive keeps no links: put the file itself there, or name "
        "what it leads to in data_ps."
    )
