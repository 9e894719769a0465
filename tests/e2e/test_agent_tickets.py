"""Who may order what: tickets that are refused, and why, and what `ludwig-worker check` says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ludwig.config import LabConfig, NodeConfig
from tests.e2e.test_agent_tasks import worker
from tests.lab import Agent, Lab


def tamper_with_job(lab: Lab, folder: Path, ticket: Path) -> None:
    path = folder / "job.json"
    path.write_bytes(path.read_bytes().replace(b'"retries":1', b'"retries":2'))


def raise_ticket_version(lab: Lab, folder: Path, ticket: Path) -> None:
    order = json.loads(ticket.read_text())
    ticket.write_text(json.dumps({**order, "version": 2}))


def remove_source(lab: Lab, folder: Path, ticket: Path) -> None:
    for path in (ticket.parent.parent / "sources").iterdir():
        path.unlink()


def damage_source(lab: Lab, folder: Path, ticket: Path) -> None:
    for path in (ticket.parent.parent / "sources").iterdir():
        path.write_bytes(path.read_bytes()[:-9] + b"123456789")


def allow_only_others(lab: Lab, folder: Path, ticket: Path) -> None:
    lab["hoff"].configure(allow_users=["ana", "ben"])


def cut_ticket(lab: Lab, folder: Path, ticket: Path) -> None:
    ticket.write_bytes(ticket.read_bytes()[:20])


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (tamper_with_job, "does not match its ticket"),
        (raise_ticket_version, "format 2"),
        (remove_source, "cannot be read here"),
        (damage_source, "is damaged"),
        (allow_only_others, "not in allow_users"),
        (cut_ticket, "not a valid Ticket"),
    ],
)
def test_a_bad_order_is_refused_and_its_user_sees_why(
    tmp_path: Path, spoil: Callable[[Lab, Path, Path], None], why: str
) -> None:
    with Lab(tmp_path, hosts=("hoff", "hebb")) as lab:
        job = lab.submit(params=[{"lr": 1}, {"lr": 2}])
        (ticket,) = (lab["hoff"].inbox / "tickets").iterdir()
        spoil(lab, lab.job_folder(job), ticket)
        lab.start("hoff")
        lab.until((lab.job_folder(job) / "refused" / "hoff.json").exists, "the refusal")
        rows = job.status().tasks
        assert all(row.state == "queued" for row in rows)
        assert any(why in row.why and "hoff" in row.why for row in rows), [r.why for r in rows]
        lab.until(lambda: not ticket.exists(), "the ticket to be removed")
        assert lab.claims(job) == []
        if spoil is not tamper_with_job:  # then nobody can run it
            lab.start("hebb")
            assert [done.host for done in lab.wait(job).values()] == ["hebb", "hebb"]


def test_a_ticket_that_is_sent_again_gets_a_second_chance(tmp_path: Path) -> None:
    with Lab(tmp_path) as lab:
        job = lab.submit()
        (ticket,) = (lab["hoff"].inbox / "tickets").iterdir()
        (source,) = (lab["hoff"].inbox / "sources").iterdir()
        bytes_of = {path: path.read_bytes() for path in (source, ticket)}
        source.unlink()
        lab.start()
        lab.until((lab.job_folder(job) / "refused" / "hoff.json").exists, "the refusal")
        for path, data in bytes_of.items():
            (path.parent / "arriving").write_bytes(data)
            (path.parent / "arriving").rename(path)
        assert [done.outcome for done in lab.wait(job).values()] == ["done"]
        assert not (lab.job_folder(job) / "refused" / "hoff.json").exists()


def test_users_may_have_folders_of_their_own(tmp_path: Path) -> None:
    with Lab(tmp_path) as lab:
        inbox = lab["hoff"].inbox / "ana"
        for name in ("tickets", "sources"):
            (inbox / name).mkdir(parents=True)
        lab.client.config = LabConfig(
            drive=lab.config.drive, nodes={"hoff": NodeConfig(address=f"folder:{inbox}")}
        )
        lab.start()
        job = lab.submit()
        assert [done.outcome for done in lab.wait(job).values()] == ["done"]


def test_tickets_outlive_a_restart_and_the_drives_opinion(tmp_path: Path) -> None:
    """What was accepted stands, though somebody changes job.json on the drive later."""
    run = f"""
    import os, time
    def main(param2val):
        print("ready", flush=True)
        while not os.path.exists({str(tmp_path / "open")!r}): time.sleep(0.01)
    """
    with Lab(tmp_path, slots=1) as lab:
        lab.start()
        job = lab.submit(run, [{"lr": 1}, {"lr": 2}])
        lab.until(lambda: "ready" in lab.log(job, 1), "the first")
        record = lab.job_folder(job) / "job.json"
        original = record.read_bytes()
        lab["hoff"].kill_alone()
        tamper_with_job(lab, lab.job_folder(job), record)
        (tmp_path / "open").touch()
        lab.start()
        lab.until(
            lambda: len(list((lab.job_folder(job) / "done" / "0000").iterdir())) == 2, "both ends"
        )
        record.write_bytes(original)
        assert [done.outcome for done in lab.wait(job).values()] == ["done", "done"]


def test_a_job_that_is_removed_from_the_drive_is_forgotten(tmp_path: Path) -> None:
    run = """
    import time
    def main(param2val):
        print("ready", flush=True)
        time.sleep(600)
    """
    with Lab(tmp_path) as lab:
        lab.start()
        job = lab.submit(run, [{"lr": n} for n in range(9)])
        lab.until(lambda: "ready" in lab.log(job, 1), "it to run")
        shutil.rmtree(lab.job_folder(job))
        lab.until(lambda: lab["hoff"].lines("closed"), "the job to be closed")
        lab.until(lambda: not lab.processes(), "its processes to be ended")
        lab.project = "others"
        again = lab.submit("def main(p): pass")
        assert [done.outcome for done in lab.wait(again).values()] == ["done"]


# --- ludwig-worker check ---------------------------------------------------------------------


def wrong_url(agent: Agent) -> None:
    agent.configure(drive={"url": str(agent.folder / "nowhere")})


def wrong_inbox(agent: Agent) -> None:
    agent.configure(inbox=str(agent.folder / "nowhere"))


def inbox_that_is_a_file(agent: Agent) -> None:
    (agent.folder / "file").touch()
    agent.configure(inbox=str(agent.folder / "file"))


def work_below_a_file(agent: Agent) -> None:
    (agent.folder / "file").touch()
    agent.configure(work=str(agent.folder / "file" / "work"))


def open_inbox(agent: Agent) -> None:
    agent.inbox.chmod(0o777)


def wrong_python(agent: Agent) -> None:
    agent.configure(python="/no/such/python")


def python_of_somebody_else(agent: Agent) -> None:
    private = agent.folder / "private"
    private.mkdir(mode=0o700)
    shutil.copy(shutil.which("true") or "/bin/true", private / "python")
    agent.configure(python=str(private / "python"), user="nobody")


def wrong_user(agent: Agent) -> None:
    agent.configure(user="nobody-of-that-name")


def full_disk(agent: Agent) -> None:
    agent.configure(disk_free_min_gb=999_999)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (wrong_url, "Is the drive mounted?"),
        (wrong_inbox, "install-node.sh"),
        (inbox_that_is_a_file, "not a folder"),
        (work_below_a_file, "not a folder"),
        (open_inbox, "chmod o-w"),
        (wrong_python, "/no/such/python"),
        pytest.param(python_of_somebody_else, "as nobody", marks=pytest.mark.needs_root),
        (wrong_user, "nobody-of-that-name"),
        (full_disk, "GB free"),
    ],
)
def test_check_says_what_is_wrong(
    tmp_path: Path, spoil: Callable[[Agent], None], said: str
) -> None:
    with Lab(tmp_path) as lab:
        spoil(lab["hoff"])
        answer = worker(lab["hoff"], "check")
        assert answer.returncode == 1, answer.stdout + answer.stderr
        assert said in answer.stdout + answer.stderr
        assert "Traceback" not in answer.stderr


def test_check_changes_nothing_on_a_node_that_is_well(tmp_path: Path) -> None:
    with Lab(tmp_path) as lab:
        before = sorted(str(p) for p in tmp_path.rglob("*"))
        answer = worker(lab["hoff"], "check")
        assert answer.returncode == 0, answer.stdout + answer.stderr
        assert "BAD" not in answer.stdout
        assert sorted(str(p) for p in tmp_path.rglob("*")) == before


@pytest.mark.needs_root
def test_an_agent_that_is_root_and_has_no_user_for_jobs_does_not_start(tmp_path: Path) -> None:
    with Lab(tmp_path) as lab:
        config = lab["hoff"].config
        config.write_text(config.read_text().replace('user = "root"\n', ""))
        answer = worker(lab["hoff"], "run")
        assert answer.returncode == 2
        assert "must not" in answer.stderr and "user" in answer.stderr


def test_an_agent_that_finds_no_drive_of_ludwigs_says_only_that(tmp_path: Path) -> None:
    with Lab(tmp_path) as lab:
        (tmp_path / "empty").mkdir()
        lab["hoff"].configure(drive={"url": str(tmp_path / "empty")})
        answer = worker(lab["hoff"], "run")
        assert answer.returncode == 1
        last = answer.stderr.splitlines()[-1]
        assert "Is the drive mounted?" in last and "hostname" not in last


def test_the_agent_loads_neither_pandas_nor_an_ssh_library() -> None:
    code = "import ludwig.worker.cli, ludwig.drives.smb, sys; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ}
    ).stdout.split()
    assert "ludwig.worker.agent" in loaded
    assert not {"pandas", "asyncssh", "numpy", "paramiko"} & set(loaded)
