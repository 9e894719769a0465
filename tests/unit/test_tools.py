"""What happens when a program that tests need is missing."""

import os
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

from tests import tools
from tests.staged import ROOT

Run = subprocess.CompletedProcess[str]


class TestMissingTools:
    """A missing program is named, once, at the end; in continuous integration it is a failure."""

    SUITE = """
        import pytest

        @pytest.mark.needs_smbd
        def test_one(): ...

        @pytest.mark.needs_smbd
        def test_two(smb_share): ...

        def test_three(): ...
    """

    @pytest.mark.parametrize("workers", ["0", "2"])
    def test_skipped_and_said(self, tmp_path: Path, workers: str) -> None:
        done = self.suite(tmp_path, "-n", workers, ci="")
        assert "2 tests needed smbd (package samba)" in done.stdout, done
        assert "1 passed, 2 skipped" in done.stdout
        assert done.returncode == 0

    def test_fails_in_continuous_integration(self, tmp_path: Path) -> None:
        done = self.suite(tmp_path, ci="true")
        assert "nothing may be skipped with CI=true" in done.stdout, done
        assert done.returncode == 1

    def suite(self, folder: Path, *options: str, ci: str) -> Run:
        """Run a suite with our conftest on a machine that seems to have no smbd."""
        (folder / "test_it.py").write_text(textwrap.dedent(self.SUITE))
        (folder / "conftest.py").write_text(
            "from tests import tools\n"
            "tools.find = lambda name: None if name == 'smbd' else '/bin/true'\n"
            "from tests.conftest import *\n"
        )
        command = [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml"]
        command += ["--rootdir", folder, "-p", "no:cacheprovider", *options, folder]
        arguments = [str(part) for part in command]
        environment = {**os.environ, "CI": ci, "PYTHONPATH": str(ROOT)}
        return subprocess.run(arguments, env=environment, capture_output=True, text=True)


def test_every_tool_has_a_marker() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    markers = {line.split(":")[0] for line in options["markers"]}
    assert {f"needs_{tool}" for tool in (*tools.PACKAGES, "root")} <= markers


def test_every_tool_is_installed_by_the_script() -> None:
    script = (ROOT / "tests/system_packages.sh").read_text()
    table = script.split("needed='")[1].split("'")[0]
    listed = {line.split()[0]: line.split()[1] for line in table.strip().splitlines()}
    assert listed == {tool: package.split()[0] for tool, package in tools.PACKAGES.items()}


@pytest.mark.parametrize(("ci", "status"), [("", 0), ("true", 1)])
def test_the_script_says_what_is_missing(tmp_path: Path, ci: str, status: int) -> None:
    """On a machine without apt-get and with hardly any program."""
    for name in ("bash", "id", "sort"):
        (tmp_path / name).symlink_to(tools.program(name))
    done = subprocess.run(
        [tools.program("bash"), ROOT / "tests/system_packages.sh"],
        env={"PATH": str(tmp_path), "CI": ci},
        capture_output=True,
        text=True,
    )
    assert done.returncode == status, done
    assert "  tmux (package tmux): tests of the command line in a terminal\n" in done.stderr
    assert "gcc git" in done.stderr.splitlines()[-1]


def test_an_unknown_tool_is_a_mistake_of_the_test() -> None:
    with pytest.raises(KeyError, match="needs_abacus"):
        tools.missing("abacus")
