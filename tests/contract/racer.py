"""What the processes of `test_races.py` do. Not a test."""

import hashlib
import random
from typing import Any, Protocol

from ludwig.drives import open_drive
from ludwig.errors import Exists

BLOB = 150_000
TOGETHER = 10  # names between two common starts


class Start(Protocol):
    """A barrier."""

    def wait(self, timeout: float) -> object: ...


def blob(name: str, writer: str) -> bytes:
    """Content that shows whether it is whole: its own checksum, then something to check."""
    body = (f"{name} by {writer} ".encode() * BLOB)[:BLOB]
    return hashlib.sha256(body).digest() + body


def is_whole(content: bytes) -> bool:
    return len(content) == BLOB + 32 and hashlib.sha256(content[32:]).digest() == content[:32]


def race(
    place: dict[str, Any],
    operation: str,
    names: int,
    racer: int,
    start: Start,
    together: int = TOGETHER,
) -> list[int]:
    """Try every name; the numbers of those that were won."""
    drive = open_drive(**place)
    drive.list("")  # connected
    won = []
    for number in range(names):
        if number % together == 0:
            start.wait(60)  # else whoever is first stays ahead, and nobody races
        try:
            if operation == "mkdir":
                drive.mkdir(f"race/{number}")
            else:
                getattr(drive, operation)(f"race/{number}", f"racer {racer}".encode())
            won.append(number)
        except Exists:
            pass
    drive.close()
    return won


def publish_all(place: dict[str, Any], names: int, writer: str) -> None:
    """Publish every name that is not there yet, in any order."""
    drive = open_drive(**place)
    order = list(range(names))
    random.Random(writer).shuffle(order)
    there = set(drive.list("race"))
    for number in order:
        name = f"{number}"
        if name in there:
            continue
        try:
            drive.publish(f"race/{name}", blob(name, writer))
        except Exists:
            there = set(drive.list("race"))
    drive.close()
