"""Being told of changes, by CHANGE_NOTIFY.

All watches of a drive share one connection of their own and one thread, so they hold up nothing
else. The thread reconnects by itself; every folder is then reported as changed, since a change may
have been missed. An answer that names no file (there were too many) means: changed.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
import time

from ludwig import errors
from ludwig.drive import Watch
from ludwig.drives import smb_status as status
from ludwig.drives import smb_wire as wire
from ludwig.drives.smb_channel import Channel, Lost
from ludwig.drives.smb_session import Server
from ludwig.drives.smb_status import StatusError
from ludwig.layout import TEMPORARY

__all__ = ["Hub"]

_LOOK_AGAIN_S = 1.0  # for a folder that is not there (yet)
_RECONNECT_S = 0.5
_RECHECK_S = (0.1, 0.4, 1.5)
"""When, after asking to be told, we look ourselves. A server may answer before its part that tells
has taken note (Samba's does so in a process of its own): of changes made at once, 5 in 1,200 were
never told on a busy machine."""
_ECHO_S = 60.0  # a server that says nothing for this long is asked whether it is there


class SmbWatch(Watch):
    def __init__(self, hub: Hub, name: str) -> None:
        self._hub = hub
        self.name = name
        self.file: bytes | None = None  # open on the hub's connection; only its thread touches it
        self.retry_at = 0.0
        self.modified = 0.0  # of the folder, before the server was asked
        self.rechecks: list[float] = []  # when to compare that
        self.told = False  # whether the server was asked at all, successfully or not
        self._state = threading.Condition()
        self._changed = self.closed = self._settled = False

    def wait(self, timeout: float) -> bool:
        with self._state:
            self._state.wait_for(lambda: self._changed or self.closed, timeout)
            changed, self._changed = self._changed and not self.closed, False
            return changed

    def close(self) -> None:
        with self._state:
            if self.closed:
                return
            self.closed = True
            self._state.notify_all()
        self._hub.wake()

    def mark_changed(self) -> None:
        with self._state:
            self._changed = True
            self._state.notify_all()

    def settle(self) -> None:
        """The folder is watched, or is not there: from now on changes are noticed."""
        with self._state:
            self._settled = True
            self._state.notify_all()

    def wait_settled(self, timeout: float) -> bool:
        with self._state:
            return self._state.wait_for(lambda: self._settled, timeout)


class Hub:
    """The connection and the thread; they exist while there are watches."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._forget()

    def _forget(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._watches: list[SmbWatch] = []
        self._thread: threading.Thread | None = None
        self._alarm: socket.socket | None = None

    def watch(self, name: str) -> SmbWatch:
        if self._pid != os.getpid():
            self._forget()
        watch = SmbWatch(self, name)
        with self._lock:
            self._watches.append(watch)
            if self._thread is None:
                self._alarm, ear = socket.socketpair()
                self._alarm.setblocking(False)
                ear.setblocking(False)
                self._thread = threading.Thread(
                    target=self._serve, args=(ear,), name=f"watch {self._server.host}", daemon=True
                )
                self._thread.start()
        self.wake()
        if not watch.wait_settled(self._server.timeout_s):
            watch.mark_changed()
        return watch

    def wake(self) -> None:
        alarm = self._alarm
        if alarm is not None and self._pid == os.getpid():
            with contextlib.suppress(OSError):
                alarm.send(b"!")

    def close(self) -> None:
        with self._lock:
            watches = list(self._watches)
        for watch in watches:
            watch.close()

    def _serve(self, ear: socket.socket) -> None:
        """The thread: until there is nothing to watch."""
        missed = False
        with ear:
            while self._live():
                try:
                    channel = self._server.connect()
                except (Lost, StatusError, errors.DriveError):
                    missed = True
                    for watch in self._live():
                        watch.settle()
                    _hear(ear, _RECONNECT_S)
                    continue
                try:
                    _Round(self, channel, self._server.timeout_s, missed=missed).run(ear)
                except Lost:
                    missed = True
                finally:
                    channel.drop()
                    for watch in self._watches:
                        watch.file = None

    def _live(self) -> list[SmbWatch]:
        """The watches that are not closed. When there are none, the thread is no longer ours."""
        with self._lock:
            live = [watch for watch in self._watches if not watch.closed]
            if not live:
                self._watches, self._thread = [], None
                if self._alarm is not None:
                    self._alarm.close()
                    self._alarm = None
            return live

    def sort(self) -> tuple[list[SmbWatch], list[SmbWatch]]:
        """(open ones, closed ones); the latter are forgotten."""
        with self._lock:
            over = [watch for watch in self._watches if watch.closed]
            self._watches = [watch for watch in self._watches if not watch.closed]
            return list(self._watches), over


class _Round:
    """The life of one connection of the hub."""

    def __init__(self, hub: Hub, channel: Channel, timeout_s: float, *, missed: bool) -> None:
        self._hub, self._channel, self._timeout_s = hub, channel, timeout_s
        self._missed = missed
        self._pending: dict[int, SmbWatch] = {}
        self._answers: dict[int, wire.Answer] = {}

    def run(self, ear: socket.socket) -> None:
        quiet_since = time.monotonic()
        while True:
            watches, over = self._hub.sort()
            for watch in over:
                self._let_go(watch)
            if not watches:
                return
            for watch in watches:
                if watch.file is None and time.monotonic() >= watch.retry_at:
                    self._arm(watch)
            self._missed = False
            self._handle_answers()
            for watch in watches:
                self._recheck(watch)
            self._handle_answers()
            due = [quiet_since + _ECHO_S]
            due += [watch.rechecks[0] for watch in watches if watch.rechecks]
            due += [watch.retry_at for watch in watches if watch.file is None]
            pause = max(0.0, min(due) - time.monotonic())
            if self._channel.has_received or self._heard(ear, pause):
                self._receive()
                quiet_since = time.monotonic()
            elif time.monotonic() >= quiet_since + _ECHO_S:
                self._exchange(wire.echo())
                quiet_since = time.monotonic()

    def _heard(self, ear: socket.socket, pause: float) -> bool:
        """Wait; whether the server said something."""
        with selectors.DefaultSelector() as selector:
            selector.register(ear, selectors.EVENT_READ)
            selector.register(self._channel, selectors.EVENT_READ)
            ready = [key.fileobj for key, _ in selector.select(pause)]
        if ear in ready:
            _hear(ear, 0)
        return self._channel in ready

    def _receive(self) -> None:
        self._answers.update(self._channel.receive(self._timeout_s))

    def _exchange(self, *messages: wire.Message) -> list[wire.Answer]:
        """As `Channel.exchange`, while notifications may come in between."""
        ids = self._channel.post(*messages, timeout=self._timeout_s)
        deadline = time.monotonic() + self._timeout_s
        while not all(number in self._answers for number in ids):
            self._answers.update(self._channel.receive(max(0.01, deadline - time.monotonic())))
        return [self._answers.pop(number) for number in ids]

    def _handle_answers(self) -> None:
        while self._answers:
            number, answer = self._answers.popitem()
            watch = self._pending.pop(number, None)
            if watch is None or watch.closed or watch.file is None:
                continue
            if answer.status == status.SUCCESS:
                names = wire.changed_names(answer.buffer())
                if not names or not all(name.startswith(TEMPORARY) for name in names):
                    watch.rechecks = []  # we are being told, and whoever waits will look
                    watch.mark_changed()
                self._await_change(watch, watch.file)
            elif answer.status == status.NOTIFY_ENUM_DIR:
                watch.mark_changed()
                self._await_change(watch, watch.file)
            else:  # the folder was removed
                self._let_go(watch)
                watch.retry_at = 0.0
                watch.mark_changed()

    def _arm(self, watch: SmbWatch) -> None:
        opening = wire.create(watch.name, wire.READ_DATA, wire.OPEN, wire.IS_FOLDER)
        (answer,) = self._exchange(opening)
        if answer.status == status.SUCCESS:
            opened = answer.created()
            watch.file, watch.modified = opened.file, opened.modified
            watch.rechecks = [time.monotonic() + pause for pause in _RECHECK_S]
            self._await_change(watch, watch.file)
            self._exchange(wire.echo())  # answered only after the server has taken note
            if watch.told or self._missed:
                watch.mark_changed()
        else:
            watch.retry_at = time.monotonic() + _LOOK_AGAIN_S
        watch.told = True
        watch.settle()

    def _recheck(self, watch: SmbWatch) -> None:
        if watch.file is None or not watch.rechecks or time.monotonic() < watch.rechecks[0]:
            return
        del watch.rechecks[0]
        opening = wire.create(watch.name, wire.READ_ATTRIBUTES, wire.OPEN, wire.IS_FOLDER)
        answer = self._exchange(opening, wire.close())[0]
        if answer.status == status.SUCCESS and answer.created().modified != watch.modified:
            watch.modified = answer.created().modified
            watch.mark_changed()

    def _await_change(self, watch: SmbWatch, file: bytes) -> None:
        (number,) = self._channel.post(wire.change_notify(file), timeout=self._timeout_s)
        self._pending[number] = watch

    def _let_go(self, watch: SmbWatch) -> None:
        file, watch.file = watch.file, None
        watch.rechecks = []
        if file is not None:
            self._exchange(wire.close(file))


def _hear(ear: socket.socket, pause: float) -> None:
    """Wait to be woken, and take note of it."""
    ear.settimeout(pause)
    with contextlib.suppress(OSError):
        ear.recv(4096)
