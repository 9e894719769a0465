"""Copies of sources are the attempt's own; old ones go, those in use stay."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ludwig.worker import workspace
from ludwig.worker.account import job_account
from ludwig.worker.workspace import Kept, copy_tree, stale, sweep

DAY = 86_400.0


@pytest.fixture
def master(tmp_path: Path) -> Path:
    """As `unpack` leaves it: read-only."""
    root = tmp_path / "master"
    (root / "package" / "deep").mkdir(parents=True)
    (root / "run.py").write_text("print(1)\n")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "package" / "deep" / "big.bin").write_bytes(os.urandom(3_000_000))
    (root / "package" / "empty.py").touch()
    (root / "link.py").symlink_to("run.py")
    os.utime(root / "run.py", (1_000_000_000, 1_000_000_000))
    for path in root.rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.chmod(0o555 if path.suffix == ".sh" else 0o444)
    for folder in (root / "package" / "deep", root / "package", root):
        folder.chmod(0o555)
    return root


def test_copy_is_the_same_and_writable(tmp_path: Path, master: Path) -> None:
    target = tmp_path / "copy"
    copy_tree(master, target)
    for path in master.rglob("*"):
        twin = target / path.relative_to(master)
        if path.is_symlink():
            assert twin.readlink() == path.readlink()
        elif path.is_file():
            assert twin.read_bytes() == path.read_bytes()
            assert twin.stat().st_mtime == path.stat().st_mtime
            assert twin.stat().st_ino != path.stat().st_ino
            assert bool(twin.stat().st_mode & 0o100) == (path.suffix == ".sh")
            assert twin.stat().st_mode & 0o200
    with (target / "package" / "deep" / "big.bin").open("r+b") as file:
        file.write(b"changed in place")
    (target / "run.py").write_text("print(2)\n")
    (target / "package" / "new.py").touch()
    assert (master / "run.py").read_text() == "print(1)\n"
    assert not (master / "package" / "deep" / "big.bin").read_bytes().startswith(b"changed")


@pytest.mark.needs_root
def test_copy_belongs_to_the_jobs_user(tmp_path: Path, master: Path) -> None:
    account = job_account("nobody")
    target = tmp_path / "copy"
    copy_tree(master, target, account=account)
    for path in (target, *target.rglob("*")):
        assert path.lstat().st_uid == account.uid
    assert all(path.lstat().st_uid == 0 for path in master.rglob("*"))


def test_preparing_again_after_an_interruption(tmp_path: Path, master: Path) -> None:
    folder = tmp_path / "work" / "attempts" / "p-1-1-1"
    for _ in range(2):
        workspace.prepare(folder, source=master, project="p", chunk=b"c", allow_root=True)
        assert (folder / "chunk.pkl").read_bytes() == b"c"
        assert (folder / "tree" / "p" / "run.py").exists()
        assert not (folder / "tree" / "p" / "half").exists()
        (folder / "tree" / "p" / "half").touch()


def test_many_small_files_in_parallel(tmp_path: Path) -> None:
    source = tmp_path / "many"
    for n in range(300):
        path = source / f"d{n % 20}" / f"f{n}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{n}\n" * n)
    with ThreadPoolExecutor(4) as pool:
        targets = [tmp_path / f"copy{i}" for i in range(4)]
        list(pool.map(lambda target: copy_tree(source, target), targets))
    for target in targets:
        assert len(list(target.rglob("*.py"))) == 300
        assert (target / "d19" / "f299.py").read_text() == "299\n" * 299


def test_short_temporary_folders_lead_to_the_right_attempt(tmp_path: Path) -> None:
    account = job_account(None, allow_root=True)
    found = {}
    for n in range(50):
        folder = tmp_path / "attempts" / f"a-project-with-quite-a-long-name-1-{n}-1"
        folder.mkdir(parents=True)
        found[folder] = workspace.temporary_folder(folder, account)
        assert workspace.temporary_folder(folder, account) == found[folder]
    for folder, temporary in found.items():
        assert temporary.resolve() == folder / "tmp"
        assert len(str(temporary)) <= len(str(tmp_path)) + len("/tmp/") + 10


def test_stale_is_by_age_and_in_order() -> None:
    kept = [
        Kept(Path(name), used) for name, used in (("b", 5 * DAY), ("a", 1 * DAY), ("c", 9 * DAY))
    ]
    old, young = stale(kept, keep_days=3, now=10 * DAY)
    assert [str(one.path) for one in old] == ["a", "b"]
    assert [str(one.path) for one in young] == ["c"]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    for n, name in enumerate(("attempts/p-1-1-1", "attempts/p-1-2-1", "sources/aa", "sources/bb")):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / "file").write_text("x")
        (folder / "file").chmod(0o444)
        folder.chmod(0o555)
        os.utime(folder, (n * DAY, n * DAY))
    return tmp_path


def names(paths: list[Path]) -> list[str]:
    return [path.name for path in paths]


def test_sweep_removes_what_is_old(work: Path) -> None:
    removed = sweep(work, keep_days=5, disk_max_percent=100, in_use=(), now=7.5 * DAY)
    assert names(removed) == ["p-1-1-1", "p-1-2-1", "aa"]
    assert [path.name for path in (work / "sources").iterdir()] == ["bb"]
    assert not list((work / "attempts").iterdir())


def test_sweep_spares_what_is_in_use(work: Path) -> None:
    in_use = {work / "attempts/p-1-1-1", work / "sources/aa"}
    removed = sweep(work, keep_days=0, disk_max_percent=0, in_use=in_use, now=100 * DAY)
    assert names(removed) == ["p-1-2-1", "bb"]
    assert all(path.exists() for path in in_use)


def test_sweep_makes_room_oldest_first(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (work / "sources" / ".new-xyz").mkdir()
    os.utime(work / "sources" / ".new-xyz", (0, 0))
    fill = iter([95.0, 95.0, 92.0, 89.0, 89.0])
    monkeypatch.setattr(workspace, "used_percent", lambda path: next(fill))
    removed = sweep(work, keep_days=50, disk_max_percent=90, in_use=(), now=7 * DAY)
    assert names(removed) == ["p-1-1-1", "p-1-2-1"]
    assert (work / "sources" / ".new-xyz").exists()


def test_sweep_clears_links_to_what_is_gone(work: Path) -> None:
    (work / "tmp").mkdir()
    (work / "tmp" / "abc").symlink_to(work / "attempts/p-1-1-1")
    (work / "tmp" / "def").symlink_to(work / "sources/bb")
    sweep(work, keep_days=5, disk_max_percent=100, in_use=(), now=7.5 * DAY)
    assert [path.name for path in (work / "tmp").iterdir()] == ["def"]


def test_space(tmp_path: Path) -> None:
    assert 0 < workspace.used_percent(tmp_path) < 100
    assert sweep(tmp_path / "nowhere", keep_days=1, disk_max_percent=100, in_use=(), now=0) == []
