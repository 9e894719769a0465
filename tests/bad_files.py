"""Bytes that make no sense, and every place of the drive where they may lie."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from ludwig import layout
from ludwig.drives.folder import FolderDrive

DEEP = b"[" * 200_000

BAD: dict[str, bytes] = {
    "empty": b"",
    "blank": b"\n\n  \n",
    "zeros": bytes(4096),
    "truncated": b'{"version":1,"host":"hoff","bo',
    "not utf-8": b'{"version":1,"host":"\xff\xfe"}\n',
    "lone surrogate": b'{"version":1,"host":"\\ud800","why":"\\udfff"}\n',
    "deep array": DEEP,
    "deep object": b'{"extra":' * 100_000,
    "wrong version": b'{"version":2,"host":"hoff","boot":"b","beat":1,"nonce":"12345678"}\n',
    "version as text": b'{"version":"1"}\n',
    "a list": b"[1,2,3]\n",
    "a number": b"17\n",
    "null": b"null\n",
    "null fields": b'{"version":null,"host":null,"task":null,"what":null}\n',
    "huge number": b'{"version":1,"task":' + b"9" * 5000 + b"}\n",
    "infinity": b'{"version":1,"seconds":1e999,"task":1e400}\n',
    "two records": b'{"version":1}{"version":1}\n',
    "binary": os.urandom(5000),
    "pickle": b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x94.",
    "a long line": b'"' + b"x" * (1 << 20),
    "nothing wanted": b'{"nobody":"asked"}\n',
}

FOLDER = "a folder"

KINDS = [*BAD, FOLDER]

PLACES: dict[str, Callable[[layout.JobFiles], str]] = {
    "job.json": lambda files: files.record,
    "params.json": lambda files: files.params,
    "chunk": lambda files: files.chunk_of("hoff"),
    "claim": lambda files: files.claim_of(1, 1),
    "claim of a second attempt": lambda files: files.claim_of(2, 2),
    "done": lambda files: files.done_of(1),
    "events": lambda files: files.events_of("hoff", "boot1"),
    "stop": lambda files: files.stop(),
    "stop of a task": lambda files: files.stop(2),
    "refusal": lambda files: files.refused_by("hebb"),
    "beat": lambda files: layout.beat_path("hoff", 3),
    "plan": lambda files: layout.project_files("trees").plan(2),
    "stamp": lambda files: layout.project_files("trees").stamp("2026-11-18-10-00-00"),
    "param2val": lambda files: layout.project_files("trees").param2val("param_001"),
    "staging": lambda files: files.staging_of(1, 1),
    "staged run": lambda files: files.staged_run(1, 1, 0),
}


def put(drive: FolderDrive, path: str, kind: str) -> None:
    real = Path(drive.where, path)
    if real.is_dir():
        shutil.rmtree(real)
    real.unlink(missing_ok=True)
    real.parent.mkdir(parents=True, exist_ok=True)
    if kind == FOLDER:
        real.mkdir()
        (real / "within").write_bytes(b"x")
    else:
        real.write_bytes(BAD[kind])
