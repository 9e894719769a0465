"""One suite for every drive: a `place` is a fresh, empty drive and the folder behind it.

In the virtual machine of `tests/cifs` the drive is a folder of a kernel CIFS mount, and "another
machine" is a second mount of the same share, with a cache of its own.
"""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ludwig.drive import Drive
from ludwig.drives import open_drive

CIFS = os.environ.get("LUDWIG_TEST_CIFS", "").split()
"""Three mounts of one share; the last one is for looking behind the back of the others."""

KINDS = ["cifs"] if CIFS else ["folder", "smb", "smb-encrypted"]


@dataclass
class Place:
    """`folder` is what the drive's files are in, on this machine, for looking behind its back."""

    folder: Path
    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    encrypt: bool = False
    other_url: str | None = None
    """How another machine names it, if not the same way."""

    def open(self, *, timeout_s: float = 15.0) -> Drive:
        """Another view of the same drive, as another program has it."""
        return open_drive(**self.views()[0], timeout_s=timeout_s)

    def open_elsewhere(self) -> Drive:
        """The same drive, as another machine sees it."""
        return open_drive(**self.views()[-1])

    def views(self) -> list[dict[str, Any]]:
        """The arguments of `open_drive` for each machine there is."""
        login = {"user": self.user, "password": self.password, "encrypt": self.encrypt}
        return [{"url": url, **login} for url in (self.url, self.other_url) if url]

    @property
    def is_smb(self) -> bool:
        return self.url.startswith("smb:")


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "folder":
        folder = tmp_path / "drive"
        folder.mkdir()
        return Place(folder, str(folder))
    if request.param == "cifs":
        here = Path(tempfile.mkdtemp(prefix="test-", dir=CIFS[0]))
        there = Path(CIFS[1], here.name)
        return Place(Path(CIFS[2], here.name), str(here), other_url=str(there))
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
    drive = place.open_elsewhere()
    yield drive
    drive.close()


@pytest.fixture
def place_folder(place: Place) -> Path:
    return place.folder
