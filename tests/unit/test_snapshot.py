"""Packing source trees: what is in, under which name, and that it is the same bytes each time."""

import gzip
import io
import os
import shutil
import tarfile
import time
from pathlib import Path

import pytest

from ludwig.client import snapshot
from ludwig.client.snapshot import Source, pack
from ludwig.errors import UsageError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "trees"
    write(folder, {"run.py": "print(1)", "src/__init__.py": "", "src/net.py": "x = 1"})
    return folder


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def packed(root: Path, *sources: str, entry: str = "run.py", extra: tuple[str, ...] = ()) -> Source:
    return pack(
        [Path(name) for name in sources or ("src",)],
        root=root,
        entry=entry,
        extra_ps=[Path(name) for name in extra],
        out=root.parent / "out",
    )


def members(source: Source) -> list[tarfile.TarInfo]:
    with tarfile.open(source.archive) as tar:
        return tar.getmembers()


def test_a_folder_goes_under_its_name_and_the_entry_to_the_top(root: Path) -> None:
    source = packed(root)
    assert source.files == ["run.py", "src/__init__.py", "src/net.py"]
    assert (source.entry, source.package) == ("run.py", "src")
    assert source.bytes == len("print(1)x = 1")
    assert source.largest == []
    assert source.archive.name == f"{source.sha256}.tar.gz"
    assert source.entry_text == "print(1)"
    with tarfile.open(source.archive) as tar:
        content = tar.extractfile("src/net.py")
        assert content is not None and content.read() == b"x = 1"
        assert [info.name for info in tar.getmembers()] == source.files


def test_the_project_itself_is_the_top(root: Path) -> None:
    write(root, {"trees_runs/param_001/x.csv": "1"})
    source = packed(root, ".")
    assert source.files == ["run.py", "src/__init__.py", "src/net.py"]
    assert source.package == "trees"
    assert packed(root, str(root)).sha256 == source.sha256


def test_the_entry_in_a_source_folder(root: Path) -> None:
    (root / "run.py").rename(root / "src/run.py")
    assert packed(root).entry == "src/run.py"
    assert packed(root, entry="src/run.py").entry == "src/run.py"
    write(root, {"lib/a.py": "", "lib/deep/job.py": ""})
    assert packed(root, "src", "lib", entry="deep/job.py").entry == "lib/deep/job.py"


def test_an_entry_elsewhere_in_the_project_comes_along(root: Path) -> None:
    write(root, {"experiments/one.py": ""})
    source = packed(root, entry="experiments/one.py")
    assert source.entry == "experiments/one.py"
    assert "experiments/one.py" in source.files and "run.py" not in source.files


def test_no_entry_says_where_it_was_looked_for(root: Path) -> None:
    with pytest.raises(UsageError) as caught:
        packed(root, entry="main.py")
    for place in (root / "main.py", root / "src/main.py"):
        assert f"'{place}'" in str(caught.value)
    for entry in ("../run.py", "/run.py", "", "."):
        with pytest.raises(UsageError, match="inside the project"):
            packed(root, entry=entry)


def test_an_ignored_entry(root: Path) -> None:
    (root / "run.py").rename(root / "src/run.py")
    write(root / "src", {".ludwigignore": "run.py"})
    with pytest.raises(UsageError, match="leaves it out"):
        packed(root)


def test_single_files_and_folders_from_elsewhere(root: Path) -> None:
    write(root.parent, {"shared/common/__init__.py": ""})
    write(root, {"params.py": "p = 1"})
    source = packed(root, "params.py", "../shared/common", extra=("src",))
    assert source.files == ["common/__init__.py", "params.py", "run.py", *packed(root).files[1:]]
    assert source.package == "common"


def test_two_folders_of_one_name(root: Path) -> None:
    write(root, {"other/src/net.py": "y = 2"})
    with pytest.raises(UsageError, match=r"both be 'src/net\.py'"):
        packed(root, "src", "other/src")
    assert packed(root, "src", "src").sha256 == packed(root).sha256


def test_what_is_missing_or_empty(root: Path) -> None:
    with pytest.raises(UsageError, match="Source 'source' does not exist"):
        packed(root, "source")
    (root / "empty").mkdir()
    with pytest.raises(UsageError, match="holds no file"):
        packed(root, "empty")
    with pytest.raises(UsageError, match="src_ps is empty"):
        pack([], root=root, entry="run.py", out=root)


def test_same_tree_same_bytes(root: Path, tmp_path: Path) -> None:
    first = packed(root)
    copy = tmp_path / "elsewhere" / "trees"
    shutil.copytree(root, copy)
    for path in sorted(copy.rglob("*"), reverse=True):
        os.utime(path, (1, 1))
    (copy / "src/net.py").chmod(0o600)
    (copy / "src/__pycache__").mkdir()
    (copy / "src/__pycache__/net.cpython-311.pyc").write_bytes(b"x")
    second = packed(copy)
    assert first.sha256 == second.sha256
    assert first.archive.read_bytes() == second.archive.read_bytes()
    write(copy, {"src/net.py": "x = 2"})
    assert packed(copy).sha256 != first.sha256


def test_the_bytes_are_pinned(root: Path) -> None:
    """An archive made by an earlier version is not sent again by a later one."""
    source = packed(root)
    data = source.archive.read_bytes()
    assert data[:10] == b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
    assert gzip.decompress(data)
    for info in members(source):
        assert (info.mtime, info.uid, info.gid, info.uname, info.gname) == (0, 0, 0, "", "")
        assert info.isfile() and info.mode == 0o644 and not info.pax_headers


def test_executables_stay_executable(root: Path) -> None:
    (root / "run.py").chmod(0o700)
    assert [info.mode for info in members(packed(root))] == [0o755, 0o644, 0o644]


def test_long_and_foreign_names_survive(root: Path) -> None:
    names = [f"src/{'long' * 40}.txt", "src/größe.py", "src/deep/" + "x/" * 60 + "y.py"]
    write(root, dict.fromkeys(names, "1"))
    source = packed(root)
    assert set(names) <= set(source.files)
    unpacked = root.parent / "unpacked"
    with tarfile.open(source.archive) as tar:
        tar.extractall(unpacked, filter="data")
    assert all((unpacked / name).read_text() == "1" for name in names)


def test_a_name_as_macos_spells_it_is_the_same_name(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root, tmp_path / "mac" / "trees")
    write(root, {"src/gr\u00f6\u00dfe.py": ""})
    write(tmp_path / "mac" / "trees", {"src/gro\u0308\u00dfe.py": ""})
    assert packed(root).sha256 == packed(tmp_path / "mac" / "trees").sha256


def test_a_name_that_is_not_unicode(root: Path) -> None:
    try:
        Path(os.fsdecode(os.fsencode(root / "src") + b"/\xff.py")).write_text("")
    except OSError:
        pytest.skip("this file system has no such names")
    with pytest.raises(UsageError, match="not Unicode"):
        packed(root)


def test_what_is_never_sent(root: Path) -> None:
    write(
        root,
        {
            "src/.git/config": "",
            "src/sub/.git": "gitdir: elsewhere",
            "src/sub/a.py": "",
            "src/venv/pyvenv.cfg": "",
            "src/venv/bin/python": "",
            "src/conda/conda-meta/history": "",
            "src/__pycache__/a.pyc": "",
            "src/old.pyc": "",
            "src/.mypy_cache/x": "",
            "src/node_modules/x/y.js": "",
            "src/.ipynb_checkpoints/n.ipynb": "",
            "src/.DS_Store": "",
            "src/.ludwigignore": "!.git\n!__pycache__/\n",
        },
    )
    assert packed(root).files == [
        "run.py",
        "src/.ludwigignore",
        "src/__init__.py",
        "src/net.py",
        "src/sub/a.py",
    ]


def test_ignore_files_at_every_level(root: Path) -> None:
    write(
        root,
        {
            ".git/HEAD": "",
            ".gitignore": "*.log\n/src/secret.txt\ndata/\n# a comment\n\n",
            "src/a.log": "",
            "src/secret.txt": "",
            "src/sub/secret.txt": "",
            "src/data/big.bin": "",
            "src/sub/.gitignore": "!keep.log\n/only_here.txt\n",
            "src/sub/keep.log": "",
            "src/sub/b.log": "",
            "src/sub/only_here.txt": "",
            "src/sub/deep/only_here.txt": "",
            "src/.ludwigignore": "!a.log\nnet.py\n",
        },
    )
    assert packed(root).files == [
        "run.py",
        "src/.ludwigignore",
        "src/__init__.py",
        "src/a.log",
        "src/sub/.gitignore",
        "src/sub/deep/only_here.txt",
        "src/sub/keep.log",
        "src/sub/secret.txt",
    ]


def test_rules_of_a_repository_above_the_project(root: Path) -> None:
    write(root.parent, {".git/HEAD": "", ".gitignore": "net.py\n"})
    assert "src/net.py" not in packed(root).files


def test_rules_above_without_a_repository_do_not_count(root: Path) -> None:
    write(root.parent, {".gitignore": "net.py\n"})
    assert "src/net.py" in packed(root).files


def test_links_that_stay_inside_become_files(root: Path) -> None:
    write(root, {"common/tools.py": "t = 1"})
    (root / "src/tools.py").symlink_to("../common/tools.py")
    (root / "src/common").symlink_to(root / "common")
    source = packed(root)
    assert {"src/tools.py", "src/common/tools.py"} <= set(source.files)
    assert all(info.isfile() for info in members(source))


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("/etc/hostname", "outside of what is sent"),
        ("../../outside", "outside of what is sent"),
        ("nowhere", "leads nowhere"),
        ("link", "leads nowhere"),
        (".", "a folder that it is in"),
        ("..", "a folder that it is in"),
    ],
)
def test_links_that_cannot_be_sent(root: Path, target: str, says: str) -> None:
    (root.parent / "outside").mkdir()
    (root / "src/link").symlink_to(target)
    with pytest.raises(UsageError, match=says) as caught:
        packed(root)
    assert str(root / "src/link") in str(caught.value)
    write(root, {"src/.ludwigignore": "/link\n"})
    assert "src/link" not in packed(root).files


def test_pipes_and_sockets_are_passed_over(root: Path) -> None:
    os.mkfifo(root / "src/pipe")
    assert "src/pipe" not in packed(root).files


def test_a_large_tree_names_its_five_largest_files(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "LARGE", 1000)
    write(root, {f"src/{n}.bin": "x" * n * 100 for n in range(1, 8)})
    source = packed(root)
    assert source.largest == [(f"src/{n}.bin", n * 100) for n in (7, 6, 5, 4, 3)]


def test_nothing_is_left_when_packing_fails(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def changed(self: tarfile.TarFile, info: tarfile.TarInfo, content: io.BytesIO) -> None:
        raise OSError("unexpected end of data")

    monkeypatch.setattr(tarfile.TarFile, "addfile", changed)
    with pytest.raises(UsageError, match="changed meanwhile"):
        packed(root)
    assert list((root.parent / "out").iterdir()) == []


def test_five_megabytes_take_well_under_a_second(root: Path) -> None:
    line = "def function_{0}(argument):\n    return argument * {0}\n"
    text = "".join(line.format(number) for number in range(500))
    write(root, {f"src/module_{number}.py": text for number in range(200)})
    start = time.perf_counter()
    source = packed(root)
    assert source.bytes > 5_000_000
    assert time.perf_counter() - start < 3, "some slack for a busy machine"
