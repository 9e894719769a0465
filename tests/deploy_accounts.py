"""Two members and a node on one drive: who may do what, tried with the drive's own operations.

    python -m tests.deploy_accounts URL     (passwords in PASSWORD_<NAME>)

Prints as JSON what became of each try: "done", or the name of the error. Run as a process, since it
has to be in the network of the machines.
"""

import json
import os
import sys
from collections.abc import Callable

from ludwig import layout, queue
from ludwig.drive import Drive
from ludwig.drives import check_format, open_drive
from ludwig.errors import LudwigError
from ludwig.model import Stop
from ludwig.nodes import last_counter
from tests.jobs import tasks_in
from tests.labdrive import LabDrive


def connect(url: str, name: str) -> Drive:
    account = "ludwig-node" if name == "node" else name
    return open_drive(url, user=account, password=os.environ[f"PASSWORD_{name.upper()}"])


def main(url: str) -> dict[str, str]:
    tried: dict[str, str] = {}

    def attempt(what: str, action: Callable[[], object]) -> None:
        try:
            action()
            tried[what] = "done"
        except LudwigError as error:
            tried[what] = type(error).__name__

    ana, bob, node = (connect(url, name) for name in ("ana", "bob", "node"))
    attempt("ana opens the drive", lambda: check_format(ana))
    lab, bobs, agent = LabDrive(ana), LabDrive(bob), LabDrive(node)
    ana.make_folders("trees/runs")
    ana.create("trees/corpus.txt", b"words")
    job = lab.submit([{"lr": 0.1}, {"lr": 0.2}])
    agent._params = lab._params
    attempt("node beats", lambda: last_counter(node, "hoff"))
    attempt("node ends a task", lambda: agent.finish(job, 1, {"loss.csv": "a,b\n1,2\n"}))
    attempt("node replaces a chunk", lambda: replace_twice(node, "trees/hoff_param2val_chunk.pkl"))
    files = layout.job_files("trees", job.job)
    run = layout.project_files("trees").run("param_001", tasks_in(job)[1][1].runs[0].job_name)
    attempt("bob reads a run", lambda: bob.read(f"{run}/loss.csv"))
    attempt("bob submits to the same project", lambda: bobs.submit([{"lr": 0.3}]))
    second = bobs.submit([{"lr": 0.4}])
    agent._params.update(bobs._params)
    attempt("node ends bob's task", lambda: agent.finish(second, 1, {"loss.csv": "a\n1\n"}))
    attempt(
        "bob cancels ana's job",
        lambda: queue.stop(bob, job, Stop(user="bob", host="laptop", nonce="n")),
    )

    def tamper(who: str, drive: Drive) -> None:
        attempt(f"{who} changes a run", lambda: drive.append(f"{run}/loss.csv", b"x", at=0))
        attempt(f"{who} removes a run's file", lambda: drive.remove(f"{run}/loss.csv"))
        attempt(f"{who} removes a run", lambda: drive.remove_folder(run))
        attempt(f"{who} renames a run", lambda: drive.move(run, f"{run}x"))

    tamper("bob", bob)
    tamper("ana", ana)
    attempt("bob removes a task's end", lambda: bob.remove(files.done_of(1)))
    attempt("bob changes ana's data", lambda: bob.append("trees/corpus.txt", b"x", at=0))
    attempt("bob removes ana's data", lambda: bob.remove("trees/corpus.txt"))
    attempt("bob removes ana's job", lambda: bob.remove(files.record))
    attempt("bob changes ana's chunk", lambda: bob.append(files.chunk_of("hoff"), b"x", at=0))
    attempt("bob replaces a run's file", lambda: bob.replace(f"{run}/loss.csv", b"x"))
    attempt("bob renames ana's project", lambda: bob.move("trees", "mine"))
    attempt("bob removes the format", lambda: bob.remove(layout.FORMAT))
    attempt("bob adds to ana's project", lambda: bob.create("trees/more.txt", b"x"))
    attempt("ana changes her own data", lambda: ana.replace("trees/corpus.txt", b"y"))
    attempt("ana reads her run", lambda: ana.read(f"{run}/loss.csv"))
    return tried


def replace_twice(drive: Drive, path: str) -> None:
    drive.replace(path, b"one")
    drive.replace(path, b"two")


if __name__ == "__main__":
    json.dump(main(sys.argv[1]), sys.stdout, indent=1)
