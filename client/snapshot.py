"""The source of a job as one archive: the same tree gives the same bytes.

Owns what is in the archive and under which name; `ignore.py` says what is left out, `contract.py`
how the entry file is run. Nothing of the user's code is imported, and nothing is remembered
between calls (`source_cache.py` does that). "The same bytes" holds on every system with the same
zlib; Windows has no executable bit, so scripts come out as 644 there.
"""

from __future__ import annotations

import hashlib
import struct
import tarfile
import tokenize
import unicodedata
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from ludwig.client.contract import contract_of
from ludwig.client.ignore import walk
from ludwig.errors import UsageError
from ludwig.model import Job

__all__ = ["FORMAT", "LARGE", "Source", "Tree", "contract_of", "find_tree", "pack", "pack_tree"]

FORMAT = 1
"""To be counted up when the same tree is to give other bytes."""

LARGE = 50_000_000
"""Bytes above which a source is worth a warning."""

# No name, no time, "unknown" operating system: whatever gzip would put there differs by machine.
_GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"


@dataclass(frozen=True)
class Tree:
    """What is to be sent: found, named and checked, but not read."""

    files: list[str]
    """Paths in the archive, sorted."""
    entry: str
    """The file that is run, as a path in the archive."""
    package: str
    """The name of the first source folder, for `<package>_runs`."""
    paths: dict[str, Path]
    """Where on this machine each file of the archive is from."""

    @property
    def entry_text(self) -> str:
        """The entry file, decoded as Python would."""
        try:
            with tokenize.open(self.paths[self.entry]) as file:
                return file.read()
        except (OSError, SyntaxError, UnicodeDecodeError) as error:
            raise UsageError(f"Entry file '{self.entry}' cannot be read: {error}.") from error

    def packed_as(self, sha256: str, archive: Path, sizes: dict[str, int] | None = None) -> Source:
        """The source that this tree is in an archive; `sizes` by the files themselves."""
        if sizes is None:
            sizes = {name: path.stat().st_size for name, path in self.paths.items()}
        total = sum(sizes.values())
        largest = sorted(sizes.items(), key=lambda item: (-item[1], item[0]))[:5]
        return Source(
            sha256=sha256,
            archive=archive,
            files=self.files,
            entry=self.entry,
            package=self.package,
            bytes=total,
            largest=largest if total > LARGE else [],
            paths=self.paths,
        )


@dataclass(frozen=True)
class Source(Tree):
    """What `pack` made."""

    sha256: str
    """Of the archive."""
    archive: Path
    bytes: int
    """Of all files, before they are packed."""
    largest: list[tuple[str, int]]
    """The five largest files, when all together are above `LARGE`; else empty."""

    @classmethod
    def of_job(cls, job: Job) -> Source:
        """The source of an earlier job, as far as its record tells: there is no archive here."""
        return cls(
            sha256=job.source,
            archive=Path(f"{job.source}.tar.gz"),
            files=[job.entry],
            entry=job.entry,
            package=job.package,
            bytes=0,
            largest=[],
            paths={},
        )


def pack(
    src_ps: Sequence[Path],
    *,
    root: Path,
    entry: str,
    extra_ps: Sequence[Path] = (),
    out: Path,
) -> Source:
    """`find_tree`, and `pack_tree` what was found."""
    return pack_tree(find_tree(src_ps, root=root, entry=entry, extra_ps=extra_ps), out=out)


def find_tree(
    src_ps: Sequence[Path], *, root: Path, entry: str, extra_ps: Sequence[Path] = ()
) -> Tree:
    """The files of source folders (and single files), under the names they will have.

    Paths are relative to `root`, the project's folder. A folder goes under its own name, `root`
    itself (`Path(".")`) to the top. `entry` is looked for in `root`, and comes along from there
    even if no source folder holds it, then in the source folders. `extra_ps` is packed like
    `src_ps`, but says nothing about entry and package. `UsageError`s say what to change.
    """
    if not src_ps:
        raise UsageError("No source: src_ps is empty. Name the folder with your code.")
    root = root.absolute()
    sources = [_existing(path, root) for path in src_ps]
    package = next((path.name for path in sources if path.is_dir()), root.name)
    paths: dict[str, Path] = {}
    for path in (*sources, *(_existing(path, root) for path in extra_ps)):
        _collect(path, root, package, paths)
    entry = _find_entry(entry, root, sources, paths)
    names = sorted(paths)
    return Tree(names, entry, package, {name: paths[name] for name in names})


def pack_tree(tree: Tree, *, out: Path) -> Source:
    """Pack it into `<out>/<sha256>.tar.gz`. `UsageError` for a file that cannot be read."""
    out.mkdir(parents=True, exist_ok=True)
    sha256, archive, sizes = _write(tree.files, tree.paths, out)
    return tree.packed_as(sha256, archive, sizes)


def _existing(path: Path, root: Path) -> Path:
    """An absolute path without `..`; links in it stay as they are."""
    absolute = Path(root, path.expanduser())
    if ".." in absolute.parts:
        absolute = absolute.resolve()
    if not absolute.exists():
        raise UsageError(f"Source '{path}' does not exist: there is no '{absolute}'.")
    return absolute


def _collect(path: Path, root: Path, package: str, paths: dict[str, Path]) -> None:
    """Add the files of one source; the top of the archive is the project's folder."""
    if path.is_file():
        _add(path.name, path, paths)
        return
    at_top = path.resolve() == root.resolve()
    empty = True
    for relative, file in walk(path, inside=root):
        # What earlier runs on this machine left behind would make every archive a new one.
        if at_top and relative.startswith(f"{package}_runs/"):
            continue
        empty = False
        _add(relative if at_top else f"{path.name}/{relative}", file, paths)
    if empty:
        raise UsageError(
            f"Source folder '{path}' holds no file that could be sent: it is empty, or everything "
            "in it is listed in .gitignore or .ludwigignore."
        )


def _add(name: str, file: Path, paths: dict[str, Path]) -> None:
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{str(file)!r} has a name that is not Unicode. Rename it.") from error
    name = unicodedata.normalize("NFC", name)  # As macOS spells names, others do not.
    other = paths.setdefault(name, file)
    if other != file and not other.samefile(file):
        raise UsageError(
            f"'{other}' and '{file}' would both be '{name}' in the archive. Source folders need "
            "different names."
        )


def _find_entry(entry: str, root: Path, sources: list[Path], paths: dict[str, Path]) -> str:
    parts = PurePosixPath(entry.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts or not parts.name:
        raise UsageError(f"Entry file {entry!r} must be a path inside the project.")
    name = parts.as_posix()
    at_root = root / name
    if at_root.is_file():
        _add(name, at_root, paths)
        return name
    looked = [at_root]
    for source in sources:
        if source.is_file() or source == root:
            continue
        if (source / name).is_file():
            inside = f"{source.name}/{name}"
            if inside not in paths:
                raise UsageError(
                    f"'{source / name}' is the entry file, but .gitignore or .ludwigignore leaves "
                    "it out. Add a line that takes it back in (`!…`) to .ludwigignore."
                )
            return inside
        looked.append(source / name)
    where = ", ".join(f"'{path}'" for path in looked)
    raise UsageError(
        f"There is no entry file '{entry}': looked for {where}. It is the file that is run on the "
        "nodes; name another one with run_f_name."
    )


class _Gzip:
    """Writes a gzip file whose bytes depend on nothing but what is written, and hashes it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._deflate = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
        self._crc = zlib.crc32(b"")
        self._size = 0
        self.sha256 = hashlib.sha256()
        self._put(_GZIP_HEADER)

    def write(self, data: bytes) -> int:
        self._crc = zlib.crc32(data, self._crc)
        self._size += len(data)
        self._put(self._deflate.compress(data))
        return len(data)

    def finish(self) -> None:
        self._put(self._deflate.flush())
        self._put(struct.pack("<LL", self._crc, self._size & 0xFFFFFFFF))

    def _put(self, data: bytes) -> None:
        self.sha256.update(data)
        self._file.write(data)


def _write(
    names: Sequence[str], paths: dict[str, Path], out: Path
) -> tuple[str, Path, dict[str, int]]:
    """The archive's hash, its path, and the size of every file in it."""
    sizes: dict[str, int] = {}
    temporary = out / ".tmp-source.tar.gz"
    try:
        with temporary.open("wb") as file:
            compressed = _Gzip(file)
            with tarfile.open(
                fileobj=compressed,  # type: ignore[call-overload]
                mode="w|",
                format=tarfile.PAX_FORMAT,
                encoding="utf-8",
                bufsize=1 << 18,
            ) as tar:
                for name in names:
                    sizes[name] = _add_file(tar, name, paths[name])
            compressed.finish()
        archive = out / f"{compressed.sha256.hexdigest()}.tar.gz"
        temporary.replace(archive)
    finally:
        temporary.unlink(missing_ok=True)
    return compressed.sha256.hexdigest(), archive, sizes


def _add_file(tar: tarfile.TarFile, name: str, path: Path) -> int:
    try:
        with path.open("rb") as content:
            facts = path.stat()
            info = tarfile.TarInfo(name)
            info.size = facts.st_size
            info.mode = 0o755 if facts.st_mode & 0o100 else 0o644
            tar.addfile(info, content)
    except OSError as error:
        raise UsageError(
            f"'{path}' cannot be packed: {error.strerror or 'it changed meanwhile'}."
        ) from error
    return info.size
