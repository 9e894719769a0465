"""Runs import-linter over the staged tree: who may import whom.

Run it as `python -m tests.check_imports`. The contracts are written anew each time, because they
name every module of the core: `ludwig` as a whole would include `ludwig.client` and
`ludwig.worker`. They also hold for imports inside functions and under TYPE_CHECKING; what loads
lazily by name (`ludwig.__getattr__`) is exempt.
"""

import subprocess
import sys
from pathlib import Path

import grimp

from tests import staged

CONTRACTS = """\
[importlinter]
root_packages =
    ludwig
    ludwigcluster
include_external_packages = True

[importlinter:contract:independent]
name = client and worker do not import each other
type = independence
modules =
    ludwig.client
    ludwig.worker

[importlinter:contract:core]
name = the core imports neither client, worker, pandas nor an SSH library
type = forbidden
as_packages = False
source_modules =
    {core}
forbidden_modules =
    {above}
    asyncssh
    matplotlib
    numpy
    pandas

[importlinter:contract:worker]
name = the agent imports neither pandas nor an SSH library
type = forbidden
source_modules =
    ludwig.worker
forbidden_modules =
    asyncssh
    ludwigcluster
    matplotlib
    numpy
    pandas
"""


def main() -> int:
    placed = staged.build()
    modules = {module_name(target) for target in placed}
    unseen = modules - seen_modules()
    if unseen:
        print(f"imports: not looked at: {', '.join(sorted(unseen))}", file=sys.stderr)
        return 1
    config = staged.STAGED / "contracts.ini"
    config.write_text(contracts(modules))
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-logo", "--no-cache"]
    return subprocess.run([*command, "--config", config.name], cwd=staged.STAGED).returncode


def seen_modules() -> set[str]:
    """The modules import-linter will see: it asks the same library, from the same folder."""
    sys.path.insert(0, str(staged.STAGED))
    return set(grimp.build_graph("ludwig", "ludwigcluster", cache_dir=None).modules)


def contracts(modules: set[str]) -> str:
    above = sorted(name for name in modules if is_above_core(name))
    core = sorted(name for name in modules if not is_above_core(name))
    return CONTRACTS.format(core="\n    ".join(core), above="\n    ".join(above))


def is_above_core(module: str) -> bool:
    parts = module.split(".")
    return parts[0] == "ludwigcluster" or parts[1:2] in (["client"], ["worker"])


def module_name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


if __name__ == "__main__":
    sys.exit(main())
