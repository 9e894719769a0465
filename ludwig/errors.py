"""Every error Ludwig raises on purpose.

    LudwigError
    ├── UsageError                    what the caller gave is wrong
    │   ├── ConfigError               a configuration file: names file and key
    │   ├── NameNotAllowed            a project, host or file name
    │   └── ParameterError            a param2val that cannot be sent
    ├── DriveError                    carries `doing` and `path`
    │   ├── Exists                    somebody else was first
    │   ├── NotFound
    │   ├── WrongKind                 a file where a folder is needed, or the reverse
    │   ├── DriveAway                 try again: the server is not reachable just now
    │   │   └── DriveTimeout          … or did not answer in time; it may have happened
    │   └── DriveRefused              will not work until a person changes something
    │       ├── NoPermission
    │       ├── DriveFull
    │       ├── DriveReadOnly
    │       ├── BadCredentials
    │       ├── NoSuchShare
    │       ├── NotAtomic             the drive cannot publish (no hard links)
    │       └── WrongVersion          the drive's format is not ours
    ├── Malformed                     a file does not decode: names it and says why
    ├── NodeError                     a node's inbox cannot be used
    │   ├── NodeUnreachable
    │   ├── HostKeyRefused            unknown or changed host key
    │   └── LoginRefused
    ├── TicketRefused                 an agent will not work on a job, and why
    ├── SubmitError                   nothing was submitted
    └── JobFailed                     a task failed: traceback and place of the log

Messages say what, where and what to do next. A class's docstring is its message when none is given.
"""

from __future__ import annotations

__all__ = [
    "BadCredentials",
    "ConfigError",
    "DriveAway",
    "DriveError",
    "DriveFull",
    "DriveReadOnly",
    "DriveRefused",
    "DriveTimeout",
    "Exists",
    "HostKeyRefused",
    "JobFailed",
    "LoginRefused",
    "LudwigError",
    "Malformed",
    "NameNotAllowed",
    "NoPermission",
    "NoSuchShare",
    "NodeError",
    "NodeUnreachable",
    "NotAtomic",
    "NotFound",
    "ParameterError",
    "SubmitError",
    "TicketRefused",
    "UsageError",
    "WrongKind",
    "WrongVersion",
]


class LudwigError(Exception):
    """Something went wrong in Ludwig."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (self.__doc__ or "").strip())


class UsageError(LudwigError):
    """This was called in a way that cannot work."""


class ConfigError(UsageError):
    """The configuration is wrong."""


class NameNotAllowed(UsageError):
    """This name cannot be used on every drive."""


class ParameterError(UsageError):
    """A parameter cannot be sent to a node."""


class DriveError(LudwigError):
    """The drive could not do what was asked.

    `doing` is a present participle ("publishing"), `path` is relative to the drive.
    """

    def __init__(self, doing: str, path: str, reason: str | None = None) -> None:
        self.doing = doing
        self.path = path
        self.reason = reason or (self.__doc__ or "").strip().splitlines()[0]
        super().__init__(f"{doing} '{path}': {self.reason}")

    def __reduce__(self) -> tuple[type[DriveError], tuple[str, str, str]]:
        return type(self), (self.doing, self.path, self.reason)  # from one process to another


class Exists(DriveError):
    """It is there already."""


class NotFound(DriveError):
    """It is not there."""


class WrongKind(DriveError):
    """A file is where a folder should be, or the other way round."""


class DriveAway(DriveError):
    """The file server cannot be reached just now. Ludwig tries again by itself."""


class DriveTimeout(DriveAway):
    """The file server did not answer in time; the operation may have happened all the same."""


class DriveRefused(DriveError):
    """The file server refuses this, and will until something is changed."""


class NoPermission(DriveRefused):
    """No permission. Ask whoever runs the file server for write access to this folder."""


class DriveFull(DriveRefused):
    """The drive is full. Remove what is no longer needed; Ludwig goes on when there is room."""


class DriveReadOnly(DriveRefused):
    """The drive is mounted read-only. Mount it for writing."""


class BadCredentials(DriveRefused):
    """The file server does not accept this user and password.

    The password comes from LUDWIG_SMB_PASSWORD, else from the keyring, else it is asked for.
    """


class NoSuchShare(DriveRefused):
    """The file server has no such share. Check the url under [drive] in ludwig.toml."""


class NotAtomic(DriveRefused):
    """This drive cannot make hard links, so nothing can be published on it safely."""


class WrongVersion(DriveRefused):
    """The drive was written by a version of Ludwig that this one does not understand."""


class Malformed(LudwigError):
    """A file does not hold what it should."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"'{path}' cannot be read: {reason}")

    def __reduce__(self) -> tuple[type[Malformed], tuple[str, str]]:
        return type(self), (self.path, self.reason)


class NodeError(LudwigError):
    """A node's inbox cannot be used."""


class NodeUnreachable(NodeError):
    """A node does not answer."""


class HostKeyRefused(NodeError):
    """A node's host key is unknown or has changed."""


class LoginRefused(NodeError):
    """A node refuses this user or key."""


class TicketRefused(LudwigError):
    """A node will not work on a job."""


class SubmitError(LudwigError):
    """Nothing was submitted."""


class JobFailed(LudwigError):
    """A task failed."""
