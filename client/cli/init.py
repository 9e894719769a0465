"""`ludwig init`: write a commented `ludwig.toml`; with --drive, prepare a new drive."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from ludwig import errors, layout
from ludwig.client.cli.options import flag
from ludwig.client.lab import open_config_drive
from ludwig.client.ssh_hosts import ssh_hosts
from ludwig.config import LAB_FILE, describe_keys, load_lab, user_lab_config
from ludwig.drives import check_format, write_format

__all__ = ["init"]


def init(
    url: Annotated[
        str | None,
        typer.Option(
            "--url", metavar="URL", help="smb://host/share, or a path.", show_default=False
        ),
    ] = None,
    user: Annotated[
        str | None,
        typer.Option("--user", metavar="NAME", help="On the file server.", show_default=False),
    ] = None,
    node: Annotated[
        list[str] | None,
        typer.Option("--node", metavar="NAME=ADDRESS", help="A node; the address may be left out."),
    ] = None,
    project: Annotated[
        str | None,
        typer.Option("-p", "--project", metavar="NAME", help="The project of this folder."),
    ] = None,
    everywhere: Annotated[
        bool, flag("--global", help="For all my projects, not for this folder.")
    ] = False,
    drive: Annotated[
        bool, flag("--drive", help="Prepare the drive of the configuration, once per lab.")
    ] = False,
    force: Annotated[bool, flag("--force", help="Replace the file that is there.")] = False,
    yes: Annotated[bool, flag("-y", "--yes", help="Ask nothing.")] = False,
) -> None:
    """Write a commented ludwig.toml; with --drive, prepare the lab's new drive."""
    if drive:
        _prepare_drive(yes=yes)
        return
    file = user_lab_config() if everywhere else Path.cwd() / LAB_FILE
    if file.exists() and not force:
        raise errors.UsageError(f"{file} is there already. Change it, or add --force.")
    ask = not yes and sys.stdin.isatty()
    url = url or _ask_url(ask)
    nodes = _nodes(node or []) or _offer_hosts(ask)
    text = lab_file(url, user=user, nodes=nodes, project=project)
    _check(text, file)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    print(f"Wrote {file}.")
    if not nodes:
        print("It names no nodes yet: add a [nodes.NAME] for each.")
    print("Next: ludwig doctor")


def _ask_url(ask: bool) -> str:
    if not ask:
        raise errors.UsageError("name the lab's drive: ludwig init --url smb://fileserver/share")
    answer: str = typer.prompt("The lab's drive (smb://host/share, or where it is mounted)")
    return answer


def _nodes(given: list[str]) -> dict[str, str]:
    found = {}
    for item in given:
        name, equals, address = item.partition("=")
        found[layout.check_host(name)] = address if equals else name
    return found


def _offer_hosts(ask: bool) -> dict[str, str]:
    """Asks which of ssh's hosts are nodes. Without anybody to ask: none, they may be anything."""
    hosts = ssh_hosts()
    if not hosts or not ask:
        return {}
    print("Hosts in ~/.ssh/config:")
    for number, host in enumerate(hosts, start=1):
        print(f"  {number:2d}  {host}")
    answer: str = typer.prompt(
        "Which are nodes of the lab? (numbers or names; empty for none)",
        default="",
        show_default=False,
    )
    chosen: dict[str, str] = {}
    for word in answer.replace(",", " ").split():
        if word.isdigit() and not 0 < int(word) <= len(hosts):
            raise errors.UsageError(f"there is no host {word}: they are 1 to {len(hosts)}.")
        host = hosts[int(word) - 1] if word.isdigit() else word
        chosen[layout.check_host(host.split(".")[0])] = host
    return chosen


def lab_file(url: str, *, user: str | None, nodes: dict[str, str], project: str | None) -> str:
    """The text of a `ludwig.toml`: every key with what it means, those not given commented out."""
    given: dict[tuple[str, str], object] = {("drive", "url"): url}
    if user:
        given["drive", "user"] = user
    if project:
        given["", "project"] = layout.check_project(project)
    lines = ["# Ludwig: where the lab's drive and nodes are. See `ludwig doctor`.", ""]
    for key in describe_keys():
        if key.file != LAB_FILE or key.section == "nodes.NAME":
            continue
        if key.section and f"[{key.section}]" not in lines:
            lines += ["", f"[{key.section}]"]
        value = given.get((key.section, key.key))
        lines.append(f"# {key.about}" + (f"; default: {key.default}" if key.default else ""))
        if value is not None:
            lines.append(f"{key.key} = {json.dumps(value, ensure_ascii=False)}")
        else:
            lines.append(f"# {key.key} = {_example(key.default)}")
    lines += ["", "# One table for each node; its name is the agent's `hostname`."]
    for key in describe_keys():
        if key.file == LAB_FILE and key.section == "nodes.NAME":
            default = f"; default: {key.default}" if key.default else ""
            lines.append(f"#   {key.key}: {key.about}{default}")
    for name, address in nodes.items():
        label = name if name.replace("-", "").replace("_", "").isalnum() else json.dumps(name)
        lines += ["", f"[nodes.{label}]", f"address = {json.dumps(address, ensure_ascii=False)}"]
    return "\n".join(lines) + "\n"


def _example(default: str) -> str:
    """A default as TOML: as it is where it is a number or a flag, else an empty string."""
    is_value = default in ("true", "false") or default.replace(".", "", 1).isdigit()
    return default if is_value or default.startswith('"') else '""'


def _check(text: str, file: Path) -> None:
    """Nothing is written that Ludwig would not read."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="ludwig-") as folder:
        path = Path(folder) / LAB_FILE
        path.write_text(text, encoding="utf-8")
        try:
            load_lab(path, environ={})
        except errors.ConfigError as error:
            raise errors.UsageError(str(error).replace(str(path), str(file))) from error


def _prepare_drive(*, yes: bool) -> None:
    config = load_lab()
    drive = open_config_drive(config)
    try:
        check_format(drive)
        print(f"{drive.where} is a drive of Ludwig's already.")
        return
    except errors.WrongVersion:
        raise
    except errors.DriveRefused as error:
        if type(error) is not errors.DriveRefused:
            raise
    drive.usage()  # raises when the folder is not there: it must not be made below a mount point
    if not yes:
        question = f"Make {drive.where} a drive of Ludwig's (adds a folder .ludwig)?"
        if not sys.stdin.isatty():
            raise errors.UsageError(f"{question} Add --yes to say so.")
        if not typer.confirm(question):
            raise typer.Exit(1)
    write_format(drive)
    drive.make_folders(layout.NODES)
    print(f"{drive.where} is ready. Next: start ludwig-worker on the nodes, then `ludwig doctor`.")
