"""The tickets this node has accepted, on its own disk: they outlive a restart.

The inbox belongs to users; once a ticket is accepted, the agent's own copy counts, so that nobody
can take an order back or change it. Readable by the agent alone: a ticket may carry secrets.
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from ludwig import codec, errors, layout
from ludwig.model import Ticket
from ludwig.worker.held import write_whole
from ludwig.worker.inbox import Letter

__all__ = ["TicketStore"]

log = logging.getLogger(__name__)


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """An accepted ticket, who brought it, and the unpacked source it needs."""

    ticket: Ticket
    user: str
    source: str


class TicketStore:
    """`work/tickets/`: what is worked on. `work/letters/`: which letters were dealt with."""

    def __init__(self, work: Path) -> None:
        self._folder = work / "tickets"
        self._letters = work / "letters"
        for folder in (self._folder, self._letters):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def knows(self, letter: Letter) -> bool:
        """Whether this very letter was dealt with, though it still lies in the inbox."""
        return (self._letters / letter.digest).exists()

    def remember(self, letter: Letter) -> None:
        (self._letters / letter.digest).touch(mode=0o600)

    def keep(self, letter: Letter, ticket: Ticket, source: Path) -> None:
        record = Kept(ticket=ticket, user=letter.user, source=str(source))
        write_whole(self._path(ticket), codec.encode(record))
        self.remember(letter)

    def kept(self) -> list[tuple[Ticket, str, Path]]:
        """Accepted tickets, oldest first."""
        found = []
        for path in sorted(self._folder.glob("[!.]*.json"), key=lambda p: p.stat().st_mtime_ns):
            try:
                kept = codec.decode(Kept, path.read_bytes(), str(path))
            except (OSError, errors.Malformed) as error:
                log.error("ticket lost: %s", error)
                continue
            found.append((kept.ticket, kept.user, Path(kept.source)))
        return found

    def forget(self, ticket: Ticket) -> None:
        self._path(ticket).unlink(missing_ok=True)

    def _path(self, ticket: Ticket) -> Path:
        return self._folder / Path(layout.inbox.ticket(ticket.project, ticket.job)).name
