"""Each thing that can be wrong with a drive gives its own error, the same on every drive."""

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ludwig.drive import Drive
from ludwig.drives import open_drive
from ludwig.errors import (
    BadCredentials,
    DriveAway,
    DriveError,
    DriveFull,
    DriveReadOnly,
    DriveRefused,
    NoPermission,
    NoSuchShare,
    NotAtomic,
)
from tests.harness import SmbServer, SmbShare, reserve_port

MakeServer = Callable[..., SmbServer]


@contextlib.contextmanager
def mounted(folder: Path, *options: str) -> Iterator[Path]:
    """A small file system of our own."""
    folder.mkdir(exist_ok=True)
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", ",".join(("size=2m", *options)), "tmpfs", str(folder)],
        check=True,
    )
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture(params=["folder", "smb"])
def drive_at(
    request: pytest.FixtureRequest, make_smb_server: MakeServer
) -> Iterator[Callable[..., Drive]]:
    """A drive whose files are in a given folder."""
    with contextlib.ExitStack() as stack:

        def make(folder: Path, **share_settings: str) -> Drive:
            if request.param == "folder":
                return open_drive(str(folder))
            server = make_smb_server(folder=folder, share_settings=share_settings)
            drive = open_drive(server.url, user=server.user, password=server.password)
            stack.callback(drive.close)
            return drive

        yield make


WRITES: dict[str, Callable[[Drive], None]] = {
    "create": lambda drive: drive.create("new", b"x" * 100_000),
    "publish": lambda drive: drive.publish("new", b"x" * 100_000),
    "replace": lambda drive: drive.replace("new", b"x" * 100_000),
    "append": lambda drive: drive.append("log", b"x" * 3_000_000, at=0),
    "create big": lambda drive: drive.create("new", b"x" * 3_000_000),
    "publish big": lambda drive: drive.publish("new", b"x" * 3_000_000),
}


@pytest.mark.needs_root
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_a_full_drive(
    drive_at: Callable[..., Drive], tmp_path: Path, write: Callable[[Drive], None]
) -> None:
    with mounted(tmp_path / "small") as folder:
        drive = drive_at(folder)
        filler = folder / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        with pytest.raises(DriveFull) as caught:
            write(drive)
        assert caught.value.path in ("new", "log")
        # Nothing is left that would look like somebody's claim, and there is a way on.
        assert sorted(n for n in [p.name for p in folder.iterdir()] if n != "log") == ["filler"]
        filler.unlink()
        drive.create("new", b"x")
        drive.close()


@pytest.mark.needs_root
def test_a_full_drive_during_an_upload(drive_at: Callable[..., Drive], tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    for i in range(40):
        (tree / f"{i:02d}").write_bytes(b"x" * 60_000)
    (tree / "long").write_bytes(b"x" * 3_000_000)
    with mounted(tmp_path / "small") as folder:
        drive = drive_at(folder)
        for skip_same in (True, False):
            with pytest.raises(DriveFull):
                drive.upload(tree, "data", skip_same=skip_same)
            if skip_same:
                there = {path.name: path.stat().st_size for path in (folder / "data").iterdir()}
                assert set(there.values()) <= {60_000}
                assert not [name for name in there if name.startswith(".tmp-")]
        drive.close()


SMALL_WRITES: dict[str, Callable[[Drive], None]] = {
    "create": lambda drive: drive.create("new", b"x"),
    "publish": lambda drive: drive.publish("new", b"x"),
    "replace": lambda drive: drive.replace("new", b"x"),
    "append": lambda drive: drive.append("log", b"x", at=0),
    "mkdir": lambda drive: drive.mkdir("folder"),
    "make_folders": lambda drive: drive.make_folders("folder/below"),
    "remove": lambda drive: drive.remove("old"),
    "remove_folder": lambda drive: drive.remove_folder("old folder"),
    "move": lambda drive: drive.move("old folder", "new folder"),
}


def furnish(folder: Path) -> None:
    (folder / "old").write_bytes(b"old")
    (folder / "old folder").mkdir()
    (folder / "old folder" / "file").write_bytes(b"x")


@pytest.mark.needs_root
@pytest.mark.parametrize("write", SMALL_WRITES.values(), ids=SMALL_WRITES.keys())
def test_a_read_only_file_system(
    drive_at: Callable[..., Drive], tmp_path: Path, write: Callable[[Drive], None]
) -> None:
    with mounted(tmp_path / "small") as folder:
        furnish(folder)
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        drive = drive_at(folder)
        with pytest.raises(DriveReadOnly):
            write(drive)
        assert drive.read("old") == b"old"
        drive.close()


@pytest.mark.parametrize("write", SMALL_WRITES.values(), ids=SMALL_WRITES.keys())
def test_a_read_only_share(
    make_smb_server: MakeServer, tmp_path: Path, write: Callable[[Drive], None]
) -> None:
    furnish(tmp_path)
    server = make_smb_server(folder=tmp_path, share_settings={"read only": "yes"})
    drive = open_drive(server.url, user=server.user, password=server.password)
    with pytest.raises((DriveReadOnly, NoPermission)) as caught:
        write(drive)
    assert isinstance(caught.value, DriveRefused)
    assert drive.read("old") == b"old"
    drive.close()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that others can reach; those of pytest are for their owner alone."""
    with tempfile.TemporaryDirectory(prefix="ludwig-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@contextlib.contextmanager
def as_nobody(kind: str, folder: Path, make_smb_server: MakeServer) -> Iterator[Drive]:
    """A drive whose files belong to somebody else."""
    if kind == "folder":
        drive = open_drive(str(folder))
        os.seteuid(65534)
    else:
        server = make_smb_server(folder=folder, share_settings={"force user": "nobody"})
        drive = open_drive(server.url, user=server.user, password=server.password)
    try:
        yield drive
        drive.close()
    finally:
        os.seteuid(0)


@pytest.mark.needs_root
@pytest.mark.parametrize("write", SMALL_WRITES.values(), ids=SMALL_WRITES.keys())
@pytest.mark.parametrize("kind", ["folder", "smb"])
def test_no_permission(
    kind: str, make_smb_server: MakeServer, open_folder: Path, write: Callable[[Drive], None]
) -> None:
    furnish(open_folder)
    with as_nobody(kind, open_folder, make_smb_server) as drive:
        with pytest.raises(NoPermission):
            write(drive)
        assert drive.read("old") == b"old"


@pytest.mark.needs_root
@pytest.mark.parametrize("kind", ["folder", "smb"])
def test_no_permission_to_read(kind: str, make_smb_server: MakeServer, open_folder: Path) -> None:
    (open_folder / "secret").write_bytes(b"x")
    (open_folder / "secret").chmod(0o600)
    (open_folder / "closed").mkdir(mode=0o700)
    with as_nobody(kind, open_folder, make_smb_server) as drive:
        with pytest.raises(NoPermission):
            drive.read("secret")
        with pytest.raises(NoPermission):
            drive.list("closed")


def test_a_drive_that_is_not_mounted(tmp_path: Path) -> None:
    drive = open_drive(str(tmp_path / "media"))
    for call in (drive.usage, lambda: drive.make_folders("project")):
        with pytest.raises(DriveAway, match="mounted"):
            call()
    assert not (tmp_path / "media").exists()


def test_a_missing_share(smb_share: SmbShare) -> None:
    url = f"smb://127.0.0.1:{smb_share.port}/no_such_share"
    drive = open_drive(url, user=smb_share.user, password=smb_share.password)
    with pytest.raises(NoSuchShare):
        drive.list("")


def test_a_missing_folder_of_a_share(smb_share: SmbShare) -> None:
    drive = open_drive(
        f"{smb_share.url}/no such folder", user=smb_share.user, password=smb_share.password
    )
    with pytest.raises(NoSuchShare):
        drive.make_folders("project")
    assert not (smb_share.folder / "no such folder").exists()
    drive.close()


def test_a_wrong_password(smb_share: SmbShare) -> None:
    drive = open_drive(smb_share.url, user=smb_share.user, password="wr0ng-pa55word")
    with pytest.raises(BadCredentials) as caught:
        drive.create("file", b"")
    assert "wr0ng" not in str(caught.value) + repr(drive)
    assert caught.value.path == "file"


@pytest.mark.parametrize("user", ["nobody_knows_me", "", None])
def test_a_wrong_user(smb_share: SmbShare, user: str | None) -> None:
    drive = open_drive(smb_share.url, user=user, password=smb_share.password)
    with pytest.raises(BadCredentials):
        drive.list("")


def test_a_guest_is_not_let_in(make_smb_server: MakeServer) -> None:
    """A server that takes strangers as guests cannot sign for them."""
    server = make_smb_server(
        global_settings={"map to guest": "bad password"}, share_settings={"guest ok": "yes"}
    )
    drive = open_drive(server.url, user=server.user, password="wrong")
    with pytest.raises(BadCredentials):
        drive.list("")


def test_nobody_listens() -> None:
    drive = open_drive(f"smb://127.0.0.1:{reserve_port()}/share", user="ana", password="x")
    with pytest.raises(DriveAway) as caught:
        drive.list("")
    assert not isinstance(caught.value, DriveRefused)


def test_no_such_host() -> None:
    drive = open_drive("smb://no-such-host.invalid/share", user="ana", password="x", timeout_s=5)
    with pytest.raises(DriveAway):
        drive.list("")


def test_encryption_that_the_server_does_not_have(make_smb_server: MakeServer) -> None:
    server = make_smb_server(global_settings={"server smb encrypt": "off"})
    drive = open_drive(server.url, user=server.user, password=server.password, encrypt=True)
    with pytest.raises(DriveRefused, match="encryption"):
        drive.list("")


@pytest.mark.parametrize(
    "settings",
    [
        {"server smb encrypt": "required"},
        {"server max protocol": "SMB3_02"},
        {"server max protocol": "SMB3_00"},
        {"server max protocol": "SMB2_10"},
        {"server max protocol": "SMB2_02"},
        {"server smb3 signing algorithms": "aes-128-cmac"},
        {"server smb3 encryption algorithms": "aes-256-ccm", "server smb encrypt": "required"},
        {"server max protocol": "SMB3_00", "server smb encrypt": "required"},
    ],
    ids=str,
)
def test_servers_of_all_kinds(
    make_smb_server: MakeServer, tmp_path: Path, settings: dict[str, str]
) -> None:
    server = make_smb_server(global_settings={"server min protocol": "SMB2_02"} | settings)
    drive = open_drive(server.url, user=server.user, password=server.password)
    content = bytes(range(256)) * 10_000
    drive.publish("file", content)
    assert drive.read("file") == content
    for i in range(300):
        drive.create(f"small {i}", b"x")
    assert len(drive.list("")) == 301
    drive.download("", tmp_path / "back")
    assert (tmp_path / "back" / "file").read_bytes() == content
    drive.remove_folder("missing")
    drive.close()


def test_no_common_version(make_smb_server: MakeServer) -> None:
    server = make_smb_server(
        global_settings={"server max protocol": "NT1", "server min protocol": "NT1"}
    )
    drive = open_drive(server.url, user=server.user, password=server.password, timeout_s=3)
    with pytest.raises(DriveError) as caught:
        drive.publish("file", b"")
    assert isinstance(caught.value, DriveRefused | DriveAway)
    assert not isinstance(caught.value, NotAtomic)


def test_every_error_says_what_and_where(smb_share: SmbShare) -> None:
    drive = open_drive(smb_share.url, user=smb_share.user, password=smb_share.password)
    with pytest.raises(DriveError) as caught:
        drive.read("project/job.json")
    assert str(caught.value) == "reading 'project/job.json': It is not there."
    drive.close()
