"""`ludwig -r 2 -e data/ …`: the command as projects of the old system spell it.

Translates the old options onto the real submission; what each does here is in `--help` and in
docs/migrating.md. Used when the first argument is one of the old options, in the root of a project
that has `<package>/params.py` and `<package>/job.py`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import ludwig
from ludwig import errors, layout
from ludwig.client.cli.follow import attach
from ludwig.client.cli.options import project_name
from ludwig.client.cli.submit import told
from ludwig.client.cli.submitted import say_warnings
from ludwig.client.client import Client
from ludwig.client.lab import open_lab, this_user
from ludwig.client.local import open_guest_lab, open_isolated_lab
from ludwig.client.package import JOB, PARAMS, find_package, load_package
from ludwig.config import LabConfig, load_lab
from ludwig.drive import Drive
from ludwig.errors import UsageError

__all__ = ["is_old", "run"]

KEYS = (
    "the nodes' host keys are always checked; accept a new one once with `ludwig doctor --fix`, "
    "or with `sftp NODE`. -s was ignored."
)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}. See ludwig -r 1 --help")


def _parser() -> _Parser:
    parser = _Parser(
        prog="ludwig",
        description="Submit the project of this folder (its PACKAGE/params.py and PACKAGE/job.py), "
        "as spelled by the old system. The new spelling is `ludwig submit`; see `ludwig --help`.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        *("-r", "--reps"),
        type=int,
        default=1,
        metavar="N",
        help="runs of each configuration there shall be in the end (default 1); 0 cancels your "
        "jobs of this project",
    )
    add(
        *("-e", "--extra_paths"),
        nargs="*",
        type=Path,
        default=[],
        metavar="FOLDER",
        help="send these to the project's folder on the drive; jobs can import packages from it",
    )
    add("-w", "--worker", metavar="NODE", help="only on this node")
    add("-g", "--group", metavar="GROUP", help="only on nodes with this group in ludwig.toml")
    add(*("-src", "--src"), type=Path, metavar="PACKAGE", help="the package, if there are several")
    flags = {
        ("-m", "--minimal"): "one configuration, with param2debug; also if it ran before",
        ("-f", "--first_only"): "only the first configuration",
        ("-x", "--clear_runs"): "first remove the project's finished runs from the drive",
        ("-l", "--local"): "run on this machine; results go to the drive",
        ("-i", "--isolated"): "run on this machine, without a lab: results go to runs/ here",
        ("-n", "--no-upload"): "check everything, start nothing",
        ("-s", "--skip-hostkey"): "ignored: host keys are always checked",
    }
    for names, text in flags.items():
        add(*names, action="store_true", help=text)
    add(
        *("-mnt", "--ludwig_data"),
        type=Path,
        metavar="FOLDER",
        help="where the drive is mounted on this machine, if ludwig.toml does not say",
    )
    add("-v", action="version", version=f"ludwig {ludwig.__version__}", help="show the version")
    return parser


def is_old(words: Sequence[str]) -> bool:
    """Whether a command line begins with an option of the old kind."""
    if not words or not words[0].startswith("-"):
        return False
    known = {name for action in _parser()._actions for name in action.option_strings}
    first = words[0].partition("=")[0]
    return first in known - {"-h", "--help"} or (first[:2] == "-r" and first[2:].isdigit())


def run(words: Sequence[str]) -> int:
    """The exit status. `UsageError` for what cannot be meant."""
    given = _parser().parse_args(words)
    _check(given)
    package = load_package(_package(Path.cwd(), given.src))
    points = package.configurations({}, {}, debug=given.minimal)
    if given.skip_hostkey:
        print(f"ludwig: warning: {KEYS}", file=sys.stderr)
    with _client(given) as client:
        if given.reps == 0:
            return _cancel_all(client)
        if given.clear_runs:
            _clear_runs(client.lab.drive, client.project)
        job, done = client._submit(
            src_ps=[package.folder.relative_to(Path.cwd().resolve())],
            data_ps=given.extra_paths,
            param2val_list=points[:1] if given.first_only else points,
            reps=given.reps,
            worker=None if given.here else given.worker,
            nodes=None if given.here else _group(client, given.group),
            run_f_name=package.entry,
            test=given.no_upload,
            again=given.minimal or given.isolated,
            progress=None,
        )
        say_warnings(done)
        print(told(client.project, done, reps=given.reps, test=given.no_upload, follow=given.here))
        return attach(job, logs=True) if given.here and job.id else 0


def _check(given: argparse.Namespace) -> None:
    given.here = given.local or given.isolated
    if given.local and given.isolated:
        raise UsageError("-l and -i exclude each other: results go to the drive, or stay here.")
    if given.isolated and given.extra_paths:
        raise UsageError("-i needs no -e: with it, this folder is what jobs see of the drive.")
    if given.worker and given.group:
        raise UsageError("-w names a node, -g a group of them: give one of the two.")
    if given.reps < 0:
        raise UsageError(f"-r {given.reps}: must be a whole number from 0 on.")
    for path in given.extra_paths:
        if not path.is_dir():
            raise UsageError(f"-e {path}: there is no such folder here.")


def _package(root: Path, named: Path | None) -> Path:
    """The package that was named, else the one called like the folder, else the only one."""
    for place in (root / named,) if named else (root / root.name.lower(),):
        if (place / PARAMS).is_file() and (place / JOB).is_file():
            return place
        if named:
            raise UsageError(f"{place} does not hold a {PARAMS} and a {JOB}.")
    found = find_package(root)
    if found is None or found == root:
        raise UsageError(
            f"no folder in {root} holds a {PARAMS} and a {JOB}. Go to the root of your project; "
            "what else can be submitted, says `ludwig submit --help`."
        )
    return found


def _client(given: argparse.Namespace) -> Client:
    if given.isolated:
        here = Path.cwd()
        return Client(layout.check_project(here.name), lab=open_isolated_lab(here))
    config = _mounted_at(load_lab(), given.ludwig_data)
    name = project_name(config, None)
    return Client(name, lab=open_guest_lab(config, name) if given.local else open_lab(config))


def _mounted_at(config: LabConfig, mount: Path | None) -> LabConfig:
    if mount is None:
        return config
    place = mount.absolute()
    return replace(config, drive=replace(config.drive, url=str(place), mount=place))


def _group(client: Client, group: str | None) -> list[str] | None:
    if group is None:
        return None
    names = [name for name, node in client.lab.nodes.items() if group in node.groups]
    if not names:
        known = sorted({each for node in client.lab.nodes.values() for each in node.groups})
        raise UsageError(
            f"-g {group}: no node has that group. "
            + (f"There are {', '.join(known)}." if known else "Give nodes `groups` in ludwig.toml.")
        )
    return names


def _cancel_all(client: Client) -> int:
    """Submitting again does not end anything, so this is the only option that does."""
    numbers = [one.job for one in client.jobs(user=this_user()) if not one.finished]
    for number in numbers:
        client.job(number).cancel()
    said = ", ".join(map(str, numbers)) or "none is open"
    print(f"Cancelled your jobs of {client.project}: {said}.")
    return 0


def _clear_runs(drive: Drive, project: str) -> None:
    """Remove what is finished. Numbers stay as they are, and what is running is left alone."""
    files = layout.project_files(project)
    try:
        names = [name for name in drive.list(files.runs) if layout.parse_param(name)]
    except errors.NotFound:
        return
    question = f"Remove the runs of {len(names)} configurations from {drive.where}/{files.runs}?"
    if names and sys.stdin.isatty() and not _confirmed(question):
        raise UsageError("nothing was removed, and nothing submitted.")
    for name in names:
        drive.remove_folder(files.param(name))


def _confirmed(question: str) -> bool:
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    answer: Any = sys.stdin.readline()
    return str(answer).strip().lower() in ("y", "yes")
