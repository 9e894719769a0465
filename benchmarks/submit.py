"""How long submitting takes, beside OpenSSH's `sftp -b` sending the same files to the same nodes.

    python -m benchmarks.submit [--nodes 8] [--largest 10000]

Eight real sshd with jailed accounts and a real smbd, all on this machine. `cold`: the nodes have
nothing; `unchanged`: they have the source. The ratio is to one serial pass of `sftp` over all nodes
in the same run. Then, with one agent: from the return of submit() to the first line of the task.
"""

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ludwig.client.lab import Lab
from ludwig.client.submit import Submission, submit
from ludwig.config import DriveConfig, LabConfig, NodeConfig
from ludwig.drives import open_drive, write_format
from tests.harness import SftpServer, SmbServer, SshHome, program, wait_until

SOURCE_BYTES = 5_000_000
FILES = 200
FIRST_TASKS = 12


def make_project(folder: Path, salt: int) -> None:
    """A source tree of 5 MB in 200 files that packs to about half, as code does."""
    dice = random.Random(salt)
    source = folder / "src"
    source.mkdir(parents=True, exist_ok=True)
    for number in range(FILES):
        text = "".join(
            f"{dice.random()}  # padding padding\n" for _ in range(SOURCE_BYTES // FILES // 38)
        )
        (source / f"module_{number:03}.py").write_text(text)
    (folder / "run.py").write_text(
        "import os, time\n"
        "def main(param2val):\n"
        "    with open(os.environ['FIRST_LINE'], 'a') as file:\n"
        "        file.write(f'{time.time()}\\n')\n"
    )


def serial_sftp(home: SshHome, names: list[str], project: Path) -> float:
    """One pass of `sftp -b` over all nodes, one after another, sending the tree."""
    batch = project.parent / "batch"
    batch.write_text(
        f"-mkdir plain\ncd plain\nput -r {project / 'src'}\nput {project / 'run.py'}\n"
    )
    started = time.perf_counter()
    for name in names:
        subprocess.run(
            [program("sftp"), "-q", "-F", str(home.config), "-b", str(batch), name],
            check=True,
            capture_output=True,
        )
    return time.perf_counter() - started


@contextmanager
def lab_of(nodes: int, folder: Path) -> Iterator[tuple[Lab, SshHome, list[SftpServer]]]:
    with ExitStack() as stack:
        home = SshHome(folder / "home")
        os.environ["HOME"] = str(home.home)
        servers = [stack.enter_context(SftpServer(f"node{n}", home)) for n in range(nodes)]
        smb = stack.enter_context(SmbServer())
        os.environ["LUDWIG_SMB_PASSWORD"] = smb.password
        drive = open_drive(smb.url, user=smb.user)
        write_format(drive)
        config = LabConfig(
            drive=DriveConfig(url=smb.url, user=smb.user),
            nodes={server.name: NodeConfig(address=server.name) for server in servers},
        )
        yield Lab(config, drive), home, servers


def timed_submit(lab: Lab, project: str, root: Path, tasks: int) -> float:
    submission = Submission(
        src_ps=[Path("src")],
        param2val_list=[{"n": n} for n in range(tasks)],
        root=root,
        env={"FIRST_LINE": str(root / "lines")},
    )
    started = time.perf_counter()
    done = submit(lab, project, submission)
    seconds = time.perf_counter() - started
    if done.tasks != tasks or len(done.nodes) != len(lab.nodes) or done.warnings:
        sys.exit(f"not all was submitted: {done}")
    return seconds


def measure(nodes: int, largest: int) -> None:
    with tempfile.TemporaryDirectory() as temporary, lab_of(nodes, Path(temporary)) as parts:
        lab, home, servers = parts
        names = [server.name for server in servers]
        print(f"{nodes} nodes, source of {SOURCE_BYTES / 1e6:.0f} MB in {FILES} files\n")
        print(f"{'what':34} {'seconds':>8} {'× serial sftp':>14}")
        limit = 0.0
        for number, tasks in enumerate([n for n in (1, 100, 1_000, 10_000) if n <= largest]):
            root = Path(temporary) / f"project{number}"
            make_project(root, number)
            serial = serial_sftp(home, names, root)
            limit = limit or serial
            cold = timed_submit(lab, f"cold{number}", root, tasks)
            unchanged = timed_submit(lab, f"warm{number}", root, tasks)
            print(f"{'sftp -b, one node after another':34} {serial:8.2f} {1:14.2f}")
            print(f"{f'submit {tasks:,} tasks, cold':34} {cold:8.2f} {cold / serial:14.2f}")
            text = f"submit {tasks:,} tasks, unchanged"
            print(f"{text:34} {unchanged:8.2f} {unchanged / serial:14.2f}")
            print(f"{'  unchanged / cold':34} {'':8} {unchanged / cold:14.2f}")


def first_process() -> None:
    """From the return of submit() (the ticket is in the inbox) to the task's first line."""
    with tempfile.TemporaryDirectory() as temporary, lab_of(1, Path(temporary)) as parts:
        lab, _, servers = parts
        root = Path(temporary) / "project"
        make_project(root, 0)
        config = root / "worker.toml"
        config.write_text(
            f'hostname = "{servers[0].name}"\ninbox = "{servers[0].inbox}"\nslots = 1\n'
            f'work = "{temporary}/work"\nuser = "root"\ndisk_max_percent = 100\n'
            f'[drive]\nurl = "{lab.config.drive.url}"\nuser = "{lab.config.drive.user}"\n'
        )
        with (root / "agent.log").open("wb") as log:
            agent = subprocess.Popen(
                [sys.executable, "-m", "ludwig.worker", "run", "--config", str(config)],
                stdout=log,
                stderr=log,
            )
        try:
            nodes = ".ludwig/nodes"
            wait_until(
                lambda: lab.drive.exists(nodes) and lab.drive.list(nodes),
                timeout=30,
                what="a heartbeat",
                alive=[agent],
            )
            latencies = [first_line(lab, root, n) for n in range(FIRST_TASKS)][2:]
        finally:
            agent.terminate()
            agent.wait(timeout=30)
        print(
            f"\nsubmit() to first line of the task: median {statistics.median(latencies):.0f} ms, "
            f"worst of {len(latencies)}: {max(latencies):.0f} ms"
        )


def first_line(lab: Lab, root: Path, number: int) -> float:
    lines = root / "lines"
    lines.unlink(missing_ok=True)
    timed_submit(lab, f"first{number}", root, 1)
    returned = time.time()
    wait_until(
        lambda: lines.exists() and lines.read_text().endswith("\n"), timeout=30, interval=0.001
    )
    return (float(lines.read_text()) - returned) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--largest", type=int, default=10_000)
    options = parser.parse_args()
    measure(options.nodes, options.largest)
    first_process()


if __name__ == "__main__":
    main()
