"""Every block of code in the documentation that can run is run, in order, against a lab."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ludwig.client.embedded import EmbeddedLab
from tests.docs import PAGES, ROOT, Block, blocks

BIN = Path(sys.executable).parent
SHELLS = ("sh", "console")

pytestmark = pytest.mark.xdist_group("docs")


def runs(block: Block) -> bool:
    """What `deploy/` says is for other machines; the reference shows, it does not tell."""
    elsewhere = {"reference", "deploy"} & set(block.page.relative_to(ROOT).parts)
    return not block.skipped and not elsewhere and block.language in ("python", *SHELLS)


RUNNABLE = [page for page in PAGES if any(runs(block) for block in blocks(page))]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedLab]:
    lab = EmbeddedLab(tmp_path_factory.mktemp("lab"), ["hoff", "hebb"], slots=2)
    lab.start()
    yield lab
    lab.close()


def test_there_is_something_to_run() -> None:
    names = {str(page.relative_to(ROOT)) for page in RUNNABLE}
    assert {"README.md", "docs/tutorial.md", "docs/how-to/write-run-py.md"} <= names


@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_run(
    page: Path, lab: EmbeddedLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "__init__.py").touch()
    (folder / "run.py").write_text("def main(param2val):\n    print('hello')\n")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("LUDWIG_CONFIG", str(lab.folder / "ludwig.toml"))
    monkeypatch.setenv("LUDWIG_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path / "matplotlib"))
    monkeypatch.setenv("PATH", f"{BIN}{os.pathsep}{os.environ['PATH']}")
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.file is not None:
            path = folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.code)
        elif not runs(block):
            continue
        elif block.language == "python":
            exec(compile(block.code, block.where, "exec"), names)
        else:
            shell(block)
    if "client" in names:
        names["client"].close()  # type: ignore[attr-defined]


def shell(block: Block) -> None:
    done = subprocess.run(
        ["sh", "-e", "-c", block.code],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=90,
    )
    told = f"{block.where}\n{done.stdout}\n{done.stderr}"
    assert done.returncode == block.exits, told
    assert "Traceback" not in done.stderr or block.exits, told
