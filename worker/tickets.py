"""The tickets this node has accepted, on its own disk: they outlive a restart.

The inbox belongs to users and the drive to everybody; once a ticket is accepted, the agent's own
copy of it and of its job counts. So nobody can take an order back or change it, and a restarted
agent takes up what runs even while the drive is away. Readable by the agent alone: a ticket may
carry secrets.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ludwig import codec, errors, layout
from ludwig.model import Job, Ticket
from ludwig.worker.held import write_whole
from ludwig.worker.inbox import Letter
from ludwig.worker.journal import note

__all__ = ["Accepted", "TicketStore"]

log = logging.getLogger(__name__)


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """An accepted ticket, who brought it, the unpacked source it needs, and its job."""

    ticket: Ticket
    user: str
    source: str
    job: Job
    params: bytes
    """Of `params.json`."""


@dataclass(frozen=True)
class Accepted:
    """A `Kept`, read."""

    ticket: Ticket
    user: str
    source: Path
    job: Job
    params: dict[str, dict[str, object]]


class TicketStore:
    """`work/tickets/`: what is worked on. `work/letters/`: letters that could not be removed."""

    def __init__(self, work: Path) -> None:
        self._folder = work / "tickets"
        self._letters = work / "letters"
        for folder in (self._folder, self._letters):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def knows(self, letter: Letter) -> bool:
        """Whether this very letter was dealt with, though it still lies in the inbox."""
        return (self._letters / letter.identity).exists()

    def remember(self, letter: Letter) -> None:
        (self._letters / letter.identity).touch(mode=0o600)

    def forget_letters(self, present: Iterable[Letter]) -> None:
        """What is not in the inbox any more need not be remembered."""
        there = {letter.identity for letter in present}
        for path in self._letters.iterdir():
            if path.name not in there:
                path.unlink(missing_ok=True)

    def has(self, ticket: Ticket) -> bool:
        """Whether the job was accepted, and is not over yet."""
        return self._path(ticket.project, ticket.job).exists()

    def keep(self, ticket: Ticket, *, user: str, source: Path, job: Job, params: bytes) -> None:
        kept = Kept(ticket=ticket, user=user, source=str(source), job=job, params=params)
        write_whole(self._path(ticket.project, ticket.job), codec.encode(kept))

    def kept(self, *, but: Iterable[str] = ()) -> list[Accepted]:
        """Accepted tickets, oldest first, without the jobs (`project/17`) in `but`."""
        known = {self._path(*_split(key)) for key in but}
        paths = [path for path in self._folder.glob("[!.]*.json") if path not in known]
        found = []
        for path in sorted(paths, key=lambda p: p.stat().st_mtime_ns):
            try:
                kept = codec.decode(Kept, path.read_bytes(), str(path))
                params = codec.decode_params(kept.params, str(path))
            except (OSError, errors.Malformed) as error:
                note(log, "ticket-lost", level=logging.ERROR, why=error)
                path.rename(path.with_name(f".{path.name}.damaged"))
                continue
            found.append(Accepted(kept.ticket, kept.user, Path(kept.source), kept.job, params))
        return found

    def forget(self, ticket: Ticket) -> None:
        self._path(ticket.project, ticket.job).unlink(missing_ok=True)

    def _path(self, project: str, job: int) -> Path:
        return self._folder / Path(layout.inbox.ticket(project, job)).name


def _split(key: str) -> tuple[str, int]:
    project, _, number = key.rpartition("/")
    return project, int(number)
