"""What the NTSTATUS of an answer means to Ludwig."""

from __future__ import annotations

from ludwig import errors

__all__ = ["StatusError", "as_drive_error"]

SUCCESS = 0x00000000
NOTIFY_ENUM_DIR = 0x0000010C
NO_MORE_FILES = 0x80000006
NO_SUCH_FILE = 0xC000000F
END_OF_FILE = 0xC0000011
NO_MEMORY = 0xC0000017
ACCESS_DENIED = 0xC0000022
NAME_INVALID = 0xC0000033
NAME_NOT_FOUND = 0xC0000034
NAME_COLLISION = 0xC0000035
PATH_INVALID = 0xC0000039
PATH_NOT_FOUND = 0xC000003A
PATH_SYNTAX_BAD = 0xC000003B
SHARING_VIOLATION = 0xC0000043
FILE_LOCK_CONFLICT = 0xC0000054
DELETE_PENDING = 0xC0000056
ACCOUNT_RESTRICTION = 0xC000006E
DISK_FULL = 0xC000007F
INSUFFICIENT_RESOURCES = 0xC000009A
WRITE_PROTECTED = 0xC00000A2
FILE_IS_A_DIRECTORY = 0xC00000BA
NOT_SUPPORTED = 0xC00000BB
NETWORK_NAME_DELETED = 0xC00000C9
BAD_NETWORK_NAME = 0xC00000CC
DIRECTORY_NOT_EMPTY = 0xC0000101
NOT_A_DIRECTORY = 0xC0000103
CANNOT_DELETE = 0xC0000121
USER_SESSION_DELETED = 0xC0000203
INSUFF_SERVER_RESOURCES = 0xC0000205
SESSION_EXPIRED = 0xC000035C

_CREDENTIALS = {
    0xC0000064,  # no such user
    0xC000006A,  # wrong password
    0xC000006D,  # logon failure
    ACCOUNT_RESTRICTION,
    0xC000006F,  # outside the hours allowed
    0xC0000070,  # not from this workstation
    0xC0000071,  # password expired
    0xC0000072,  # account disabled
    0xC000015B,  # logon type not granted
    0xC0000193,  # account expired
    0xC0000224,  # password must change
    0xC0000234,  # account locked out
}

GONE = {NAME_NOT_FOUND, PATH_NOT_FOUND, NO_SUCH_FILE, DELETE_PENDING}
"""It is not there, or is just going."""

BUSY = {
    SHARING_VIOLATION,
    FILE_LOCK_CONFLICT,
    DELETE_PENDING,
    NO_MEMORY,  # also what smbd says to a login while it is still starting
    INSUFFICIENT_RESOURCES,
    INSUFF_SERVER_RESOURCES,
}
"""Somebody else has it in hand, or the server is short of something: again in a moment."""

SESSION_OVER = {NETWORK_NAME_DELETED, USER_SESSION_DELETED, SESSION_EXPIRED}
"""The server forgot us: connect again."""

_KINDS: dict[int, type[errors.DriveError]] = {
    NAME_COLLISION: errors.Exists,
    NAME_NOT_FOUND: errors.NotFound,
    PATH_NOT_FOUND: errors.NotFound,
    NO_SUCH_FILE: errors.NotFound,
    ACCESS_DENIED: errors.NoPermission,
    CANNOT_DELETE: errors.NoPermission,
    DISK_FULL: errors.DriveFull,
    0xC0000044: errors.DriveFull,  # quota exceeded
    0xC0000802: errors.DriveFull,  # quota exceeded, as newer servers say it
    WRITE_PROTECTED: errors.DriveReadOnly,
    BAD_NETWORK_NAME: errors.NoSuchShare,
    NOT_A_DIRECTORY: errors.WrongKind,
    FILE_IS_A_DIRECTORY: errors.WrongKind,
    **dict.fromkeys(_CREDENTIALS, errors.BadCredentials),
    **dict.fromkeys(BUSY, errors.DriveAway),
    **dict.fromkeys(SESSION_OVER, errors.DriveAway),
}

_REASONS = {
    SHARING_VIOLATION: "somebody else has it open and does not share it",
    DELETE_PENDING: "it is being removed and somebody still has it open",
    NAME_INVALID: "the file server cannot store this name",
    PATH_INVALID: "the file server cannot store this name",
    PATH_SYNTAX_BAD: "the file server cannot store this name",
    DIRECTORY_NOT_EMPTY: "the folder is not empty",
}


class StatusError(Exception):
    """The server answered, with something else than success."""

    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(f"NTSTATUS 0x{status:08x}")


def as_drive_error(status: int, doing: str, path: str) -> errors.DriveError:
    kind = _KINDS.get(status)
    if kind is not None:
        return kind(doing, path, _REASONS.get(status))
    reason = _REASONS.get(status, f"the file server answered 0x{status:08x}")
    return errors.DriveRefused(doing, path, reason)
