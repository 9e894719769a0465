"""`deploy/install-node.sh` on a machine of its own: the door, the service, a sweep through both."""

import re
import subprocess

import pytest

from tests.deploy_lab import DeployLab
from tests.deploy_machines import ROOT, Machine
from tests.processes import wait_until
from tests.tools import program

pytestmark = [pytest.mark.xdist_group("deploy"), pytest.mark.timeout(600)]

SWEEP = """
import os

def status(field):
    with open("/proc/self/status") as file:
        return int(next(l for l in file if l.startswith(field)).split()[1], 16)

def can(action):
    try:
        action()
        return 1
    except OSError:
        return 0

def main(param2val):
    return {
        "twice": param2val["lr"] * 2,
        "uid": os.getuid(),
        "no_new_privileges": status("NoNewPrivs"),
        "capabilities": status("CapBnd"),
        "reads_password": can(lambda: open("/etc/ludwig/worker.env").close()),
        "writes_etc": can(lambda: open("/etc/written", "w").close()),
        "writes_release": can(lambda: open("/opt/ludwig/written", "w").close()),
        "sees_homes": can(lambda: os.listdir("/home")),
        "writes_tmp": can(lambda: open("/tmp/written-by-job", "w").close()),
    }
"""
UNTIL_TOLD = """
import os, time

def main(param2val):
    for _ in range(6000):
        if os.path.exists("/tmp/go"):
            break
        time.sleep(0.2)
    return {"number": param2val["number"]}
"""


def sftp(lab: DeployLab, batch: str, *, node: str = "hoff") -> "subprocess.CompletedProcess[str]":
    """Commands for OpenSSH's own client, as ana. Stops at the first that fails."""
    command = [program("sftp"), *lab.ssh_options("ana"), "-b", "-", node]
    return lab.network.run(command, input=batch)


def ssh(lab: DeployLab, *words: str) -> "subprocess.CompletedProcess[str]":
    return lab.network.run([program("ssh"), *lab.ssh_options("ana"), *words], input="")


def test_a_second_run_changes_nothing(deploy_lab: DeployLab) -> None:
    hoff = deploy_lab.hoff
    watched = ("/etc", "/opt", "/var/sftp", "/usr/local")
    before = hoff.snapshot(*watched)
    agent = hoff.check("systemctl show -P MainPID ludwig-worker")
    again = hoff.check(deploy_lab.install_node())
    assert again.splitlines()[-1] == "Nothing to change: everything is as it should be."
    assert hoff.snapshot(*watched) == before
    assert hoff.check("systemctl show -P MainPID ludwig-worker") == agent


def test_the_unit_is_clean_and_hardened(deploy_lab: DeployLab) -> None:
    hoff = deploy_lab.hoff
    verified = hoff.run("systemd-analyze verify ludwig-worker.service")
    assert (verified.returncode, verified.stdout, verified.stderr) == (0, "", "")
    unit = "/etc/systemd/system/ludwig-worker.service"
    said = hoff.check(f"systemd-analyze security --offline=true --threshold=40 --no-pager {unit}")
    assert re.search(r"Overall exposure level for ludwig-worker.service: [0-3]\.", said), said
    assert hoff.check("systemctl show -P Type ludwig-worker").strip() == "notify"
    assert hoff.check("systemctl show -P StatusText ludwig-worker").strip()


def test_a_key_gets_sftp_into_the_jail(deploy_lab: DeployLab) -> None:
    hoff = deploy_lab.hoff
    batch = "put /etc/hostname tickets/x\nls -l tickets\nrm tickets/x\npwd\nls sources\n"
    answer = sftp(deploy_lab, batch)
    assert answer.returncode == 0, answer.stderr
    assert "/ludwig" in answer.stdout
    local = deploy_lab.folder / "y"
    local.write_text("y")
    local.chmod(0o666)
    sftp(deploy_lab, f"put {local} sources/y\n")
    said = hoff.check("stat -c '%U:%G %a' /var/sftp/ludwig/sources/y").strip()
    assert said == "ludwig:ludwig-worker 640"
    hoff.check("runuser -u ludwig-worker -- cat /var/sftp/ludwig/sources/y")
    hoff.check("runuser -u ludwig-worker -- rm /var/sftp/ludwig/sources/y")


@pytest.mark.parametrize(
    "batch",
    [
        "get /etc/passwd /tmp/never",
        "get /../../etc/passwd /tmp/never",
        "ls /etc",
        "put /etc/hostname /x",
        "put /etc/hostname x",
        "put /etc/hostname /ludwig/x",
        "mkdir tickets/folder",
        "mkdir /folder",
        "symlink /etc/passwd tickets/link",
        "ln /ludwig/tickets tickets/link",
        "chmod 777 tickets",
        "chmod 777 .",
        "rename tickets other",
        "rmdir tickets",
        "put /etc/hostname tickets/../../x",
    ],
)
def test_nothing_outside_the_inbox(deploy_lab: DeployLab, batch: str) -> None:
    hoff = deploy_lab.hoff
    before = hoff.snapshot("/var/sftp")
    answer = sftp(deploy_lab, f"{batch}\n")
    assert answer.returncode != 0, answer.stdout
    assert hoff.snapshot("/var/sftp") == before


def test_a_link_in_the_jail_leads_nowhere(deploy_lab: DeployLab) -> None:
    hoff = deploy_lab.hoff
    hoff.check("ln -s /etc/passwd /var/sftp/ludwig/tickets/link")
    answer = sftp(deploy_lab, "get tickets/link /tmp/never\n")
    hoff.check("rm /var/sftp/ludwig/tickets/link")
    assert answer.returncode != 0


def test_a_key_gets_nothing_else(deploy_lab: DeployLab) -> None:
    assert deploy_lab.hoff
    for words in (["hoff", "id"], ["-tt", "hoff"], ["hoff"], ["-s", "hoff", "shell"]):
        answer = ssh(deploy_lab, *words)
        assert answer.returncode != 0
        assert "uid=" not in answer.stdout
    through = ssh(deploy_lab, "-W", "127.0.0.10:445", "hoff")
    assert through.returncode != 0
    assert "prohibited" in through.stderr
    strict = ["-o", "ExitOnForwardFailure=yes", "-N"]
    assert ssh(deploy_lab, *strict, "-R", "127.0.0.1:4445:127.0.0.10:445", "hoff").returncode != 0
    assert ssh(deploy_lab, *strict, "-w", "0:0", "hoff").returncode != 0


def test_no_key_no_entry(deploy_lab: DeployLab) -> None:
    assert deploy_lab.hoff
    for method in ("password", "keyboard-interactive", "none"):
        answer = ssh(deploy_lab, "-o", f"PreferredAuthentications={method}", "hoff")
        assert "Permission denied (publickey)" in answer.stderr
    stranger = deploy_lab.ssh_options("admin")
    answer = deploy_lab.network.run([program("sftp"), *stranger, "-b", "/dev/null", "hoff"])
    assert "Permission denied (publickey)" in answer.stderr


def test_others_on_the_machine_see_nothing(deploy_lab: DeployLab) -> None:
    hoff = deploy_lab.hoff
    for path in ("/var/sftp/ludwig/tickets", "/var/sftp/ludwig/sources", "/var/lib/ludwig"):
        assert hoff.run(f"runuser -u nobody -- ls {path}").returncode != 0
    for path in ("/etc/ludwig/worker.env", "/etc/ludwig/drive.password"):
        assert hoff.run(f"runuser -u nobody -- cat {path}").returncode != 0
        assert hoff.run(f"runuser -u ludwig-worker -- cat {path}").returncode != 0


def test_a_sweep_from_outside_runs(deploy_lab: DeployLab) -> None:
    hoff = deploy_lab.hoff
    project = deploy_lab.project("sweep", SWEEP, member="ana", nodes="hoff")
    sent = deploy_lab.ludwig("ana", "ludwig", project, "submit", "src", "--grid", "lr=0.1,0.2")
    assert sent["tasks"] == 2
    deploy_lab.wait_for("ana", "ludwig", project, "done")
    uid = hoff.check("id -u ludwig-worker").strip()
    files = deploy_lab.server.check(
        "find /srv/research_data/sweep/runs -name '*.csv' | sort | xargs cat"
    ).splitlines()
    assert len(files) == 4
    for names, values in zip(files[::2], files[1::2], strict=True):
        row = dict(zip(names.split(","), values.split(","), strict=True))
        assert row["uid"] == uid
        assert (row["no_new_privileges"], row["capabilities"]) == ("1", "0")
        assert (row["reads_password"], row["writes_etc"], row["writes_release"]) == ("0", "0", "0")
        assert (row["sees_homes"], row["writes_tmp"]) == ("0", "1")
    owners = deploy_lab.server.check("stat -c %U /srv/research_data/sweep/runs/*/*num*").split()
    assert set(owners) == {"ludwig-node"}


def test_tasks_outlive_a_restart_and_a_crash_of_the_agent(deploy_lab: DeployLab) -> None:
    hoff = deploy_lab.hoff
    project = deploy_lab.project("slow", UNTIL_TOLD, member="ana", nodes="hoff")
    deploy_lab.ludwig("ana", "ludwig", project, "submit", "src", "--set", "number=1")
    deploy_lab.wait_for("ana", "ludwig", project, "running")
    before = set(task_processes(hoff))
    hoff.check("systemctl restart ludwig-worker")
    assert set(task_processes(hoff)) == before
    killed = agent_pid(hoff)
    hoff.check("systemctl kill -s KILL --kill-who=main ludwig-worker")
    wait_until(lambda: is_over(hoff, killed), what="systemd to be through with the old agent")
    assert set(task_processes(hoff)) == before
    hoff.check("touch /tmp/go")
    (task,) = deploy_lab.wait_for("ana", "ludwig", project, "done")
    assert task["attempt"] == 1
    wait_until(lambda: not task_processes(hoff), what="the task's processes to be gone")


def agent_pid(machine: Machine) -> str:
    """`0` while there is none."""
    return machine.check("systemctl show -P MainPID ludwig-worker").strip()


def is_over(machine: Machine, agent: str) -> bool:
    """Whether this agent has ended, and with it whatever else systemd would have ended."""
    state = machine.check("systemctl show -P SubState ludwig-worker").strip()
    return state == "auto-restart" or agent_pid(machine) not in (agent, "0")


def task_processes(machine: Machine) -> list[str]:
    agent = agent_pid(machine)
    pids = machine.run("pgrep -u ludwig-worker").stdout.split()
    return [pid for pid in pids if pid != agent]


def test_a_door_that_sshd_would_keep_shut_is_not_built(deploy_lab: DeployLab) -> None:
    hoff = deploy_lab.hoff
    before = hoff.snapshot("/etc")
    hoff.check("echo 'AllowUsers root' >/etc/ssh/sshd_config.d/10-allow.conf")
    result = hoff.run(deploy_lab.install_node("--users"))
    hoff.check("rm /etc/ssh/sshd_config.d/10-allow.conf")
    assert result.returncode == 1
    assert "AllowUsers in sshd's configuration keeps ana out" in result.stderr
    assert "remedy:" in result.stderr
    assert hoff.snapshot("/etc/ssh") == {k: v for k, v in before.items() if "/etc/ssh" in k}
    restored = hoff.check(deploy_lab.install_node())
    assert "ana" not in hoff.check("ls /etc/ludwig/keys"), restored


def test_a_wrong_password_leaves_the_agent_as_it_was(deploy_lab: DeployLab) -> None:
    hoff = deploy_lab.hoff
    before = hoff.check("cat /etc/ludwig/worker.toml")
    agent = hoff.check("systemctl show -P MainPID ludwig-worker")
    hoff.check("cp /root/password /root/right && echo wrong >/root/password")
    result = hoff.run(deploy_lab.install_node("--set", "keep_days=3"))
    hoff.check("cp /root/right /root/password")
    assert result.returncode == 1
    assert "the agent could not work like this" in result.stderr
    assert hoff.check("cat /etc/ludwig/worker.toml") == before
    assert hoff.check("systemctl show -P MainPID ludwig-worker") == agent
    hoff.check(deploy_lab.install_node())


def test_a_release_that_does_not_start_is_not_kept(deploy_lab: DeployLab) -> None:
    hoff = deploy_lab.hoff
    before = hoff.check("readlink /opt/ludwig/current")
    hoff.copy_in(ROOT / "deploy", "/root/broken")
    unit = "/root/broken/deploy/ludwig-worker.service"
    hoff.check(f"sed -i 's/^ExecStart=/ExecStart=false /' {unit}")
    hoff.check("echo '# another' >>/root/broken/deploy/node-requirements.txt")
    broken = deploy_lab.install_node().replace("/root/deploy", "/root/broken/deploy")
    # A new release, without the time it takes to build one.
    (fresh,) = re.findall("would build release ([0-9a-f]+)", hoff.check(f"{broken} --dry-run"))
    hoff.check(f"cp -a /opt/ludwig/{before.strip()} /opt/ludwig/releases/{fresh}")
    result = hoff.run(broken)
    assert "could not restart the agent" in result.stderr
    assert hoff.check("readlink /opt/ludwig/current") == before
    assert result.returncode == 1
    hoff.check(deploy_lab.install_node())
    assert hoff.check("readlink /opt/ludwig/current") == before
    assert hoff.check("systemctl is-active ludwig-worker").strip() == "active"
