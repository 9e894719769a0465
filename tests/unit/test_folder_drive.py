"""What the folder drive makes of the errors of a kernel mount, without one (see `tests/cifs`)."""

import errno
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from ludwig import errors
from ludwig.drives import folder, trees
from ludwig.drives.folder import FolderDrive


@pytest.fixture
def drive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FolderDrive:
    """A drive that takes its folder for a mount."""
    monkeypatch.setattr(folder, "_is_network", lambda path: True)
    return FolderDrive(tmp_path)


class Failing:
    """A system call that fails for a while."""

    def __init__(self, call: Any, code: int, *, times: int) -> None:
        self._call, self._code, self.left = call, code, times

    def __call__(self, *given: Any, **more: Any) -> Any:
        if self.left > 0:
            self.left -= 1
            raise OSError(self._code, os.strerror(self._code))
        return self._call(*given, **more)


def test_a_name_just_linked_is_waited_for(
    drive: FolderDrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    drive.publish("file", b"x")
    monkeypatch.setattr(os, "open", Failing(os.open, errno.EINVAL, times=3))
    assert drive.read("file") == b"x"


def test_a_number_given_again_is_waited_for(
    drive: FolderDrive, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A kernel that has a removed file open takes a new one of the same number for it."""
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "file").write_bytes(b"x")
    calls = [
        lambda: drive.append("log", b"x", at=0),
        lambda: drive.upload(tmp_path / "tree", "data"),
        lambda: drive.download("data", tmp_path / "back"),
    ]
    for call in calls:
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", Failing(os.open, errno.EINVAL, times=3))
            call()
    assert (tmp_path / "back" / "file").read_bytes() == b"x"


def test_a_name_that_cannot_be_opened_for_long(
    drive: FolderDrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    drive.publish("file", b"x")
    monkeypatch.setattr(trees, "STILL_OPEN_S", (0.0,) * 3)
    monkeypatch.setattr(os, "open", Failing(os.open, errno.EINVAL, times=4))
    with pytest.raises(errors.DriveAway, match="under another name"):
        drive.read("file")
    assert drive.read("file") == b"x"


@pytest.mark.parametrize("code", [errno.ENOTEMPTY, errno.ENOENT])
def test_a_folder_whose_files_are_open_elsewhere(
    drive: FolderDrive, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    drive.make_folders("folder/below")
    monkeypatch.setattr(folder.shutil, "rmtree", Failing(folder.shutil.rmtree, code, times=4))
    drive.remove_folder("folder")
    assert drive.list("") == []


@pytest.mark.parametrize("code", [errno.ENOTEMPTY, errno.ENOENT])
def test_a_folder_whose_files_stay_open(
    drive: FolderDrive, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    drive.make_folders("folder/below")
    monkeypatch.setattr(folder, "STILL_OPEN_S", (0.0,) * 3)
    monkeypatch.setattr(folder.shutil, "rmtree", Failing(folder.shutil.rmtree, code, times=99))
    with pytest.raises(errors.DriveAway, match="open"):
        drive.remove_folder("folder")


@pytest.mark.parametrize(
    "error",
    [
        errors.Exists("creating", "a/b"),
        errors.DriveAway("reading", "a/b", "the server is gone"),
        errors.Malformed("a/b", "it is empty"),
    ],
)
def test_errors_cross_to_another_process(error: errors.LudwigError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert copy.__dict__ == error.__dict__
