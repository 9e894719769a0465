"""`deploy/lab.py`: a whole lab over the administrator's SSH, from bare machines and back."""

import re

import pytest

from tests.deploy_lab import DeployLab
from tests.deploy_machines import Machine, build_wheel, wheelhouse
from tests.e2e.test_deploy_node import UNTIL_TOLD, task_processes
from tests.processes import wait_until
from tests.sftp_server import make_key
from tests.tools import program

pytestmark = [pytest.mark.xdist_group("deploy"), pytest.mark.timeout(600)]

NODES = ("hebb", "norman")
WATCHED = ("/etc", "/opt", "/media", "/usr/local", "/var/lib")
# The system's own bookkeeping.
IGNORED = re.compile(
    r"/etc/(passwd|group|shadow|gshadow|subuid|subgid)-|/etc/\.pwd\.lock|/var/lib/systemd"
)
before: dict[str, dict[str, str]] = {}


def what_is_there(machine: Machine) -> dict[str, str]:
    found = machine.snapshot(*WATCHED)
    return {path: facts for path, facts in found.items() if not IGNORED.match(path)}


@pytest.fixture(scope="module")
def lab(deploy_lab: DeployLab) -> DeployLab:
    """Two bare machines, and an inventory. Each member has an account of their own."""
    assert deploy_lab.server
    nodes = "".join(f'[nodes.{name}]\nssh = "{name}"\n' for name in NODES)
    (deploy_lab.folder / "lab.toml").write_text(
        f'[server]\nssh = "fileserver"\n'
        f'[lab]\naccounts = "per-member"\nwheelhouse = "{wheelhouse()}"\n'
        f"[defaults]\nmount = false\nslots = 2\nworker = {{ grace_s = 2 }}\n{nodes}"
    )
    for name in NODES:
        before[name] = what_is_there(deploy_lab.machine(name))
    return deploy_lab


def row(said: str, name: str) -> str:
    return next(line for line in said.splitlines() if re.match(rf"{name} +(ok|FAILED) ", line))


def test_all_nodes_at_once(lab: DeployLab) -> None:
    status, said = lab.lab_py("nodes", "--dry-run")
    assert status == 0, said
    assert {name: what_is_there(lab.machine(name)) for name in NODES} == before
    status, said = lab.lab_py("nodes")
    assert status == 0, said
    for name in NODES:
        assert " changes were made." in row(said, name)
        assert lab.machine(name).check("systemctl is-active ludwig-worker").strip() == "active"


def test_again_nothing_changes(lab: DeployLab) -> None:
    there = {name: what_is_there(lab.machine(name)) for name in NODES}
    for command in ("server", "nodes"):
        status, said = lab.lab_py(command)
        assert status == 0, said
        assert said.count("Nothing to change") == (1 if command == "server" else 2)
    now = {name: what_is_there(lab.machine(name)) for name in NODES}
    for name in NODES:
        own = re.compile("/var/lib/ludwig")  # the agent's own
        assert {p: f for p, f in now[name].items() if not own.match(p)} == {
            p: f for p, f in there[name].items() if not own.match(p)
        }


def test_check_tells_what_is_wrong(lab: DeployLab) -> None:
    inventory = lab.folder / "lab.toml"
    text = inventory.read_text()
    inventory.write_text(text + '[nodes.pitts]\nssh = "127.0.0.99"\n')
    lab.machine("norman").check("systemctl stop ludwig-worker")
    status, said = lab.lab_py("check")
    inventory.write_text(text)
    lab.machine("norman").check("systemctl start ludwig-worker")
    assert status == 1
    assert "agent active" in row(said, "hebb")
    assert "agent inactive" in row(said, "norman")
    assert "cannot be reached" in row(said, "pitts")


def test_members_do_not_see_each_other(lab: DeployLab) -> None:
    def sftp(member: str, batch: str) -> tuple[int, str]:
        options = ["-F", str(lab.ssh_home(member, member) / ".ssh/config"), "-b", "-", "hebb"]
        run = lab.network.run([program("sftp"), *options], input=batch)
        return run.returncode, run.stdout

    assert sftp("ana", f"put {lab.folder}/ana.pub tickets/secret\n")[0] == 0
    assert lab.machine("hebb").check("stat -c %U /var/sftp/ludwig/ana/tickets/secret") == "ana\n"
    status, said = sftp("bob", "ls -a /\nls tickets\n")
    assert (status, "secret" in said, "ana" in said) == (0, False, False)
    for path in ("/ana", "/../ana", "../ana/tickets/secret", "/var/sftp/ludwig/ana/tickets/secret"):
        assert sftp("bob", f"get {path} /tmp/never\n")[0] != 0
    machine = lab.machine("hebb")
    path = "/var/sftp/ludwig/ana/tickets/secret"
    assert machine.run(f"runuser -u bob -- cat {path}").returncode != 0
    assert machine.run("runuser -u bob -- ls /var/sftp/ludwig").returncode != 0
    machine.check(f"runuser -u ludwig-worker -- rm {path}")
    as_somebody_else = ["-F", str(lab.ssh_home("bob", "ana") / ".ssh/config"), "-b", "-", "hebb"]
    run = lab.network.run([program("sftp"), *as_somebody_else], input="ls\n")
    assert "Permission denied (publickey)" in run.stderr


def test_an_upgrade_leaves_running_tasks_alone(lab: DeployLab) -> None:
    wheel = build_wheel(lab.folder, version="9.9.9")
    project = lab.project("upgraded", UNTIL_TOLD, member="bob", nodes=" ".join(NODES))
    lab.ludwig("bob", "bob", project, "submit", "src", "--grid", "number=1,2,3,4")
    lab.wait_for("bob", "bob", project, "running")
    running = {name: set(task_processes(lab.machine(name))) for name in NODES}
    assert all(running.values())
    status, said = lab.lab_py("upgrade", "--wheel", str(wheel), "--only", "hebb")
    assert status == 0, said
    lab.machine("norman").copy_from(lab.machine("hebb"), "/opt/ludwig/releases")  # saves time
    status, said = lab.lab_py("upgrade", "--wheel", str(wheel))
    assert (status, "Nothing to change" in row(said, "hebb")) == (0, True), said
    version = "/opt/ludwig/current/bin/python -c 'import ludwig; print(ludwig.__version__)'"
    for name in NODES:
        assert lab.machine(name).check(version).strip() == "9.9.9"
        assert set(task_processes(lab.machine(name))) == running[name]
    status, said = lab.lab_py("uninstall", "--yes", "--only", "norman")
    assert status == 1
    assert "tasks are running on this node" in row(said, "norman")
    for name in NODES:
        lab.machine(name).check("touch /tmp/go")
    tasks = lab.wait_for("bob", "bob", project, "done")
    assert {task["attempt"] for task in tasks} == {1}


def test_a_student_comes_and_goes(lab: DeployLab) -> None:
    make_key(lab.folder / "dora")

    def reaches(node: str) -> bool:
        options = ["-F", str(lab.ssh_home("dora", "dora") / ".ssh/config"), "-b", "-", node]
        return lab.network.run([program("sftp"), *options], input="ls\n").returncode == 0

    assert not any(reaches(name) for name in NODES)
    wheel = str(lab.folder / "wheel-9.9.9" / "ludwigcluster-9.9.9-py3-none-any.whl")
    status, said = lab.lab_py("add-user", "dora", str(lab.folder / "dora.pub"), "--wheel", wheel)
    assert status == 0, said
    assert all(reaches(name) for name in NODES)
    assert lab.password("dora")
    status, said = lab.lab_py("remove-user", "dora", "--wheel", wheel)
    assert status == 0, said
    assert not any(reaches(name) for name in NODES)


def test_drained_nodes_claim_nothing(lab: DeployLab) -> None:
    status, said = lab.lab_py("drain")
    assert status == 0, said
    project = lab.project("drained", UNTIL_TOLD, member="ana", nodes=" ".join(NODES))
    lab.ludwig("ana", "ana", project, "submit", "src", "--set", "number=1")
    lab.wait_for("ana", "ana", project, "queued")
    status, said = lab.lab_py("undrain")
    assert status == 0, said
    lab.wait_for("ana", "ana", project, "done")


def test_uninstalling_leaves_nothing_behind(lab: DeployLab) -> None:
    status, said = lab.lab_py("uninstall", "--yes")
    assert status == 0, said
    for name in NODES:
        machine = lab.machine(name)
        assert what_is_there(machine) == before[name]
        assert not machine.path("/var/sftp").exists()
        assert machine.run("pgrep -u ludwig-worker").returncode != 0
        assert machine.run("systemctl cat ludwig-worker").returncode != 0
    status, said = lab.lab_py("uninstall", "--yes")
    assert status == 0, said
    assert said.count("Nothing to change") == 2


def test_the_drive_is_mounted_when_needed(lab: DeployLab) -> None:
    """As far as it goes in a container, where nothing can be mounted on demand."""
    norman = lab.machine("norman")
    lab.prepare(norman)
    norman.copy_from(lab.hoff, "/opt/ludwig/releases")  # building it takes a while
    command = lab.install_node("--mount", "/media/research_data").replace(" --no-mount", "")
    result = norman.run(command)
    assert result.returncode == 1
    assert "media-research_data.automount not supported on this system" in result.stderr
    unit = "/etc/systemd/system/media-research_data"
    verified = norman.run(f"systemd-analyze verify {unit}.mount {unit}.automount")
    assert (verified.returncode, verified.stderr) == (0, "")
    uid = norman.check("id -u ludwig-worker").strip()
    text = norman.check(f"cat {unit}.mount")
    assert f"credentials=/etc/ludwig/drive.credentials,vers=3.1.1,uid={uid}," in text
    assert norman.check("stat -c '%a %U' /etc/ludwig/drive.credentials").strip() == "600 root"


def test_a_folder_that_is_mounted_already_will_do(lab: DeployLab) -> None:
    norman = lab.machine("norman")
    norman.check("mkdir -p /mnt/drive/.ludwig && chown -R ludwig-worker /mnt/drive")
    norman.check("echo '{\"version\": 1}' >/mnt/drive/.ludwig/format.json")
    norman.check(lab.install_node("--drive", "/mnt/drive"))
    units = "/etc/systemd/system"
    assert "media" not in norman.check(f"ls {units} {units}/multi-user.target.wants")
    assert norman.run("ls /etc/ludwig/drive.credentials").returncode != 0
    wait_until(lambda: norman.check("ls /mnt/drive/.ludwig/nodes").startswith("norman."))
    norman.check("/root/deploy/uninstall-node.sh && rm -r /mnt/drive")
    assert what_is_there(norman) == before["norman"]
