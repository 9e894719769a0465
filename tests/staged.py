"""Builds `.staged/`: the packages laid out as they are when installed.

`client/` and `worker/` become `ludwig.client` and `ludwig.worker` only when installed. Tools that
read source files see a third of the code here and call it a success, so they are run over there.
"""

import fcntl
import os
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STAGED = ROOT / ".staged"

# Folder of the repository -> folder of the staged tree. The first match wins.
PLACES = {
    "client/ludwigcluster": "ludwigcluster",
    "client": "ludwig/client",
    "worker": "ludwig/worker",
    "ludwig": "ludwig",
}


def source_files() -> list[Path]:
    """Every Python file of the three folders, relative to the repository."""
    found = (path for folder in ("ludwig", "client", "worker") for path in walk(ROOT / folder))
    return sorted(path.relative_to(ROOT) for path in found)


def walk(folder: Path) -> list[Path]:
    """Without the project that the demo submits: that is data, written as users write code."""
    skipped = ROOT / "client" / "demo" / "project"
    return [
        path
        for path in folder.rglob("*.py")
        if "__pycache__" not in path.parts and not path.is_relative_to(skipped)
    ]


def staged_path(source: Path) -> Path:
    """Where a file of the repository goes, relative to the staged tree."""
    for folder, place in PLACES.items():
        if source.is_relative_to(folder):
            return Path(place) / source.relative_to(folder)
    raise ValueError(f"{source} is in none of {', '.join(PLACES)}")


def build() -> dict[Path, Path]:
    """Make the tree anew, of links; gives the source file of each staged one.

    It is this process's until it ends: others that want to build it wait.
    """
    # Never closed, so that the lock holds as long as the process.
    fcntl.flock(os.open(ROOT, os.O_RDONLY), fcntl.LOCK_EX)
    shutil.rmtree(STAGED, ignore_errors=True)
    placed = {staged_path(source): source for source in source_files()}
    for target, source in placed.items():
        link = STAGED / target
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(ROOT / source)
    return placed
