"""Tests that run inside the virtual machine, where `tests/cifs/test_mount.py` starts them."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ludwig.drives.folder import FolderDrive
from tests.contract.conftest import CIFS

if not CIFS:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture
def here() -> Path:
    """A fresh folder of the share, through the first mount."""
    return Path(tempfile.mkdtemp(prefix="kernel-", dir=CIFS[0]))


@pytest.fixture
def there(here: Path) -> Path:
    """The same folder, as another machine sees it."""
    return Path(CIFS[1], here.name)


@pytest.fixture
def drive(here: Path) -> Iterator[FolderDrive]:
    yield FolderDrive(here)


@pytest.fixture
def other(there: Path) -> Iterator[FolderDrive]:
    yield FolderDrive(there)
