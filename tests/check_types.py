"""Runs `mypy --strict` over all three packages, and makes sure that it saw every file.

Run it as `python -m tests.check_types`. The helpers of the tests (`tests/*.py`) are checked too.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests import staged


def main() -> int:
    return check_packages() or check_helpers()


def check_packages() -> int:
    placed = staged.build()
    options = [f"--package={name}" for name in sorted({target.parts[0] for target in placed})]
    run = mypy(*options, folder=staged.STAGED)
    print(with_source_paths(run.stdout, placed) + run.stderr, end="")
    checked = re.search(r"(?:checked|found in) (\d+) source file", run.stdout)
    if checked is None or int(checked[1]) != len(placed):
        number = checked[1] if checked else "an unknown number of"
        print(f"mypy checked {number} files, but there are {len(placed)}", file=sys.stderr)
        return run.returncode or 1
    return run.returncode


def check_helpers() -> int:
    helpers = sorted(str(path.relative_to(staged.ROOT)) for path in staged.ROOT.glob("tests/*.py"))
    # Found there first, `ludwig.client` and `ludwig.worker` are more than an unknown.
    run = mypy(*helpers, folder=staged.ROOT, path=staged.STAGED)
    print(run.stdout + run.stderr, end="")
    return run.returncode


def mypy(
    *arguments: str, folder: Path, path: Path | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mypy", "--strict"]
    command += ["--config-file", str(staged.ROOT / "pyproject.toml")]
    command += ["--cache-dir", str(staged.ROOT / ".mypy_cache" / folder.name), *arguments]
    environment = {**os.environ, "MYPYPATH": str(path)} if path else None
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)


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
