"""Runs `mypy --strict` over all three packages, and makes sure that it saw every file.

    python -m tests.check_types
"""

import re
import subprocess
import sys
from pathlib import Path

from tests import staged


def main() -> int:
    placed = staged.build()
    packages = sorted({target.parts[0] for target in placed})
    command = [sys.executable, "-m", "mypy", "--strict"]
    command += ["--config-file", str(staged.ROOT / "pyproject.toml")]
    command += ["--cache-dir", str(staged.ROOT / ".mypy_cache")]
    for package in packages:
        command += ["-p", package]
    run = subprocess.run(command, cwd=staged.STAGED, capture_output=True, text=True)
    print(with_source_paths(run.stdout, placed) + run.stderr, end="")
    checked = re.search(r"(?:checked|found in) (\d+) source file", run.stdout)
    if checked is None:
        print("types: mypy did not say how many files it checked", file=sys.stderr)
        return run.returncode or 1
    if int(checked[1]) != len(placed):
        print(
            f"types: mypy checked {checked[1]} files, but there are {len(placed)}", file=sys.stderr
        )
        return 1
    return run.returncode


def with_source_paths(output: str, placed: dict[Path, Path]) -> str:
    """Let the messages name the files one edits, not the links."""
    lines = []
    for line in output.splitlines(keepends=True):
        path, colon, rest = line.partition(":")
        source = placed.get(Path(path))
        lines.append(f"{source}{colon}{rest}" if source else line)
    return "".join(lines)


if __name__ == "__main__":
    sys.exit(main())
