"""Races between machines: a referee on this one, and racers wherever Python and Ludwig are.

    python -m tests.cifs.referee HOST PORT       a racer, which the referee then tells what to do

A racer connects, gets its task, says "ready" before each common start and waits for "go". What it
does between the starts is `tests.contract.racer.race`.
"""

import json
import socket
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from tests.contract import racer

WAIT_S = 300.0


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

    def __init__(self, line: Line) -> None:
        self._line = line

    def wait(self, timeout: float) -> None:
        self._line.say("ready")
        self._line.hear()


class Referee:
    """Accepts racers at a port of 127.0.0.1."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.settimeout(WAIT_S)
        self.port: int = self._socket.getsockname()[1]

    def hold(self, operation: str, names: int, places: Sequence[dict[str, Any]]) -> list[list[int]]:
        """Hold a race, one racer for each place (as it names the drive): what each has won."""
        lines = []
        for _ in places:
            lines.append(Line(self._socket.accept()[0]))
        kinds = {line: line.hear() for line in lines}
        ahead = list(enumerate(places))
        order: dict[Line, int] = {}
        for line in lines:  # a racer says which kind of place it can reach
            number, place = next(item for item in ahead if item[1]["kind"] == kinds[line])
            ahead.remove((number, place))
            order[line] = number
            given = {key: value for key, value in place.items() if key != "kind"}
            line.say({"place": given, "operation": operation, "names": names, "racer": number})
        for _ in range(0, names, racer.TOGETHER):
            for line in lines:
                line.hear()
            for line in lines:
                line.say("go")
        won = {order[line]: line.hear() for line in lines}
        for line in lines:
            line.close()
        return [won[number] for number in range(len(places))]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._socket.close()


def main(host: str, port: str, kind: str) -> None:
    line = Line(socket.create_connection((host, int(port)), timeout=WAIT_S))
    line.say(kind)
    task = line.hear()
    won = racer.race(task["place"], task["operation"], task["names"], task["racer"], Start(line))
    line.say(won)


if __name__ == "__main__":
    main(*sys.argv[1:])
