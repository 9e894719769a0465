"""What the real servers of the tests share: a daemon, a port on loopback, a folder of its own."""

import shutil
from pathlib import Path
from typing import Protocol, Self

from ludwig.closing import Closing
from tests.processes import Daemon, accepts_connections, release_port, wait_until


class Started(Closing, Protocol):
    """Started by entering a `with` block; what fails to start leaves nothing behind."""

    def start(self) -> None: ...

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self


class LoopbackServer(Started):
    """Whoever inherits this sets the fields, and prepares what its program reads."""

    state: Path
    port: int
    daemon: Daemon

    def prepare(self) -> None:
        """Called before each start."""

    def start(self) -> None:
        """Start serving; returns when connections are accepted. Also after stop() or kill()."""
        self.prepare()
        self.daemon.start()
        wait_until(
            lambda: accepts_connections(self.port),
            what=f"{self.daemon.name} to listen on port {self.port}",
            alive=[self.daemon],
            interval=0.002,
        )

    def stop(self) -> None:
        """End it and its sessions in an orderly way. Port and files stay for the next start()."""
        self.daemon.stop()

    def kill(self) -> None:
        """End it as a power cut would."""
        self.daemon.kill()

    def restart(self) -> None:
        """Kill it, and start it again on the same port with the same files."""
        self.kill()
        self.start()

    def suspend(self) -> None:
        """Let it hang: connections stay open, no request is answered, until resume()."""
        self.daemon.suspend()

    def resume(self) -> None:
        self.daemon.resume()

    def close(self) -> None:
        """End it, and remove everything that it kept."""
        self.kill()
        release_port(self.port)
        shutil.rmtree(self.state, ignore_errors=True)
