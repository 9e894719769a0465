"""Races between machines: a referee on this one, and racers wherever Python and Ludwig are.

    python -m tests.cifs.referee HOST PORT       a racer, which the referee then tells what to do

A racer connects, gets its task, says "ready" before each common start and waits for "go". What it
does after a start is `tests.contract.racer.race`, with one name. The virtual machine is slow: so
that it wins too, racers outside wait for up to `HEAD_START_S` more.
"""

import json
import random
import socket
import sys
import time
from collections.abc import Sequence
from typing import Any

from ludwig.closing import Closing
from tests.contract import racer

WAIT_S = 300.0
HEAD_START_S = 0.03


class Line:
    """One JSON value a line, over a socket."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(WAIT_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection
        self._file = connection.makefile("r")

    def say(self, value: object) -> None:
        self._connection.sendall(json.dumps(value).encode() + b"\n")

    def hear(self) -> Any:
        line = self._file.readline()
        if not line:
            raise ConnectionError("the other side has gone")
        return json.loads(line)

    def close(self) -> None:
        self._file.close()
        self._connection.close()


class Start:
    """What `racer.race` takes for a barrier."""

    def __init__(self, line: Line, late_s: float) -> None:
        self._line, self._late_s = line, late_s

    def wait(self, timeout: float) -> None:
        self._line.say("ready")
        self._line.hear()
        time.sleep(random.uniform(0, self._late_s))


class Referee(Closing):
    """Accepts racers at a port of 127.0.0.1."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.settimeout(WAIT_S)
        self.port: int = self._socket.getsockname()[1]

    def hold(self, operation: str, names: int, places: Sequence[dict[str, Any]]) -> list[list[int]]:
        """Hold a race, one racer for each place (as it names the drive): what each has won."""
        lines = [Line(self._socket.accept()[0]) for _ in places]
        ahead = list(enumerate(places))
        order: dict[Line, int] = {}
        for line in lines:
            kind = line.hear()  # what it can reach
            number, place = next(item for item in ahead if item[1]["kind"] == kind)
            ahead.remove((number, place))
            order[line] = number
            given = {key: value for key, value in place.items() if key != "kind"}
            line.say({"place": given, "operation": operation, "names": names, "racer": number})
        for _ in range(names):
            for line in lines:
                line.hear()
            for line in lines:
                line.say("go")
        won = {order[line]: line.hear() for line in lines}
        for line in lines:
            line.close()
        return [won[number] for number in range(len(places))]

    def close(self) -> None:
        self._socket.close()


def main(host: str, port: str, kind: str) -> None:
    line = Line(socket.create_connection((host, int(port)), timeout=WAIT_S))
    line.say(kind)
    start = Start(line, 0.0 if kind == "guest" else HEAD_START_S)
    line.say(racer.race(**line.hear(), start=start, together=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
