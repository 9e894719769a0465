"""Keeps tests that share something expensive on one worker: `--dist loadgroup`, as it should be.

pytest-xdist 3.8 writes the group into a test's id, which pytest 9.2 no longer lets it do: the mark
`xdist_group` is silently ignored (pytest-dev/pytest-xdist#1386), every worker boots a lab of its
own. So the group is read from the test's file: one that names a group is run by one worker.
Remove this module when xdist does it again; `tests/unit/test_grouping.py` tells.
"""

import re
from functools import cached_property
from pathlib import Path

import pytest
from xdist.remote import Producer  # type: ignore[import-untyped]
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

_GROUP = re.compile(r"^(?:pytestmark\b.*|@pytest\.mark\.)xdist_group\(\"(\w+)\"\)", re.MULTILINE)


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Files with a group go to one worker as a whole; all other tests go anywhere."""

    @cached_property
    def _groups(self) -> dict[str, str]:
        return {}

    def _split_scope(self, nodeid: str) -> str:
        name = nodeid.partition("::")[0]
        if name not in self._groups:
            path = Path(self.config.rootpath, name)
            found = _GROUP.search(path.read_text()) if path.is_file() else None
            self._groups[name] = found[1] if found else ""
        return self._groups[name] or nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> GroupScheduling | None:
    return GroupScheduling(config, log) if config.getvalue("dist") == "loadgroup" else None
