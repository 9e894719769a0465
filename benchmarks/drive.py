"""Operations per second of both drives, beside the raw figures for the same requests.

    python -m benchmarks.drive [--rounds 6]

The folder drive beside plain `os` calls; the SMB drive beside Samba's own `smbclient` (a session
fed with commands) and the module `smbclient` of smbprotocol, all on one server. For what runs in
this process also the processor time of an operation, since an agent shares its machine with jobs.
"×" is how many times the raw rate the drive reaches; "range" how far its own blocks lay apart.

The contenders take turns in small blocks, the first round does not count, and the best block of
each does. Measured one after the other they could not be compared: on a machine with other work the
same `os` calls differed by a factor of eight between two runs, and memory that a virtual machine
touches for the first time made the same copy of 64 MiB take 130 ms instead of 15. Trees are
copied in parts of the same size, to real files, and every copy is compared with its source.

What makes files still depends on where a disk's file system happens to put their folder, by a
factor of four between runs. `TMPDIR=/dev/shm` takes the disk out of it (and the cost of `fsync`).
"""

# ruff: noqa: PTH102, PTH108, PTH123, PTH208
# Plain system calls are what is measured.

import argparse
import filecmp
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import smbclient  # type: ignore[import-untyped]
import smbclient.path  # type: ignore[import-untyped]

from ludwig.drives import open_drive
from tests.harness import SmbServer, program

DATA = b"x" * 300
PART = 1 << 20
LISTED = 10_000
BLOCKS = {
    "create": 100,
    "publish": 50,
    "mkdir": 100,
    "read": 100,
    "exists": 100,
    "append": 100,
    "list 10,000": 1,
    "scan 10,000": 1,
    "remove": 100,
    "upload 400 files": 1,
    "download 400 files": 1,
    "upload 64 MiB": 1,
    "download 64 MiB": 1,
}
TREES = {"400 files": "small", "64 MiB": "long"}


class Block(NamedTuple):
    each: float  # seconds an operation
    cpu: float | None


Operation = Callable[[str], object]
"""Does it once, to the name given (or to all names given, see `Contender.batch`)."""


class Contender:
    """One way of doing it, in a folder of its own with `listed` in it."""

    def __init__(self, name: str, back: Path) -> None:
        self.name = name
        self.back = back
        self.operations: dict[str, Operation] = {}
        self.send: Callable[[Path, str], object] | None = None
        self.fetch: Callable[[str, Path], object] | None = None
        self.forget: Callable[[str], object] = lambda kind: None
        self.batch: Callable[[str, list[str]], float] | None = None

    def run(self, operation: str, turn: int, tree: Path) -> Block | None:
        verb, _, what = operation.partition(" ")
        if what in TREES:
            return self._run_tree(verb, TREES[what], tree)
        names = [f"{turn}-{i}" for i in range(BLOCKS[operation])]
        if self.batch is not None and operation in SAMBA:
            return Block(self.batch(operation, names) / len(names), None)
        work = self.operations.get(operation)
        if work is None:
            return None
        start, cpu = time.perf_counter(), time.process_time()
        for name in names:
            work(name)
        return self._since(start, cpu, len(names))

    def _run_tree(self, verb: str, kind: str, tree: Path) -> Block | None:
        if self.send is None or self.fetch is None:
            return None
        target = self.back / kind
        if verb == "upload":
            self.forget(kind)
        else:
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir(parents=True)
        start, cpu = time.perf_counter(), time.process_time()
        took = self.send(tree / kind, kind) if verb == "upload" else self.fetch(kind, target)
        block = Block(took, None) if isinstance(took, float) else self._since(start, cpu, 1)
        if verb == "download":
            check_copy(tree / kind, target)
        return block

    def _since(self, start: float, cpu: float, number: int) -> Block:
        used = time.process_time() - cpu
        return Block((time.perf_counter() - start) / number, used / number)


def check_copy(source: Path, copy: Path) -> None:
    names = sorted(path.name for path in source.iterdir())
    if sorted(path.name for path in copy.iterdir()) != names:
        raise RuntimeError(f"{copy} is not complete")
    _, wrong, unreadable = filecmp.cmpfiles(source, copy, names, shallow=False)
    if wrong or unreadable:
        raise RuntimeError(f"{copy} differs from {source}: {wrong + unreadable}")


def drive_contender(name: str, back: Path, url: str, **given: object) -> Contender:
    drive = open_drive(url, **given)  # type: ignore[arg-type]
    for folder in ("created", "published", "made"):
        drive.mkdir(folder)
    end = 0

    def append(_: str) -> None:
        nonlocal end
        drive.append("log", DATA, at=end)
        end += len(DATA)

    contender = Contender(name, back / name)
    contender.operations = {
        "create": lambda n: drive.create(f"created/{n}", DATA),
        "publish": lambda n: drive.publish(f"published/{n}", DATA),
        "mkdir": lambda n: drive.mkdir(f"made/{n}"),
        "read": lambda n: drive.read(f"created/{n}"),
        "exists": lambda n: drive.exists(f"created/{n}"),
        "append": append,
        "list 10,000": lambda n: drive.list("listed"),
        "scan 10,000": lambda n: drive.scan("listed"),
        "remove": lambda n: drive.remove(f"created/{n}"),
    }
    contender.send, contender.fetch = drive.upload, drive.download
    contender.forget = drive.remove_folder
    return contender


def os_contender(root: Path, back: Path) -> Contender:
    for folder in ("created", "published", "made"):
        os.mkdir(f"{root}/{folder}")
    new = os.O_WRONLY | os.O_CREAT | os.O_EXCL

    def write(path: str, flags: int, *, sync: bool = False) -> None:
        descriptor = os.open(path, flags, 0o666)
        os.write(descriptor, DATA)
        if sync:
            os.fsync(descriptor)
        os.close(descriptor)

    def publish(name: str) -> None:
        temporary = f"{root}/published/.tmp-{name}"
        write(temporary, new, sync=True)
        os.link(temporary, f"{root}/published/{name}")
        os.unlink(temporary)

    def read(name: str) -> None:
        with open(f"{root}/created/{name}", "rb", buffering=0) as file:
            file.readall()

    def copy(source: Path, target: Path) -> None:
        target.mkdir(exist_ok=True)
        for name in os.listdir(source):
            incoming = os.open(f"{source}/{name}", os.O_RDONLY)
            outgoing = os.open(f"{target}/{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
            while part := os.read(incoming, PART):
                os.write(outgoing, part)
            os.close(incoming)
            os.close(outgoing)

    contender = Contender("os", back / "os")
    contender.operations = {
        "create": lambda n: write(f"{root}/created/{n}", new),
        "publish": publish,
        "mkdir": lambda n: os.mkdir(f"{root}/made/{n}"),
        "read": read,
        "exists": lambda n: os.path.lexists(f"{root}/created/{n}"),
        "append": lambda n: write(f"{root}/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND),
        "list 10,000": lambda n: os.listdir(f"{root}/listed"),
        "scan 10,000": lambda n: [entry.stat() for entry in os.scandir(f"{root}/listed")],
        "remove": lambda n: os.unlink(f"{root}/created/{n}"),
    }
    contender.send = lambda source, kind: copy(source, root / kind)
    contender.fetch = lambda kind, target: copy(root / kind, target)
    contender.forget = lambda kind: shutil.rmtree(root / kind, ignore_errors=True)
    return contender


SAMBA: dict[str, Callable[[str], list[str]]] = {
    "create": lambda n: [f"put data created/{n}"],
    "publish": lambda n: [
        f"put data published/.tmp-{n}",
        f"hardlink published/.tmp-{n} published/{n}",
        f"rm published/.tmp-{n}",
    ],
    "mkdir": lambda n: [f"mkdir made/{n}"],
    "read": lambda n: [f"get created/{n} /dev/null"],
    "scan 10,000": lambda n: ["ls listed/*"],
    "remove": lambda n: [f"rm created/{n}"],
}


def samba_contender(server: SmbServer, folder: str, back: Path) -> Contender:
    """Samba's command. What a session without work takes is subtracted."""
    contender = Contender("smbclient", back / "smbclient")
    contender.back.mkdir(parents=True)
    (contender.back / "data").write_bytes(DATA)
    login = contender.back / "login"
    login.write_text(f"username={server.user}\npassword={server.password}\n")
    command = [program("smbclient"), f"//127.0.0.1/{server.share}", "-p", str(server.port)]
    command += ["-A", str(login), "-D", folder, "--option=client min protocol=SMB3"]

    def session(*lines: str) -> float:
        script = "\n".join([*lines, "exit", ""])
        start = time.perf_counter()
        done = subprocess.run(
            command, input=script, capture_output=True, text=True, cwd=contender.back
        )
        took = time.perf_counter() - start
        if "NT_STATUS" in done.stdout + done.stderr:
            raise RuntimeError(f"smbclient: {done.stdout[-500:]} {done.stderr[-500:]}")
        return took

    session("mkdir created", "mkdir published", "mkdir made")
    idle = min(session() for _ in range(5))

    def batch(operation: str, names: list[str]) -> float:
        return max(1e-9, session(*(line for n in names for line in SAMBA[operation](n))) - idle)

    def send(source: Path, kind: str) -> float:
        session(f"mkdir {kind}")
        return session("prompt off", f"lcd {source}", f"cd {kind}", "mput *") - idle

    def fetch(kind: str, target: Path) -> float:
        return session("prompt off", f"lcd {target}", f"cd {kind}", "mget *") - idle

    def forget(kind: str) -> None:
        if (server.folder / folder / kind).exists():
            session(f"deltree {kind}")

    contender.batch, contender.send, contender.fetch = batch, send, fetch
    contender.forget = forget
    return contender


def smbprotocol_contender(server: SmbServer, folder: str, back: Path) -> Contender:
    """Its high-level calls, as one would write them without this drive."""
    login = {"username": server.user, "password": server.password, "port": server.port}
    given = login | {"connection_cache": {}}
    opening = given | {"share_access": "rwd", "buffering": 0}
    root = rf"\\127.0.0.1\{server.share}\{folder}"
    for name in ("created", "published", "made"):
        smbclient.mkdir(rf"{root}\{name}", **given)

    def write(path: str, mode: str) -> None:
        with smbclient.open_file(path, mode=mode, **opening) as file:
            file.write(DATA)

    def publish(name: str) -> None:
        temporary = rf"{root}\published\.tmp-{name}"
        write(temporary, "xb")
        smbclient.link(temporary, rf"{root}\published\{name}", **given)
        smbclient.remove(temporary, **given)

    def read(name: str) -> None:
        with smbclient.open_file(rf"{root}\created\{name}", mode="rb", **opening) as file:
            file.readall()

    contender = Contender("smbprotocol", back / "smbprotocol")
    contender.operations = {
        "create": lambda n: write(rf"{root}\created\{n}", "xb"),
        "publish": publish,
        "mkdir": lambda n: smbclient.mkdir(rf"{root}\made\{n}", **given),
        "read": read,
        "exists": lambda n: smbclient.path.exists(rf"{root}\created\{n}", **given),
        "append": lambda n: write(rf"{root}\log", "ab"),
        "list 10,000": lambda n: smbclient.listdir(rf"{root}\listed", **given),
        "scan 10,000": lambda n: list(smbclient.scandir(rf"{root}\listed", **given)),
        "remove": lambda n: smbclient.remove(rf"{root}\created\{n}", **given),
    }
    return contender


def compare(contenders: list[Contender], rounds: int, tree: Path) -> str:
    """The first contender is the drive; the others are what it is compared with."""
    head = f"{'':20}{contenders[0].name + '/s':>10}{'range':>8}{'cpu µs':>9}"
    head += "".join(f"{c.name + '/s':>15}{'×':>6}{'cpu µs':>9}" for c in contenders[1:])
    lines = [head]
    for operation in BLOCKS:
        blocks: dict[str, list[Block]] = {c.name: [] for c in contenders}
        for turn in range(rounds + 1):
            for contender in contenders:
                block = contender.run(operation, turn, tree)
                if block is not None and turn > 0:
                    blocks[contender.name].append(block)
        ours = blocks[contenders[0].name]
        best = min(ours)
        line = f"{operation:20}{short(1 / best.each):>10}{max(ours).each / best.each:>7.1f}x"
        line += f"{short(1e6 * (best.cpu or 0)):>9}"
        for contender in contenders[1:]:
            if not blocks[contender.name]:
                line += " " * 30
                continue
            raw = min(blocks[contender.name], key=lambda block: block.each)
            cpu = "" if raw.cpu is None else short(1e6 * raw.cpu)
            line += f"{short(1 / raw.each):>15}{raw.each / best.each:>6.2f}{cpu:>9}"
        lines.append(line.rstrip())
    return "\n".join(lines)


def short(value: float) -> str:
    return f"{value:,.0f}" if value >= 20 else f"{value:.2g}"


def make_tree(tree: Path) -> None:
    (tree / "small").mkdir(parents=True)
    (tree / "long").mkdir()
    for i in range(400):
        (tree / "small" / f"{i}.txt").write_bytes(DATA * 10)
    (tree / "long" / "file").write_bytes(os.urandom(1 << 20) * 64)


def make_place(folder: Path) -> Path:
    (folder / "listed").mkdir(parents=True)
    for i in range(LISTED):
        (folder / "listed" / f"{i:05d}.1").touch()
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=6, help="blocks of each kind that count")
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(prefix="ludwig-bench-") as name, SmbServer() as server:
        scratch = Path(name)
        tree, back = scratch / "tree", scratch / "back"
        make_tree(tree)
        for kind in ("ours", "encrypted", "samba", "smbprotocol"):
            make_place(server.folder / kind)
        folder = drive_contender("folder", back, str(make_place(scratch / "folder")))
        plain = os_contender(make_place(scratch / "os"), back)
        print(f"folder drive; {len(DATA)} bytes a file, best of {rounds} blocks, in turns\n")
        print(compare([folder, plain], rounds, tree), flush=True)
        login = {"user": server.user, "password": server.password}
        smb = [
            drive_contender("smb", back, f"{server.url}/ours", **login),
            samba_contender(server, "samba", back),
            smbprotocol_contender(server, "smbprotocol", back),
            drive_contender("encrypted", back, f"{server.url}/encrypted", encrypt=True, **login),
        ]
        print("\nSMB drive, signed; the server is on this machine\n")
        print(compare(smb, rounds, tree))


if __name__ == "__main__":
    main()
