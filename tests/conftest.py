"""Fixtures for real servers, and the markers `needs_…`; see `tests/harness.py`."""

import itertools
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import settings

from tests import jail_users, processes
from tests.harness import SftpServer, SmbServer, SmbShare, SshHome, require
from tests.sftp_server import JAILS
from tests.tools import SKIP_PREFIX

pytest.register_assert_rewrite("tests.property.queue_lab")
pytest_plugins = ["tests.deploy_lab", "tests.grouping", "tests.inboxes", "tests.nvml"]

# A busy machine is no failure.
settings.register_profile("ludwig", deadline=None)
settings.load_profile("ludwig")


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers():
        if marker.name.startswith("needs_"):
            require(marker.name.removeprefix("needs_"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reasons: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        if isinstance(report.longrepr, tuple):
            reasons[report.longrepr[2].removeprefix("Skipped: ")] += 1
    if not reasons:
        return
    terminalreporter.section("not run")
    for reason, count in sorted(reasons.items()):
        tests = "1 test" if count == 1 else f"{count} tests"
        verb = "needed" if reason.startswith(SKIP_PREFIX) else "skipped:"
        terminalreporter.line(f"{tests} {verb} {reason.removeprefix(SKIP_PREFIX)}")


def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        for parent in (Path(tempfile.gettempdir()), JAILS):
            processes.clear_forgotten(parent)


def pytest_sessionfinish() -> None:
    processes.end_all()
    jail_users.remove_all()


@pytest.fixture
def smb_server() -> Iterator[SmbServer]:
    """A server of the test's own: to stop, kill, suspend, restart."""
    require("smbd")
    with SmbServer() as server:
        yield server


@pytest.fixture
def make_smb_server() -> Iterator[Callable[..., SmbServer]]:
    """Servers with settings: `make_smb_server(share_settings={"read only": "yes"})`. Started."""
    require("smbd")
    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(SmbServer(**settings))


@pytest.fixture(scope="session")
def shared_smb_server() -> Iterator[SmbServer]:
    require("smbd")
    with SmbServer() as server:
        yield server


_numbers = itertools.count(1)


@pytest.fixture
def smb_share(shared_smb_server: SmbServer) -> SmbShare:
    """A fresh folder on a server that stays up for the whole run."""
    share = SmbShare(server=shared_smb_server, path=f"test{next(_numbers)}")
    share.folder.mkdir()
    return share


@pytest.fixture
def ssh_home(tmp_path: Path) -> SshHome:
    """A home folder with a key, and a config and known_hosts that `sftp_server` fills."""
    require("sftp")
    return SshHome(tmp_path / "ssh_home")


@pytest.fixture
def sftp_server(ssh_home: SshHome) -> Iterator[Callable[..., SftpServer]]:
    """Nodes to upload to: `sftp_server("hoff")` is started, and a Host of `ssh_home`."""
    require("sshd")
    with ExitStack() as stack:
        yield lambda name, *, accounts=1: stack.enter_context(
            SftpServer(name, ssh_home, accounts=accounts)
        )
