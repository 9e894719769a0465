"""The command `ludwig-worker`: run an agent, check a node, drain it.

Only this module prints, configures logging and exits.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from ludwig import errors
from ludwig.config import WORKER_FILE, WorkerConfig, load_worker
from ludwig.drive import Drive
from ludwig.drives import open_drive
from ludwig.worker.agent import Agent
from ludwig.worker.check import check_node

__all__ = ["main"]

ENVIRONMENT = (
    "Environment: LUDWIG_WORKER_CONFIG; LUDWIG_WORKER_… and LUDWIG_DRIVE_… for every key of the "
    "file; LUDWIG_SMB_PASSWORD, LUDWIG_DEBUG"
)

app = typer.Typer(
    help="Ludwig's agent: turns this machine into a node of the lab.",
    epilog=ENVIRONMENT,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help=f"The agent's worker.toml. Default: {WORKER_FILE}.",
        show_default=False,
    ),
]


def main() -> None:
    """The command. Errors of a person's making come without a traceback; --debug shows it."""
    debug = "--debug" in sys.argv
    if debug:
        sys.argv.remove("--debug")
    try:
        app()
    except errors.LudwigError as error:
        if debug:
            raise
        print(f"ludwig-worker: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, errors.UsageError) else 1)
    except PermissionError as error:
        if debug:
            raise
        where = f"{error.filename}: " if error.filename else ""
        advice = "Run this as root, or as the user that the agent runs as."
        print(f"ludwig-worker: {where}{error.strerror}. {advice}", file=sys.stderr)
        sys.exit(1)


def _load(path: Path | None) -> WorkerConfig:
    try:
        return load_worker(path)
    except errors.ConfigError as error:
        if path is None and str(error) == f"{WORKER_FILE}: there is no such file.":
            advice = "Name another with --config, or set up this node: see deploy/README.md."
            raise errors.ConfigError(f"{error} {advice}") from error
        raise


def _open(config: WorkerConfig) -> Drive:
    settings = config.drive
    return open_drive(
        settings.url, mount=settings.mount, user=settings.user, encrypt=settings.encrypt
    )


@app.command(epilog=ENVIRONMENT)
def run(config: ConfigFile = None) -> None:
    """Serve as a node until SIGTERM; what runs then goes on running.

    Example: ludwig-worker run --config /etc/ludwig/worker.toml
    """
    logging.basicConfig(
        level=logging.DEBUG if os.environ.get("LUDWIG_DEBUG") else logging.INFO,
        format="%(asctime)s %(levelname)s %(threadName)s: %(message)s",
        stream=sys.stderr,
    )
    for noisy in ("smbprotocol", "watchdog"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    settings = _load(config)
    agent = Agent(settings, _open(settings))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: agent.stop())
    agent.run()
    if agent.fatal:
        raise errors.LudwigError(f"stopped: {agent.fatal}")


@app.command(epilog=ENVIRONMENT)
def check(config: ConfigFile = None) -> None:
    """Say what is wrong with this node, in words; changes nothing.

    Example: ludwig-worker check --config /etc/ludwig/worker.toml
    """
    settings = _load(config)
    findings = check_node(settings, _open(settings))
    for finding in findings:
        mark = "ok  " if finding.good else "BAD "
        print(f"{mark} {finding.what}: {finding.said}")
        if not finding.good and finding.remedy:
            print(f"     {finding.remedy}")
    if not all(finding.good for finding in findings):
        raise typer.Exit(1)


@app.command(epilog=ENVIRONMENT)
def drain(
    config: ConfigFile = None,
    undrain: Annotated[bool, typer.Option("--undrain", help="Claim again.")] = False,
) -> None:
    """Finish what runs and claim nothing more, until --undrain.

    Example: ludwig-worker drain; ludwig-worker drain --undrain
    """
    settings = _load(config)
    flag = settings.work / "drain"
    if undrain:
        flag.unlink(missing_ok=True)
        print(f"{settings.hostname} claims again.")
    else:
        settings.work.mkdir(parents=True, exist_ok=True)
        flag.touch()
        print(f"{settings.hostname} finishes what runs and claims nothing more.")
