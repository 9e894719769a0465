"""The drive's copy of a log: its beginning at once, its end at the end, in whatever steps."""

import os
from pathlib import Path

import pytest

from ludwig.worker import logtail
from ludwig.worker.logtail import LogTail


class Copy:
    """What a drive's `append` makes of the parts."""

    def __init__(self) -> None:
        self.data = b""

    def take(self, tail: LogTail, *, final: bool = False) -> None:
        while part := tail.next_bytes():
            self.put(part.data, part.at)
            tail.sent_to(part)
        if final and (part := tail.final_bytes()):
            self.put(part.data, part.at)
            tail.sent_to(part)

    def put(self, data: bytes, at: int) -> None:
        assert at <= len(self.data)
        self.data = self.data[:at] + data


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log"


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_short_log_arrives_whole_and_in_steps(path: Path) -> None:
    tail, copy = LogTail(path, 1000, 1000), Copy()
    copy.take(tail)
    assert copy.data == b""
    for n in range(10):
        append(path, b"line %d\n" % n)
        copy.take(tail)
        assert copy.data == path.read_bytes()
    copy.take(tail, final=True)
    assert copy.data == path.read_bytes()
    assert tail.final_bytes() is None


def test_long_log_keeps_beginning_and_end(path: Path) -> None:
    lines = [b"line %05d\n" % n for n in range(1000)]
    append(path, b"".join(lines))
    tail, copy = LogTail(path, 1100, 550), Copy()
    copy.take(tail)
    assert copy.data == b"".join(lines)[:1100]
    copy.take(tail, final=True)
    head, note, end = copy.data.partition("\n… ludwig left out 9,361 bytes here …\n".encode())
    assert note
    assert head == b"".join(lines)[:1100]
    assert end == b"".join(lines[-49:])
    assert len(head) + 9361 + len(end) == path.stat().st_size
    assert tail.final_bytes() is None


def test_nothing_is_left_out_of_what_fits(path: Path) -> None:
    append(path, b"x" * 1500)
    tail, copy = LogTail(path, 1000, 600), Copy()
    copy.take(tail, final=True)
    assert copy.data == b"x" * 1500


@pytest.mark.parametrize("size", [500, 1000, 1500, 50_000])
@pytest.mark.parametrize("restart", ["before", "between", "after"])
def test_restart(path: Path, size: int, restart: str) -> None:
    append(path, (b"0123456789abcde\n" * (size // 16 + 1))[:size])
    whole, copy, expected = LogTail(path, 1000, 600), Copy(), Copy()
    expected.take(LogTail(path, 1000, 600), final=True)
    if restart != "before":
        copy.take(whole, final=restart == "after")
    again = LogTail(path, 1000, 600, sent=whole.sent)
    copy.take(again, final=True)
    copy.take(again, final=True)
    assert copy.data == expected.data


def test_part_is_repeated_until_it_was_sent(path: Path) -> None:
    append(path, b"one\n")
    tail = LogTail(path, 1000, 1000)
    first = tail.next_bytes()
    append(path, b"two\n")
    second = tail.next_bytes()
    assert first is not None
    assert second is not None
    assert second.at == first.at == 0
    assert second.data.startswith(first.data)


def test_nul_bytes_mean_something_else_on_the_drive(path: Path) -> None:
    append(path, b"a\0b\n")
    part = LogTail(path, 1000, 1000).next_bytes()
    assert part is not None
    assert part.data == b"a b\n"


def test_links_and_pipes_are_not_read(path: Path) -> None:
    secret = path.with_name("secret")
    secret.write_text("root only")
    path.symlink_to(secret)
    assert LogTail(path, 10, 10).next_bytes() is None
    assert LogTail(path, 10, 10).final_bytes() is None
    path.unlink()
    os.mkfifo(path)
    assert LogTail(path, 10, 10).next_bytes() is None


def test_disk_space_of_the_middle_is_given_back(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logtail, "PUNCH_EVERY", 1 << 20)
    tail, copy = LogTail(path, 64 << 10, 64 << 10), Copy()
    line = b"x" * 1023 + b"\n"
    for _ in range(16):
        append(path, line * 1024)
        copy.take(tail)
    used = path.stat().st_blocks * 512
    if used == path.stat().st_size:
        pytest.skip("this file system cannot punch holes")
    assert path.stat().st_size == 16 << 20
    assert used < 4 << 20
    copy.take(tail, final=True)
    assert copy.data.startswith(line * 64)
    assert copy.data.endswith(line * 63)
    assert b"\0" not in copy.data
