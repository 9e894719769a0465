#!/usr/bin/env python3
"""Runs the scripts of this folder on all machines of a lab, over the administrator's own SSH.

    deploy/lab.py check | server | nodes | upgrade | drain | undrain | uninstall  --lab lab.toml
    deploy/lab.py add-user NAME KEY.pub | remove-user NAME                        --lab lab.toml

Plain Python 3.11 and the `ssh` of this machine, so that whatever works by hand (jump hosts, agents
and keys) works here, and nothing has to be installed where this runs. What is true on a machine
is the scripts' business: this only brings them there, runs them, and shows what they said.
"""

from __future__ import annotations

import argparse
import io
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from inventory import NAME, Lab, Target, Wrong, node_options, read_lab, server_options

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parent
SOURCE = ("pyproject.toml", "README.md", "LICENSE", "ludwig", "client", "worker")
# Patient: a login on a node whose tasks take every core can last.
SSH = ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20"]
SSH += ["-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=8"]
TIMEOUT_S = 1800


@dataclass(frozen=True)
class Outcome:
    """What became of one machine."""

    target: Target
    good: bool
    said: str
    output: str
    seconds: float


# --- one machine -------------------------------------------------------------------------------


def bundle(lab: Lab, *, wheel: Path | None, password: str | None) -> bytes:
    """Everything a script needs, as an archive. Only ever in memory: there is a password in it."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as archive:

        def add(path: Path, name: str) -> None:
            archive.add(path, name, filter=_plain)

        add(HERE, "deploy")
        if password is not None:
            for path in [wheel] if wheel else [CHECKOUT / name for name in SOURCE]:
                add(path, path.name)
            if lab.wheelhouse:
                add(lab.wheelhouse, "wheelhouse")
            if lab.keys.is_dir():
                add(lab.keys, "keys")
            entry = tarfile.TarInfo("password")
            entry.size, entry.mode = len(password.encode()), 0o600
            archive.addfile(entry, io.BytesIO(password.encode()))
    return buffer.getvalue()


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if "__pycache__" in entry.name:
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry


AS_ROOT = 'if [ "$(id -u)" = 0 ]; then as_root=; else as_root="sudo -n"; fi'
"""`sudo -n` fails instead of asking: nobody could answer."""
UNPACK = (
    f"set -e; umask 077; {AS_ROOT}; here=$(mktemp -d); "
    'trap \'$as_root rm -rf "$here"\' EXIT; cd "$here"; tar -xzf -; '
)


def remote(target: Target, command: str, data: bytes = b"") -> subprocess.CompletedProcess[str]:
    """Run a line of shell there."""
    try:
        run = subprocess.run(
            [*SSH, target.ssh, command], input=data, capture_output=True, timeout=TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess([], 255, "", f"no answer within {TIMEOUT_S} s\n")
    text = [part.decode("utf-8", "replace") for part in (run.stdout, run.stderr)]
    return subprocess.CompletedProcess([], run.returncode, *text)


def script(target: Target, archive: bytes, name: str, options: Sequence[str]) -> Outcome:
    """Bring the bundle there, and run one of its scripts as root."""
    begun = time.monotonic()
    words = [f"./deploy/{name}", *options]
    run = remote(target, f"{UNPACK}$as_root {shlex.join(words)}", archive)
    output = run.stdout + run.stderr
    return Outcome(target, run.returncode == 0, _gist(run), output, time.monotonic() - begun)


def _gist(run: subprocess.CompletedProcess[str]) -> str:
    """One line: how a script ended, or why it did not."""
    if run.returncode == 0:
        lines = run.stdout.strip().splitlines()
        return lines[-1] if lines else "done"
    if run.returncode == 255:
        return f"cannot be reached: {_last(run.stderr)}"
    if "sudo:" in run.stderr and "password" in run.stderr:
        return "sudo wants a password: let root in with a key, or allow this without one"
    step = re.search(r"stopped while: (.*)\n +why: +(.*)", run.stderr)
    return f"{step[1]}: {step[2]}" if step else _last(run.stderr or run.stdout)


def _last(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else "it said nothing"


# --- all machines ------------------------------------------------------------------------------


def everywhere(targets: Iterable[Target], work: Callable[[Target], Outcome]) -> list[Outcome]:
    with ThreadPoolExecutor(16) as pool:
        return list(pool.map(work, targets))


def one_by_one(targets: Iterable[Target], work: Callable[[Target], Outcome]) -> list[Outcome]:
    """Stops at the first that fails: the others keep what they have."""
    outcomes = []
    for target in targets:
        outcomes.append(work(target))
        if not outcomes[-1].good:
            break
    return outcomes


def table(outcomes: Sequence[Outcome]) -> str:
    width = max([len(outcome.target.name) for outcome in outcomes] + [7])
    lines = [f"{'machine':{width}}  {'':6}  {'s':>5}  what"]
    for outcome in outcomes:
        mark = "ok" if outcome.good else "FAILED"
        lines.append(
            f"{outcome.target.name:{width}}  {mark:6}  {outcome.seconds:5.1f}  {outcome.said}"
        )
    return "\n".join(lines)


def node_password(lab: Lab) -> str:
    command = f"{AS_ROOT}; $as_root cat /etc/ludwig/node.password"
    run = remote(lab.server, command)
    if run.returncode != 0:
        raise Wrong(
            f"the nodes' password cannot be read from {lab.server.ssh} ({_gist(run)}). "
            "Run `lab.py server` first."
        )
    return run.stdout


def run_server(lab: Lab, *options: str) -> Outcome:
    archive = bundle(lab, wheel=None, password=None)
    return script(lab.server, archive, "install-server.sh", [*server_options(lab), *options])


def node_installer(
    lab: Lab, *, wheel: Path | None, options: Sequence[str] = ()
) -> Callable[[Target], Outcome]:
    archive = bundle(lab, wheel=wheel, password=node_password(lab))
    return lambda node: script(
        node,
        archive,
        "install-node.sh",
        [*node_options(lab, node, wheel=wheel), *options],
    )


def look(node: Target) -> Outcome:
    """How an agent is, in one line."""
    begun = time.monotonic()
    command = (
        f"{AS_ROOT}; printf 'agent %s, ' \"$(systemctl is-active ludwig-worker)\"; "
        "printf '%s, ' \"$(readlink /opt/ludwig/current || echo 'not installed')\"; "
        "printf '%s processes of tasks\\n' \"$(($(pgrep -c -u ludwig-worker || true) - 1))\"; "
        "systemctl is-active -q ludwig-worker"
    )
    run = remote(node, command)
    said = f"cannot be reached: {_last(run.stderr)}" if run.returncode == 255 else _last(run.stdout)
    return Outcome(node, run.returncode == 0, said, run.stdout, time.monotonic() - begun)


def worker_command(command: str) -> Callable[[Target], Outcome]:
    """`ludwig-worker …` on a node, as the agent's account."""

    def work(node: Target) -> Outcome:
        begun = time.monotonic()
        words = "/opt/ludwig/current/bin/ludwig-worker " + command
        run = remote(node, f"{AS_ROOT}; $as_root runuser -u ludwig-worker -- {words}")
        output = run.stdout + run.stderr
        return Outcome(node, run.returncode == 0, _gist(run), output, time.monotonic() - begun)

    return work


# --- the command line --------------------------------------------------------------------------


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--lab", type=Path, default=Path("lab.toml"), help="the inventory")
    common.add_argument("--only", default="", help="these nodes: hoff,hebb")
    common.add_argument("--dry-run", action="store_true", help="say what would change")
    common.add_argument("--wheel", type=Path, help="Ludwig as a wheel (default: this checkout)")
    common.add_argument("-F", dest="ssh_config", help="instead of ~/.ssh/config")
    common.add_argument("-v", "--verbose", action="store_true", help="show all that was said")
    parser = argparse.ArgumentParser(
        prog="lab.py", description="Sets up and looks after all machines of a lab."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, about in {
        "check": "how the nodes are, and what would change on them",
        "server": "set up the file server",
        "nodes": "set up all nodes at once",
        "upgrade": "node by node, stopping at the first that fails; running tasks go on",
        "drain": "let nodes finish what runs and claim nothing more",
        "undrain": "let them claim again",
    }.items():
        commands.add_parser(name, parents=[common], help=about)
    add = commands.add_parser("add-user", parents=[common], help="let a member in, everywhere")
    add.add_argument("name")
    add.add_argument("key", type=Path, help="the member's public key")
    remove = commands.add_parser("remove-user", parents=[common], help="keep a member out")
    remove.add_argument("name")
    away = commands.add_parser("uninstall", parents=[common], help="remove Ludwig from all nodes")
    away.add_argument("--server", action="store_true", help="and the share from the file server")
    away.add_argument("--force", action="store_true", help="also where tasks are running")
    away.add_argument("--yes", action="store_true", help="do not ask")
    return parser.parse_args(arguments)


def chosen(lab: Lab, only: str) -> list[Target]:
    names = [name for name in only.split(",") if name]
    if unknown := sorted(set(names) - {node.name for node in lab.nodes}):
        raise Wrong(f"--only: there is no node {unknown[0]!r} in the inventory")
    return [node for node in lab.nodes if not names or node.name in names]


def act(lab: Lab, arguments: argparse.Namespace) -> list[Outcome]:
    nodes, wheel = chosen(lab, arguments.only), arguments.wheel
    dry = ["--dry-run"] if arguments.dry_run else []
    match arguments.command:
        case "check":
            there = everywhere(nodes, look)
            would = everywhere(nodes, node_installer(lab, wheel=wheel, options=["--dry-run"]))
            return [run_server(lab, "--dry-run"), *there, *would]
        case "server":
            return [run_server(lab, *dry)]
        case "nodes":
            return everywhere(nodes, node_installer(lab, wheel=wheel, options=dry))
        case "upgrade":
            return one_by_one(nodes, node_installer(lab, wheel=wheel, options=dry))
        case "drain" | "undrain":
            extra = " --undrain" if arguments.command == "undrain" else ""
            return everywhere(nodes, worker_command(f"drain{extra}"))
        case "add-user" | "remove-user":
            _change_member(lab, arguments)
            server = [run_server(lab, *dry)] if arguments.command == "add-user" else []
            return [*server, *everywhere(nodes, node_installer(lab, wheel=wheel, options=dry))]
    return _uninstall(lab, nodes, arguments)


def _change_member(lab: Lab, arguments: argparse.Namespace) -> None:
    """The keys beside the inventory are the truth; the nodes follow."""
    if not NAME.fullmatch(arguments.name):
        raise Wrong(f"{arguments.name!r} is not a name for an account")
    path = lab.keys / f"{arguments.name}.pub"
    if arguments.command == "remove-user":
        if not path.exists():
            raise Wrong(f"there is no {path}")
        if not arguments.dry_run:
            path.unlink()
        print(
            f"Their password on the file server still works: smbpasswd -d {arguments.name} there."
        )
        return
    text = arguments.key.read_text()
    if "PRIVATE" in text or not re.match(r"(ssh|ecdsa|sk)-", text):
        raise Wrong(f"{arguments.key} is not a public key")
    if not arguments.dry_run and arguments.key.resolve() != path.resolve():
        lab.keys.mkdir(exist_ok=True)
        shutil.copyfile(arguments.key, path)


def _uninstall(lab: Lab, nodes: list[Target], arguments: argparse.Namespace) -> list[Outcome]:
    names = [node.name for node in nodes] + ([lab.server.ssh] if arguments.server else [])
    if not (arguments.yes or arguments.dry_run):
        answer = input(f"Remove Ludwig from {', '.join(names)}? Type yes: ")
        if answer != "yes":
            raise Wrong("nothing was removed")
    dry = ["--dry-run"] if arguments.dry_run else []
    force = ["--force"] if arguments.force else []
    archive = bundle(lab, wheel=None, password=None)
    done = everywhere(nodes, lambda n: script(n, archive, "uninstall-node.sh", [*dry, *force]))
    if arguments.server and all(outcome.good for outcome in done):
        done.append(script(lab.server, archive, "uninstall-server.sh", dry))
    return done


def main(arguments: Sequence[str]) -> int:
    try:
        wanted = parse(arguments)
        if wanted.ssh_config:
            SSH.extend(["-F", wanted.ssh_config])
        outcomes = act(read_lab(wanted.lab), wanted)
    except (Wrong, OSError) as error:
        print(f"lab.py: {error}", file=sys.stderr)
        return 2
    for outcome in outcomes:
        if wanted.verbose or not outcome.good or wanted.dry_run:
            print(f"--- {outcome.target.name} ({outcome.target.ssh})\n{outcome.output.rstrip()}\n")
    print(table(outcomes))
    return 0 if all(outcome.good for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
