"""Puts the sub-commands together. Each is a function in a module of its own name."""

from __future__ import annotations

from typing import Annotated

import typer

import ludwig
from ludwig.client.cli.cancel import cancel
from ludwig.client.cli.doctor import doctor
from ludwig.client.cli.init import init
from ludwig.client.cli.logs import logs
from ludwig.client.cli.nodes import nodes
from ludwig.client.cli.options import epilog
from ludwig.client.cli.results import results
from ludwig.client.cli.retry import retry
from ludwig.client.cli.status import status
from ludwig.client.cli.submit import submit

__all__ = ["app"]

app = typer.Typer(
    name="ludwig",
    no_args_is_help=True,
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
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; works anywhere.")
    ] = False,
) -> None:
    """Run sweeps on the machines of your lab: submit from the laptop, close it, read one table."""
