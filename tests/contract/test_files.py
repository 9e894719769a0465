"""What `create`, `publish`, `append`, `replace`, `read` and `remove` promise, on every drive."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from ludwig.drive import Drive
from ludwig.errors import Exists, NameNotAllowed, NotFound, WrongKind

BIG = bytes(range(256)) * 4096 * 9 + b"the end"  # over 9 MB: more than one request, not aligned

WRITERS = ["create", "publish", "replace"]
CONTENTS = {
    "empty": b"",
    "one byte": b"x",
    "binary": bytes(range(256)),
    "64 KiB": b"k" * 65536,
    "64 KiB and 1": b"k" * 65537,
    "1 MiB": b"m" * (1 << 20),
    "big": BIG,
}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS.keys())
def test_what_is_written_is_read(drive: Drive, other: Drive, writer: str, content: bytes) -> None:
    getattr(drive, writer)("file", content)
    assert drive.read("file") == content
    assert other.read("file") == content


@pytest.mark.parametrize("writer", ["create", "publish"])
@pytest.mark.parametrize("content", [b"", b"mine", BIG], ids=["empty", "small", "big"])
def test_a_name_is_given_once(drive: Drive, other: Drive, writer: str, content: bytes) -> None:
    getattr(drive, writer)("file", content)
    with pytest.raises(Exists) as caught:
        getattr(other, writer)("file", b"theirs")
    assert caught.value.path == "file"
    assert drive.read("file") == content


@pytest.mark.parametrize("writer", ["create", "publish"])
@pytest.mark.parametrize("content", [b"nonce 1", BIG], ids=["small", "big"])
def test_repeating_a_call_is_no_error(drive: Drive, writer: str, content: bytes) -> None:
    """The answer to the first may have been lost: one's own bytes are not somebody else's."""
    getattr(drive, writer)("file", content)
    getattr(drive, writer)("file", content)
    assert drive.list("") == ["file"]


@pytest.mark.parametrize("writer", ["create", "publish"])
def test_a_longer_or_shorter_file_is_not_ones_own(drive: Drive, writer: str) -> None:
    drive.create("file", b"abc")
    for content in (b"ab", b"abcd", b"abd", b""):
        with pytest.raises(Exists):
            getattr(drive, writer)("file", content)


@pytest.mark.parametrize("writer", ["create", "publish"])
def test_a_folder_is_in_the_way(drive: Drive, writer: str) -> None:
    drive.mkdir("name")
    with pytest.raises(Exists):
        getattr(drive, writer)("name", b"x")


@pytest.mark.parametrize("writer", [*WRITERS, "append"])
def test_the_folder_must_be_there(drive: Drive, writer: str) -> None:
    extra = {"at": 0} if writer == "append" else {}
    with pytest.raises(NotFound):
        getattr(drive, writer)("missing/file", b"x", **extra)


def test_publishing_leaves_nothing_behind(drive: Drive, place_folder: Path) -> None:
    drive.publish("file", b"x")
    with pytest.raises(Exists):
        drive.publish("file", b"y")
    with pytest.raises(NotFound):
        drive.publish("missing/file", b"y")
    drive.replace("chunk", b"1")
    drive.replace("chunk", b"2")
    assert sorted(path.name for path in place_folder.iterdir()) == ["chunk", "file"]


def test_read_from_an_offset(drive: Drive) -> None:
    drive.create("file", b"0123456789")
    assert drive.read("file", offset=4) == b"456789"
    assert drive.read("file", offset=4, limit=3) == b"456"
    assert drive.read("file", limit=0) == b""
    assert drive.read("file", offset=10) == b""
    assert drive.read("file", offset=99) == b""
    assert drive.read("file", offset=8, limit=99) == b"89"


@pytest.mark.parametrize("offset", [0, 1, 65536, 1 << 20, 5_000_001])
@pytest.mark.parametrize("limit", [None, 1, 65536, 65537, (1 << 20) + 1, 3_000_000])
def test_read_parts_of_a_big_file(drive: Drive, offset: int, limit: int | None) -> None:
    drive.create("file", BIG)
    end = None if limit is None else offset + limit
    assert drive.read("file", offset=offset, limit=limit) == BIG[offset:end]


def test_read_what_is_not_there(drive: Drive) -> None:
    for path in ("missing", "missing/file"):
        with pytest.raises(NotFound) as caught:
            drive.read(path)
        assert caught.value.path == path


def test_read_a_folder(drive: Drive) -> None:
    drive.mkdir("folder")
    with pytest.raises(WrongKind):
        drive.read("folder")


def test_append_makes_and_extends(drive: Drive, other: Drive) -> None:
    drive.append("log", b"one\n", at=0)
    assert other.read("log") == b"one\n"
    drive.append("log", b"two\n", at=4)
    assert other.read("log", offset=4) == b"two\n"
    drive.append("log", b"", at=8)
    assert other.read("log") == b"one\ntwo\n"


def test_repeating_an_append_is_harmless(drive: Drive) -> None:
    drive.append("log", b"one\n", at=0)
    for _ in range(3):
        drive.append("log", b"two\n", at=4)
    assert drive.read("log") == b"one\ntwo\n"


def test_append_much(drive: Drive) -> None:
    drive.append("log", b"first", at=0)
    drive.append("log", BIG, at=5)
    assert drive.read("log") == b"first" + BIG


def test_replace(drive: Drive, other: Drive) -> None:
    drive.replace("chunk", b"a long first version")
    drive.replace("chunk", b"short")
    assert other.read("chunk") == b"short"


@pytest.mark.parametrize("size", [200, 200_000])
@pytest.mark.parametrize("limit", [None, 1 << 20])
def test_a_reader_of_what_is_replaced_sees_one_version(
    drive: Drive, other: Drive, size: int, limit: int | None
) -> None:
    versions = [bytes([65 + i]) * size for i in range(10)]
    drive.replace("chunk", versions[0])
    seen: set[bytes] = set()
    over = threading.Event()

    def read() -> None:
        while not over.is_set():
            with suppress(NotFound):  # as `replace` warns
                seen.add(other.read("chunk", limit=limit))

    with ThreadPoolExecutor() as pool:
        reader = pool.submit(read)
        try:
            for version in versions * (30 if size == 200 else 4):
                drive.replace("chunk", version)
        finally:
            over.set()
        reader.result()
    assert seen
    assert seen <= set(versions)


def test_remove(drive: Drive) -> None:
    drive.create("file", b"x")
    drive.remove("file")
    assert not drive.exists("file")
    drive.remove("file")
    drive.remove("missing/file")


def test_removing_a_folder_as_a_file_is_refused(drive: Drive) -> None:
    drive.mkdir("folder")
    with pytest.raises(WrongKind):
        drive.remove("folder")
    assert drive.exists("folder")


def test_a_removed_name_can_be_given_again(drive: Drive) -> None:
    for turn in range(5):
        drive.create("file", b"%d" % turn)
        drive.remove("file")


NAMES = [
    "with space",
    "ünïcödé",
    "日本語",
    "emoji 🙂",
    "quote's",
    "semi;colon&and $dollar `tick` (x) [y] {z} ~#%!@^+=,",
    "-dash",
    ".hidden",
    "dots.in.name",
    "n" * 200,
]


@pytest.mark.parametrize("name", NAMES)
def test_names(drive: Drive, other: Drive, name: str, tmp_path: Path) -> None:
    drive.mkdir(name)
    drive.publish(f"{name}/{name}", b"published")
    assert other.list("") == [name]
    assert other.list(name) == [name]
    assert other.read(f"{name}/{name}") == b"published"
    other.download(name, tmp_path / "local")
    assert (tmp_path / "local" / name).read_bytes() == b"published"
    drive.move(name, "moved")
    drive.remove(f"moved/{name}")
    assert drive.list("moved") == []


@pytest.mark.parametrize("path", ["..", "../x", "a/../b", "/etc", "a//b", "a/", ".", "a\\b", "a\0"])
def test_paths_that_would_leave_the_drive(drive: Drive, path: str, tmp_path: Path) -> None:
    (tmp_path / "local").mkdir()
    calls = [
        lambda: drive.read(path),
        lambda: drive.create(path, b"x"),
        lambda: drive.publish(path, b"x"),
        lambda: drive.append(path, b"x", at=0),
        lambda: drive.replace(path, b"x"),
        lambda: drive.list(path),
        lambda: drive.scan(path),
        lambda: drive.exists(path),
        lambda: drive.mkdir(path),
        lambda: drive.make_folders(path),
        lambda: drive.move(path, "x"),
        lambda: drive.move("x", path),
        lambda: drive.remove(path),
        lambda: drive.remove_folder(path),
        lambda: drive.watch(path),
        lambda: drive.upload(tmp_path / "local", path),
        lambda: drive.download(path, tmp_path / "target"),
        lambda: drive.download("", tmp_path / "target", files=[path]),
        lambda: drive.upload(tmp_path / "local", "", files=[path]),
    ]
    for number, call in enumerate(calls):
        with pytest.raises(NameNotAllowed):
            call()
            pytest.fail(f"call {number} was allowed")


def test_many_threads(drive: Drive) -> None:
    """Each thread's answers are its own."""
    failures: list[BaseException] = []

    def work(thread: int) -> None:
        try:
            for i in range(40):
                content = b"%d-%d" % (thread, i)
                drive.publish(f"{thread}-{i}", content)
                assert drive.read(f"{thread}-{i}") == content
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(drive.list("")) == 12 * 40


def test_close_and_go_on(drive: Drive) -> None:
    drive.create("file", b"x")
    drive.close()
    drive.close()
    assert drive.read("file") == b"x"
