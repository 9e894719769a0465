"""The documentation is true where that can be checked without running it."""

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.docs import PAGES, ROOT, anchors, blocks, links

NAMES = [str(page.relative_to(ROOT)) for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        if re.match(r"https?://", link):
            assert re.match(r"https://[\w.-]+\.\w+", link), link
            continue
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{link}: there is no {path}"
        assert path.is_relative_to(ROOT), link
        if anchor:
            assert anchor in anchors(path), f"{link}: no such heading; there are {anchors(path)}"


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_nothing_of_the_machine_it_was_written_on(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    # Host names of package registries, and folders that only the author has.
    words = ["pypi.org", "pythonhosted", "anaconda.org", str(ROOT), str(Path.home())]
    assert [word for word in words if word in text] == []


def test_every_page_can_be_found() -> None:
    """From the README, by links alone."""
    seen: set[Path] = set()
    todo = [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page in seen or page.suffix != ".md" or not page.exists():
            continue
        seen.add(page)
        for link in links(page):
            if not re.match(r"https?://", link):
                path = (page.parent / link.partition("#")[0]).resolve()
                todo.append(path / "README.md" if path.is_dir() else path)
    docs = {page for page in PAGES if page.is_relative_to(ROOT / "docs")}
    assert docs - seen == set()


def test_python_blocks_are_python() -> None:
    for page in PAGES:
        for block in blocks(page):
            if block.language == "python" and "reference" not in block.page.parts:
                compile(block.code, block.where, "exec")


def test_reference_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "make_reference.py"), "--check"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}run: docs/make_reference.py"


def test_reference_has_the_variables_of_a_task() -> None:
    runner = (ROOT / "worker" / "runner.py").read_text()
    made = runner[runner.index("def own_environment(") :].partition("\ndef ")[0]
    names = set(re.findall(r'"((?:LUDWIG|CUDA|TMP)[A-Z_]*)":', made)) | {"LUDWIG_STOP"}
    page = (ROOT / "docs" / "reference" / "environment.md").read_text()
    told = page.partition("## What a task finds")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)`", told, re.MULTILINE)) == names


def test_reference_has_the_variables_that_the_code_reads() -> None:
    read: set[str] = set()
    for folder in ("ludwig", "client", "worker"):
        for path in (ROOT / folder).rglob("*.py"):
            found = re.findall(r'environ(?:\.get\(|\[)"(LUDWIG_\w+)"', path.read_text())
            read |= set(found) if "project" not in path.parts else set()
    page = (ROOT / "docs" / "reference" / "environment.md").read_text()
    assert {name for name in read if f"`{name}`" not in page} == set()


def test_screenshot_is_a_picture_that_loads_nothing() -> None:
    text = (ROOT / "docs" / "pictures" / "demo.svg").read_text(encoding="utf-8")
    picture = ElementTree.fromstring(text)
    words = " ".join("".join(picture.itertext()).split())
    for expected in ("ludwig demo", "12/12", "hebb", "silent", "accuracy"):
        assert expected in words
    assert set(re.findall(r"https?://[^\"')]+", text)) == {"http://www.w3.org/2000/svg"}
    assert "/root" not in words and "/tmp" not in words
