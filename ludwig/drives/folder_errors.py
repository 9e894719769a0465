"""What the errors of a file system mean for a drive that is a folder.

A mount whose server is away says so in many ways; whether trying again may help is decided here.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterator

from ludwig import errors

__all__ = ["translate"]

_AWAY = {
    errno.EAGAIN,
    errno.EIO,
    errno.ETIMEDOUT,
    errno.ESTALE,
    *(
        getattr(errno, name)
        for name in ("EHOSTDOWN", "EHOSTUNREACH", "ECONNABORTED", "ECONNRESET", "ENOTCONN")
        if hasattr(errno, name)
    ),
}


@contextlib.contextmanager
def translate(doing: str, path: str) -> Iterator[None]:
    """Turn an `OSError` into the error of ours that says what can be done about it."""
    try:
        yield
    except OSError as error:
        raise _as_drive_error(error, doing, path) from error


def _as_drive_error(error: OSError, doing: str, path: str) -> errors.DriveError:
    code = error.errno
    make: Callable[..., errors.DriveError] = errors.DriveRefused
    if isinstance(error, FileExistsError):
        return errors.Exists(doing, path)
    if isinstance(error, FileNotFoundError):
        return errors.NotFound(doing, path)
    if code in (errno.ENOTDIR, errno.EISDIR):
        return errors.WrongKind(doing, path)
    if code in (errno.EACCES, errno.EPERM):
        return errors.NoPermission(doing, path)
    if code in (errno.ENOSPC, getattr(errno, "EDQUOT", -1)):
        return errors.DriveFull(doing, path)
    if code == errno.EROFS:
        return errors.DriveReadOnly(doing, path)
    if code == errno.ELOOP:
        return errors.NoPermission(doing, path, "it is a link, and links are not followed")
    if code in _AWAY:
        make = errors.DriveAway
    return make(doing, path, error.strerror or str(error))
