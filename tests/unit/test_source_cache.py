"""Archives that are kept: an unchanged tree is not packed again, and a changed one always is."""

import os
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ludwig.client import source_cache
from ludwig.client.snapshot import Source, Tree, find_tree, pack_tree
from ludwig.client.source_cache import SourceCache

Pack = Callable[[], Source]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    (root / "run.py").write_text("def main(param2val): pass\n")
    (root / "src" / "a.py").write_text("A = 1\n")
    return root


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch) -> list[Tree]:
    """Every tree that was really packed."""
    trees: list[Tree] = []

    def noted(tree: Tree, *, out: Path) -> Source:
        trees.append(tree)
        return pack_tree(tree, out=out)

    monkeypatch.setattr(source_cache, "pack_tree", noted)
    return trees


@pytest.fixture
def pack(root: Path, tmp_path: Path) -> Pack:
    """As an hour from now, when nothing of the tree is new any more."""
    numbers = iter(range(100))

    def packing() -> Source:
        cache = SourceCache(tmp_path / "cache", now=lambda: time.time() + 3600)
        out = tmp_path / f"out{next(numbers)}"
        out.mkdir()
        return cache.pack(find_tree([Path("src")], root=root, entry="run.py"), out=out)

    return packing


def content(source: Source) -> dict[str, bytes]:
    with tarfile.open(source.archive) as tar:
        files = {member.name: tar.extractfile(member) for member in tar.getmembers()}
        return {name: file.read() for name, file in files.items() if file is not None}


def test_an_unchanged_tree_is_packed_once(pack: Pack, packed: list[Tree]) -> None:
    first, second = pack(), pack()
    assert len(packed) == 1
    assert second.sha256 == first.sha256
    assert second.archive != first.archive
    assert second.archive.read_bytes() == first.archive.read_bytes()
    assert (second.bytes, second.files, second.entry) == (first.bytes, first.files, first.entry)


@pytest.mark.parametrize("keep_times", [False, True], ids=["", "under its old time"])
def test_a_changed_file_is_packed(
    root: Path, pack: Pack, packed: list[Tree], keep_times: bool
) -> None:
    pack()
    file = root / "src" / "a.py"
    facts = file.stat()
    file.write_text("A = 2\n")
    if keep_times:
        os.utime(file, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert content(pack())["src/a.py"] == b"A = 2\n"
    assert len(packed) == 2


def test_a_new_file_a_removed_one_and_another_mode(
    root: Path, pack: Pack, packed: list[Tree]
) -> None:
    hashes = [pack().sha256]
    (root / "src" / "b.py").write_text("")
    hashes.append(pack().sha256)
    (root / "src" / "a.py").chmod(0o755)
    hashes.append(pack().sha256)
    (root / "src" / "b.py").unlink()
    hashes.append(pack().sha256)
    assert len(packed) == len(set(hashes)) == 4
    (root / ".git").mkdir()
    (root / ".gitignore").write_text("a.py\n")
    (root / "src" / "c.py").write_text("")
    assert sorted(content(pack())) == ["run.py", "src/c.py"]


def test_what_was_written_just_now_is_not_trusted(root: Path, tmp_path: Path) -> None:
    """The next change may come within one tick of the file system's clock."""
    cache = SourceCache(tmp_path / "cache")
    tree = find_tree([Path("src")], root=root, entry="run.py")
    cache.pack(tree, out=tmp_path)
    assert not list((tmp_path / "cache").rglob("*.tar.gz"))
    ahead = SourceCache(tmp_path / "cache", now=lambda: time.time() - 3600)
    ahead.pack(tree, out=tmp_path)
    assert not list((tmp_path / "cache").rglob("*.tar.gz"))


def test_a_file_that_changes_while_it_is_packed_is_not_kept(
    root: Path, pack: Pack, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed(tree: Tree, *, out: Path) -> Source:
        source = pack_tree(tree, out=out)
        (root / "src" / "a.py").write_text("A = 3\n")
        return source

    monkeypatch.setattr(source_cache, "pack_tree", changed)
    pack()
    monkeypatch.setattr(source_cache, "pack_tree", pack_tree)
    assert content(pack())["src/a.py"] == b"A = 3\n"


@pytest.mark.parametrize("damage", [b"", b"not an archive", None])
def test_a_damaged_archive_is_replaced(
    pack: Pack, packed: list[Tree], tmp_path: Path, damage: bytes | None
) -> None:
    first = pack()
    (kept,) = (tmp_path / "cache").rglob("*.tar.gz")
    kept.write_bytes(first.archive.read_bytes()[:-1] if damage is None else damage)
    assert content(pack()) == content(first)
    assert content(pack()) == content(first)
    assert len(packed) == 2


def test_a_cache_that_cannot_be_used_is_none(
    pack: Pack, packed: list[Tree], tmp_path: Path
) -> None:
    (tmp_path / "cache").write_text("a file where a folder should be")
    assert pack().sha256 == pack().sha256
    assert len(packed) == 2


def test_what_was_used_longest_ago_makes_room(
    root: Path, pack: Pack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def next_one(text: str) -> str:
        (root / "src" / "a.py").write_text(text)
        return pack().sha256

    first, second = next_one("A = 11\n"), next_one("A = 222\n")
    for age, sha256 in ((100, first), (200, second)):
        (kept,) = (tmp_path / "cache" / "sources").glob(f"*-{sha256}.tar.gz")
        os.utime(kept, (time.time() - age,) * 2)
    monkeypatch.setattr(source_cache, "TOTAL", 2 * kept.stat().st_size + 20)
    third = next_one("A = 3333\n")
    names = [path.name for path in (tmp_path / "cache" / "sources").iterdir()]
    assert sorted(name.partition("-")[2][:8] for name in names) == sorted([first[:8], third[:8]])
    monkeypatch.setattr(source_cache, "LARGEST", 10)
    fourth = next_one("A = 44444\n")
    assert not list((tmp_path / "cache" / "sources").glob(f"*-{fourth}.tar.gz"))
