"""The client over a real SMB server: opening the lab, looking, waiting, and an outage."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ludwig import errors
from ludwig.client.job import Job
from ludwig.client.lab import Lab, open_lab
from ludwig.client.lookout import Lookout
from ludwig.client.moments import Moment
from ludwig.config import DriveConfig, LabConfig
from ludwig.drives import open_drive, write_format
from tests.fakelab import Bells, FakeLab
from tests.harness import SmbServer, SmbShare, wait_until

pytestmark = pytest.mark.needs_smbd


def config_of(url: str, user: str | None) -> LabConfig:
    return LabConfig(drive=DriveConfig(url=url, user=user))


@pytest.fixture
def behind(smb_share: SmbShare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeLab:
    """The same drive seen by the nodes, which mount it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("LUDWIG_SMB_PASSWORD", smb_share.password)
    lab = FakeLab(tmp_path)
    lab.root.rename(smb_share.folder / "lab")
    lab.root = smb_share.folder / "lab"
    lab.drive = type(lab.drive)(lab.root)
    return lab


@pytest.fixture
def lab(behind: FakeLab, smb_share: SmbShare) -> Iterator[Lab]:
    with open_lab(config_of(f"{smb_share.url}/lab", smb_share.user)) as lab:
        yield lab


def test_looking_and_the_servers_clock(behind: FakeLab, lab: Lab) -> None:
    behind.beat("hoff")
    behind.beat("hebb", age=100)
    job = behind.submit(3)
    behind.accept(job)
    behind.end(job, 1)
    lookout = Lookout(lab)
    assert {node.host: node.state for node in lookout.nodes()} == {"hoff": "idle", "hebb": "silent"}
    assert lookout.job("trees", job.job).counts["done"] == 1
    assert [one.total for one in Lookout(lab).jobs("trees")] == [3]
    assert lab.where("x") == f"{lab.drive.where}/x"


def test_wait_is_woken_by_the_server(
    behind: FakeLab, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = behind.submit(1)
    bells = Bells(lab.drive, monkeypatch)
    moments = Job(lab, "trees", job.job).moments(poll_s=30.0)
    assert next(moments).status is not None

    def end() -> None:
        assert bells.armed.wait(20)
        behind.end(job, 1)

    threading.Thread(target=end, daemon=True).start()
    last = list(moments)[-1]
    assert last.status is not None and last.status.ok
    assert bells.rang[-1], "it looked because its time had come, not because it was woken"


def test_cancel_and_logs(behind: FakeLab, lab: Lab) -> None:
    record = behind.submit(2)
    behind.log(record, 1, "größer\n".encode())
    job = Job(lab, "trees", record.job)
    assert job.logs(1) == "größer\n"
    job.cancel()
    assert job.wait(timeout=10).counts["stopped"] == 2


def test_the_server_goes_away_and_comes_back(
    smb_server: SmbServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LUDWIG_SMB_PASSWORD", smb_server.password)
    behind = FakeLab(tmp_path)
    behind.root.rename(smb_server.folder / "lab")
    behind.root = smb_server.folder / "lab"
    behind.drive = type(behind.drive)(behind.root)
    record = behind.submit(2)
    settings = DriveConfig(url=f"{smb_server.url}/lab", user=smb_server.user)
    drive = open_drive(settings.url, user=settings.user, timeout_s=2.0)
    job = Job(Lab(LabConfig(drive=settings), drive), "trees", record.job)
    seen: list[Moment] = []

    def watch() -> None:
        for moment in job.moments(poll_s=0.2):
            seen.append(moment)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    wait_until(lambda: seen, what="a first look")
    smb_server.kill()
    wait_until(lambda: seen[-1].away, timeout=30, what="the server to be missed")
    behind.end(record, 1)
    smb_server.start()
    behind.end(record, 2)
    thread.join(timeout=60)
    assert not thread.is_alive()
    assert seen[-1].status is not None and seen[-1].status.ok
    drive.close()


@pytest.mark.parametrize(
    ("url", "password", "kind", "words"),
    [
        (lambda share: share.url, "wrong", errors.BadCredentials, "does not accept"),
        (lambda share: share.url, None, errors.DriveRefused, "`ludwig init --drive`"),
        (
            lambda share: share.url.replace(share.share, "nonsense"),
            None,
            errors.NoSuchShare,
            "no such share",
        ),
        (lambda share: "smb://127.0.0.1:9/x", None, errors.DriveAway, r"right .*\(VPN\)\?"),
    ],
)
def test_a_drive_that_cannot_be_opened(
    smb_share: SmbShare,
    monkeypatch: pytest.MonkeyPatch,
    url: Callable[[SmbShare], str],
    password: str | None,
    kind: type[errors.DriveError],
    words: str,
) -> None:
    monkeypatch.setenv("LUDWIG_SMB_PASSWORD", password or smb_share.password)
    with pytest.raises(kind, match=words):
        open_lab(config_of(url(smb_share), smb_share.user))


def test_the_password_is_asked_for(smb_share: SmbShare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LUDWIG_SMB_PASSWORD", raising=False)
    drive = open_drive(smb_share.url, user=smb_share.user, password=smb_share.password)
    write_format(drive)
    drive.close()
    asked: list[str] = []

    def ask(question: str) -> str:
        asked.append(question)
        return smb_share.password

    open_lab(config_of(smb_share.url, smb_share.user), ask_password=ask).close()
    assert len(asked) == 1 and smb_share.user in asked[0]


def test_the_command_over_smb(behind: FakeLab, smb_share: SmbShare) -> None:
    behind.beat("hoff")
    behind.submit(2)
    behind.toml.write_text(f'[drive]\nurl = "{smb_share.url}/lab"\nuser = "{smb_share.user}"\n')
    command = [str(Path(sys.executable).parent / "ludwig"), "status"]
    environment = {**behind.environment, "LUDWIG_SMB_PASSWORD": smb_share.password}
    started = time.monotonic()
    done = subprocess.run(
        command, cwd=behind.home, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert "2 queued" in done.stdout
    assert time.monotonic() - started < 15
