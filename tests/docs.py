"""The documentation as tests see it: pages, links, and blocks of code with what is said of them.

An HTML comment right above a block says what a test does with it; a reader does not see it.

    <!-- file: src/model.py -->    written to this file, not executed
    <!-- not run: why -->          left alone
    <!-- exits: 1 -->              a shell block that ends with this status
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("examples/**/*.md"),
        *ROOT.glob("deploy/**/*.md"),
        *ROOT.glob("ludwig/*.md"),
    ]
)

_BLOCK = re.compile(
    r"(?:^<!-- (?P<note>[^\n]*?) -->\n)?^```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    page: Path
    line: int
    language: str
    code: str
    note: str

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def file(self) -> str | None:
        return self._said("file")

    @property
    def skipped(self) -> bool:
        return self._said("not run") is not None

    @property
    def exits(self) -> int:
        return int(self._said("exits") or 0)

    def _said(self, key: str) -> str | None:
        name, _, value = self.note.partition(": ")
        return value if name == key else None


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            page=page,
            line=text.count("\n", 0, match.start("code")),
            language=match["language"],
            code=match["code"],
            note=match["note"] or "",
        )
        for match in _BLOCK.finditer(text)
    ]


def links(page: Path) -> Iterator[str]:
    """The targets of links and pictures, outside of code."""
    text = _BLOCK.sub("", page.read_text(encoding="utf-8"))
    text = re.sub(r"`[^`\n]*`", "", text)
    yield from re.findall(r"\]\(([^)\s]+)\)", text)


def anchors(page: Path) -> set[str]:
    """The headings of a page, as a forge makes anchors of them."""
    text = _BLOCK.sub("", page.read_text(encoding="utf-8"))
    found = set()
    for title in re.findall(r"^#{1,6} (.+)$", text, re.MULTILINE):
        words = re.sub(r"[^\w\- ]", "", title.lower())
        found.add(words.strip().replace(" ", "-"))
    return found
