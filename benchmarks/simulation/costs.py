"""What requests cost: taken from a real smbd, used by the simulated one.

`MEASURED` is what `measure()` gave on the machine of `benchmarks/README.md`; take it anew with
`python -m benchmarks.simulate --measure`. For every operation of a drive: how many SMB requests it
makes, what the caller waits, and what the server computes for it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks.idle import CountingProxy
from ludwig import errors
from ludwig.drive import Drive
from ludwig.drives import open_drive
from tests.harness import SmbServer

__all__ = ["MEASURED", "Cost", "measure"]

NAMES = 2_000
ROUNDS, EACH = 4, 200


class Cost(NamedTuple):
    requests: float
    wait: float
    """Seconds, on an idle server in the same machine."""
    serve: float
    """Seconds of the server's processor."""


MEASURED: dict[str, Cost] = {
    "create": Cost(3, 0.000298, 0.0002),
    "publish": Cost(6, 0.00854, 0.00125),
    "publish, exists": Cost(9, 0.00464, 0.00115),
    "append": Cost(3, 0.000233, 0.0001),
    "read": Cost(3, 0.000148, 0.00005),
    "read, missing": Cost(3, 0.000764, 0.0005),
    "exists": Cost(2, 0.000093, 0.00003),
    "exists, missing": Cost(2, 0.000368, 0.0003),
    "make_folders": Cost(4, 0.000182, 0.00005),
    "upload": Cost(9, 0.00458, 0.00135),
    "move": Cost(3, 0.00224, 0.0009),
    "remove_folder": Cost(9, 0.00652, 0.0006),
    "remove": Cost(2, 0.00349, 0.00025),
    "list": Cost(4, 0.00044, 0.00005),
    "name": Cost(0, 0.000014, 0.000008),
}


def measure() -> dict[str, Cost]:
    """Every operation in blocks; the best block counts. `name` is what one name in a list adds."""
    with SmbServer() as server:
        proxy = CountingProxy(server.port)
        url = f"smb://127.0.0.1:{proxy.port}/{server.share}"
        drive = open_drive(url, user=server.user, password=server.password)
        direct = open_drive(server.url, user=server.user, password=server.password)
        for folder in ("made", "empty", "many"):
            drive.mkdir(folder)
        for index in range(NAMES):
            (server.folder / "many" / f"{index:04d}.1").touch()
        small = Path(server.folder, "..", "upload").resolve()
        small.mkdir()
        (small / "acc.csv").write_bytes(b"x" * 300)
        direct.list("empty")
        data = b"x" * 300
        operations: dict[str, Callable[[Drive, str], object]] = {
            "create": lambda d, n: d.create(f"made/c{n}", data),
            "publish": lambda d, n: d.publish(f"made/p{n}", data),
            "publish, exists": lambda d, n: _exists(d, data),
            "append": lambda d, n: d.append("made/log", data, at=0),
            "read": lambda d, n: d.read("made/log"),
            "read, missing": lambda d, n: _missing(d),
            "exists": lambda d, n: d.exists("made/log"),
            "exists, missing": lambda d, n: d.exists("many/nothing"),
            "make_folders": lambda d, n: d.make_folders("made"),
            "upload": lambda d, n: d.upload(small, f"made/u{n}", files=["acc.csv"]),
            "move": lambda d, n: d.move(f"made/u{n}", f"made/v{n}"),
            "remove_folder": lambda d, n: d.remove_folder(f"made/v{n}"),
            "remove": lambda d, n: d.remove(f"made/c{n}"),
            "list": lambda d, n: d.list("empty"),
            "list many": lambda d, n: d.list("many"),
        }
        direct.publish("made/there", b"other")
        found: dict[str, Cost] = {}
        for name, operation in operations.items():
            blocks = []
            for turn in range(ROUNDS):
                each = 5 if name == "list many" else EACH
                before, begun = _cpu(server), time.perf_counter()
                for index in range(each):
                    operation(direct, f"{turn}-{index}")
                took = time.perf_counter() - begun
                blocks.append((took / each, (_cpu(server) - before) / each))
            counted = proxy.requests
            if name == "remove_folder":
                drive.upload(small, "made/vx", files=["acc.csv"])
                counted = proxy.requests
            operation(drive, "x")
            requests = proxy.requests - counted
            found[name] = Cost(requests, min(b[0] for b in blocks), min(b[1] for b in blocks))
        many, few = found.pop("list many"), found["list"]
        found["name"] = Cost(*((m - f) / NAMES for m, f in zip(many, few, strict=True)))
        drive.close()
        direct.close()
        return found


def _exists(drive: Drive, data: bytes) -> None:
    with contextlib.suppress(errors.Exists):
        drive.publish("made/there", data)


def _missing(drive: Drive) -> None:
    with contextlib.suppress(errors.NotFound):
        drive.read("made/nothing")


def _cpu(server: SmbServer) -> float:
    parent = psutil.Process(server.daemon.pid)
    return sum(sum(p.cpu_times()[:2]) for p in (parent, *parent.children(recursive=True)))
