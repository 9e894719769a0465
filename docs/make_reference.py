"""Makes `docs/reference/` from the code: docstrings, `--help`, configuration keys, the protocol.

    .venv/bin/python docs/make_reference.py            # write the pages
    .venv/bin/python docs/make_reference.py --check    # say which are out of date

A test does the latter. Only what cannot be had from the code is written here.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"
MADE = "<!-- Made by docs/make_reference.py: change the code, not this page. -->"

API = {
    "What you import": [
        ("ludwig.client.client", "Client"),
        ("ludwig.client.sweep", "grid"),
        ("ludwig.client.job", "Job"),
    ],
    "What they give you": [
        ("ludwig.client.status", "JobStatus"),
        ("ludwig.states", "TaskStatus"),
        ("ludwig.client.status", "Failed"),
        ("ludwig.client.status", "JobSummary"),
        ("ludwig.client.status", "NodeStatus"),
        ("ludwig.client.logs", "LogLine"),
    ],
    "Results": [
        ("ludwig.client.results", "read_results"),
        ("ludwig.client.plot", "plot_results"),
        ("ludwig.client.plot", "save_plot"),
        ("ludwig.client.export", "export_results"),
        ("ludwig.results", "gen_param_paths"),
    ],
}

TASK_ENVIRONMENT = {
    "LUDWIG_PROJECT": "the project's name",
    "LUDWIG_PROJECT_PATH": "the project's folder on the mounted drive; empty without a mount",
    "LUDWIG_JOB": "the job's number",
    "LUDWIG_TASK": "the task's number",
    "LUDWIG_ATTEMPT": "1, or more if it was tried before",
    "LUDWIG_CHUNK": "the file with the pickled parameters of this task, on the node's own disk",
    "LUDWIG_SAVE_PATH": "the folder whose content is kept",
    "LUDWIG_STOP": "the file that appears when the task shall stop",
    "CUDA_VISIBLE_DEVICES": "the GPUs of this task; empty for none",
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID: GPUs are numbered as nvidia-smi does",
    "TMPDIR": "a folder for temporary files that goes with the attempt",
}
"""A test checks that these are what `worker/runner.py` sets."""

USER_ENVIRONMENT = {
    "LUDWIG_CONFIG": "the lab's file, wherever you are",
    "LUDWIG_NODES": "only these nodes, separated by commas; without a file, their names",
    "LUDWIG_SMB_PASSWORD": "your password on the file server",
    "LUDWIG_CACHE": "where results that were read and sources that were packed are kept",
    "LUDWIG_CACHE_BYTES": "how much of the results, 2 GB if not set",
    "LUDWIG_DEBUG": "show tracebacks, as `--debug` does; an agent logs more",
    "LUDWIG_WORKER_CONFIG": "an agent's file, as `--config`",
}


def main() -> int:
    pages = make_pages()
    stale = [name for name, text in pages.items() if read(REFERENCE / name) != text]
    if "--check" in sys.argv[1:]:
        for name in stale:
            print(f"docs/reference/{name} is out of date: run docs/make_reference.py")
        return 1 if stale else 0
    REFERENCE.mkdir(exist_ok=True)
    for name in stale:
        (REFERENCE / name).write_text(pages[name], encoding="utf-8")
    return 0


def read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def make_pages() -> dict[str, str]:
    """Every page of the reference by its file name."""
    pages = {
        "api.md": api_page(),
        "commands.md": commands_page(),
        "configuration.md": configuration_page(),
        "environment.md": environment_page(),
        "drive.md": drive_page(),
    }
    return {name: f"{MADE}\n\n" + "\n".join(lines).strip() + "\n" for name, lines in pages.items()}


# --- Python ------------------------------------------------------------------------------------


def api_page() -> Iterator[str]:
    yield "# Python"
    yield ""
    yield "Import `Client` and `grid` from `ludwig`; the rest is what they return. Every error that"
    yield "Ludwig raises on purpose is a `ludwig.errors.LudwigError`; the tree is at the end."
    for title, members in API.items():
        yield f"\n## {title}"
        for module, name in members:
            found = getattr(importlib.import_module(module), name)
            yield from class_lines(found) if inspect.isclass(found) else function_lines(found)
    yield "\n## Errors\n"
    tree = inspect.getdoc(importlib.import_module("ludwig.errors")) or ""
    yield "```"
    yield inspect.cleandoc(tree[tree.index("LudwigError") :].partition("\n\nMessages")[0])
    yield "```"


def class_lines(found: type) -> Iterator[str]:
    yield f"\n### {found.__name__}\n"
    yield doc(found)
    data = dataclasses.is_dataclass(found) or hasattr(found, "_fields")
    if not data and "__init__" in vars(found) and found.__name__ != "Job":
        yield from signature_lines(found.__name__, found.__init__)
    if data:
        yield from field_lines(found)
    for name, member in vars(found).items():
        if name.startswith("_"):
            continue
        if isinstance(member, property) and member.__doc__:
            yield f"\n**`.{name}`** {doc(member)}"
        elif inspect.isfunction(member) and member.__doc__:
            yield from signature_lines(f".{name}", member)
            yield doc(member)


def field_lines(found: type) -> Iterator[str]:
    """Fields with their types, and the text below each in the source."""
    source = inspect.getsource(found)
    names = getattr(found, "_fields", None) or [item.name for item in dataclasses.fields(found)]
    yield ""
    for name in names:
        pattern = (
            rf"^    {name}: (?P<type>[^\n=]+?)(?: =[^\n]*)?\n(?:    \"\"\"(?P<about>.*?)\"\"\")?"
        )
        match = re.search(pattern, source, re.MULTILINE | re.DOTALL)
        about = f": {' '.join(match['about'].split())}" if match and match["about"] else ""
        kind = f" `{match['type']}`" if match else ""
        yield f"- **`{name}`**{kind}{about}"


def function_lines(found: Any) -> Iterator[str]:
    yield f"\n### {found.__name__}"
    yield from signature_lines(found.__name__, found)
    yield doc(found)


def signature_lines(name: str, function: Any) -> Iterator[str]:
    """`name(…)`, with one argument per line if they do not fit in one."""
    signature = inspect.signature(function)
    given = list(argument_words(p for p in signature.parameters.values() if p.name != "self"))
    returned = signature.return_annotation
    end = "" if returned in (inspect.Signature.empty, "None") else f" -> {returned}"
    yield "\n```python"
    line = f"{name}({', '.join(given)}){end}"
    if len(line) <= 96:
        yield line
    else:
        yield f"{name}("
        yield from (f"    {word}," for word in given)
        yield f"){end}"
    yield "```\n"


def argument_words(parameters: Iterable[inspect.Parameter]) -> Iterator[str]:
    """Each as it is written in the source."""
    starred = False
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            yield "*"
        starred = starred or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        word = f"{stars.get(parameter.kind, '')}{parameter.name}: {parameter.annotation}"
        if parameter.default is not parameter.empty:
            word += f" = {parameter.default!r}".replace("'", '"')
        yield word


def doc(found: Any) -> str:
    """A docstring as Markdown: doctests become blocks."""
    text = inspect.getdoc(found) or ""
    return re.sub(r"(?m)^>>>[\s\S]*?(?=\n\n|\Z)", lambda m: f"```python\n{m[0]}\n```", text)


# --- commands ----------------------------------------------------------------------------------


def commands_page() -> Iterator[str]:
    os.environ |= {"COLUMNS": "92", "TERM": "dumb", "NO_COLOR": "1"}
    os.environ.pop("FORCE_COLOR", None)
    yield "# Commands"
    yield ""
    yield "As `--help` shows them. Every listing has `--json`. Exit status: 0; 1 if it failed; 2"
    yield "for wrong usage; 130 after Ctrl-C. `--debug`, anywhere, shows the traceback of an error;"
    yield "`ludwig --install-completion` completes commands, options and nodes in your shell."
    client = importlib.import_module("ludwig.client.cli.app").app
    worker = importlib.import_module("ludwig.worker.cli").app
    for program, app in (("ludwig", client), ("ludwig-worker", worker)):
        yield f"\n## {program}\n"
        yield from help_lines(app, program)
        for command in app.registered_commands:
            name = command.name or command.callback.__name__.replace("_", "-")
            if not command.hidden:
                yield f"\n### {program} {name}\n"
                yield from help_lines(app, program, name)


def help_lines(app: Any, program: str, *arguments: str) -> Iterator[str]:
    from typer.testing import CliRunner

    result = CliRunner().invoke(app, [*arguments, "--help"], prog_name=program)
    if result.exit_code:
        raise SystemExit(f"{program} {' '.join(arguments)} --help: {result.output}")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", result.output)
    lines = [line.rstrip() for line in plain.splitlines()]
    yield "```text"
    yield re.sub(r"\n{3,}", "\n\n", "\n".join(lines).strip("\n"))
    yield "```"


# --- configuration and environment -------------------------------------------------------------


def configuration_page() -> Iterator[str]:
    from ludwig.config import describe_keys

    yield "# Configuration"
    yield ""
    yield "Two files in TOML: a lab has a `ludwig.toml` for those who submit, every node a"
    yield "`worker.toml` for its agent. Every key can be given by an environment variable instead,"
    yield "which wins over the file. An unknown key is an error that names the nearest known one."
    yield ""
    yield "`ludwig.toml` is the file that `LUDWIG_CONFIG` names, else the first one with a"
    yield "`[drive]` in this folder or a parent, else the one in your configuration folder (where"
    yield "`ludwig init --global` writes it). `worker.toml` is the file that `--config` or"
    yield "`LUDWIG_WORKER_CONFIG` names, else `/etc/ludwig/worker.toml`."
    before: tuple[str, str] = ("", "-")
    for key in describe_keys():
        if key.file != before[0]:
            yield f"\n## {key.file}"
        if (key.file, key.section) != before:
            yield f"\n### {f'`[{key.section}]`' if key.section else 'At the top'}\n"
            yield "| key | what | value | if not given | variable |"
            yield "|---|---|---|---|---|"
            before = (key.file, key.section)
        default = "**needed**" if key.required else cell(key.default)
        yield f"| `{key.key}` | {cell(key.about)} | {cell(key.kind)} | {default} | `{key.env}` |"


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def environment_page() -> Iterator[str]:
    from ludwig.config import describe_keys

    yield "# Environment"
    yield ""
    yield "## What a task finds"
    yield ""
    yield "Beside the variables of `env=`. Nothing of the agent's own environment gets in but the"
    yield "locale; output is not buffered."
    yield ""
    yield from table(TASK_ENVIRONMENT)
    yield ""
    yield "## What you can set"
    yield ""
    yield from table(USER_ENVIRONMENT)
    yield ""
    yield "## Instead of a key of a file"
    yield ""
    yield "See [configuration](configuration.md) for what each means."
    yield ""
    keys = {key.env: f"`{key.key}` of `{key.file}`" for key in reversed(list(describe_keys()))}
    yield from table(dict(reversed(keys.items())))


def table(rows: dict[str, str]) -> Iterator[str]:
    yield "| variable | what |"
    yield "|---|---|"
    yield from (f"| `{name}` | {cell(text)} |" for name, text in rows.items())


# --- the drive ---------------------------------------------------------------------------------


def drive_page() -> Iterator[str]:
    """The table of files, as the protocol has it."""
    text = (ROOT / "ludwig" / "PROTOCOL.md").read_text(encoding="utf-8")
    files = text.partition("## 3. The files\n")[2].partition("\n### Where")[0]
    if not files:
        raise SystemExit("PROTOCOL.md has no section '3. The files' any more")
    yield "# Files on the drive"
    yield ""
    yield "From [the protocol](../../ludwig/PROTOCOL.md), which says what is in each of them, in"
    yield "which order they are written, and what a reader may conclude."
    yield files


if __name__ == "__main__":
    sys.exit(main())
