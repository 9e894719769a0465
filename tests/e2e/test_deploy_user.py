"""`deploy/install-user.sh`: a node without root, as a service of an ordinary account."""

import pytest

from tests.deploy_lab import DRIVE, DeployLab
from tests.deploy_machines import Machine, wheelhouse
from tests.processes import wait_until

pytestmark = [pytest.mark.xdist_group("deploy"), pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def eve(deploy_lab: DeployLab) -> Machine:
    """A machine with an ordinary account whose services run without a login."""
    machine = deploy_lab.hoff
    machine.check("useradd -m eve && loginctl enable-linger eve")
    machine.check("cp -r /root/deploy /root/*.whl /root/wheelhouse-* /root/password /home/eve")
    machine.check("chown -R eve: /home/eve")
    wait_until(lambda: as_eve(machine, "systemctl --user is-system-running")[0] == 0, timeout=90)
    return machine


def as_eve(machine: Machine, command: str) -> tuple[int, str]:
    environment = "XDG_RUNTIME_DIR=/run/user/$(id -u eve) HOME=/home/eve"
    run = machine.run(f"cd /home/eve && {environment} runuser -u eve -- {command}")
    return run.returncode, run.stdout + run.stderr


def test_an_agent_of_ones_own(eve: Machine, deploy_lab: DeployLab) -> None:
    install = (
        f"deploy/install-user.sh --drive {DRIVE} --password password --slots 1 --hostname eves "
        f"--wheel {deploy_lab.wheel.name} --wheelhouse {wheelhouse().name}"
    )
    status, said = as_eve(eve, install)
    assert status == 0, said
    assert as_eve(eve, "systemctl --user is-active ludwig-worker") == (0, "active\n")
    assert eve.check("stat -c %a /home/eve/ludwig-inbox /home/eve/.config/ludwig/worker.env") == (
        "700\n600\n"
    )
    nodes = "/srv/research_data/.ludwig/nodes"
    wait_until(lambda: "eves." in deploy_lab.server.check(f"ls {nodes}"), what="a heartbeat")
    status, said = as_eve(eve, install)
    assert (status, "Nothing to change" in said) == (0, True), said
    status, said = as_eve(eve, "deploy/install-user.sh --uninstall")
    assert status == 0, said
    assert as_eve(eve, "systemctl --user is-active ludwig-worker")[0] != 0
    left = eve.check("find /home/eve -path '*ludwig-worker*' -o -path '*ludwig/*'")
    assert not [path for path in left.split() if "/.config/" in path or "/.local/" in path]


def test_root_is_sent_to_the_other_script(eve: Machine) -> None:
    result = eve.run("/root/deploy/install-user.sh --drive /mnt")
    assert result.returncode == 2
    assert "as root use install-node.sh" in result.stderr
