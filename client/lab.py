"""A lab: its configuration and its drive, opened and known to be Ludwig's.

Everything a client does starts from a `Lab`. Opening one says plainly what is wrong when the drive
is not mounted, not reachable, or not one of Ludwig's. Nothing is written to it here.
"""

from __future__ import annotations

import getpass
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ludwig import errors
from ludwig.closing import Closing
from ludwig.config import LabConfig, NodeConfig, load_lab
from ludwig.drive import Drive
from ludwig.drives import check_format, open_drive

if TYPE_CHECKING:
    from ludwig.client.connections import Connections

__all__ = ["AskPassword", "Lab", "can_ask", "in_notebook", "open_lab", "this_user"]

AskPassword = Callable[[str], str]
"""Called with a question; gives the password, which is kept in memory only."""


@dataclass
class Lab(Closing):
    """Made by `open_lab`. A context manager: closing gives up connections (and local agents)."""

    config: LabConfig
    drive: Drive
    closing: list[Callable[[], None]] = field(default_factory=list)
    """Called by `close`, last first: what a local lab has started."""
    local: bool = False
    _connections: Connections | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def connections(self) -> Connections:
        """To the nodes, kept open for a while after each use."""
        if self._connections is None:
            from ludwig.client.connections import Connections

            self._connections = Connections()
        return self._connections

    @property
    def nodes(self) -> Mapping[str, NodeConfig]:
        return self.config.nodes

    @property
    def silent_s(self) -> float:
        return self.config.drive.node_silent_s

    def where(self, path: str) -> str:
        """How a person finds a file of the drive: a path of this machine if there is one."""
        mount = self.drive.mount
        return str(mount / path) if mount is not None else f"{self.drive.where}/{path}"

    def __getstate__(self) -> dict[str, object]:
        """A copy, or one in another process, makes connections of its own."""
        return {**self.__dict__, "_connections": None}

    def close(self) -> None:
        while self.closing:
            self.closing.pop()()
        if self._connections is not None:
            self._connections.close()
        self.drive.close()


def open_lab(
    config: LabConfig | None = None,
    *,
    ask_password: AskPassword | None = None,
    meanwhile: Callable[[Lab], None] | None = None,
) -> Lab:
    """The lab that the configuration found from here describes, or the one given.

    The password of an SMB drive comes from LUDWIG_SMB_PASSWORD, else from the keyring, else it is
    asked for: by `ask_password`, by default on the terminal or in the notebook. `meanwhile` is
    called before anything is asked of the drive: to begin what takes as long as its login.
    Raises `ConfigError`, or the `DriveError` that says what to do about the drive.
    """
    config = config or load_lab()
    lab = Lab(config, open_config_drive(config, ask_password=ask_password))
    try:
        if meanwhile is not None:
            meanwhile(lab)
        check_drive(lab)
    except BaseException:
        lab.close()
        raise
    return lab


def open_config_drive(config: LabConfig, *, ask_password: AskPassword | None = None) -> Drive:
    """The drive of a configuration. Connects to nothing and checks nothing yet."""
    if ask_password is None and can_ask():
        ask_password = getpass.getpass
    settings = config.drive
    return open_drive(
        settings.url,
        mount=settings.mount,
        user=settings.user or this_user(),
        ask=ask_password,
        encrypt=settings.encrypt,
    )


def check_drive(lab: Lab) -> None:
    """Whether the drive is there and Ludwig's; the error names the file that says where it is."""
    settings, place = lab.config.drive, _place(lab.config)
    if "://" not in settings.url:
        _check_mounted(Path(settings.url), place)
    try:
        check_format(lab.drive)
    except (errors.WrongVersion, errors.BadCredentials, errors.NoSuchShare):
        raise
    except errors.DriveAway as error:
        reason = f"{error.reason.rstrip('.')}. Is {lab.drive.where} right ({place}), and are you in"
        raise type(error)(error.doing, error.path, f"{reason} its network (VPN)?") from error
    except errors.NoPermission:
        raise
    except errors.DriveRefused as error:
        raise errors.DriveRefused(
            "opening",
            error.path,
            f"{lab.drive.where} is not a drive of Ludwig's ({place}). If it is the right folder of "
            "the right share, prepare it once with `ludwig init --drive`.",
        ) from error


def _check_mounted(folder: Path, place: str) -> None:
    try:
        if folder.is_dir() and any(folder.iterdir()):
            return
    except PermissionError as error:
        reason = f"you may not look into {folder}. Ask whoever runs the file server for access."
        raise errors.NoPermission("opening", str(folder), reason) from error
    except OSError as error:
        raise errors.DriveAway("opening", str(folder), error.strerror or str(error)) from error
    what, make = ("is empty", "") if folder.is_dir() else ("is not there", "make the folder and ")
    raise errors.DriveAway(
        "opening",
        str(folder),
        f"the folder {what}: the drive is not mounted ({place}). Mount it; or, if this is to "
        f"be a new drive, {make}prepare it with `ludwig init --drive`.",
    )


def _place(config: LabConfig) -> str:
    return f"url in {config.path}" if config.path else "LUDWIG_DRIVE_URL"


def this_user() -> str:
    """The login name: who "my jobs" belong to."""
    with suppress(Exception):  # no such user, or no variable that names one
        return getpass.getuser()
    return "unknown"


def in_notebook() -> bool:
    """Whether a browser shows our output: Jupyter and what is built on it."""
    if "IPython" not in sys.modules:
        return False
    shell = sys.modules["IPython"].get_ipython()
    return type(shell).__name__ not in ("NoneType", "TerminalInteractiveShell")


def can_ask() -> bool:
    """Whether there is a person to ask."""
    return in_notebook() or (sys.stdin is not None and sys.stdin.isatty())
