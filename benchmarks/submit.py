"""How long submitting takes, beside OpenSSH's `sftp -b` sending the same files to the same nodes.

    python -m benchmarks.submit [--nodes 8] [--largest 10000] [--rounds 3]

Eight real sshd with jailed accounts and a real smbd, all on this machine. `cold`: the nodes have
nothing; `unchanged`: the same again. `notebook` is one process that keeps its Client, cold with its
first submission; `command` is `ludwig submit` in a new process each time, without the time to
import (printed below, with all that a user waits for).
The best of some rounds counts. `× sftp` is cold beside one serial pass of `sftp` over all nodes.
Beside it, what any program pays that logs in anew: as many `sftp` at once, which do nothing.
Then `benchmarks.first_process`: from the ticket to the first line of the task.
"""

import argparse
import importlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks import measure
from ludwig.client.lab import Lab
from ludwig.client.submit import Submission, submit
from ludwig.config import DriveConfig, LabConfig, NodeConfig
from ludwig.drives import open_drive, write_format
from tests.harness import SftpServer, SmbServer, SshHome, program

SOURCE_BYTES = 5_000_000
FILES = 200
SETTLED_S = 3.2
"""After an edit, until the time of a file is trusted."""
MODULES = (
    "ludwig.client.cli.app ludwig.client.client ludwig.client.submit ludwig.client.inbox_sftp "
    "ludwig.drives.smb"
)
"""What a submission imports sooner or later."""


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


def in_new_process(root: Path, project: str, tasks: int) -> tuple[float, float, float]:
    """Seconds to import, to submit, and from the start of the process to its end."""
    code = (
        "import json, sys, time\n"
        "begun = time.perf_counter()\n"
        f"import {', '.join(MODULES.split())}\n"
        "imported = time.perf_counter()\n"
        "try:\n"
        "    ludwig.client.cli.main(sys.argv[1:])\n"
        "except SystemExit as ended:\n"
        "    assert not ended.code\n"
        "print(json.dumps([imported - begun, time.perf_counter() - imported]))\n"
    )
    values = ",".join(map(str, range(tasks)))
    words = ["submit", "src", "-p", project, "-g", f"n={values}", "--env", "FIRST_LINE=lines"]
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, *words, "--json"], check=True, capture_output=True, cwd=root
    )
    whole = time.perf_counter() - begun
    importing, submitting = json.loads(done.stdout.splitlines()[-1])
    return importing, submitting, whole


def logins(home: SshHome, names: list[str]) -> float:
    """As many `sftp` as there are nodes, at once: each logs in and says goodbye."""
    started = time.perf_counter()
    running = [
        subprocess.Popen(
            [program("sftp"), "-q", "-F", str(home.config), "-b", os.devnull, name],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for name in names
    ]
    if sum(process.wait() for process in running):
        sys.exit("sftp could not log in")
    return time.perf_counter() - started


def edit(root: Path, text: str) -> None:
    """Change the source a little, so that the nodes have nothing of it, and wait for its time."""
    (root / "src" / "module_000.py").write_text(f"EDIT = {text!r}\n")
    time.sleep(SETTLED_S)


class Rounds:
    """Cold and unchanged submissions of one size, in both ways, and the best of each."""

    def __init__(self, lab: Lab, root: Path, tasks: int) -> None:
        self.lab, self.root, self.tasks = lab, root, tasks
        self.best: dict[str, float] = {}
        self.importing: list[float] = []
        self.whole: list[float] = []
        self._number = 0

    def go(self) -> None:
        self._number += 1
        name = f"{self.root.name}-{self._number}"
        edit(self.root, f"notebook {self._number}")
        fresh = Lab(self.lab.config, self.lab.drive)
        self._note("notebook cold", timed_submit(fresh, f"{name}a", self.root, self.tasks))
        # As many tries as cold has: the best of more would be better.
        self._note("notebook unchanged", timed_submit(fresh, f"{name}b", self.root, self.tasks))
        fresh.connections.close()
        edit(self.root, f"command {self._number}")
        for again, what in (("c", "cold"), ("d", "unchanged")):
            importing, took, whole = in_new_process(self.root, f"{name}{again}", self.tasks)
            self.importing.append(importing)
            self.whole.append(whole)
            self._note(f"command {what}", took)

    def _note(self, what: str, seconds: float) -> None:
        self.best[what] = min(seconds, self.best.get(what, seconds))

    def rows(self, serial: float, more: str = "") -> Iterator[tuple[str, ...]]:
        for way in ("notebook", "command"):
            cold, unchanged = self.best[f"{way} cold"], self.best[f"{way} unchanged"]
            count = "1 task" if self.tasks == 1 else f"{self.tasks:,} tasks"
            yield (
                f"{count}, {way}{more}",
                f"{cold:.3f}",
                f"{cold / serial:.2f}",
                f"{unchanged:.3f}",
                f"{unchanged / cold:.2f}",
            )


def write_config(lab: Lab, root: Path) -> None:
    """For a new process."""
    text = f'[drive]\nurl = "{lab.config.drive.url}"\nuser = "{lab.config.drive.user}"\n'
    text += "".join(f'[nodes.{name}]\naddress = "{name}"\n' for name in lab.nodes)
    (root / "ludwig.toml").write_text(text)


def make_repository(root: Path) -> None:
    for command in ("init -q", "add -A", "-c user.name=a -c user.email=b commit -q -m c"):
        subprocess.run(["git", *command.split()], check=True, cwd=root)


def submissions(nodes: int, largest: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as temporary, lab_of(nodes, Path(temporary)) as parts:
        lab, home, servers = parts
        os.environ["LUDWIG_CACHE"] = f"{temporary}/cache"
        print(f"{nodes} nodes, source of {SOURCE_BYTES / 1e6:.0f} MB in {FILES} files\n")
        sizes = [(n, "") for n in (1, 100, 1_000, 10_000) if n <= largest]
        rows: list[tuple[str, ...]] = []
        importing: list[float] = []
        whole: list[float] = []
        at_once: list[float] = []
        for number, (tasks, more) in enumerate([*sizes, (100, ", git")]):
            root = Path(temporary) / f"project{number}"
            make_project(root, number)
            write_config(lab, root)
            if more:
                make_repository(root)
            serial = serial_sftp(home, [server.name for server in servers], root)
            size = Rounds(lab, root, tasks)
            for _ in range(rounds):
                size.go()
                at_once.append(logins(home, [server.name for server in servers]))
            rows += size.rows(serial, more)
            importing += size.importing
            whole += size.whole
        head = ("submitting", "cold s", "× sftp", "unchanged s", "unchanged / cold")
        print(measure.table(head, rows))
        print(f"\n{nodes} logins of OpenSSH's sftp at once, doing nothing: {min(at_once):.3f} s")
        print(f"importing takes a new process {min(importing):.2f} s more; {measure.load()}")
        print(f"`ludwig submit` from its start to its end: {min(whole):.2f} s at best")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--largest", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    for module in MODULES.split():
        importlib.import_module(module)
    submissions(options.nodes, options.largest, options.rounds)
    print()
    sys.stdout.flush()
    command = [sys.executable, "-m", "benchmarks.first_process"]
    subprocess.run([*command, "--tries", str(5 * options.rounds)], check=True)


if __name__ == "__main__":
    main()
