"""That tests of one group are run by one worker."""

import re
import subprocess
import sys
from pathlib import Path

from tests.staged import ROOT

SUITE = """
import time, pytest

{mark}

@pytest.mark.parametrize("number", range(6))
def test_it(number):
    time.sleep(0.02)
"""


def test_a_group_stays_together(tmp_path: Path) -> None:
    grouped = 'pytestmark = [pytest.mark.xdist_group("lab"), pytest.mark.timeout(60)]'
    (tmp_path / "test_one.py").write_text(SUITE.format(mark=grouped))
    (tmp_path / "test_two.py").write_text(SUITE.format(mark=grouped))
    (tmp_path / "test_free.py").write_text(SUITE.format(mark=""))
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "-v"]
    command += ["--rootdir", str(tmp_path), "-p", "tests.grouping", "-p", "no:cacheprovider"]
    command += ["-n", "3", "--dist", "loadgroup", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stdout + run.stderr
    where = re.findall(r"^\[(gw\d)\].* PASSED .*(test_\w+)\.py", run.stdout, re.MULTILINE)
    assert len(where) == 18
    assert len({worker for worker, name in where if name in ("test_one", "test_two")}) == 1
    assert len({worker for worker, name in where if name == "test_free"}) > 1
