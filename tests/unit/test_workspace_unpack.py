"""Archives are hostile until proven otherwise: each of these is refused, with a reason."""

import gzip
import hashlib
import io
import os
import tarfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ludwig.errors import TicketRefused
from ludwig.worker import archive as module
from ludwig.worker.workspace import unpack

Build = Callable[[tarfile.TarFile], None]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def file(tar: tarfile.TarFile, name: str, content: bytes = b"x", **fields: object) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    for field, value in fields.items():
        setattr(member, field, value)
    tar.addfile(member, io.BytesIO(content))


def special(tar: tarfile.TarFile, name: str, kind: bytes, link: str = "") -> None:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, link
    tar.addfile(member)


def pack(folder: Path, *steps: Build) -> tuple[Path, str]:
    path = folder / "source.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for step in steps:
            step(tar)
    return path, hashlib.sha256(path.read_bytes()).hexdigest()


def test_unpack(tmp_path: Path) -> None:
    archive, digest = pack(
        tmp_path,
        lambda tar: special(tar, "./", tarfile.DIRTYPE),
        lambda tar: file(tar, "./run.py", b"print(1)\n", mtime=1_000_000_000, mode=0o644),
        lambda tar: file(tar, "src/deep/tool.sh", b"#!/bin/sh\n", mode=0o6777),
        lambda tar: special(tar, "src", tarfile.DIRTYPE),
        lambda tar: special(tar, "src/empty", tarfile.DIRTYPE),
        lambda tar: special(tar, "src/again.sh", tarfile.LNKTYPE, "src/deep/tool.sh"),
        lambda tar: special(tar, "src/link.py", tarfile.SYMTYPE, "../run.py"),
        lambda tar: file(tar, "ünïcode … name.txt", "ä".encode()),
        lambda tar: file(tar, "x" * 120 + "/" + "y" * 200, b"long"),
    )
    sources = tmp_path / "sources"
    master = unpack(archive, digest, sources)
    assert master == sources / digest
    assert (master / "run.py").read_text() == "print(1)\n"
    assert (master / "run.py").stat().st_mtime == 1_000_000_000
    assert (master / "src" / "link.py").read_text() == "print(1)\n"
    assert (master / "src" / "again.sh").read_bytes() == b"#!/bin/sh\n"
    assert (master / "src" / "again.sh").stat().st_nlink == 1
    assert (master / "src" / "deep" / "tool.sh").stat().st_mode & 0o7777 == 0o555
    assert (master / "src" / "empty").is_dir()
    assert not any(p.lstat().st_mode & 0o222 for p in master.rglob("*") if not p.is_symlink())
    assert names(sources) == [digest]
    archive.unlink()
    assert unpack(archive, digest, sources) == master


HOSTILE: dict[str, tuple[str, list[Build]]] = {
    "absolute": ("leads out", [lambda tar: file(tar, "/etc/cron.d/x")]),
    "dotdot": ("leads out", [lambda tar: file(tar, "../x")]),
    "dotdot inside": ("leads out", [lambda tar: file(tar, "a/../../x")]),
    "double slash": ("leads out", [lambda tar: file(tar, "a//b")]),
    "absolute link": (
        "is taken|leads out",
        [lambda tar: special(tar, "l", tarfile.SYMTYPE, "/etc/passwd")],
    ),
    "link out": (
        "is taken|leads out",
        [lambda tar: special(tar, "a/l", tarfile.SYMTYPE, "../../x")],
    ),
    "file through a link": (
        "not a folder",
        [
            lambda tar: special(tar, "d", tarfile.DIRTYPE),
            lambda tar: special(tar, "l", tarfile.SYMTYPE, "d"),
            lambda tar: file(tar, "l/x"),
        ],
    ),
    "file below a file": (
        "not a folder",
        [lambda tar: file(tar, "f"), lambda tar: file(tar, "f/x")],
    ),
    "file over a link": (
        "twice",
        [lambda tar: special(tar, "l", tarfile.SYMTYPE, "x"), lambda tar: file(tar, "l")],
    ),
    "twice": ("twice", [lambda tar: file(tar, "f"), lambda tar: file(tar, "./f")]),
    "hard link out": (
        "is taken|leads out",
        [lambda tar: special(tar, "l", tarfile.LNKTYPE, "../../etc/passwd")],
    ),
    "hard link to nothing": (
        "not there",
        [lambda tar: special(tar, "l", tarfile.LNKTYPE, "missing")],
    ),
    "hard link to a link": (
        "not there",
        [
            lambda tar: special(tar, "s", tarfile.SYMTYPE, "x"),
            lambda tar: special(tar, "l", tarfile.LNKTYPE, "s"),
        ],
    ),
    "fifo": ("is taken|neither", [lambda tar: special(tar, "p", tarfile.FIFOTYPE)]),
    "character device": ("is taken|neither", [lambda tar: special(tar, "c", tarfile.CHRTYPE)]),
    "block device": ("is taken|neither", [lambda tar: special(tar, "b", tarfile.BLKTYPE)]),
    "too deep": ("too deep", [lambda tar: file(tar, "/".join("d" * 60))]),
    "name too long": ("cannot be unpacked", [lambda tar: file(tar, "x" * 300)]),
    "too many": (
        "more than 20 files",
        [lambda tar: [file(tar, f"f{n}") for n in range(30)] and None],
    ),
    "too large": ("too large|unpacks to more", [lambda tar: file(tar, "f", bytes(2_000_000))]),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("with_pythons_filter", [True, False])
def test_hostile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, with_pythons_filter: bool
) -> None:
    if not with_pythons_filter:
        monkeypatch.setattr(module, "_python_refuses", None)
    reason, steps = HOSTILE[name]
    archive, digest = pack(tmp_path, *steps)
    sources = tmp_path / "sources"
    with pytest.raises(TicketRefused, match=reason):
        unpack(archive, digest, sources, max_bytes=1_000_000, max_files=20)
    assert names(sources) == []
    assert names(tmp_path) == ["source.tar.gz", "sources"]


def test_bomb_of_headers(tmp_path: Path) -> None:
    """A pax header of a gigabyte is not read into memory."""
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 1 << 30
    path = tmp_path / "bomb.tar.gz"
    with gzip.open(path, "wb", compresslevel=1) as zipped:
        zipped.write(header.tobuf())
        for _ in range(16):
            zipped.write(bytes(1 << 20))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(TicketRefused):
        unpack(path, digest, tmp_path / "sources", max_bytes=1_000_000, max_files=20)


def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SPARE_BYTES", 1 << 60)
    archive, digest = pack(tmp_path, lambda tar: file(tar, "run.py"))
    with pytest.raises(TicketRefused):
        unpack(archive, digest, tmp_path / "sources")


def test_wrong_sha256(tmp_path: Path) -> None:
    archive, _ = pack(tmp_path, lambda tar: file(tar, "run.py"))
    with pytest.raises(TicketRefused, match=r"damaged .*Submit again"):
        unpack(archive, "0" * 64, tmp_path / "sources")


@pytest.mark.parametrize(
    "content",
    [b"", b"not gzip", gzip.compress(b"not tar" * 1000, mtime=0)],
    ids=["empty", "not gzip", "not tar"],
)
def test_not_an_archive(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.tar.gz"
    path.write_bytes(content)
    with pytest.raises(TicketRefused, match="archive"):
        unpack(path, hashlib.sha256(content).hexdigest(), tmp_path / "sources")


def test_cut_short(tmp_path: Path) -> None:
    archive, _ = pack(tmp_path, lambda tar: file(tar, "f", os.urandom(100_000)))
    data = archive.read_bytes()[:50_000]
    archive.write_bytes(data)
    with pytest.raises(TicketRefused, match="archive"):
        unpack(archive, hashlib.sha256(data).hexdigest(), tmp_path / "sources")
    assert names(tmp_path / "sources") == []


def test_archive_that_is_a_link_or_missing(tmp_path: Path) -> None:
    archive, digest = pack(tmp_path, lambda tar: file(tar, "run.py"))
    (tmp_path / "link.tar.gz").symlink_to(archive)
    os.mkfifo(tmp_path / "pipe.tar.gz")
    for name in ("link.tar.gz", "missing.tar.gz", "pipe.tar.gz"):
        with pytest.raises(TicketRefused):
            unpack(tmp_path / name, digest, tmp_path / "sources")


def test_many_at_once(tmp_path: Path) -> None:
    steps = [lambda tar, n=n: file(tar, f"d/f{n}", b"%d" % n) for n in range(200)]
    archive, digest = pack(tmp_path, *steps)
    with ThreadPoolExecutor(8) as pool:
        paths = set(pool.map(lambda _: unpack(archive, digest, tmp_path / "sources"), range(8)))
    assert paths == {tmp_path / "sources" / digest}
    assert names(tmp_path / "sources") == [digest]
    assert len(names(tmp_path / "sources" / digest / "d")) == 200
