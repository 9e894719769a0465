"""How a drive is named, opened, logged in to and known to be Ludwig's."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from ludwig.drive import Drive
from ludwig.drives import check_format, open_drive, write_format
from ludwig.drives.credentials import VARIABLE, Credentials, keyring_service
from ludwig.drives.folder import FolderDrive
from ludwig.errors import BadCredentials, ConfigError, DriveRefused, Malformed, WrongVersion
from tests.harness import SmbShare


def test_a_path_is_a_folder(tmp_path: Path) -> None:
    drive = open_drive(str(tmp_path))
    assert isinstance(drive, FolderDrive)
    assert drive.where == str(tmp_path)
    assert drive.mount == tmp_path


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("smb://fileserver/research_data", "smb://fileserver/research_data"),
        ("smb://fileserver:445/research_data/", "smb://fileserver/research_data"),
        ("SMB://fileserver:1445/share/a/b", "smb://fileserver:1445/share/a/b"),
        ("smb://fileserver/my%20share/a b", "smb://fileserver/my share/a b"),
        ("smb://[::1]:1445/share", "smb://[::1]:1445/share"),
        ("smb://ana@fileserver/share", "smb://fileserver/share"),
    ],
)
def test_smb_urls(url: str, where: str) -> None:
    drive = open_drive(url)
    assert drive.where == where
    assert drive.mount is None


def test_where_an_smb_drive_is_mounted(tmp_path: Path) -> None:
    assert open_drive("smb://host/share", mount=tmp_path).mount == tmp_path
    assert open_drive("smb://host/share", mount=tmp_path / "missing").mount is None


@pytest.mark.parametrize(
    "url",
    [
        "",
        " ",
        "http://host/share",
        "nfs://host/share",
        "smb://",
        "smb://host",
        "smb://host/",
        "smb:///share",
        "smb://host:port/share",
        "smb://host:99999/share",
        "smb://host/share/../other",
        "smb://host/share?x=1",
        "smb://host/share#x",
        "smb://host/..",
    ],
)
def test_what_is_not_a_drive(url: str) -> None:
    with pytest.raises(ConfigError, match=r"smb://host\[:port\]/share"):
        open_drive(url)


def test_a_password_in_a_url_is_refused_and_not_repeated() -> None:
    for url in ("smb://ana:hunter2@host/share", "smb://ana:hun@ter2@host/share"):
        with pytest.raises(ConfigError) as caught:
            open_drive(url)
        assert "hun" not in str(caught.value)


def test_opening_a_folder_loads_no_smb() -> None:
    code = (
        "import sys; from ludwig.drives import open_drive; open_drive('/tmp'); "
        "sys.exit(any(name.startswith(('smbprotocol', 'cryptography')) for name in sys.modules))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_format(drive: Drive) -> None:
    with pytest.raises(DriveRefused, match="Is the drive mounted"):
        check_format(drive)
    write_format(drive)
    write_format(drive)
    check_format(drive)
    assert drive.read(".ludwig/format.json") == b'{"version": 1}\n'


@pytest.mark.parametrize("version", [0, 2, "1", None, True, 1.5])
def test_another_version(drive: Drive, version: object) -> None:
    text = str(version).lower() if isinstance(version, bool) else None
    text = text or ("null" if version is None else repr(version).replace("'", '"'))
    drive.mkdir(".ludwig")
    drive.create(".ludwig/format.json", f'{{"version": {text}}}'.encode())
    with pytest.raises(WrongVersion):
        check_format(drive)
    with pytest.raises(WrongVersion):
        write_format(drive)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"{}", b"\xff", b"[" * 4000, b"1"])
def test_a_format_that_is_not_one(drive: Drive, text: bytes) -> None:
    drive.mkdir(".ludwig")
    drive.create(".ludwig/format.json", text)
    with pytest.raises(Malformed):
        check_format(drive)


@pytest.fixture
def no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")


@pytest.mark.usefixtures("no_password")
class TestPassword:
    def test_from_the_environment(
        self, smb_share: SmbShare, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(VARIABLE, smb_share.password)
        drive = open_drive(smb_share.url, user=smb_share.user)
        assert drive.list("") == []
        drive.close()

    def test_from_the_keyring(self, smb_share: SmbShare, monkeypatch: pytest.MonkeyPatch) -> None:
        import keyring
        import keyring.backend

        class Memory(keyring.backend.KeyringBackend):
            priority = 1  # type: ignore[assignment]

            def get_password(self, service: str, username: str) -> str | None:
                known = (keyring_service("127.0.0.1"), smb_share.user)
                return smb_share.password if (service, username) == known else None

            def set_password(self, service: str, username: str, password: str) -> None:
                raise AssertionError("the password must not be written down")

        before = keyring.get_keyring()
        keyring.set_keyring(Memory())
        try:
            drive = open_drive(smb_share.url, user=smb_share.user)
            assert drive.list("") == []
            drive.close()
        finally:
            keyring.set_keyring(before)

    def test_asked_for_once(self, smb_share: SmbShare) -> None:
        questions: list[str] = []

        def ask(question: str) -> str:
            questions.append(question)
            return smb_share.password

        drive = open_drive(smb_share.url, user=smb_share.user, ask=ask)
        drive.list("")
        drive.close()
        drive.list("")
        drive.close()
        assert questions == [f"Password of {smb_share.user} on 127.0.0.1: "]

    def test_asked_for_again_after_a_mistake(self, smb_share: SmbShare) -> None:
        answers = iter(["mistaken", smb_share.password])
        drive = open_drive(smb_share.url, user=smb_share.user, ask=lambda _: next(answers))
        with pytest.raises(BadCredentials):
            drive.list("")
        assert drive.list("") == []
        drive.close()

    def test_none_at_all(self, smb_share: SmbShare) -> None:
        drive = open_drive(smb_share.url, user=smb_share.user)
        with pytest.raises(BadCredentials, match=VARIABLE):
            drive.list("")

    def test_it_is_not_written_down(self) -> None:
        credentials = Credentials("host", "ana", password="hunter2")
        assert "hunter2" not in repr(credentials)
        with pytest.raises(TypeError):
            pickle.dumps(credentials)
