"""How fast results are read: `python -m benchmarks.results [--runs 10000] [--files 1]`.

10,000 CSV files of 100 rows, over the folder drive and a real smbd on loopback. The obvious way is
`pd.read_csv` on every file and `pd.concat`; it is told where the files are, and so only reads and
parses. Ours finds the runs, checks hashes and adds the parameters as well. Each is measured in a
process of its own; "second" is a new process with the cache of the first.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import resource
import secrets
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ludwig import codec, job_records, layout
from ludwig.client.results import read_results
from ludwig.drive import Drive
from ludwig.drives.folder import FolderDrive
from ludwig.model import Chunk, Done, Event, File, Job, Origin, Run, Task

PROJECT = "trees"
REPS = 100
STAMP = "2026-11-18-10-00-00"


def build(root: Path, runs: int, files: int, rows: int = 100) -> None:
    """A finished job, written without going through its life: that would take minutes."""
    zeros = "0" * 64
    generator = np.random.default_rng(0)
    params = {
        f"param_{i + 1:03d}": {"lr": i / 100, "size": i, "optimizer": "adam", "layers": (i, 2)}
        for i in range(-(-runs // REPS))
    }
    data = codec.encode_params(params)
    names = [Run(f"param_{i // REPS + 1:03d}", f"{STAMP}_hoff_num{i}") for i in range(runs)]
    job = Job(
        project=PROJECT,
        job=1,
        nonce=secrets.token_hex(8),
        stamp=STAMP,
        contract="function",
        entry="run.py",
        source=zeros,
        params_sha256=codec.sha256(data),
        chunks={
            "hoff": Chunk(
                tasks=tuple(Task(i + 1, i, 1, zeros, (run,)) for i, run in enumerate(names))
            )
        },
        origin=Origin(user="ana", host="laptop"),
    )
    drive = FolderDrive(root)
    places = layout.job_files(PROJECT, 1)
    job_records.publish_job(drive, job, {"hoff": bytes(runs)}, data)
    index = pd.RangeIndex(0, 10 * rows, 10, name="step")
    lines = []
    for number, run in enumerate(names, start=1):
        folder = root / layout.project_files(PROJECT).run(run.param_name, run.job_name)
        folder.mkdir(parents=True)
        manifest = []
        for i in range(files):
            name = f"value_{i}"
            content = pd.Series(generator.random(rows), index=index, name=name).to_csv().encode()
            (folder / f"{name}.csv").write_bytes(content)
            digest = hashlib.sha256(content).hexdigest()
            manifest.append(File(f"{name}.csv", len(content), digest))
        done = Done(
            task=number,
            attempt=1,
            outcome="done",
            host="hoff",
            nonce=secrets.token_hex(8),
            seconds=60.0,
            files=(tuple(manifest),),
        )
        (root / places.done_of(number)).write_bytes(codec.encode(done))
        (root / places.claim_of(number, 1)).write_bytes(b"")
        lines.append(codec.encode(Event(what="ended", task=number, attempt=1, done=done)))
    (root / places.events_of("hoff", "boot")).write_bytes(b"".join(lines))


def obvious(drive: Drive, paths: list[str]) -> pd.DataFrame:
    if isinstance(drive, FolderDrive):
        return pd.concat([pd.read_csv(Path(drive.where) / path) for path in paths])
    return pd.concat([pd.read_csv(io.BytesIO(drive.read(path))) for path in paths])


def obvious_smbclient(where: dict[str, Any], paths: list[str]) -> pd.DataFrame:
    """The same with smbprotocol's own file objects, as someone without Ludwig would write it."""
    import smbclient

    smbclient.ClientConfig(username=where["user"], password=where["password"])
    frames = []
    for path in paths:
        name = rf"\\127.0.0.1\{where['share']}\{path}".replace("/", "\\")
        with smbclient.open_file(name, mode="rb", port=where["port"], share_access="r") as file:
            frames.append(pd.read_csv(file))
    return pd.concat(frames)


def open_drive(where: dict[str, Any]) -> Drive:
    if "folder" in where:
        return FolderDrive(where["folder"])
    from ludwig.drives.credentials import Credentials
    from ludwig.drives.smb import SmbDrive

    credentials = Credentials("127.0.0.1", where["user"], password=where["password"])
    return SmbDrive("127.0.0.1", where["share"], credentials=credentials, port=where["port"])


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(order: dict[str, Any]) -> dict[str, float]:
    """In a process of its own: seconds, bytes of the frame, and by how much memory grew."""
    drive = open_drive(order["where"])
    drive.list(PROJECT)  # connects
    # What importing and the first use of pandas take is nobody's fault here.
    pd.concat([pd.read_csv(io.StringIO("step,x\n1,2.5\n")), pd.DataFrame({"x": ["a"]})])
    before = peak()
    start = time.perf_counter()
    if order["how"] == "obvious":
        frame = obvious(drive, order["paths"])
    elif order["how"] == "smbclient":
        frame = obvious_smbclient(order["where"], order["paths"])
    else:
        frame = read_results(drive, PROJECT, jobs=order.get("jobs"))
    seconds = time.perf_counter() - start
    return {
        "seconds": seconds,
        "rows": len(frame),
        # Not deep: that counts a tuple that a million rows share a million times.
        "frame": int(frame.memory_usage().sum()),
        "grew": peak() - before,
    }


def in_process(order: dict[str, Any], cache: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.results", "--measure"]
    environment = os.environ | {"LUDWIG_CACHE": cache}
    ended = subprocess.run(
        command, input=json.dumps(order), text=True, capture_output=True, env=environment
    )
    if ended.returncode:
        raise SystemExit(ended.stderr)
    result: dict[str, float] = json.loads(ended.stdout)
    return result


def compare(name: str, where: dict[str, Any], paths: list[str], repeat: int) -> None:
    """All ways in turn, round after round, and the best of each: other load falls on all alike."""
    ways: dict[str, dict[str, Any]] = {"obvious loop": {"how": "obvious"}}
    if "port" in where:
        ways["obvious, smbclient"] = {"how": "smbclient"}
    ways["first call"] = {"how": "ours"}
    ways["second call"] = {"how": "ours", "cached": True}
    ways["second call, jobs=[1]"] = {"how": "ours", "cached": True, "jobs": [1]}
    best: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as shared:
        in_process({"where": where, "how": "ours", "paths": []}, shared)
        for _ in range(repeat):
            for what, way in ways.items():
                order = {"where": where, "paths": paths, **way}
                with tempfile.TemporaryDirectory() as fresh:
                    result = in_process(order, shared if way.get("cached") else fresh)
                if what not in best or result["seconds"] < best[what]["seconds"]:
                    best[what] = result
    for what, result in best.items():
        ratio = best["obvious loop"]["seconds"] / result["seconds"]
        memory = result["grew"] / result["frame"]
        print(
            f"{name:8} {what:22} {result['seconds']:8.3f} s {ratio:7.1f}×"
            f" {result['frame'] / 1e6:8.1f} MB {result['grew'] / 1e6:8.1f} MB {memory:6.2f}×",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--files", type=int, default=1, help="CSV files per run")
    parser.add_argument("--repeat", type=int, default=3, help="the best of so many")
    parser.add_argument("--no-smb", action="store_true")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(json.load(sys.stdin))))
        return
    print(f"{options.runs} runs, {options.files} CSV files of 100 rows each")
    print(
        f"{'drive':8} {'':22} {'time':>10} {'ratio':>8} {'frame':>11} {'memory':>11} {'of it':>7}"
    )
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "drive"
        root.mkdir()
        build(root, options.runs, options.files)
        paths = sorted(str(p.relative_to(root)) for p in root.glob(f"{PROJECT}/runs/*/*num*/*.csv"))
        compare("folder", {"folder": str(root)}, paths, options.repeat)
        if options.no_smb:
            return
        from tests.harness import SmbServer

        with SmbServer(folder=root) as server:
            keys = ("share", "port", "user", "password")
            where = {key: getattr(server, key) for key in keys}
            compare("smb", where, paths, options.repeat)


if __name__ == "__main__":
    main()
