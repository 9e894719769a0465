"""A sweep end to end with an agent whose drive is a kernel CIFS mount, and a server that restarts.

The client is on this machine: it speaks SMB to the same server, and SFTP to the machine's inbox.
"""

import hashlib
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ludwig import Client, layout
from ludwig.client.lab import Lab
from ludwig.config import DriveConfig, LabConfig, NodeConfig
from ludwig.drive import Drive
from ludwig.drives import open_drive, write_format
from ludwig.errors import NotFound
from tests.cifs.payload import INBOX_USER
from tests.cifs.vm import Machine
from tests.harness import SmbServer, wait_until

pytestmark = [pytest.mark.xdist_group("cifs"), pytest.mark.timeout(1200)]

Mount = Callable[..., str]
NODE = "cifs-node"
AWAY_S = 12.0

RUN = """
import hashlib, pathlib, random, time

def main(param2val):
    shard = random.Random(param2val["job_name"]).randbytes(200_000)
    print("working on", param2val["number"], flush=True)
    time.sleep(1.5)
    folder = pathlib.Path(param2val["save_path"])
    (folder / "shard").write_bytes(shard)
    (folder / "sha256").write_text(hashlib.sha256(shard).hexdigest())
    print("done with", param2val["number"])
"""

WORKER = """
hostname = "{node}"
inbox = "/var/sftp/ludwig"
work = "/var/lib/ludwig"
python = "/usr/bin/python3"
user = "ludwig-jobs"
slots = 2
disk_max_percent = 100
disk_free_min_gb = 0.05
[drive]
url = "{drive}"
node_silent_s = 60
"""


class Agent:
    """`ludwig-worker run` in the machine."""

    def __init__(self, machine: Machine, drive: str) -> None:
        self._machine = machine
        machine.run("sh", "-c", "id ludwig-jobs || useradd --system --create-home ludwig-jobs")
        machine.write("/etc/worker.toml", WORKER.format(node=NODE, drive=drive))
        self.checked = machine.run(
            "python3", "-m", "ludwig.worker", "check", "--config", "/etc/worker.toml"
        )
        self._process = machine.popen(
            *("sh", "-c", 'echo $$ > /run/agent.pid; exec "$@" > /run/agent.log 2>&1', "sh"),
            *("python3", "-m", "ludwig.worker", "run", "--config", "/etc/worker.toml"),
            stdout=subprocess.DEVNULL,
        )

    def poll(self) -> int | None:
        return self._process.poll()

    def log(self) -> str:
        return self._machine.run("cat", "/run/agent.log")

    def stop(self) -> None:
        self._machine.run("sh", "-c", "kill $(cat /run/agent.pid)")
        assert self._process.wait(60) == 0, self.log()


@pytest.fixture
def drive(server: SmbServer) -> Iterator[Drive]:
    """The client's."""
    drive = open_drive(server.url, user=server.user, password=server.password)
    write_format(drive)
    yield drive
    drive.close()


@pytest.fixture
def client(
    machine: Machine, drive: Drive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Client:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True, mode=0o700)
    (home / ".ssh" / "config").write_text(
        f"Host {NODE}\n  HostName 127.0.0.1\n  Port {machine.port}\n  User {INBOX_USER}\n"
        f"  IdentityFile {machine.key}\n  UserKnownHostsFile {machine.known_hosts}\n"
    )
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    settings = DriveConfig(url=drive.where, node_silent_s=60)
    config = LabConfig(drive=settings, nodes={NODE: NodeConfig(address=NODE)})
    return Client("trees", lab=Lab(config, drive))


def test_a_sweep_while_the_server_restarts(
    machine: Machine, server: SmbServer, mount: Mount, drive: Drive, client: Client, tmp_path: Path
) -> None:
    source = tmp_path / "src"
    source.mkdir()
    (source / "run.py").write_text(RUN)
    agent = Agent(machine, mount())
    try:
        wait_until(
            lambda: names(drive, layout.NODES),
            timeout=90,
            what="the agent's first heartbeat",
            alive=[agent],
        )
        configurations = [{"number": number} for number in range(6)]
        job = client.submit([source], (), configurations, reps=2, root=tmp_path, progress=False)
        done = layout.job_files("trees", job.id).done_in(0)
        wait_until(
            lambda: len(names(drive, done)) >= 3, timeout=120, what="three ends", alive=[agent]
        )
        server.kill()
        time.sleep(AWAY_S)
        server.start()
        status = job.wait(timeout=300)
        assert status.counts["done"] == 12, f"{status}\n{agent.log()}"
        assert_nothing_is_lost(server.folder / "trees", 12)
        for task in range(1, 13):
            text = job.logs(task)
            assert "working on" in text and "done with" in text and "\0" not in text
        assert agent.poll() is None, agent.log()
        assert "Traceback" not in agent.log()
    except BaseException:
        print(agent.log())
        raise
    finally:
        agent.stop()
    left = machine.run("sh", "-c", "ps -u ludwig-jobs -o pid,args --no-headers || true")
    assert left.strip() == "", left


def names(drive: Drive, folder: str) -> list[str]:
    with suppress(NotFound):
        return drive.list(folder)
    return []


def runs_of(project: Path) -> list[Path]:
    return [run for param in (project / "runs").iterdir() for run in param.glob("*num*")]


def assert_nothing_is_lost(project: Path, expected: int) -> None:
    # A task has ended before its results are moved.
    wait_until(lambda: len(runs_of(project)) == expected, timeout=60, what="every run")
    runs = runs_of(project)
    shards = set()
    for run in runs:
        shard = (run / "saves" / "shard").read_bytes()
        digest = hashlib.sha256(shard).hexdigest()
        assert (run / "saves" / "sha256").read_text() == digest
        shards.add(digest)
    assert len(shards) == expected
    files = project / ".ludwig" / "jobs" / "0001"
    ends = [json.loads(path.read_bytes()) for path in visible(files / "done" / "0000")]
    assert len(ends) == expected
    assert {end["outcome"] for end in ends} == {"done"}
    wait_until(lambda: not visible(files / "staging"), timeout=60, what="nothing to be staged")


def visible(folder: Path) -> list[Path]:
    """Without the temporary names that nobody could remove while the server was away."""
    return [path for path in folder.iterdir() if not path.name.startswith(layout.TEMPORARY)]
