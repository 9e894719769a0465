"""A source is ready on the node before its ticket is there, and again when it is sent once more."""

from __future__ import annotations

from pathlib import Path

from ludwig.client.snapshot import pack
from tests.lab import RUN, Lab


def send_source(lab: Lab) -> str:
    """What a client sends first, and nothing after it."""
    (lab.home / "src").mkdir(parents=True)
    (lab.home / "src" / "__init__.py").touch()
    (lab.home / "run.py").write_text(RUN)
    source = pack([Path("src")], root=lab.home, entry="run.py", out=lab.folder / "packed")
    source.archive.rename(lab["hoff"].inbox / "sources" / source.archive.name)
    return source.sha256


def test_a_source_is_unpacked_before_its_ticket_comes(tmp_path: Path) -> None:
    with Lab(tmp_path) as lab:
        lab.start()
        sha256 = send_source(lab)
        unpacked = lab["hoff"].work / "sources" / sha256
        lab.until((unpacked / "run.py").exists, "the source to be unpacked")
        assert not list((lab["hoff"].work / "attempts").iterdir())


def test_nobody_is_served_before_his_ticket_who_would_not_be_with_it(tmp_path: Path) -> None:
    with Lab(tmp_path, allow_users=["ana", "ben"]) as lab:
        lab.start()
        send_source(lab)
        job = lab.submit()
        lab.until((lab.job_folder(job) / "refused" / "hoff.json").exists, "the refusal")
        assert not (lab["hoff"].work / "sources").exists()


def test_a_job_with_a_source_that_was_used_before_finds_a_copy(tmp_path: Path) -> None:
    with Lab(tmp_path) as lab:
        lab.start()
        spares = lab["hoff"].work / "spares"
        lab.wait(lab.submit(params=[{"lr": 1}]))
        lab.until(lambda: lab["hoff"].lines("closed"), "the end of the job")
        lab.until(lambda: [p for p in spares.iterdir() if p.name[0] != "."], "a copy to spare")
        (spare,) = spares.iterdir()
        lab.wait(lab.submit(params=[{"lr": 2}]))
        lab.until(lambda: len(lab["hoff"].lines("closed")) == 2, "the end of the second job")
        assert not spare.exists(), "it was not taken"
