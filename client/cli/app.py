"""Puts the sub-commands together. Each is a function in a module of its own name."""

from __future__ import annotations

from typing import Annotated

import typer

import ludwig
from ludwig.client.cli.cancel import cancel
from ludwig.client.cli.demo import demo
from ludwig.client.cli.doctor import doctor
from ludwig.client.cli.init import init
from ludwig.client.cli.logs import logs
from ludwig.client.cli.nodes import nodes
from ludwig.client.cli.options import epilog, flag
from ludwig.client.cli.results import results
from ludwig.client.cli.retry import retry
from ludwig.client.cli.status import status
from ludwig.client.cli.submit import submit
from ludwig.errors import UsageError

__all__ = ["app", "run"]

app = typer.Typer(
    name="ludwig",
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=epilog(
        "cd my_project && ludwig submit src --grid lr=0.1,0.2 --follow",
        "LUDWIG_DEBUG",
    ),
)

app.command(
    epilog=epilog(
        "ludwig submit src --grid lr=0.1,0.2 --grid hidden=64,128 --set epochs=10 --reps 2",
        "LUDWIG_NODES",
    )
)(submit)
app.command(epilog=epilog("ludwig demo"))(demo)
app.command(epilog=epilog("ludwig status 17 --watch"))(status)
app.command(epilog=epilog("ludwig logs 17 3 -f"))(logs)
app.command(epilog=epilog("ludwig cancel 17"))(cancel)
app.command(epilog=epilog("ludwig retry 17 --follow"))(retry)
app.command(epilog=epilog("ludwig results 17 --last --out table.csv"))(results)
app.command(epilog=epilog("ludwig nodes --watch"))(nodes)
app.command(epilog=epilog("ludwig doctor --fix"))(doctor)
app.command(epilog=epilog("ludwig init --url smb://fileserver/research_data --node hoff"))(init)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"ludwig {ludwig.__version__}")
        raise typer.Exit()


@app.callback()
def root(
    version: Annotated[
        bool, flag("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Annotated[
        bool, flag("--debug", help="Show the traceback of an error; works anywhere.")
    ] = False,
) -> None:
    """Run sweeps on the machines of your lab: submit from the laptop, close it, read one table."""


# `UsageError` and `ClickException` of the click that typer brings along.
_WRONG_USAGE: type[Exception] = typer.BadParameter.__mro__[1]


def run(arguments: list[str]) -> int:
    """The exit status. `UsageError` for what the command line cannot mean."""
    try:
        status = app(arguments, prog_name="ludwig", standalone_mode=False)
    except typer.Abort:
        return 130
    except _WRONG_USAGE as error:
        message = str(error.format_message())  # type: ignore[attr-defined]
        message += "" if message.endswith((".", "?", "!")) else "."
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "ludwig"
        raise UsageError(f"{message} See {command} --help") from error
    return status if isinstance(status, int) else 0
