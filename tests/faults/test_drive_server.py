"""The file server hangs, restarts, dies in the middle, or its answers get lost."""

import io
import logging
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ludwig.drive import Drive
from ludwig.drives import open_drive
from ludwig.errors import BadCredentials, DriveAway, DriveError, DriveTimeout, Exists
from tests.faults.lossy_proxy import LossyProxy
from tests.harness import SmbServer, wait_until

DEADLINE = 1.0
SOON = 10.0

OpenDrive = Callable[..., Drive]


@pytest.fixture
def open_on(smb_server: SmbServer) -> Iterator[OpenDrive]:
    with ExitStack() as stack:

        def make(
            url: str | None = None, *, timeout_s: float = 10.0, encrypt: bool = False
        ) -> Drive:
            drive = open_drive(
                url or smb_server.url,
                user=smb_server.user,
                password=smb_server.password,
                timeout_s=timeout_s,
                encrypt=encrypt,
            )
            stack.callback(drive.close)
            return drive

        yield make


def operations(drive: Drive, tree: Path) -> dict[str, Callable[[], object]]:
    return {
        "create": lambda: drive.create("created", b"x"),
        "publish": lambda: drive.publish("published", b"x"),
        "append": lambda: drive.append("log", b"x", at=0),
        "replace": lambda: drive.replace("chunk", b"x"),
        "read": lambda: drive.read("old"),
        "read long": lambda: drive.read("long"),
        "list": lambda: drive.list(""),
        "scan": lambda: drive.scan(""),
        "exists": lambda: drive.exists("old"),
        "mkdir": lambda: drive.mkdir("made"),
        "make_folders": lambda: drive.make_folders("a/b"),
        "move": lambda: drive.move("folder", "moved"),
        "remove": lambda: drive.remove("old"),
        "remove_folder": lambda: drive.remove_folder("full"),
        "usage": lambda: drive.usage(),
        "upload": lambda: drive.upload(tree, "data"),
        "upload, skip": lambda: drive.upload(tree, "data", skip_same=True),
        "download": lambda: drive.download("full", tree / "back"),
    }


NAMES = list(operations(None, Path()))  # type: ignore[arg-type]


@pytest.fixture
def tree(tmp_path: Path, smb_server: SmbServer) -> Path:
    folder = smb_server.folder
    (folder / "old").write_bytes(b"old")
    (folder / "long").write_bytes(b"long" * 1_000_000)
    (folder / "folder").mkdir()
    (folder / "full" / "below").mkdir(parents=True)
    (folder / "full" / "file").write_bytes(b"x")
    (folder / "full" / "below" / "file").write_bytes(b"x" * 200_000)
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "small").write_bytes(b"x")
    (tree / "long").write_bytes(b"x" * 2_000_000)
    return tree


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("connected", [True, False])
def test_a_server_that_hangs(
    smb_server: SmbServer, open_on: OpenDrive, tree: Path, name: str, connected: bool
) -> None:
    drive = open_on(timeout_s=DEADLINE)
    if connected:
        drive.exists("old")
    smb_server.suspend()
    start = time.monotonic()
    with pytest.raises(DriveTimeout):
        operations(drive, tree)[name]()
    assert time.monotonic() - start < 3 * DEADLINE
    smb_server.resume()
    drive.list("")


@pytest.mark.parametrize("name", NAMES)
def test_the_next_call_after_a_restart_works(
    smb_server: SmbServer, open_on: OpenDrive, tree: Path, name: str
) -> None:
    drive = open_on()
    drive.exists("old")
    smb_server.restart()
    operations(drive, tree)[name]()


def test_a_server_that_is_down(smb_server: SmbServer, open_on: OpenDrive, tree: Path) -> None:
    drive = open_on()
    drive.list("")
    smb_server.kill()
    for name, operation in operations(drive, tree).items():
        start = time.monotonic()
        with pytest.raises(DriveAway):
            operation()
            pytest.fail(f"{name} worked")
        assert time.monotonic() - start < 3
    smb_server.start()
    drive.list("")


def keep_trying(operation: Callable[[], None]) -> None:
    """As every caller does: after `DriveAway`, the same again."""
    end = time.monotonic() + 30
    while True:
        try:
            operation()
            return
        except DriveAway:
            assert time.monotonic() < end
            time.sleep(0.01)


@pytest.mark.parametrize("encrypt", [False, True])
def test_a_server_killed_in_the_middle_of_publishing(
    smb_server: SmbServer, open_on: OpenDrive, encrypt: bool
) -> None:
    """Nothing is half there, nothing is lost, and nobody is told that somebody else was first."""
    writer, reader = open_on(encrypt=encrypt), open_on(encrypt=encrypt)
    published: list[int] = []
    over = threading.Event()
    failures: list[BaseException] = []

    def content(number: int) -> bytes:
        return b"%d " % number * 30_000

    def publish() -> None:
        number = 0
        try:
            while not over.is_set():
                keep_trying(lambda n=number: writer.publish(f"{n}", content(n)))
                published.append(number)
                number += 1
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=publish)
    thread.start()
    for turn in range(6):
        enough = 15 * turn
        wait_until(lambda n=enough: failures or len(published) > n, what="publishing to go on")
        smb_server.restart()
        for name in reader.list(""):
            assert reader.read(name) == content(int(name))
    over.set()
    thread.join()
    assert not failures
    names = reader.list("")
    assert {str(number) for number in published} <= set(names)
    for name in names:
        assert reader.read(name) == content(int(name))


def test_a_server_killed_in_the_middle_of_creating(
    smb_server: SmbServer, open_on: OpenDrive
) -> None:
    """A file that is in the way may be our own, cut short: then it is empty, and says so."""
    drive = open_on()
    over = threading.Event()
    created: list[str] = []
    taken: list[str] = []
    failures: list[BaseException] = []

    def create() -> None:
        number = 0
        try:
            while not over.is_set():
                name, number = f"{number}", number + 1
                try:
                    keep_trying(lambda name=name: drive.create(name, b"nonce " + name.encode()))
                    created.append(name)
                except Exists:
                    taken.append(name)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=create)
    thread.start()
    for turn in range(6):
        enough = 40 * turn
        wait_until(lambda n=enough: failures or len(created) > n, what="creating to go on")
        smb_server.restart()
    over.set()
    thread.join()
    assert not failures
    for name in created:
        assert drive.read(name) == b"nonce " + name.encode()
    assert all(drive.read(name) == b"" for name in taken)


LOST = {
    "create": (1, lambda drive: drive.create("new", b"nonce")),
    "publish, writing": (1, lambda drive: drive.publish("new", b"nonce")),
    "publish, linking": (2, lambda drive: drive.publish("new", b"nonce")),
    "append": (1, lambda drive: drive.append("new", b"nonce", at=0)),
    "replace": (2, lambda drive: drive.replace("new", b"nonce")),
}


@pytest.mark.parametrize(("packet", "call"), LOST.values(), ids=LOST.keys())
@pytest.mark.parametrize("encrypt", [False, True])
def test_a_lost_answer_is_no_error(
    smb_server: SmbServer,
    open_on: OpenDrive,
    packet: int,
    call: Callable[[Drive], None],
    encrypt: bool,
) -> None:
    """It happened, but we were not told: we look, and find our own bytes."""
    with LossyProxy(smb_server.port) as proxy:
        drive = open_on(f"smb://127.0.0.1:{proxy.port}/{smb_server.share}", encrypt=encrypt)
        drive.list("")
        proxy.lose_answer(packet)
        call(drive)
        assert proxy.lost
        assert drive.read("new") == b"nonce"
        assert drive.list("") == ["new"]
        drive.close()


@pytest.mark.parametrize("operation", ["mkdir", "move"])
def test_a_lost_answer_without_bytes_is_told(
    smb_server: SmbServer, open_on: OpenDrive, operation: str
) -> None:
    (smb_server.folder / "source").mkdir()
    with LossyProxy(smb_server.port) as proxy:
        drive = open_on(f"smb://127.0.0.1:{proxy.port}/{smb_server.share}")
        drive.list("")
        proxy.lose_answer(1)
        with pytest.raises(DriveAway):
            drive.mkdir("new") if operation == "mkdir" else drive.move("source", "new")
        assert drive.exists("new")
        drive.close()


def test_a_forged_answer_is_not_believed(smb_server: SmbServer, open_on: OpenDrive) -> None:
    (smb_server.folder / "file").write_bytes(b"true")
    with LossyProxy(smb_server.port) as proxy:
        drive = open_on(f"smb://127.0.0.1:{proxy.port}/{smb_server.share}")
        assert drive.read("file") == b"true"
        proxy.replace = (b"true", b"fake")
        with pytest.raises(DriveAway, match="signature"):
            drive.read("file")
        proxy.replace = None
        assert drive.read("file") == b"true"
        drive.close()


def test_a_watch_outlives_a_restart(smb_server: SmbServer, open_on: OpenDrive) -> None:
    drive, other = open_on(), open_on()
    with drive.watch("") as watch:
        assert not watch.wait(0)
        smb_server.kill()
        assert not watch.wait(0.2)
        smb_server.start()
        assert watch.wait(SOON), "a change may have been missed"
        other.create("file", b"")
        assert watch.wait(SOON)


def test_a_watch_begun_while_the_server_is_down(smb_server: SmbServer, open_on: OpenDrive) -> None:
    drive = open_on()
    smb_server.kill()
    with drive.watch("") as watch:
        assert not watch.wait(0.1)
        smb_server.start()
        assert watch.wait(SOON)
        open_on().create("file", b"")
        assert watch.wait(SOON)


def test_a_watch_can_be_closed_while_the_server_hangs(
    smb_server: SmbServer, open_on: OpenDrive
) -> None:
    drive = open_on(timeout_s=DEADLINE)
    watch = drive.watch("")
    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.append(watch.wait(60)))
    thread.start()
    smb_server.suspend()
    watch.close()
    thread.join(SOON)
    assert results == [False]
    smb_server.resume()


def test_a_drive_survives_a_fork(smb_server: SmbServer, open_on: OpenDrive) -> None:
    drive = open_on()
    drive.create("parent", b"before")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for i in range(20):
                drive.create(f"child{i}", b"x")
            drive.close()
            status = 0
        finally:
            os._exit(status)
    for i in range(20):
        drive.create(f"parent{i}", b"x")
    assert os.waitpid(child, 0)[1] == 0
    assert len(drive.list("")) == 41


def test_two_drives_do_not_mix_credentials(smb_server: SmbServer, open_on: OpenDrive) -> None:
    drive = open_on()
    drive.list("")
    stranger = open_drive(smb_server.url, user=smb_server.user, password="wrong")
    with pytest.raises(BadCredentials):
        stranger.list("")
    drive.list("")


def everything_about(error: BaseException) -> str:
    """The traceback with all variables, but for those of the test itself."""
    assert error.__traceback__ is not None
    error.__traceback__ = error.__traceback__.tb_next
    report = traceback.TracebackException.from_exception(error, capture_locals=True)
    return "".join(report.format())


def test_the_password_shows_nowhere(smb_server: SmbServer) -> None:
    secret = "Tr0ub4dor&3-xyzzy"
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        for url in (smb_server.url, f"{smb_server.url}x", "smb://127.0.0.1:1/share"):
            drive = open_drive(url, user=smb_server.user, password=secret, timeout_s=2)
            try:
                drive.read("file")
            except DriveError as error:
                text.write(everything_about(error))
            text.write(repr(drive) + repr(vars(drive)) + drive.where)
        good = open_drive(smb_server.url, user=smb_server.user, password=smb_server.password)
        good.list("")
        try:
            good.read("missing")
        except DriveError as error:
            text.write(everything_about(error))
        good.close()
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    assert "BadCredentials" in text.getvalue()
    assert secret not in text.getvalue()
    assert smb_server.password not in text.getvalue()
