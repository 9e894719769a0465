"""The drive is hostile, the inbox is the only authority, and secrets stay where they belong."""

from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path

import pytest

from ludwig import codec, job_records, layout
from ludwig.client.doctor import examine
from ludwig.client.lookout import Lookout
from ludwig.client.results import read_results
from ludwig.model import Job as Record
from tests.harness import SmbServer, wait_until
from tests.jobs import tasks_in
from tests.lab import Lab

QUIET = """
import os, time

def main(param2val):
    print("ran", param2val["lr"], "with", len(os.environ.get("TOKEN", "")), "letters", flush=True)
"""
TRIVIAL = """
def main(param2val):
    pass
"""
GATED = """
import os, time

def main(param2val):
    while not os.path.exists(param2val["gate"]):
        time.sleep(0.02)
"""


class Trap:
    """Unpickled by anybody, it leaves a mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.mark),)


def everything_below(folder: Path) -> bytes:
    parts = []
    for path in sorted(folder.rglob("*")):
        parts.append(str(path.relative_to(folder)).encode())
        if path.is_file() and not path.is_symlink():
            parts.append(path.read_bytes())
    return b"\n".join(parts)


def test_a_changed_chunk_is_never_unpickled(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    with Lab(tmp_path, slots=1) as lab:
        job = lab.submit(TRIVIAL, [{"n": n} for n in range(8)], retries=0)
        path = lab.job_folder(job) / "chunks" / "hoff.pkl"
        record = job_records.read_job(lab.drive, job.project, job.id)
        payload = pickle.dumps([Trap(mark)])
        data = bytearray(path.read_bytes())
        for _, task in tasks_in(record).values():
            padded = payload[:-1].ljust(task.length - 1, b"N") + b"."
            data[task.offset : task.offset + task.length] = padded[: task.length]
        path.write_bytes(data)
        (lab.root / "trees" / "hoff_param2val_chunk.pkl").write_bytes(payload)
        (lab.root / "trees" / "runs" / "trap.pkl").write_bytes(payload)
        lab.start()
        ends = lab.wait(job)
        assert {done.outcome for done in ends.values()} == {"failed"}
        assert all("SHA-256" in done.why for done in ends.values())
        Lookout(lab.client).job(job.project, job.id)
        read_results(lab.drive, job.project)
        assert not mark.exists()


def test_whoever_writes_to_the_drive_starts_nothing(tmp_path: Path) -> None:
    mark, gate = tmp_path / "mark", tmp_path / "gate"
    gate.touch()
    with Lab(tmp_path) as lab:
        lab.start()
        honest = lab.submit(GATED, [{"n": 1, "gate": str(gate)}])
        lab.wait(honest)
        # A whole forged job beside the honest one, with everything but a ticket.
        forged = lab.root / layout.job_files("trees", honest.id + 1).folder
        shutil.copytree(lab.job_folder(honest), forged)
        for name in ("claims", "done", "events", "logs", "staging"):
            shutil.rmtree(forged / name)
            (forged / name / "0000").mkdir(parents=True)
        payload = pickle.dumps([Trap(mark)])
        (forged / "chunks" / "hoff.pkl").write_bytes(payload)
        record = codec.decode(Record, (forged / "job.json").read_bytes(), "job.json")
        text = codec.encode(record).replace(f'"job":{honest.id}'.encode(), b'"job":2')
        (forged / "job.json").write_bytes(text)
        # Orders on the drive are no orders.
        for place in ("tickets", ".ludwig/tickets", "trees/.ludwig/tickets"):
            folder = lab.root / place
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "trees-0002.json").write_bytes(b"{}")
        later = lab.submit(GATED, [{"n": 2, "gate": str(gate)}])
        lab.wait(later)
        assert later.id > honest.id
        assert list((forged / "claims" / "0000").iterdir()) == []
        assert not mark.exists()


def test_a_job_changed_after_its_submission_is_refused_in_words(tmp_path: Path) -> None:
    with Lab(tmp_path) as lab:
        job = lab.submit(QUIET)
        path = lab.job_folder(job) / "job.json"
        path.write_bytes(path.read_bytes().replace(b'"retries":1', b'"retries":9'))
        lab.start()
        why = lab.until(lambda: job.status().refused.get("hoff"), "the refusal")
        assert "does not match its ticket" in why and "Submit again" in why
        assert lab.claims(job) == []


@pytest.mark.needs_smbd
def test_secrets_are_neither_on_the_drive_nor_in_a_log(tmp_path: Path) -> None:
    token = "t0p-s3cr3t-t0ken"
    with SmbServer() as smb, Lab(tmp_path, smb=smb) as lab:
        lab.start()
        job = lab.submit(QUIET, env={"TOKEN": token})
        lab.wait(job)
        assert f"with {len(token)} letters" in lab.log(job, 1), "the job itself has it"
        list(examine("trees", nodes=False))
        node = lab.folder / "hoff"
        lab.until(
            lambda: token.encode() not in everything_below(node), "the node forgets the token"
        )
        for place in (smb.folder, node):
            found = everything_below(place)
            assert smb.password.encode() not in found
            assert token.encode() not in found
        assert record_env(lab, job.id) == ("TOKEN",)


def record_env(lab: Lab, number: int) -> tuple[str, ...]:
    return job_records.read_job(lab.drive, lab.project, number).env_names


AWKWARD = """
import os

def main(param2val):
    print(param2val["text"])
    names = ["a:b?.txt", "tab\\tand\\nnewline.txt", "Größe.txt", "CON", "quote'\\".txt"]
    for name in [*names, "same.txt", "SAME.txt"]:
        with open(os.path.join(param2val["save_path"], name), "w") as file:
            file.write(param2val["text"])
"""


@pytest.mark.parametrize("kind", ["folder", "smb"])
def test_awkward_names_and_values_arrive(tmp_path: Path, kind: str) -> None:
    text = "a 'quote', a \"double\", a\nnewline, a\ttab, $HOME `id` ; rm -rf / 日本語 🎲"
    smb = SmbServer() if kind == "smb" else None
    try:
        if smb:
            smb.start()
        with Lab(tmp_path, smb=smb, project="Bäume & 'Wälder' 木") as lab:
            lab.start()
            job = lab.submit(AWKWARD, [{"text": text, "odd key '\"": (1, None)}])
            ends = lab.wait(job)
            assert [done.outcome for done in ends.values()] == ["done"], ends
            assert text in lab.log(job, 1)
            (folder,) = lab.runs(job)[1]
            files = sorted(path.name for path in (folder / "saves").iterdir())
            assert len(files) == 7 and "Größe.txt" in files, files
            assert all((folder / "saves" / name).read_text() == text for name in files)
            manifest = sorted(file.path for file in ends[1].files[0])
            assert manifest == sorted(f"saves/{name}" for name in files)
            params = codec.from_yaml((folder.parent / "param2val.yaml").read_bytes(), "yaml")
            assert params["text"] == text and params["odd key '\""] == (1, None)
            wait_until(lambda: not lab.processes(), what="no process is left")
    finally:
        if smb:
            smb.close()
