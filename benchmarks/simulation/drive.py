"""A file server in memory that answers as a drive does and charges what the real one took.

One `Server` holds the files and the queue of requests; each node has its own `SimDrive`, whose
clock goes on with every call. A node that lists a folder pays for every name in it, but is given
only those that are new to it: names of a job never go away, a view only ever adds, and a simulated
lab would otherwise spend its time on reading the same names again.
"""

from __future__ import annotations

import builtins
from collections import Counter, defaultdict

from benchmarks.simulation.costs import Cost
from ludwig import errors, layout
from ludwig.drive import Entry

__all__ = ["Server", "SimDrive"]


class Server:
    """Requests wait in one line for `cores` processors."""

    def __init__(self, costs: dict[str, Cost], *, cores: int = 4, travel: float = 0.0002) -> None:
        self.costs, self.cores, self.travel = costs, cores, travel
        self.folders: dict[str, dict[str, bytes]] = defaultdict(dict)
        self.order: dict[str, list[str]] = defaultdict(list)
        self.free = self.backlog = 0.0
        """When all that is in line will have been served, and how long that takes."""
        self.hurries = False
        """Answers at once, however much there is to do."""
        self.requests = 0.0
        self.served = 0.0
        self.spent: Counter[str] = Counter()
        """Seconds of its processors, by what they were spent on."""

    def charge(self, what: str, now: float, *, names: int = 0, about: str = "") -> float:
        """When the answer is there."""
        cost, each = self.costs[what], self.costs["name"]
        serve = cost.serve + names * each.serve
        self.requests += cost.requests
        self.served += serve
        self.spent[about or what] += serve
        self.free += serve / self.cores
        waited = cost.wait + names * each.wait + cost.requests * self.travel
        waited, self.backlog = waited + self.backlog, 0.0
        return now + waited

    def begin_round(self, now: float) -> None:
        """A node begins a round of requests: the first of them waits for what is in line by now.

        Those after it do not, though they should when the server has more to do than it can: then
        what counts is that it has.
        """
        self.free = max(self.free, now)
        self.backlog = 0.0 if self.hurries else self.free - now


def _listing(path: str) -> str:
    """What a listing is of: heartbeats, claims, done, events, or the job's own folder."""
    if path == layout.NODES:
        return "list heartbeats"
    kinds = [part for part in path.split("/") if part in ("claims", "done", "events", "refused")]
    return f"list {kinds[0] if kinds else 'stops'}"


class SimDrive:
    """What `queue`, `view` and `nodes` ask of a drive."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.now = 0.0
        self._seen: dict[str, int] = {}
        self._sizes: dict[str, int] = {}

    def _pay(self, what: str, *, names: int = 0, about: str = "") -> None:
        self.now = self._server.charge(what, self.now, names=names, about=about)

    def _split(self, path: str) -> tuple[dict[str, bytes], str, str]:
        folder, _, name = path.rpartition("/")
        return self._server.folders[folder], folder, name

    def _put(self, path: str, data: bytes) -> bool:
        files, folder, name = self._split(path)
        if name in files:
            return False
        files[name] = data
        self._server.order[folder].append(name)
        return True

    def create(self, path: str, data: bytes) -> None:
        self._pay("create")
        if not self._put(path, data):
            self._pay("read")
            raise errors.Exists("creating", path)

    def publish(self, path: str, data: bytes) -> None:
        fresh = self._put(path, data)
        self._pay("publish" if fresh else "publish, exists")
        if not fresh:
            raise errors.Exists("publishing", path)

    def append(self, path: str, data: bytes, *, at: int) -> None:
        self._pay("append")
        files, _, name = self._split(path)
        if name not in files:
            self._put(path, b"")
        files[name] = files[name][:at] + data

    def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        files, _, name = self._split(path)
        if name not in files:
            self._pay("read, missing")
            raise errors.NotFound("reading", path)
        self._pay("read")
        data = files[name]
        return data[offset:] if offset else data

    def list(self, path: str) -> builtins.list[str]:
        self._pay("list", names=len(self._server.folders[path]), about=_listing(path))
        if path == layout.NODES:
            return builtins.list(self._server.folders[path])
        known = self._seen.get(path, 0)
        names = self._server.order[path]
        if path.endswith("/events"):
            return builtins.list(names)
        self._seen[path] = len(names)
        return names[known:]

    def scan(self, path: str) -> builtins.list[Entry]:
        """Sizes make an answer three times as long. Only what has grown is given: see above."""
        files = self._server.folders[path]
        self._pay("list", names=3 * len(files), about=_listing(path))
        sizes = {name: len(data) for name, data in files.items()}
        grown = [name for name, size in sizes.items() if size != self._sizes.get(name)]
        self._sizes = sizes
        return [Entry(name, False, sizes[name], 0.0) for name in grown]

    def exists(self, path: str) -> bool:
        files, _, name = self._split(path)
        self._pay("exists" if name in files else "exists, missing")
        return name in files

    def make_folders(self, *paths: str) -> None:
        self._pay("make_folders")

    def remove(self, path: str) -> None:
        self._pay("remove")
        files, _, name = self._split(path)
        files.pop(name, None)

    def other(self, *operations: str) -> None:
        """What happens besides, and decides nothing: only its cost matters here."""
        for operation in operations:
            self._pay(operation)
