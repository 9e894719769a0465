"""The scripts and lists of `deploy/`, as far as they can be judged without a machine."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.tools import program, require

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
SCRIPTS = sorted(DEPLOY.glob("*.sh"))


def test_shellcheck_has_nothing_to_say() -> None:
    require("shellcheck")
    command = [program("shellcheck"), "-x", "-s", "bash", *map(str, SCRIPTS)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=DEPLOY)
    assert (run.returncode, run.stdout) == (0, "")


@pytest.mark.parametrize(
    "script", [s for s in SCRIPTS if "install" in s.name], ids=lambda s: s.name
)
def test_help_and_mistakes(script: Path) -> None:
    said = subprocess.run([str(script), "--help"], capture_output=True, text=True)
    assert said.returncode == 0
    options = set(re.findall(r"^    (--[a-z-]+)\)", script.read_text(), re.MULTILINE))
    assert "--dry-run" in options
    assert all(option in said.stdout for option in options - {"--help"}), said.stdout
    wrong = subprocess.run([str(script), "--no-such-thing"], capture_output=True, text=True)
    assert wrong.returncode == 2
    assert "unknown option '--no-such-thing'" in wrong.stderr


def test_an_agent_gets_all_it_imports() -> None:
    """node-requirements.txt names it; what only clients need is left out."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = {*project["dependencies"], *project["optional-dependencies"]["worker"]}
    known = {re.split("[<>=~!;]", line)[0].strip() for line in lines}
    listed = (DEPLOY / "node-requirements.txt").read_text().splitlines()
    wanted = {line for line in listed if not line.startswith("#")}
    assert wanted <= known, wanted - known
    left_out = known - wanted
    program = (
        "import sys\n"
        f"for name in {sorted(left_out)!r}: sys.modules[name.replace('-', '_')] = None\n"
        "import ludwig.worker.cli, ludwig.drives.smb, ludwig.worker.gpu, pynvml\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_unit_is_clean_and_hardened(tmp_path: Path) -> None:
    require("systemd-analyze")
    text = (DEPLOY / "ludwig-worker.service").read_text()
    text = text.replace("/opt/ludwig/current/bin/ludwig-worker", "/bin/true")
    unit = tmp_path / "ludwig-worker.service"
    unit.write_text(text)
    verify = [program("systemd-analyze"), "verify", "--man=no", str(unit)]
    run = subprocess.run(verify, capture_output=True, text=True)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
    command = [
        program("systemd-analyze"),
        "security",
        "--offline=true",
        "--threshold=40",
        str(unit),
    ]
    rated = subprocess.run(command, capture_output=True, text=True)
    assert rated.returncode == 0, rated.stdout
    # Each of these would take the GPU, or running tasks, away.
    settings = {line.split("=")[0] for line in text.splitlines() if not line.startswith("#")}
    forbidden = {"PrivateDevices", "DevicePolicy", "DeviceAllow", "ProtectClock", "PrivateTmp"}
    assert not settings & (forbidden | {"RemoveIPC", "MemoryDenyWriteExecute"})
    assert {"KillMode", "OOMPolicy", "NoNewPrivileges"} <= settings


def test_the_example_inventory_is_one() -> None:
    command = [sys.executable, "-B", str(DEPLOY / "lab.py"), "nodes", "--only", "nobody"]
    command += ["--lab", str(DEPLOY / "lab.toml")]
    run = subprocess.run(command, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (
        2,
        "lab.py: --only: there is no node 'nobody' in the inventory\n",
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[server]\nssh = 'x'\n", "at least one [nodes.NAME]"),
        ("[server]\nssh = 'x'\n[nodes.a]\nslot = 2\n", "[nodes.a]: unknown key 'slot'"),
        ("[server]\nssh = 'x'\n[lab]\naccounts = 'all'\n[nodes.a]\n", "accounts = 'all'"),
        ("[server\n", "lab.toml"),
    ],
)
def test_mistakes_in_an_inventory(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "lab.toml").write_text(text)
    run = subprocess.run(
        [
            sys.executable,
            "-B",
            str(DEPLOY / "lab.py"),
            "nodes",
            "--lab",
            str(tmp_path / "lab.toml"),
        ],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 2
    assert said in run.stderr
