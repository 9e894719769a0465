"""Who logs in to the file server: the user's name, and where the password comes from.

The password is looked for when it is first needed: in `LUDWIG_SMB_PASSWORD`, then in the system's
keyring (service `ludwig:<file server>`, if the package `keyring` is installed), then by asking, if
the caller gave something to ask with. It is kept in memory only, and shows in no `repr`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NoReturn

__all__ = ["VARIABLE", "Ask", "Credentials", "keyring_service"]

VARIABLE = "LUDWIG_SMB_PASSWORD"

Ask = Callable[[str], str]
"""Asks a person: called with the question, gives the password."""


def keyring_service(host: str) -> str:
    """`keyring set ludwig:fileserver ana` puts a password where Ludwig finds it."""
    return f"ludwig:{host}"


class Credentials:
    """A user and a password that is fetched once, late, and shown to nobody."""

    def __init__(
        self, host: str, user: str | None, *, password: str | None = None, ask: Ask | None = None
    ) -> None:
        self.host = host
        self.user = user
        self._given = password
        self._ask = ask
        self._found: str | None = None

    def password(self) -> str | None:
        if self._given is not None:
            return self._given
        if self._found is None:
            self._found = (
                os.environ.get(VARIABLE) or self._from_keyring() or self._from_person() or None
            )
        return self._found

    def refused(self) -> None:
        """The server did not accept it: look, and ask, anew the next time."""
        self._found = None

    def _from_keyring(self) -> str | None:
        if not self.user:
            return None
        try:
            import keyring
            import keyring.errors
        except ImportError:
            return None
        try:
            return keyring.get_password(keyring_service(self.host), self.user)
        except (keyring.errors.KeyringError, OSError):  # locked, or none on this machine
            return None

    def _from_person(self) -> str | None:
        if self._ask is None:
            return None
        return self._ask(f"Password of {self.user or 'this user'} on {self.host}: ")

    def __repr__(self) -> str:
        return f"Credentials({self.host!r}, {self.user!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("credentials are not written down")
