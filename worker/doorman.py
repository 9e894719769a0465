"""The door: which jobs this node works on.

Takes up tickets from the inbox, checks them, and opens their jobs; refuses the rest with a reason
that users see. Owns the accepted jobs (`open_jobs`) and their tickets on our own disk.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
import time
from pathlib import Path

from ludwig import codec, errors, job_records, layout, queue, records
from ludwig.config import WorkerConfig
from ludwig.drive import Drive
from ludwig.model import Event, Job, Refusal, Ticket
from ludwig.view import JobView
from ludwig.worker.held import OpenJob
from ludwig.worker.inbox import Inbox, Letter
from ludwig.worker.journal import note
from ludwig.worker.machine import Machine
from ludwig.worker.stockroom import Stockroom
from ludwig.worker.stream import Events
from ludwig.worker.tickets import TicketStore

__all__ = ["Doorman"]

log = logging.getLogger(__name__)

PATIENCE_S = 5.0
"""How long a job may be missing on the drive after its ticket came: mounts can be late."""


class Doorman:
    """Only the foreman's thread opens and closes jobs; anybody may ask which are open."""

    def __init__(
        self,
        config: WorkerConfig,
        drive: Drive,
        *,
        machine: Machine,
        inbox: Inbox,
        events: Events,
        stockroom: Stockroom,
    ) -> None:
        self._config, self._drive, self._machine = config, drive, machine
        self._inbox, self._events, self._stockroom = inbox, events, stockroom
        self._tickets = TicketStore(config.work)
        self._lock = threading.Lock()
        self._jobs: dict[str, OpenJob] = {}
        self._order = 0
        self._first_seen: dict[str, float] = {}
        """Letters whose job is not on the drive yet: since when we know."""

    # --- which jobs are open ---------------------------------------------------------------------

    def open_jobs(self) -> list[OpenJob]:
        """In the order in which they were accepted."""
        with self._lock:
            return list(self._jobs.values())

    def find(self, key: str) -> OpenJob | None:
        """An open job by `project/17`."""
        return self._jobs.get(key)

    def sources_in_use(self) -> set[Path]:
        return {opened.source for opened in self.open_jobs()}

    @property
    def expects_more(self) -> bool:
        """Whether a letter waits for its job to appear."""
        return bool(self._first_seen)

    def reopen(self) -> None:
        """Open the jobs of all accepted tickets that are not open. Asks nothing of the drive."""
        for accepted in self._tickets.kept(but=list(self._jobs)):
            self._order += 1
            opened = OpenJob(
                job=accepted.job,
                ticket=accepted.ticket,
                view=JobView(self._drive, accepted.job),
                params=accepted.params,
                source=accepted.source,
                user=accepted.user,
                order=self._order,
            )
            with self._lock:
                self._jobs[opened.key] = opened
            self._events.note(opened, Event(what="accepted"))

    def close(self, opened: OpenJob) -> None:
        """Nothing is left to do in a job."""
        self._tickets.forget(opened.ticket)
        self._machine.forget(opened.key)
        with self._lock:
            self._jobs.pop(opened.key, None)
        self._stockroom.used(opened.source)
        note(log, "closed", job=opened.key)

    # --- who may come in -------------------------------------------------------------------------

    def accept_tickets(self) -> None:
        """Take up what lies in the inbox."""
        if not self._inbox.has_news() and not self.expects_more:
            return
        letters = self._inbox.letters()
        for letter in letters:
            if not self._tickets.knows(letter):
                self._consider(letter)
        self._tickets.forget_letters(letters)
        there = {letter.identity for letter in letters}
        self._first_seen = {k: v for k, v in self._first_seen.items() if k in there}
        self.reopen()

    def prepare_sources(self) -> None:
        """Have what came in unpacked: by the time its ticket is here, it may be done."""
        for archive, sha256, user in self._inbox.arrivals():
            if self._may_come_in(user):
                self._stockroom.arrived(archive, sha256)

    def _consider(self, letter: Letter) -> None:
        try:
            ticket = letter.ticket()
        except errors.LudwigError as error:
            self._refuse(letter, str(error), names=letter.names())
            return
        names = (ticket.project, ticket.job)
        if self._tickets.has(ticket):  # sent again; what was accepted first stands
            self._deal_with(letter)
            return
        try:
            self._admit(ticket, letter)
        except errors.NotFound as error:
            first = self._first_seen.setdefault(letter.identity, time.monotonic())
            if time.monotonic() - first >= PATIENCE_S:
                self._refuse(letter, f"{error} Submit again.", names=names)
        except (errors.TicketRefused, errors.Malformed, errors.NameNotAllowed) as error:
            self._refuse(letter, str(error), names=names)

    def _admit(self, ticket: Ticket, letter: Letter) -> None:
        """Accept a ticket, or raise why not."""
        if not self._may_come_in(letter.user):
            raise errors.TicketRefused(f"user {letter.user!r} is not in allow_users")
        job = job_records.read_job(self._drive, ticket.project, ticket.job, sha256=ticket.sha256)
        self._check(job)
        job_records.tasks_of(self._drive, job).load(self._config.hostname)
        params = self._params_of(job)
        archive = letter.source(job.source)
        source = self._stockroom.unpack(archive, job.source)
        self._tickets.keep(ticket, user=letter.user, source=source, job=job, params=params)
        self._deal_with(letter)
        self._take_back_refusal(job)
        note(log, "accepted", job=f"{ticket.project}/{ticket.job}", user=letter.user)

    def _may_come_in(self, user: str) -> bool:
        allowed = self._config.allow_users
        return allowed is None or user in allowed

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

    def _params_of(self, job: Job) -> bytes:
        path = layout.job_files(job.project, job.job).params
        data = records.read_bytes(self._drive, path, limit=codec.MAX_BYTES)
        if codec.sha256(data) != job.params_sha256:
            raise errors.Malformed(path, "it does not match the SHA-256 in job.json")
        codec.decode_params(data, path)
        return data

    def _refuse(self, letter: Letter, why: str, *, names: tuple[str, int] | None) -> None:
        """Say no, so that the user sees it. Whoever is let in already is not sent away again."""
        about = f"{names[0]}/{names[1]}" if names else letter.name
        note(log, "refused", level=logging.WARNING, job=about, user=letter.user, why=why)
        if names is not None and about not in self._jobs:
            refusal = Refusal(host=self._config.hostname, why=why, nonce=secrets.token_hex(8))
            with contextlib.suppress(errors.NotFound, errors.NoPermission, errors.WrongKind):
                if self._drive.exists(layout.job_files(*names).folder):
                    queue.refuse(self._drive, *names, refusal)
        self._deal_with(letter)

    def _take_back_refusal(self, job: Job) -> None:
        """An earlier ticket of the same job may have been refused for a reason that is gone."""
        path = layout.job_files(job.project, job.job).refused_by(self._config.hostname)
        with contextlib.suppress(errors.NotFound, errors.NoPermission):
            self._drive.remove(path)

    def _deal_with(self, letter: Letter) -> None:
        self._first_seen.pop(letter.identity, None)
        self._tickets.remember(letter)
        self._inbox.discard(letter)
