"""One logged-in connection to a share: sends compounds, matches answers, signs or encrypts.

Synchronous and for one thread at a time; `smb_session.py` hands them out. Every exchange has a
deadline. Whatever goes wrong with the connection itself (time-out, end of stream, an answer without
a valid signature, an interrupt half-way) ends it: nobody can then read somebody else's answer.
"""

from __future__ import annotations

import hmac
import os
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import cmac
from cryptography.hazmat.primitives.ciphers import aead, algorithms

from ludwig.drives.smb_wire import ECHO, Answer, Message, echo

__all__ = ["Channel", "Lost", "Seal", "Sealed", "Signed", "TimedOut", "sign_with"]

_header = struct.Struct("<4sHHIHHIIQIIQ16s")
_answer_header = struct.Struct("<4sHHIHHIIQ")
_sealed_header = struct.Struct("<4s16s16sIHHQ")
_SIGNED, _RELATED, _FROM_SERVER = 0x8, 0x4, 0x1
_NO_SIGNATURE = bytes(16)
_PENDING = 0x103
_UNASKED = 0xFFFFFFFFFFFFFFFF  # the message id of what the server says by itself
_IN_FLIGHT_BYTES = 4 << 20
_WANTED_CREDITS = 512
_LONG = 1 << 15  # above this a copy costs more than a system call


class Lost(Exception):
    """The connection ended. What was asked may or may not have happened."""


class TimedOut(Lost):
    """No answer within the deadline."""


class Seal(Protocol):
    """How packets are protected: signed, or encrypted."""

    signs: bool

    def sign(self, packet: bytes | bytearray, message_id: int, *, from_server: bool) -> bytes:
        """The 16 bytes of signature of a packet whose signature field is zero."""

    def wrap(self, packets: bytes | bytearray) -> bytes | bytearray: ...

    def unwrap(self, frame: bytes) -> bytes: ...


class Sign(Protocol):
    def __call__(self, packet: bytes | bytearray, message_id: int, from_server: bool) -> bytes: ...


def sign_with(algorithm: str, key: bytes) -> Sign:
    """The signing of a dialect: "gmac" (3.1.1), "cmac" (3.0), "hmac" (2.x)."""
    if algorithm == "gmac":
        gcm = aead.AESGCM(key)

        def gmac(packet: bytes | bytearray, message_id: int, from_server: bool) -> bytes:
            return gcm.encrypt(struct.pack("<QI", message_id, from_server), b"", packet)

        return gmac
    if algorithm == "cmac":

        def with_cmac(packet: bytes | bytearray, message_id: int, from_server: bool) -> bytes:
            digest = cmac.CMAC(algorithms.AES(key))
            digest.update(bytes(packet))
            return digest.finalize()

        return with_cmac

    def with_hmac(packet: bytes | bytearray, message_id: int, from_server: bool) -> bytes:
        return hmac.digest(key, packet, "sha256")[:16]

    return with_hmac


class Signed:
    """Packets in the clear, each with a signature that is required and checked."""

    signs = True

    def __init__(self, sign: Sign) -> None:
        self._sign = sign

    def sign(self, packet: bytes | bytearray, message_id: int, *, from_server: bool) -> bytes:
        return self._sign(packet, message_id, from_server)

    def wrap(self, packets: bytes | bytearray) -> bytes | bytearray:
        return packets

    def unwrap(self, frame: bytes) -> bytes:
        return frame


class Sealed:
    """Packets encrypted (and thereby authenticated)."""

    signs = False

    def __init__(
        self,
        outgoing: aead.AESGCM | aead.AESCCM,
        incoming: aead.AESGCM | aead.AESCCM,
        session_id: int,
    ) -> None:
        self._outgoing, self._incoming = outgoing, incoming
        self._session_id = session_id
        self._nonce_size = 12 if isinstance(outgoing, aead.AESGCM) else 11

    def sign(self, packet: bytes | bytearray, message_id: int, *, from_server: bool) -> bytes:
        return _NO_SIGNATURE

    def wrap(self, packets: bytes | bytearray) -> bytes | bytearray:
        nonce = os.urandom(self._nonce_size)
        fields = (nonce.ljust(16, b"\0"), len(packets), 0, 1, self._session_id)
        head = _sealed_header.pack(b"\xfdSMB", _NO_SIGNATURE, *fields)
        hidden = self._outgoing.encrypt(nonce, packets, head[20:])
        return b"".join((head[:4], hidden[-16:], head[20:], hidden[:-16]))

    def unwrap(self, frame: bytes) -> bytes:
        if frame[:4] != b"\xfdSMB":
            raise Lost("the server sent an answer that is not encrypted")
        nonce = frame[20 : 20 + self._nonce_size]
        try:
            return self._incoming.decrypt(nonce, frame[52:] + frame[4:20], frame[20:52])
        except InvalidTag:
            raise Lost("the server sent an answer that does not decrypt") from None


class Channel:
    """See the module's words. `exchange` is one compound, `pipeline` many without waiting."""

    def __init__(
        self,
        connection: socket.socket,
        seal: Seal,
        *,
        session_id: int,
        tree_id: int,
        first_message_id: int,
        credits_left: int,
        large: bool,
        max_read: int,
        max_write: int,
    ) -> None:
        self._socket = connection
        self._seal = seal
        self._session_id, self._tree_id = session_id, tree_id
        self._next_id = first_message_id
        self._credits = credits_left
        self._large = large  # whether one request may carry more than 64 KiB
        limit = 1 << 20 if large else 1 << 16
        self.max_read, self.max_write = min(max_read, limit), min(max_write, limit)
        self._received = bytearray()
        self.alive = True

    def exchange(self, *messages: Message, timeout: float) -> list[Answer]:
        """Send messages as one related compound and return the answer to each."""
        (answers,) = self.pipeline((messages,), timeout=timeout)
        return answers

    def pipeline(
        self, compounds: Iterable[Sequence[Message]], *, timeout: float
    ) -> Iterator[list[Answer]]:
        """Send compounds without waiting for each other's answers; yields those in order.

        The deadline is for each answer, not for all of them together.
        """
        waiting: deque[tuple[list[int], int]] = deque()
        answers: dict[int, Answer] = {}
        in_flight = 0
        finished = False
        try:
            for compound in compounds:
                size = sum(message.payload for message in compound)
                while waiting and not self._has_room(compound, in_flight + size):
                    ids, done = waiting.popleft()
                    in_flight -= done
                    yield self._collect(ids, answers, timeout)
                waiting.append((self._send(compound, timeout), size))
                in_flight += size
            while waiting:
                ids, _ = waiting.popleft()
                yield self._collect(ids, answers, timeout)
            finished = True
        except TimeoutError:
            raise TimedOut(f"no answer within {timeout:g} s") from None
        except OSError as error:
            raise Lost(error.strerror or str(error)) from None
        except GeneratorExit:
            finished = not waiting
            raise
        finally:
            if not finished:
                self.drop()

    def post(self, *messages: Message, timeout: float) -> list[int]:
        """Send a compound and return its message ids, for `receive` (used by the watches)."""
        try:
            return self._send(messages, timeout)
        except OSError as error:
            self.drop()
            raise Lost(error.strerror or str(error)) from None

    def receive(self, timeout: float) -> list[tuple[int, Answer]]:
        """The answers of one packet, whichever they belong to."""
        try:
            return list(self._next_answers(time.monotonic() + timeout))
        except TimeoutError:
            self.drop()
            raise TimedOut(f"no answer within {timeout:g} s") from None
        except (OSError, Lost) as error:
            self.drop()
            raise Lost(str(error)) from None

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def has_received(self) -> bool:
        """Whether a whole packet is here already, unseen by `select`."""
        return len(self._received) >= 4 and len(self._received) >= 4 + self._frame_size()

    def is_stale(self) -> bool:
        """Whether an idle connection was ended by the server (or has something unasked to say)."""
        if not self.alive:
            return True
        try:
            if hasattr(select, "poll"):  # select() fails on descriptors above 1023
                poll = select.poll()
                poll.register(self._socket, select.POLLIN)
                return bool(poll.poll(0))
            return bool(select.select([self._socket], [], [], 0)[0])
        except (OSError, ValueError):
            return True

    def drop(self) -> None:
        """End the connection. The server then closes what was open."""
        self.alive = False
        self._socket.close()

    def _has_room(self, compound: Sequence[Message], in_flight: int) -> bool:
        charge = sum(self._charge(message) for message in compound)
        return in_flight <= _IN_FLIGHT_BYTES and charge + 1 <= self._credits

    def _charge(self, message: Message) -> int:
        return (max(1, message.payload) - 1) // 65536 + 1 if self._large else 1

    def _send(self, messages: Sequence[Message], timeout: float) -> list[int]:
        parts: list[bytes | bytearray] = []
        ids = []
        last = len(messages) - 1
        for index, message in enumerate(messages):
            charge = self._charge(message)
            flags = (_SIGNED if self._seal.signs else 0) | (_RELATED if index else 0)
            size = 64 + len(message.body)
            padding = b"" if index == last else bytes(-size % 8)
            extra = 0 if self._credits >= _WANTED_CREDITS else 64
            header = _header.pack(
                b"\xfeSMB", 64, charge if self._large else 0, 0, message.command, charge + extra,
                flags, size + len(padding) if index != last else 0, self._next_id,
                0, 0 if message.command == ECHO else self._tree_id, self._session_id, _NO_SIGNATURE,
            )  # fmt: skip
            packet = bytearray().join(
                (header, message.body, padding)
            )  # copied once, it may be long
            if self._seal.signs:
                packet[48:64] = self._seal.sign(packet, self._next_id, from_server=False)
            parts.append(packet)
            ids.append(self._next_id)
            self._next_id += charge
            self._credits -= charge
        packets = self._seal.wrap(parts[0] if len(parts) == 1 else b"".join(parts))
        size_first = struct.pack(">I", len(packets))
        self._socket.settimeout(timeout)
        if len(packets) > _LONG:
            self._socket.sendall(size_first)
            self._socket.sendall(packets)
        else:
            self._socket.sendall(size_first + packets)
        return ids

    def _collect(
        self, ids: Sequence[int], answers: dict[int, Answer], timeout: float
    ) -> list[Answer]:
        deadline = time.monotonic() + timeout
        while not all(number in answers for number in ids):
            answers.update(self._next_answers(deadline))
        return [answers.pop(number) for number in ids]

    def _next_answers(self, deadline: float) -> Iterator[tuple[int, Answer]]:
        frame = self._seal.unwrap(self._next_frame(deadline))
        at = 0
        while True:
            if len(frame) < at + 64:
                raise Lost("the server sent an answer that is too short")
            magic, _, _, status, _, granted, flags, following, number = _answer_header.unpack_from(
                frame, at
            )
            packet = frame[at : at + following] if following else frame[at:] if at else frame
            if magic != b"\xfeSMB":
                raise Lost("the server sent something that is not SMB")
            if number != _UNASKED:
                self._credits += granted
                if status != _PENDING:
                    if self._seal.signs:
                        self._verify(packet, number, flags)
                    yield number, Answer(status, packet)
            if not following:
                return
            at += following

    def _verify(self, packet: bytes, number: int, flags: int) -> None:
        plain = bytearray(packet)
        plain[48:64] = _NO_SIGNATURE
        right = self._seal.sign(plain, number, from_server=True)
        if not flags & _SIGNED or not hmac.compare_digest(packet[48:64], right):
            raise Lost("the server sent an answer without a valid signature")

    def _frame_size(self) -> int:
        return int.from_bytes(self._received[1:4], "big")

    def _next_frame(self, deadline: float) -> bytes:
        received = self._received
        while len(received) < 4:
            received += self._recv(deadline)
        end = 4 + self._frame_size()
        while len(received) < end:
            received += self._recv(deadline)
        frame = bytes(memoryview(received)[4:end])
        del received[:end]
        return frame

    def _recv(self, deadline: float) -> bytes:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)
        data = self._socket.recv(1 << 18)
        if not data:
            raise Lost("the server ended the connection")
        return data

    def ask_for_credits(self, timeout: float) -> None:
        """One empty exchange, after which several requests can be under way."""
        self.exchange(echo(), timeout=timeout)
