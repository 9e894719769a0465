"""Data for the drive: what is refused before anything is sent, and what is sent."""

import os
from pathlib import Path

import pytest

from ludwig.client.data import DataPlan, check_data, upload_data
from ludwig.drives.folder import FolderDrive
from ludwig.errors import UsageError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def drive(tmp_path: Path) -> FolderDrive:
    (tmp_path / "drive").mkdir()
    return FolderDrive(tmp_path / "drive")


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)


def on_drive(tmp_path: Path) -> list[str]:
    folder = tmp_path / "drive"
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def test_folders_and_files_go_under_their_names(
    home: Path, drive: FolderDrive, tmp_path: Path
) -> None:
    write(home, "corpora/a.txt", "corpora/deep/.hidden", "corpora/.DS_Store", "deep/er/tasks.csv")
    told: list[tuple[int, int]] = []
    plan = upload_data(
        drive,
        "trees",
        [Path("corpora"), Path("deep/er/tasks.csv")],
        lambda done, total: told.append((done, total)),
    )
    assert on_drive(tmp_path) == [
        "trees/corpora/a.txt",
        "trees/corpora/deep/.hidden",
        "trees/tasks.csv",
    ]
    assert plan.files == 3
    assert told[-1] == (plan.bytes, plan.bytes)
    assert plan.bytes == sum(len(n) for n in ("corpora/a.txt", "corpora/deep/.hidden")) + len(
        "deep/er/tasks.csv"
    )


def test_what_is_there_is_left_alone(home: Path, drive: FolderDrive, tmp_path: Path) -> None:
    write(home, "corpora/a.txt", "corpora/b.txt")
    upload_data(drive, "trees", [Path("corpora")])
    target = tmp_path / "drive/trees/corpora/a.txt"
    before = target.stat().st_ino
    (home / "corpora/b.txt").write_text("changed")
    told: list[int] = []
    plan = upload_data(drive, "trees", [home / "corpora"], lambda done, total: told.append(done))
    assert target.stat().st_ino == before
    assert (tmp_path / "drive/trees/corpora/b.txt").read_text() == "changed"
    assert told[-1] == plan.bytes, "what is there already counts as done"


def test_a_link_to_a_folder_and_paths_with_dots(
    home: Path, drive: FolderDrive, tmp_path: Path
) -> None:
    write(tmp_path, "big/disk/x.txt", "other/y.txt")
    (home / "corpora").symlink_to(tmp_path / "big/disk")
    upload_data(drive, "trees", [Path("corpora"), Path("../other")])
    assert on_drive(tmp_path) == ["trees/corpora/x.txt", "trees/other/y.txt"]


def test_an_empty_folder_and_nothing_at_all(home: Path, drive: FolderDrive, tmp_path: Path) -> None:
    (home / "empty").mkdir()
    assert upload_data(drive, "trees", [Path("empty")]).files == 0
    assert (tmp_path / "drive/trees/empty").is_dir()
    assert check_data("trees", []) == DataPlan()


@pytest.mark.parametrize(
    ("files", "given", "says"),
    [
        ([], ["corpora"], "Data 'corpora' does not exist"),
        (["runs/x"], ["runs"], "cannot be called 'runs'"),
        (["Runs/x"], ["Runs"], "cannot be called 'Runs'"),
        ([".ludwig/x"], [".ludwig"], "cannot be called '.ludwig'"),
        (["hoff_param2val_chunk.pkl"], ["hoff_param2val_chunk.pkl"], "cannot be called"),
        (["d/a:b.txt"], ["d"], "d/a:b.txt' cannot be stored on the drive: .*Windows"),
        (["d/nul.txt"], ["d"], "device on Windows"),
        (["d/trailing."], ["d"], "ends with a dot"),
        (["d/A.txt", "d/a.txt"], ["d"], "capital from small letters"),
        (["d/X/1", "d/x/2"], ["d"], "capital from small letters"),
        (["one/data/a", "two/data/b"], ["one/data", "two/data"], "one and the same"),
        (["one/data/a", "two/Data/b"], ["one/data", "two/Data"], "one and the same"),
    ],
)
def test_what_cannot_be_sent(
    home: Path,
    drive: FolderDrive,
    tmp_path: Path,
    files: list[str],
    given: list[str],
    says: str,
) -> None:
    write(home, "good/1", *files)
    with pytest.raises(UsageError, match=says):
        upload_data(drive, "trees", [Path("good"), *map(Path, given)])
    assert on_drive(tmp_path) == [], "nothing is sent before all is checked"


def test_links_and_pipes_inside(home: Path) -> None:
    write(home, "d/a.txt")
    (home / "d/link").symlink_to("a.txt")
    with pytest.raises(UsageError, match=r"d/link' is a link"):
        check_data("trees", [Path("d")])
    (home / "d/link").unlink()
    os.mkfifo(home / "d/pipe")
    with pytest.raises(UsageError, match="neither a folder nor a file"):
        check_data("trees", [Path("d")])


def test_paths_from_elsewhere(home: Path, tmp_path: Path) -> None:
    write(tmp_path / "project", "corpora/a.txt")
    plan = check_data("trees", [Path("corpora")], root=tmp_path / "project")
    assert (plan.files, plan.bytes) == (1, len("corpora/a.txt"))
