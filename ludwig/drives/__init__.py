"""The drives there are, and how one is opened and known to be Ludwig's."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ludwig import errors
from ludwig.drive import Drive
from ludwig.drives.credentials import Ask, Credentials
from ludwig.drives.folder import FolderDrive
from ludwig.layout import FORMAT
from ludwig.model import VERSION

__all__ = ["check_format", "open_drive", "write_format"]

TIMEOUT_S = 15.0

_ALLOWED = (
    "a drive's url is smb://host[:port]/share[/folder], or the path of a folder "
    "(for example /media/research_data)"
)


def open_drive(
    url: str,
    *,
    mount: Path | None = None,
    user: str | None = None,
    password: str | None = None,
    ask: Ask | None = None,
    encrypt: bool = False,
    timeout_s: float = TIMEOUT_S,
) -> Drive:
    """The drive at a path or `smb://…`. Connects to nothing yet.

    `password` is for those who have it; else it is looked for (see `credentials.py`), at last by
    calling `ask`. `mount` is where an SMB share is mounted as well: used for `Drive.mount` if it
    is a folder.
    """
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):(?=//)", url)
    if scheme is None:
        if not url.strip() or "\0" in url:
            raise errors.ConfigError(f"the drive's url is empty: {_ALLOWED}.")
        return FolderDrive(Path(url).expanduser())
    if scheme.group(1).lower() != "smb":
        raise errors.ConfigError(f"{scheme.group(1)}:// is not a kind of drive: {_ALLOWED}.")
    host, port, share, folder, url_user = _split(url)
    # Imported here: a folder drive needs none of it.
    from ludwig.drives.smb import SmbDrive

    return SmbDrive(
        host,
        share,
        credentials=Credentials(host, user or url_user, password=password, ask=ask),
        port=port,
        folder=folder,
        encrypt=encrypt,
        timeout_s=timeout_s,
        mount=mount if mount is not None and mount.is_dir() else None,
    )


def _split(url: str) -> tuple[str, int, str, str, str | None]:
    """(host, port, share, folder, user) of an smb:// url."""
    if re.match(r"(?i)smb://[^/@]*:[^/]*@", url):
        raise errors.ConfigError(
            "a password does not belong in the drive's url: set LUDWIG_SMB_PASSWORD, "
            "or keep it in the keyring."
        )
    if "?" in url or "#" in url:
        raise errors.ConfigError(f"{url!r} holds '?' or '#': {_ALLOWED}.")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or 445
    except ValueError as error:
        raise errors.ConfigError(f"{url!r}: {error}: {_ALLOWED}.") from None
    share, _, folder = unquote(parts.path).strip("/").partition("/")
    if not host or not share:
        raise errors.ConfigError(f"{url!r} names no {'share' if host else 'host'}: {_ALLOWED}.")
    named = [share, *folder.split("/")] if folder else [share]
    if any(part in ("", ".", "..") or "\\" in part for part in named):
        raise errors.ConfigError(f"{url!r} is not a folder of a share: {_ALLOWED}.")
    return host, port, share, folder, unquote(parts.username) if parts.username else None


def write_format(drive: Drive) -> None:
    """Make a folder a drive of Ludwig's. No error if it is one."""
    drive.make_folders(FORMAT.rpartition("/")[0])
    try:
        drive.publish(FORMAT, json.dumps({"version": VERSION}).encode() + b"\n")
    except errors.Exists:
        check_format(drive)


def check_format(drive: Drive) -> None:
    """Before anything else: is this a drive of Ludwig's, in a format that we understand?"""
    try:
        text = drive.read(FORMAT, limit=4096)
    except (errors.NotFound, errors.WrongKind):
        raise errors.DriveRefused(
            "opening",
            FORMAT,
            f"{drive.where} is not a drive of Ludwig's. Is the drive mounted? "
            "A new drive is prepared with `ludwig init`.",
        ) from None
    try:
        version = json.loads(text)["version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise errors.Malformed(FORMAT, "it does not say the version of the drive") from None
    if version != VERSION or isinstance(version, bool):
        raise errors.WrongVersion(
            "opening",
            FORMAT,
            f"the drive has format {version!r}, and this Ludwig understands {VERSION}. "
            "Use the version of Ludwig that the rest of the lab uses.",
        )
