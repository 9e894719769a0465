"""The door: which jobs this node works on.

Takes up tickets from the inbox, checks them, and opens their jobs; refuses the rest with a reason
that users see. Owns the accepted jobs (`jobs`) and their tickets on our own disk.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
from pathlib import Path

from ludwig import errors, queue
from ludwig.config import WorkerConfig
from ludwig.drive import Drive
from ludwig.model import Event, Job, Refusal, Ticket
from ludwig.view import JobView
from ludwig.worker import workspace
from ludwig.worker.held import OpenJob
from ludwig.worker.inbox import Inbox, Letter
from ludwig.worker.machine import Machine
from ludwig.worker.stream import Events
from ludwig.worker.tickets import TicketStore

__all__ = ["Doorman"]

log = logging.getLogger(__name__)


class Doorman:
    """Called by the foreman's thread; `jobs` is guarded by `lock`."""

    def __init__(
        self,
        config: WorkerConfig,
        drive: Drive,
        *,
        machine: Machine,
        inbox: Inbox,
        events: Events,
        lock: threading.RLock,
    ) -> None:
        self._config, self._drive, self._machine = config, drive, machine
        self._inbox, self._events, self._lock = inbox, events, lock
        self._tickets = TicketStore(config.work)
        self._order = 0
        self.jobs: dict[str, OpenJob] = {}
        """Open jobs by `project/17`."""

    def accept_tickets(self) -> None:
        """Take up what lies in the inbox and what was accepted before a restart."""
        for letter in self._inbox.letters():
            if not self._tickets.knows(letter):
                self._consider(letter)
        self.reopen()

    def reopen(self) -> None:
        """Open the jobs of all accepted tickets that are not open."""
        for ticket, user, source in self._tickets.kept():
            if f"{ticket.project}/{ticket.job}" not in self.jobs:
                self._open(ticket, user, source)

    def close(self, opened: OpenJob) -> None:
        """Nothing is left to do in a job."""
        self._tickets.forget(opened.ticket)
        self._machine.forget(opened.key)
        with self._lock:
            self.jobs.pop(opened.key, None)
        log.info("closed %s", opened.key)

    def sources_in_use(self) -> set[Path]:
        with self._lock:
            return {opened.source for opened in self.jobs.values()}

    def _consider(self, letter: Letter) -> None:
        try:
            ticket = letter.ticket()
        except errors.LudwigError as error:
            log.warning("ticket refused: %s: %s", letter.name, error)
            self._tickets.remember(letter)
            return
        try:
            allowed = self._config.allow_users
            if allowed is not None and letter.user not in allowed:
                raise errors.TicketRefused(f"user {letter.user!r} is not in allow_users")
            job = queue.read_job(self._drive, ticket.project, ticket.job, sha256=ticket.sha256)
            self._check(job)
            source = workspace.unpack(
                letter.source(job.source), job.source, self._config.work / "sources"
            )
        except errors.NotFound as error:
            self._refuse(ticket, letter, f"{error}. Submit again.")
        except (errors.TicketRefused, errors.Malformed, errors.NameNotAllowed) as error:
            self._refuse(ticket, letter, str(error))
        else:
            self._tickets.keep(letter, ticket, source)
            self._inbox.discard(letter)
            log.info("accepted %s/%s from %s", ticket.project, ticket.job, letter.user)

    def _check(self, job: Job) -> None:
        """`TicketRefused` for a job that this node could never do."""
        if job.abandoned:
            raise errors.TicketRefused("its submission was given up. Submit again.")
        if self._config.hostname not in job.chunks:
            raise errors.TicketRefused(f"the job is not meant for {self._config.hostname!r}")
        if why := self._machine.never(job.gpus):
            raise errors.TicketRefused(why)
        if job.contract == "script" and self._drive.mount is None:
            raise errors.TicketRefused(
                "run.py reads its chunk from the mounted drive, and this node speaks SMB without a "
                "mount. Define main(param2val) in run.py, or mount the drive on the node."
            )

    def _refuse(self, ticket: Ticket, letter: Letter, why: str) -> None:
        log.warning("refused %s/%s: %s", ticket.project, ticket.job, why)
        refusal = Refusal(host=self._config.hostname, why=why, nonce=secrets.token_hex(8))
        with contextlib.suppress(errors.NotFound, errors.NoPermission, errors.WrongKind):
            queue.refuse(self._drive, ticket.project, ticket.job, refusal)
        self._tickets.remember(letter)
        self._inbox.discard(letter)

    def _open(self, ticket: Ticket, user: str, source: Path) -> None:
        key = f"{ticket.project}/{ticket.job}"
        try:
            job = queue.read_job(self._drive, ticket.project, ticket.job, sha256=ticket.sha256)
            params = queue.read_params(self._drive, job)
        except (errors.NotFound, errors.TicketRefused, errors.Malformed) as error:
            log.warning("gave up %s: %s", key, error)
            refusal = Refusal(host=self._config.hostname, why=str(error))
            with contextlib.suppress(errors.NotFound, errors.NoPermission):
                queue.refuse(self._drive, ticket.project, ticket.job, refusal)
            self._tickets.forget(ticket)
            return
        self._order += 1
        opened = OpenJob(
            job=job,
            ticket=ticket,
            view=JobView(self._drive, job),
            params=params,
            source=source,
            user=user,
            order=self._order,
        )
        opened.view.refresh()
        with self._lock:
            self.jobs[key] = opened
        self._events.note(opened, Event(what="accepted"))
