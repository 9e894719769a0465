"""What an idle agent costs: processor, memory, and requests to the file server.

    .venv/bin/python -m benchmarks.idle [seconds]

A real agent against a real smbd, with the settings of a lab (a heartbeat every 15 s), observed
after it has done some work. Requests are counted by a proxy between the two, by their headers.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil

from tests.harness import SmbServer, reserve_port
from tests.lab import Lab


class CountingProxy:
    """Passes TCP on and counts SMB2 requests by their headers."""

    def __init__(self, port: int) -> None:
        self.port, self._target = reserve_port(), port
        self.requests = 0
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            near, _ = self._listener.accept()
            far = socket.create_connection(("127.0.0.1", self._target))
            threading.Thread(target=self._pass, args=(near, far, True), daemon=True).start()
            threading.Thread(target=self._pass, args=(far, near, False), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, counted: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if counted:
                    self.requests += data.count(b"\xfeSMB") + data.count(b"\xfdSMB")
                target.sendall(data)


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    with tempfile.TemporaryDirectory() as name, SmbServer() as server:
        proxy = CountingProxy(server.port)
        with Lab(Path(name), smb=server, silent_s=60.0) as lab:
            agent = lab["hoff"]
            agent.configure(drive={"url": f"smb://127.0.0.1:{proxy.port}/{server.share}"})
            lab.start()
            lab.wait(lab.submit(params=[{"lr": n} for n in range(20)]))
            lab.until(lambda: agent.lines("closed"), "the job to be closed")
            time.sleep(8)  # the watch of its stop files lingers for five seconds
            process = psutil.Process(agent.pid)
            before, first, beat = process.cpu_times(), proxy.requests, lab.beat("hoff")
            began = time.monotonic()
            time.sleep(seconds)
            took = time.monotonic() - began
            after, last, latest = process.cpu_times(), proxy.requests, lab.beat("hoff")
            cpu = after.user + after.system - before.user - before.system
            assert beat is not None and latest is not None
            beats = latest.counter - beat.counter
            print(f"idle for {took:.0f} s: {beats} heartbeats")
            print(f"processor  {100 * cpu / took:.3f} % of a core   (limit 0.5 %)")
            print(f"memory     {process.memory_info().rss / 1e6:.1f} MB          (limit 80 MB)")
            each = (last - first) / max(1, beats)
            print(f"requests   {last - first} SMB requests, {each:.1f} a heartbeat")
            print(f"threads    {process.num_threads()}")


if __name__ == "__main__":
    main()
