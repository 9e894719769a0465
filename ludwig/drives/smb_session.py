"""Logging in to a share, and the connections that are open to it.

`smbprotocol` negotiates, authenticates (NTLM or Kerberos) and derives the keys; then its receiving
thread is sent home and the socket goes to a `Channel`. Nothing here is shared between drives, and
nothing crosses a fork: a child process connects anew.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

from cryptography.hazmat.primitives.ciphers import aead

from ludwig import errors
from ludwig.drives.credentials import Credentials
from ludwig.drives.smb_channel import Channel, Lost, Seal, Sealed, Signed, TimedOut, sign_with
from ludwig.drives.smb_status import NOT_SUPPORTED, StatusError, as_drive_error

__all__ = ["Pool", "Server"]

_MOST_CONNECTIONS = 8


class Server:
    """How to reach a share and who logs in. Connects on demand."""

    def __init__(
        self,
        host: str,
        share: str,
        *,
        port: int,
        credentials: Credentials,
        encrypt: bool,
        timeout_s: float,
    ) -> None:
        self.host, self.share, self.port = host, share, port
        self.credentials = credentials
        self.encrypt = encrypt
        self.timeout_s = timeout_s

    def connect(self) -> Channel:
        """A new connection. Raises `Lost`, or `StatusError` when the server says no."""
        result = self._try()
        if isinstance(result, Channel):
            return result
        # Raised here, so that no frame that knows the password is in the traceback.
        raise result

    def _try(self) -> Channel | Exception:
        # Imported here: it takes a tenth of a second, and a folder drive needs none of it.
        from smbprotocol import exceptions  # type: ignore[import-untyped]
        from smbprotocol.connection import Connection  # type: ignore[import-untyped]

        password = self.credentials.password()
        deadline = time.monotonic() + self.timeout_s
        connection = Connection(uuid.uuid4(), self.host, self.port, require_signing=True)
        problem: Exception
        try:
            with _hang_up_at(deadline, connection):
                return self._log_in(connection, password, deadline)
        except exceptions.SMBResponseException as error:
            problem = self._refusal(error.status)
        except exceptions.SMBAuthenticationError:
            problem = errors.BadCredentials("logging in to", "", self._login_reason(password))
        except exceptions.SMBConnectionClosed:
            problem = Lost("the server ended the connection")
        except exceptions.SMBException as error:
            if "guest" in str(error):
                problem = errors.BadCredentials("logging in to", "", self._login_reason(password))
            elif "encryption" in str(error):
                reason = "encryption is asked for (`encrypt`), but the file server has none"
                problem = errors.DriveRefused("logging in to", "", reason)
            elif "timeout" in str(error):
                problem = TimedOut(f"no answer within {self.timeout_s:g} s")
            else:
                problem = Lost(str(error))
        except (OSError, ValueError) as error:  # ValueError: its word for "cannot connect"
            problem = Lost(str(error))
        except Lost as error:
            problem = error
        except BaseException:
            _abandon(connection)
            raise
        _abandon(connection)
        if isinstance(problem, Lost) and time.monotonic() >= deadline - 0.01:
            problem = TimedOut(f"no answer within {self.timeout_s:g} s")
        return problem

    def _refusal(self, found: int) -> Exception:
        known = as_drive_error(found, "logging in to", "")
        if type(known) is not errors.DriveRefused:
            return StatusError(found)
        reason = f"the file server does not let us in: 0x{found:08x}"
        if found == NOT_SUPPORTED:
            reason = "the file server and Ludwig have no version of SMB in common (2.0.2 to 3.1.1)"
        return errors.DriveRefused("logging in to", "", reason)

    def _login_reason(self, password: str | None) -> str | None:
        if self.credentials.user is None:
            return "no user is given: set `user` under [drive] in ludwig.toml"
        if password is None:
            return (
                f"there is no password for {self.credentials.user!r}: set LUDWIG_SMB_PASSWORD, "
                "or keep it in the keyring"
            )
        return None

    def _log_in(self, connection: Any, password: str | None, deadline: float) -> Channel:
        from smbprotocol.session import Session  # type: ignore[import-untyped]
        from smbprotocol.tree import TreeConnect  # type: ignore[import-untyped]

        connection.connect(timeout=self.timeout_s)
        connection.transport._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        session = Session(
            connection, self.credentials.user, password, require_encryption=self.encrypt
        )
        try:
            session.connect()
        finally:
            session.password = None
        tree = TreeConnect(session, rf"\\{self.host}\{self.share}")
        tree.connect()
        taken = _take_over(connection)
        left = max(0.1, deadline - time.monotonic())
        channel = Channel(
            taken,
            _seal(connection, session, encrypted=bool(session.encrypt_data or tree.encrypt_data)),
            session_id=session.session_id,
            tree_id=tree.tree_connect_id,
            first_message_id=connection.sequence_window["low"],
            credits_left=connection.sequence_window["high"] - connection.sequence_window["low"],
            large=bool(connection.supports_multi_credit),
            max_read=connection.max_read_size,
            max_write=connection.max_write_size,
        )
        channel.ask_for_credits(left)
        return channel


def _take_over(connection: Any) -> socket.socket:
    """Get the socket from a connection whose receiving thread then ends by itself."""
    from smbprotocol.connection import SMB2Echo

    original = connection.transport._sock
    taken: socket.socket = original.dup()
    receiving = connection._t_worker
    # The thread waits inside the old `recv`, or is about to ask for the next packet. In the first
    # case the answer to this echo wakes it; then it is told that there will be no more. In the
    # second the answer stays in the socket, and the channel passes over it.
    connection.transport.recv = lambda timeout: b""
    connection.send(SMB2Echo(), sid=next(iter(connection.session_table)), credit_request=64)
    receiving.join()
    connection.transport.connected = False
    original.close()
    return taken


def _seal(connection: Any, session: Any, *, encrypted: bool) -> Seal:
    from smbprotocol import Dialects
    from smbprotocol.connection import Ciphers, SigningAlgorithms

    newest = connection.dialect >= Dialects.SMB_3_1_1
    if encrypted:
        cipher = connection.cipher_id if newest else Ciphers.AES_128_CCM
        counter = cipher in (Ciphers.AES_128_GCM, Ciphers.AES_256_GCM)
        make: Any = aead.AESGCM if counter else aead.AESCCM
        return Sealed(
            make(session.encryption_key), make(session.decryption_key), session.session_id
        )
    if newest and connection.signing_algorithm_id is not None:
        names = {SigningAlgorithms.AES_GMAC: "gmac", SigningAlgorithms.AES_CMAC: "cmac"}
        algorithm = names.get(connection.signing_algorithm_id, "hmac")
    else:
        algorithm = "cmac" if connection.dialect >= Dialects.SMB_3_0_0 else "hmac"
    return Signed(sign_with(algorithm, session.signing_key))


@contextlib.contextmanager
def _hang_up_at(deadline: float, connection: Any) -> Iterator[None]:
    """End the connection when the time is over: smbprotocol itself would wait for ever."""
    timer = threading.Timer(deadline - time.monotonic(), _hang_up, (connection,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _hang_up(connection: Any) -> None:
    transport = connection.transport
    with contextlib.suppress(OSError, AttributeError):
        transport._sock.shutdown(socket.SHUT_RDWR)


def _abandon(connection: Any) -> None:
    _hang_up(connection)
    with contextlib.suppress(Exception):
        connection.disconnect(close=False)


class Pool:
    """The connections of one drive. Each is lent to one thread at a time."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._forget()

    def _forget(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Condition()
        self._idle: list[Channel] = []
        self._lent = 0
        self._generation = 0

    @contextlib.contextmanager
    def lend(self) -> Iterator[Channel]:
        """A connection that is alive as far as one can see; a new one if all are in use."""
        if self._pid != os.getpid():
            # After a fork: the sockets are the parent's. Closing our copies says nothing to the
            # server, and no lock that some thread of the parent held is waited for.
            inherited = self._idle
            self._forget()
            for one in inherited:
                one.drop()
        with self._lock:
            if not self._lock.wait_for(
                lambda: self._lent < _MOST_CONNECTIONS, self._server.timeout_s
            ):
                raise TimedOut("all connections are in use")
            self._lent += 1
            generation = self._generation
            channel = self._pop_idle()
        try:
            if channel is None:
                channel = self._server.connect()
            yield channel
        finally:
            with self._lock:
                self._lent -= 1
                if channel is not None and channel.alive and generation == self._generation:
                    self._idle.append(channel)
                elif channel is not None:
                    channel.drop()
                self._lock.notify()

    def _pop_idle(self) -> Channel | None:
        while self._idle:
            channel = self._idle.pop()
            if not channel.is_stale():
                return channel
            channel.drop()
        return None

    def close(self) -> None:
        with self._lock:
            self._generation += 1
            idle, self._idle = self._idle, []
        for channel in idle:
            channel.drop()
