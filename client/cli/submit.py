"""`ludwig submit`: a sweep from this folder to the nodes of the lab."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ludwig.client.cli.follow import attach
from ludwig.client.cli.options import AsJson, Project, flag, project_name
from ludwig.client.cli.submitted import print_submitted, say_warnings
from ludwig.client.cli.values import parse_grid, parse_pairs, parse_set
from ludwig.client.client import Client
from ludwig.client.hints import command
from ludwig.client.lab import Lab, open_lab
from ludwig.client.nodes_choice import choose_nodes
from ludwig.client.package import find_package, load_package
from ludwig.config import find_lab_config, load_lab
from ludwig.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from ludwig.client.submission import Submitted

__all__ = ["submit", "told"]


def complete_node(incomplete: str) -> list[str]:
    """The nodes of ludwig.toml, for the shell."""
    try:
        return [name for name in load_lab().nodes if name.startswith(incomplete)]
    except ConfigError:
        return []


def submit(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FOLDER",
            help="Source folders. Default: the package with params.py and job.py, else src.",
            show_default=False,
        ),
    ] = None,
    project: Project = None,
    grid: Annotated[
        list[str] | None,
        typer.Option("-g", "--grid", metavar="NAME=V,V…", help="Sweep over these values."),
    ] = None,
    fixed: Annotated[
        list[str] | None,
        typer.Option("-s", "--set", metavar="NAME=V", help="Fix a parameter."),
    ] = None,
    reps: Annotated[
        int,
        typer.Option(
            "-r", "--reps", metavar="N", min=1, help="Runs of each there shall be in the end."
        ),
    ] = 1,
    data: Annotated[
        list[Path] | None,
        typer.Option("-d", "--data", metavar="FOLDER", help="Send to the drive, once."),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(
            "--run", metavar="FILE", help="What is run. Default: run.py.", show_default=False
        ),
    ] = None,
    node: Annotated[
        list[str] | None,
        typer.Option(
            "--node", metavar="NAME", help="Only on these nodes.", autocompletion=complete_node
        ),
    ] = None,
    gpus: Annotated[
        int | None,
        typer.Option(
            "--gpus",
            metavar="N",
            min=0,
            help="For each task. Default: one slot.",
            show_default=False,
        ),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="NAME=TEXT", help="A variable for the tasks."),
    ] = None,
    retries: Annotated[
        int,
        typer.Option(
            "--retries",
            metavar="N",
            min=0,
            help="Tries again of a failed task on its node; then one on another. 0: none.",
        ),
    ] = 1,
    per: Annotated[
        Literal["task", "chunk"], typer.Option("--per", help="chunk: one task per node.")
    ] = "task",
    python: Annotated[
        str | None, typer.Option("--python", metavar="PATH", help="The interpreter on the nodes.")
    ] = None,
    balance: Annotated[bool, flag("--balance/--no-balance", help="Nodes help each other.")] = True,
    debug_params: Annotated[
        bool, flag("--minimal", help="With the package's param2debug.")
    ] = False,
    test: Annotated[bool, flag("--test", help="Check everything, start nothing.")] = False,
    local: Annotated[bool, flag("--local", help="On this machine, without a lab.")] = False,
    follow: Annotated[bool, flag("-f", "--follow", help="Watch until it ends.")] = False,
    logs: Annotated[bool, flag("--logs", help="With --follow: what tasks print.")] = False,
    as_json: AsJson = False,
) -> None:
    """Send a sweep to the nodes: source over SFTP, data and tasks to the drive."""
    sources, entry, configurations = what_to_run(
        Path.cwd(),
        folders or [],
        run,
        grids=parse_grid(grid or []),
        fixed=parse_set(fixed or []),
        debug=debug_params,
    )
    name = _project(project, local=local)
    # What was wrong with the command is known by now. The nodes answer while the drive does.
    lab = None if local else open_lab(meanwhile=lambda lab: _begin(lab, node))
    with Client(name, lab=lab, local=local) as client:
        job, done = client._submit(
            src_ps=sources,
            data_ps=data or [],
            param2val_list=configurations,
            reps=reps,
            worker=None,
            nodes=node or None,
            run_f_name=entry,
            test=test,
            per=per,
            env=parse_pairs(env or [], "--env"),
            retries=retries,
            gpus=gpus,
            python=python,
            balance=balance,
            progress=None if not as_json else False,
        )
        say_warnings(done)
        if as_json:
            print_submitted(done)
        else:
            print(told(client.project, done, reps=reps, test=test, follow=follow or local))
        if (follow or local) and job.id:
            raise typer.Exit(attach(job, logs=logs))


def _begin(lab: Lab, nodes: list[str] | None) -> None:
    """Log in to the nodes that were named, else to all."""
    lab.connections.begin(choose_nodes(lab, worker=None, nodes=nodes or None))


def _project(given: str | None, *, local: bool) -> str:
    """Without a lab there need not be a configuration."""
    if local and find_lab_config() is None:
        return given or Path.cwd().name
    return project_name(load_lab(), given)


def what_to_run(
    root: Path,
    folders: list[Path],
    run: str | None,
    *,
    grids: dict[str, list[Any]],
    fixed: dict[str, Any],
    debug: bool,
) -> tuple[list[Path], str, list[dict[str, Any]]]:
    """(source folders, entry file, configurations) of what the user named or has here."""
    if both := sorted(set(grids) & set(fixed)):
        raise UsageError(f"{both[0]!r} is given both by --grid and by --set.")
    place = None
    if run is None:
        place = find_package(folders[0]) if folders else find_package(root)
    if place is not None and (not folders or place.resolve() == folders[0].resolve()):
        package = load_package(place)
        sources = folders or [place.relative_to(root) if place != root else place]
        return sources, package.entry, package.configurations(grids, fixed, debug=debug)
    if debug:
        raise UsageError("--minimal needs a package with params.py (param2debug) and job.py.")
    from ludwig.client.sweep import grid

    points = [{**fixed, **point} for point in grid(**grids)] if grids else [dict(fixed)]
    return folders or _default_sources(root, run or "run.py"), run or "run.py", points


def _default_sources(root: Path, entry: str) -> list[Path]:
    if (root / "src").is_dir():
        return [Path("src")]
    if (root / entry).is_file():
        return [Path()]
    raise UsageError(
        f"no source in {root}: there is no src, no {entry}, and no package with params.py and "
        "job.py. Name the folder with your code: ludwig submit FOLDER."
    )


def told(project: str, done: Submitted, *, reps: int, test: bool, follow: bool) -> str:
    nodes = ", ".join(done.nodes)
    tasks = "1 task" if done.tasks == 1 else f"{done.tasks} tasks"
    if test:
        return f"All is well: {tasks} could go to {nodes}. Nothing was started."
    again = "".join(f" Job {n} had not reached the nodes; it has now." for n in done.completed)
    if done.job is None:
        runs = "1 run" if reps == 1 else f"{reps} runs"
        return f"Nothing to do: {runs} of each are there or under way in {project}.{again}"
    hint = f" Watch it with: {command(f'status {done.job} --watch', project)}"
    return f"Job {done.job} of {project}: {tasks} for {nodes}.{again}{'' if follow else hint}"
