"""Sits between a drive and its server, and loses or changes answers when told to."""

import contextlib
import socket
import threading

from ludwig.closing import Closing


class LossyProxy(Closing):
    """Passes SMB packets on. After `lose_answer(n)`, the answer to the n-th request from then on
    is taken from the server and thrown away, together with the connection."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.lost = False
        self.replace: tuple[bytes, bytes] | None = None
        self._countdown: int | None = None
        self._sockets: list[socket.socket] = [self._listener]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def lose_answer(self, packet: int) -> None:
        self._countdown = packet

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server_port))
                self._sockets += (client, server)
                thread = threading.Thread(target=self._serve, args=(client, server))
                self._threads.append(thread)
                thread.start()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        losing = threading.Event()
        answers = threading.Thread(target=self._pass_answers, args=(client, server, losing))
        answers.start()
        with contextlib.suppress(OSError):
            while request := receive_packet(client):
                if self._countdown is not None:
                    self._countdown -= 1
                    if self._countdown == 0:
                        self._countdown = None
                        losing.set()
                server.sendall(request)
        hang_up(server)
        answers.join()
        client.close()
        server.close()

    def _pass_answers(
        self, client: socket.socket, server: socket.socket, losing: threading.Event
    ) -> None:
        with contextlib.suppress(OSError):
            while answer := receive_packet(server):
                if losing.is_set():
                    # All of it: the server may say "in a moment" first.
                    server.settimeout(0.2)
                    self.lost = True
                    continue
                if self.replace is not None:
                    answer = answer.replace(*self.replace)
                client.sendall(answer)
        hang_up(client)

    def close(self) -> None:
        for one in self._sockets:
            hang_up(one)
        self._listener.close()
        for thread in self._threads:
            thread.join(5)


def receive_packet(connection: socket.socket) -> bytes:
    packet = b""
    size = 4
    while len(packet) < size:
        data = connection.recv(size - len(packet))
        if not data:
            return b""
        packet += data
        if len(packet) == 4:
            size = 4 + int.from_bytes(packet[1:], "big")
    return packet


def hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
