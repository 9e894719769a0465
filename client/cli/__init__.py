"""The command `ludwig`: one module per sub-command."""

import sys


def main() -> None:
    """Stands in for the command line until it is written."""
    sys.exit("ludwig: the command line is not there yet.")
