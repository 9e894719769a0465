"""One suite for every drive: a `place` is a fresh, empty drive and the folder behind it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ludwig.drive import Drive
from ludwig.drives import open_drive

KINDS = ["folder", "smb", "smb-encrypted"]


@dataclass
class Place:
    """`folder` is what the drive's files are in, on this machine, for looking behind its back."""

    folder: Path
    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    encrypt: bool = False

    def open(self, *, timeout_s: float = 15.0) -> Drive:
        """Another view of the same drive, as another program has it."""
        return open_drive(
            self.url,
            user=self.user,
            password=self.password,
            encrypt=self.encrypt,
            timeout_s=timeout_s,
        )

    @property
    def is_smb(self) -> bool:
        return self.url.startswith("smb:")


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "folder":
        folder = tmp_path / "drive"
        folder.mkdir()
        return Place(folder, str(folder))
    share = request.getfixturevalue("smb_share")
    encrypt = request.param == "smb-encrypted"
    return Place(share.folder, share.url, share.user, share.password, encrypt)


@pytest.fixture
def drive(place: Place) -> Iterator[Drive]:
    drive = place.open()
    yield drive
    drive.close()


@pytest.fixture
def other(place: Place) -> Iterator[Drive]:
    """The same drive, seen from another machine."""
    drive = place.open()
    yield drive
    drive.close()


@pytest.fixture
def place_folder(place: Place) -> Path:
    return place.folder
