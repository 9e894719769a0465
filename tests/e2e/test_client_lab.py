"""A student's afternoon: three nodes behind jailed SFTP, a drive, Python or a shell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ludwig.client.client import Client
from ludwig.client.lab import Lab as ClientLab
from ludwig.config import DriveConfig, LabConfig, NodeConfig
from tests.harness import SftpServer, SmbServer, SshHome, wait_until
from tests.lab import Lab, toml
from tests.sftp_server import make_key

pytestmark = [pytest.mark.needs_smbd, pytest.mark.needs_sshd]

HOSTS = ("hoff", "norman", "hebb")
RUN = """
import time
import pandas as pd
from src.model import curve

def main(param2val):
    print("training", param2val["lr"], flush=True)
    if param2val["slow"]:
        time.sleep(600)
    time.sleep(0.2)
    index = pd.Index(range(3), name="epoch")
    return [pd.Series(curve(param2val["lr"]), index, name="accuracy")]
"""
MODEL = """
def curve(lr):
    return [lr * epoch for epoch in range(3)]
"""


class Laptop:
    """The project folder of a student, with a `ludwig.toml` that only names SSH hosts."""

    def __init__(self, lab: Lab, servers: dict[str, SftpServer], home: SshHome) -> None:
        self.lab, self.home, self.folder, self.servers = lab, home, lab.home, servers
        (self.folder / "src").mkdir()
        (self.folder / "src" / "__init__.py").touch()
        (self.folder / "src" / "model.py").write_text(MODEL)
        (self.folder / "run.py").write_text(RUN)
        drive = "\n".join(f"{key} = {toml(value)}" for key, value in lab.drive_settings.items())
        nodes = "\n".join(f'[nodes.{name}]\naddress = "{name}"' for name in servers)
        (self.folder / "ludwig.toml").write_text(f'project = "trees"\n[drive]\n{drive}\n{nodes}\n')
        self.config = LabConfig(
            drive=DriveConfig(**lab.drive_settings),
            nodes={name: NodeConfig(address=name) for name in servers},
        )

    def client(self) -> Client:
        return Client("trees", lab=ClientLab(self.config, self.lab.drive))

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """The real command, in the project's folder, as from a shell."""
        environment = {**os.environ, **self.lab.env, "HOME": str(self.home.home), "COLUMNS": "80"}
        return subprocess.run(
            [Path(sys.executable).with_name("ludwig"), *words],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=90,
        )

    def answer(self, *words: str) -> dict[str, object]:
        done = self.command(*words, "--json")
        assert done.returncode == 0, done.stderr
        answer: dict[str, object] = json.loads(done.stdout)
        return answer


@pytest.fixture(params=["folder", "smb"])
def laptop(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    ssh_home: SshHome,
    sftp_server: Callable[..., SftpServer],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Laptop]:
    monkeypatch.setenv("HOME", str(ssh_home.home))
    smb = SmbServer() if request.param == "smb" else None
    servers = {name: sftp_server(name) for name in HOSTS}
    try:
        if smb is not None:
            smb.start()
        with Lab(tmp_path, hosts=HOSTS, smb=smb, silent_s=2.0) as lab:
            for name, server in servers.items():
                lab[name].configure(inbox=str(server.inbox), slots=1)
            lab.start()
            yield Laptop(lab, servers, ssh_home)
    finally:
        if smb is not None:
            smb.close()


def sweep(count: int, slow: int | None = None) -> list[dict[str, object]]:
    return [{"lr": round(n / 10, 1), "slow": n == slow} for n in range(count)]


def test_twenty_four_tasks_one_cancelled_one_node_dead(laptop: Laptop) -> None:
    client = laptop.client()
    job = client.submit([laptop.folder / "src"], [], sweep(12, slow=5), reps=2, root=laptop.folder)
    slow = [t.task for t in job.status().tasks if t.param_name == "param_006"]
    assert len(slow) == 2

    def running(task: int) -> str:
        """The node that runs it, told by its own output."""
        row = next(t for t in job.status().tasks if t.task == task)
        assert row.state == "running" and "training" in job.logs(task), row
        return row.node

    victim = wait_until(lambda: running(slow[0]), timeout=60, what="the first slow task")
    laptop.lab[victim].kill()

    def elsewhere() -> bool:
        row = next(t for t in job.status().tasks if t.task == slow[0])
        assert row.state == "running" and row.node != victim and row.attempt == 2, row
        assert "silent" in row.why or "does not know" in row.why, row.why
        return True

    wait_until(elsewhere, timeout=60, what="another node takes over")
    for task in slow:
        job.cancel(task)
    status = job.wait(timeout=90)
    assert status.finished
    assert status.counts["done"] == 22 and status.counts["stopped"] == 2
    frame = job.results()
    assert sorted(frame["lr"].unique()) == [n / 10 for n in range(12) if n != 5]
    assert (frame.groupby("lr")["job_name"].nunique() == 2).all()
    last = frame[frame["epoch"] == 2]
    assert (last["accuracy"].round(6) == (last["lr"] * 2).round(6)).all()
    states = {node.host: node.state for node in client.nodes()}
    assert states[victim] == "silent"
    assert {states[name] for name in HOSTS if name != victim} <= {"idle", "busy"}


def test_the_same_from_the_shell(laptop: Laptop) -> None:
    submitted = laptop.answer(
        "submit", "src", "--grid", "lr=0.1,0.2,0.3,0.4", "--set", "slow=False", "--reps", "3"
    )
    assert submitted["project"] == "trees" and submitted["tasks"] == 12
    assert sorted(submitted["nodes"]) == sorted(HOSTS)  # type: ignore[call-overload]
    number = str(submitted["job"])

    def over() -> bool:
        answer = laptop.answer("status", number)
        (job,) = answer["jobs"]  # type: ignore[misc]
        assert job["counts"]["done"] == 12, job["counts"]
        return True

    wait_until(over, timeout=90, interval=0.5, what="the job's end")
    page = laptop.command("status", number)
    assert page.returncode == 0
    assert max(map(len, page.stdout.splitlines())) <= 160
    rows = json.loads(laptop.command("results", number, "--json").stdout)
    assert len(rows) == 12 * 3
    again = laptop.command(
        "submit", "src", "--grid", "lr=0.1", "--set", "slow=False", "--reps", "3"
    )
    assert again.returncode == 0, again.stderr
    assert laptop.answer("status")["jobs"][-1]["job"] == int(number), "reps is a target total"  # type: ignore[index]
    lines = laptop.command("logs", number, "1")
    assert "training" in lines.stdout
    unknown = laptop.command("submit", "src", "--grid", "lr=0.9", "--node", "hof")
    assert unknown.returncode == 2 and "hoff" in unknown.stderr


def test_a_node_that_does_not_answer_is_left_out(laptop: Laptop) -> None:
    servers = laptop.config.nodes
    config = LabConfig(
        drive=laptop.config.drive, nodes={**servers, "pitts": NodeConfig(address="127.0.0.1:9")}
    )
    client = Client("trees", lab=ClientLab(config, laptop.lab.drive))
    with pytest.warns(UserWarning, match="pitts"):
        job = client.submit([laptop.folder / "src"], [], sweep(4), root=laptop.folder)
    assert "pitts" not in job.status().record.chunks
    assert job.wait(timeout=60).counts["done"] == 4


def test_the_doctor_of_a_lab_with_three_illnesses(laptop: Laptop, tmp_path: Path) -> None:
    """Each node has another one; the drive and the agents are well."""
    wait_until(lambda: laptop.command("doctor").returncode == 0, timeout=30)
    hoff, norman, hebb = (laptop.servers[name] for name in HOSTS)
    known = laptop.home.known_hosts.read_text().splitlines(keepends=True)
    laptop.home.known_hosts.write_text(
        "".join(line for line in known if not line.startswith(f"[127.0.0.1]:{hoff.port} "))
    )
    stranger = make_key(tmp_path / "stranger")
    blocks = laptop.home.config.read_text().split("Host ")
    laptop.home.config.write_text(
        "Host ".join(
            block.replace(str(laptop.home.private_key), str(stranger))
            if block.startswith("norman\n")
            else block
            for block in blocks
        )
    )
    hebb.stop()

    done = laptop.command("doctor", "--json")

    assert done.returncode == 1, done.stderr
    found = [one for one in json.loads(done.stdout) if one["level"] != "ok"]
    said = {one["check"]: one["what"] + one["todo"] for one in found}
    assert set(said) == {"node hoff", "node norman", "node hebb"}, "and nothing else"
    assert "not known here" in said["node hoff"] and "ssh-keyscan" in said["node hoff"]
    assert str(stranger) in said["node norman"] and norman.user in said["node norman"]
    assert str(hebb.port) in said["node hebb"]
