"""The bytes of the SMB2 requests a drive makes, and of their answers. Pure: no socket, no keys.

`smbprotocol` logs in; what follows is packed here, because a small file written through its
general structures costs about 0.8 ms of processor time and through these about 0.07 ms
(`benchmarks/drive.py`; a publish 2.2 ms and 0.17 ms). Field names and
numbers are those of [MS-SMB2] 2.2 and [MS-FSCC] 2.4.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

__all__ = [
    "LAST_FILE",
    "Answer",
    "Created",
    "Message",
    "NameInfo",
    "basic_times",
    "change_notify",
    "changed_names",
    "close",
    "create",
    "directory_entries",
    "directory_names",
    "echo",
    "filetime",
    "flush",
    "fs_attributes",
    "fs_size",
    "link",
    "mark_for_removal",
    "query_directory",
    "query_fs",
    "read",
    "rename",
    "write",
]

# Commands
CREATE, CLOSE, FLUSH, READ, WRITE, ECHO = 5, 6, 7, 8, 9, 13
QUERY_DIRECTORY, CHANGE_NOTIFY, QUERY_INFO, SET_INFO = 14, 15, 16, 17

# Access masks
READ_DATA, WRITE_DATA, READ_ATTRIBUTES, WRITE_ATTRIBUTES = 0x1, 0x2, 0x80, 0x100
DELETE, SYNCHRONIZE = 0x10000, 0x100000

# Dispositions
OPEN, CREATE_NEW, OPEN_IF, OVERWRITE_IF = 1, 2, 3, 5

# Options
IS_FOLDER, IS_FILE, DELETE_ON_CLOSE, OPEN_LINK_ITSELF = 0x1, 0x40, 0x1000, 0x200000

ATTRIBUTE_FOLDER, ATTRIBUTE_NORMAL, ATTRIBUTE_REPARSE = 0x10, 0x80, 0x400
SHARE_ALL = 7  # others may read, write and remove meanwhile
NAMES_CHANGED = 0x1 | 0x2  # files, folders

DIRECTORY_INFORMATION, NAMES_INFORMATION = 1, 12
BASIC, RENAME, LINK, DISPOSITION = 4, 10, 11, 13
FS_ATTRIBUTES, FS_FULL_SIZE = 5, 7

LAST_FILE = b"\xff" * 16
"""In a compound: the file that the CREATE before it opened."""

_EPOCH = 116444736000000000  # 1970 in units of 100 ns since 1601

_create = struct.Struct("<HBBIQQIIIIIHHII")
_close = struct.Struct("<HHI16s")
_read = struct.Struct("<HBBIQ16sIIIHHB")
_write = struct.Struct("<HHIQ16sIIHHI")
_set_info = struct.Struct("<HBBIHHI16s")
_query_directory = struct.Struct("<HBBI16sHHI")
_query_info = struct.Struct("<HBBIHHIII16sB")
_change_notify = struct.Struct("<HHI16sII")
_created = struct.Struct("<HBBIQQQQQQII16s")
_read_answer = struct.Struct("<HBBI")
_buffer_answer = struct.Struct("<HHI")
_write_answer = struct.Struct("<HHI")
_target = struct.Struct("<B7xQI")
_basic = struct.Struct("<QQQQII")
_names = struct.Struct("<III")
_entry = struct.Struct("<IIQQQQQQII")
_size = struct.Struct("<QQQII")


class Message(NamedTuple):
    """A request without its header. `payload` is the larger of what it sends and may receive."""

    command: int
    body: bytes
    payload: int = 1


class Created(NamedTuple):
    file: bytes
    size: int
    modified: float
    attributes: int

    @property
    def is_folder(self) -> bool:
        return bool(self.attributes & ATTRIBUTE_FOLDER)


class NameInfo(NamedTuple):
    name: str
    is_folder: bool
    is_link: bool
    size: int
    modified: float


class Answer(NamedTuple):
    """One reply. `packet` starts at its header, to which all offsets in it are relative."""

    status: int
    packet: bytes

    def created(self) -> Created:
        fields = _created.unpack_from(self.packet, 64)
        modified, size, attributes, file = fields[6], fields[9], fields[10], fields[12]
        return Created(file, size, (modified - _EPOCH) / 1e7, attributes)

    def data(self) -> bytes:
        """Of a READ."""
        _, offset, _, length = _read_answer.unpack_from(self.packet, 64)
        return self.packet[offset : offset + length]

    def buffer(self) -> bytes:
        """Of a QUERY_DIRECTORY, QUERY_INFO or CHANGE_NOTIFY."""
        _, offset, length = _buffer_answer.unpack_from(self.packet, 64)
        return self.packet[offset : offset + length]

    def written(self) -> int:
        count: int = _write_answer.unpack_from(self.packet, 64)[2]
        return count


def create(
    name: str, access: int, disposition: int, options: int, attributes: int = ATTRIBUTE_NORMAL
) -> Message:
    """Open or make a file or folder; `name` with backslashes, relative to the share."""
    encoded = name.encode("utf-16-le")
    fixed = _create.pack(
        57, 0, 0, 2, 0, 0, access | SYNCHRONIZE, attributes, SHARE_ALL, disposition, options,
        120, len(encoded), 0, 0,
    )  # fmt: skip
    return Message(CREATE, fixed + (encoded or b"\0\0"))


def close(file: bytes = LAST_FILE) -> Message:
    return Message(CLOSE, _close.pack(24, 0, 0, file))


def flush(file: bytes = LAST_FILE) -> Message:
    return Message(FLUSH, _close.pack(24, 0, 0, file))


def read(length: int, offset: int, file: bytes = LAST_FILE) -> Message:
    body = _read.pack(49, 0x50, 0, length, offset, file, 0, 0, 0, 0, 0, 0)
    return Message(READ, body, length)


def write(data: bytes | memoryview, offset: int, file: bytes = LAST_FILE) -> Message:
    size = len(data)
    fixed = _write.pack(49, 112, size, offset, file, 0, 0, 0, 0, 0)
    return Message(WRITE, b"".join((fixed, data)), size)


def _set(kind: int, buffer: bytes, file: bytes) -> Message:
    fixed = _set_info.pack(33, 1, kind, len(buffer), 96, 0, 0, file)
    return Message(SET_INFO, fixed + buffer, len(buffer))


def link(name: str, file: bytes = LAST_FILE) -> Message:
    """Give an open file a second name. Fails if that is taken."""
    encoded = name.encode("utf-16-le")
    return _set(LINK, _target.pack(0, 0, len(encoded)) + encoded, file)


def rename(name: str, *, replace: bool, file: bytes = LAST_FILE) -> Message:
    encoded = name.encode("utf-16-le")
    return _set(RENAME, _target.pack(replace, 0, len(encoded)) + encoded, file)


def mark_for_removal(file: bytes = LAST_FILE) -> Message:
    """The name by which the file was opened goes when it is closed."""
    return _set(DISPOSITION, b"\1", file)


def basic_times(modified: float, file: bytes = LAST_FILE) -> Message:
    return _set(BASIC, _basic.pack(0, 0, filetime(modified), 0, 0, 0), file)


def query_directory(kind: int, length: int, file: bytes = LAST_FILE) -> Message:
    body = _query_directory.pack(33, kind, 0, 0, file, 96, 2, length) + b"*\0"
    return Message(QUERY_DIRECTORY, body, length)


def query_fs(kind: int, file: bytes = LAST_FILE) -> Message:
    return Message(QUERY_INFO, _query_info.pack(41, 2, kind, 4096, 0, 0, 0, 0, 0, file, 0), 4096)


def change_notify(file: bytes) -> Message:
    return Message(CHANGE_NOTIFY, _change_notify.pack(32, 0, 65536, file, NAMES_CHANGED, 0))


def echo() -> Message:
    return Message(ECHO, b"\4\0\0\0")


def filetime(seconds: float) -> int:
    return max(1, int(seconds * 1e7) + _EPOCH)


def directory_names(buffer: bytes) -> list[str]:
    names = []
    at, unpack = 0, _names.unpack_from
    while len(buffer) >= at + 12:
        following, _, length = unpack(buffer, at)
        names.append(buffer[at + 12 : at + 12 + length].decode("utf-16-le", "surrogatepass"))
        if not following:
            break
        at += following
    return names


def directory_entries(buffer: bytes) -> Iterator[NameInfo]:
    at = 0
    while len(buffer) >= at + 64:
        following, _, _, _, written, _, size, _, attributes, length = _entry.unpack_from(buffer, at)
        yield NameInfo(
            buffer[at + 64 : at + 64 + length].decode("utf-16-le", "surrogatepass"),
            bool(attributes & ATTRIBUTE_FOLDER),
            bool(attributes & ATTRIBUTE_REPARSE),
            size,
            (written - _EPOCH) / 1e7,
        )
        if not following:
            break
        at += following


def changed_names(buffer: bytes) -> list[str]:
    """The names of a CHANGE_NOTIFY answer; empty when there were too many to tell."""
    return directory_names(buffer)  # the same layout, with the action where the index is


def fs_size(buffer: bytes) -> tuple[int, int]:
    """(total, free for this user) in bytes."""
    total, available, _, sectors, sector_size = _size.unpack_from(buffer)
    unit = sectors * sector_size
    return total * unit, available * unit


def fs_attributes(buffer: bytes) -> int:
    flags: int = struct.unpack_from("<I", buffer)[0]
    return flags
