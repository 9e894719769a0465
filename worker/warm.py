"""An interpreter that has started and waits: a task then is a fork of it, not a new interpreter.

    <python> start_warm.py SOCKET

Each request over the socket names an attempt's folder and variables, and brings its log. The fork
becomes the supervisor of that attempt as if it had been started afresh (session, environment, log
and working directory are its own) and answers with its pid. When the agent closes the socket, or
dies, the warm interpreter ends; what it started goes on. Lies beside `child.py` and runs under the
job's interpreter, from Python 3.8 on: standard library only. The agent's side is `nursery.py`.
"""

# pathlib and contextlib are among what is too slow to import here.
# ruff: noqa: PTH123
from __future__ import annotations

import gc
import os
import sys

import child  # type: ignore[import-not-found]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ENV_START, ENV_END = 48, 49
"""Where `child.stat_fields` says at which addresses the environment of the start lies."""


def main(arguments: list[str]) -> None:
    """Serve until the agent is gone. The forked job returns from here too."""
    import _socket

    channel = _socket.socket(fileno=int(arguments[1]))
    child.preload()
    mark = Mark()
    gc.disable()
    gc.freeze()
    me = os.getpid()
    channel.send(b"ready")
    while True:
        request, passed, _, _ = channel.recvmsg(1 << 16, _socket.CMSG_SPACE(4))
        if not request:
            return
        reap()
        log = int.from_bytes(passed[0][2][:4], sys.byteorder)
        try:
            pid = os.fork()
        except OSError as error:
            channel.send(f"error {error}".encode())
            os.close(log)
            continue
        if pid == 0:
            become(child.parse_json(request.decode()), log, me, mark, channel)
            return
        os.close(log)


def reap() -> None:
    """Take notice of supervisors that ended: the agent heard of it from the kernel."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def become(attempt: dict[str, Any], log: int, parent: int, mark: Mark, channel: Any) -> None:
    """From here on this process is the supervisor of an attempt."""
    folder = attempt["folder"]
    os.setsid()
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.environ.update(attempt["variables"])
    mark.put(attempt["mark"])
    # An agent that had no answer ends its warm interpreter and then looks for the mark. So whoever
    # bears it by then is found, and whoever does not must not go on.
    if os.getppid() != parent:
        os._exit(1)
    channel.send(f"{os.getpid()}".encode())
    channel.close()
    os.chdir(folder)
    child.main(["", folder])


class Mark:
    """The variable in /proc/<pid>/environ by which processes of an attempt are known.

    The kernel shows what a process was started with. The warm interpreter was started with room
    in place of the value; each fork writes its own there.
    """

    def __init__(self) -> None:
        fields = child.stat_fields(os.getpid())
        start, end = int(fields[ENV_START]), int(fields[ENV_END])
        with open("/proc/self/environ", "rb") as file:
            shown = file.read(end - start)
        name = os.environb[b"LUDWIG_WARM"] + b"="
        at = 0 if shown.startswith(name) else shown.index(b"\0" + name) + 1
        self.address = start + at + len(name)
        self.room = shown.index(b"\0", at) - at - len(name)
        del os.environb[b"LUDWIG_WARM"]
        self.put("")  # where that is forbidden, no attempt is to find out

    def put(self, value: str) -> None:
        data = os.fsencode(value)
        if len(data) > self.room:
            os._exit(1)
        memory = os.open("/proc/self/mem", os.O_RDWR)
        os.pwrite(memory, data + bytes(self.room - len(data)), self.address)
        os.close(memory)
