"""A network cable between this machine and a node in a network namespace of its own.

    with Cable() as cable:
        agent.wrap(*cable.node)         # lives at the far end
        cable.pull()

As with a real cable, nobody is told when it is pulled: connections stay open and hang. Its two
addresses are private ones that nothing else uses; everything is gone afterwards.
"""

from __future__ import annotations

import ipaddress
import os
import subprocess
from pathlib import Path

import psutil

from tests.processes import PORTS, release_port, reserve_port
from tests.servers import Started
from tests.tools import program

__all__ = ["Cable", "Forbidden"]

ADDRESSES = ipaddress.ip_network("10.212.0.0/14")
NAMESPACE = "ludwig-cable-"
REFUSALS = ("not permitted", "not supported", "unknown device type", "permission denied")


class Forbidden(Exception):
    """The kernel does not let us lay cables; the message says how it put that."""


class Cable(Started):
    """`near` is this machine's address, reachable from the far end alone. Needs root."""

    def __init__(self) -> None:
        # Test runs side by side hold different numbers, so their names and addresses differ too.
        self._number = reserve_port()
        first = int(ADDRESSES.network_address) + 4 * (self._number - PORTS.start)
        self.near, self._far = (str(ipaddress.ip_address(first + n)) for n in (1, 2))
        self._namespace = f"{NAMESPACE}{os.getpid()}-{self._number}"
        self._ends = (f"lud{self._number}near", f"lud{self._number}far")

    @property
    def node(self) -> tuple[str, ...]:
        """What a command begins with that is to run at the far end."""
        return (program("ip"), "netns", "exec", self._namespace)

    def pull(self) -> None:
        _ip("link", "set", self._ends[0], "down")

    def plug(self) -> None:
        _ip("link", "set", self._ends[0], "up")

    def start(self) -> None:
        _remove_forgotten()
        near, far = self._ends
        inside = ("-n", self._namespace)
        _ip("netns", "add", self._namespace)
        _ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", self._namespace)
        _ip("address", "add", f"{self.near}/30", "dev", near)
        _ip(*inside, "address", "add", f"{self._far}/30", "dev", far)
        _ip(*inside, "link", "set", "lo", "up")
        _ip(*inside, "link", "set", far, "up")
        _ip("link", "set", near, "up")

    def close(self) -> None:
        """Whatever of it there is goes. Processes at the far end should be gone by then."""
        for words in (("link", "delete", self._ends[0]), ("netns", "delete", self._namespace)):
            subprocess.run([program("ip"), *words], capture_output=True)
        release_port(self._number)


def _ip(*words: str) -> None:
    done = subprocess.run([program("ip"), *words], capture_output=True, text=True)
    said = done.stderr.strip()
    if done.returncode and any(refusal in said.lower() for refusal in REFUSALS):
        raise Forbidden(f"ip {' '.join(words)}: {said}")
    assert done.returncode == 0, f"ip {' '.join(words)}: {said}"


def _remove_forgotten() -> None:
    """Of test runs that were killed; with a namespace goes its end, and with that the other."""
    for old in Path("/run/netns").glob(f"{NAMESPACE}*"):
        pid = old.name.removeprefix(NAMESPACE).partition("-")[0]
        if pid.isdigit() and not psutil.pid_exists(int(pid)):
            subprocess.run([program("ip"), "netns", "delete", old.name], capture_output=True)
