"""A gate between one node and the file server: shut, nothing passes, and nothing is said about it.

As with a cable that is pulled, connections stay open and hang; new ones are made and hang as well.
On loopback, so that a node can be cut off without root.
"""

from __future__ import annotations

import contextlib
import socket
import threading

from ludwig.closing import Closing

__all__ = ["Gate"]

PIECE = 1 << 16


class Gate(Closing):
    """`port` is what the node connects to; `shut` and `open` may be called at any time."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._passes = threading.Event()
        self._passes.set()
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def shut(self) -> None:
        self._passes.clear()

    def open(self) -> None:
        self._passes.set()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        self._passes.wait()
        try:
            server = socket.create_connection(("127.0.0.1", self._server_port), timeout=10)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        with self._lock:
            self._sockets |= {client, server}
        back = threading.Thread(target=self._pass, args=(server, client), daemon=True)
        back.start()
        self._pass(client, server)
        back.join()
        for end in (client, server):
            end.close()
        with self._lock:
            self._sockets -= {client, server}

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(PIECE):
                self._passes.wait()
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()
        self._passes.set()
        with self._lock:
            ends = list(self._sockets)
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
