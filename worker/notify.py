"""Tells systemd that the agent is up and still turning, if systemd asked for it.

One datagram to the socket in NOTIFY_SOCKET; without it, nothing happens.
"""

from __future__ import annotations

import contextlib
import os
import socket

__all__ = ["notify", "watchdog_s"]


def notify(*lines: str) -> None:
    """Send e.g. `READY=1`. Never raises."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address or not hasattr(socket, "AF_UNIX"):
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        out.sendto("\n".join(lines).encode(), address)


def watchdog_s() -> float | None:
    """How often systemd wants a sign of life at the least; None if it does not."""
    try:
        micros = int(os.environ.get("WATCHDOG_USEC", ""))
    except ValueError:
        return None
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    return micros / 1e6
