"""`deploy/install-server.sh` on a machine of its own, and what Samba makes of it."""

import json
import sys

import pytest

from tests.deploy_lab import URL, DeployLab
from tests.deploy_machines import ROOT

pytestmark = [pytest.mark.xdist_group("deploy"), pytest.mark.timeout(600)]

ALLOWED = {
    "ana opens the drive",
    "node beats",
    "node ends a task",
    "node replaces a chunk",
    "node ends bob's task",
    "bob reads a run",
    "bob submits to the same project",
    "bob cancels ana's job",
    "bob adds to ana's project",
    "ana changes her own data",
    "ana reads her run",
}


def test_a_second_run_changes_nothing(deploy_lab: DeployLab) -> None:
    server = deploy_lab.server
    watched = ("/etc", "/srv", "/var/lib/samba")
    before = server.snapshot(*watched)
    again = server.check("/root/deploy/install-server.sh --members ana,bob")
    assert again.splitlines()[-1] == "Nothing to change: everything is as it should be."
    assert server.snapshot(*watched) == before


def test_the_administrators_configuration_gets_one_line(deploy_lab: DeployLab) -> None:
    server = deploy_lab.server
    added = server.run("diff /usr/share/samba/smb.conf /etc/samba/smb.conf").stdout
    lines = [line for line in added.splitlines() if line[:1] in "<>"]
    assert [line for line in lines if "include = /etc/samba/ludwig.conf" in line] == [
        "> include = /etc/samba/ludwig.conf"
    ]
    assert server.run("testparm -s").stderr.count("rror") == 0


def test_members_create_but_do_not_alter_what_others_made(deploy_lab: DeployLab) -> None:
    passwords = {f"PASSWORD_{name.upper()}": deploy_lab.password(name) for name in ("ana", "bob")}
    env = {
        **passwords,
        "PASSWORD_NODE": deploy_lab.node_password,
    }
    command = [sys.executable, "-m", "tests.deploy_accounts", URL]
    run = deploy_lab.network.run(command, env=env, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    tried = json.loads(run.stdout)
    assert {what for what, became in tried.items() if became == "done"} == ALLOWED
    # To the client a target that cannot be replaced may be one that somebody has open.
    assert tried.pop("bob replaces a run's file") in ("NoPermission", "DriveAway")
    refused = {became for what, became in tried.items() if what not in ALLOWED}
    assert refused == {"NoPermission"}, json.dumps(tried, indent=1)


@pytest.mark.parametrize(
    ("who", "options"),
    [
        ("nobody at all", "-N"),
        ("a guest", "-U nobody%"),
        ("a wrong password", "-U ana%wrong"),
        ("an old protocol", "-U ana%PASSWORD -m SMB2"),
        ("an account outside the group", "-U carl%carls-password"),
    ],
)
def test_others_stay_out(deploy_lab: DeployLab, who: str, options: str) -> None:
    server = deploy_lab.server
    server.check(
        "id carl 2>/dev/null || { useradd -M carl && "
        "printf 'carls-password\\ncarls-password\\n' | smbpasswd -s -a carl; }"
    )
    share = "smbclient //127.0.0.10/research_data"
    options = options.replace("PASSWORD", deploy_lab.password("ana"))
    assert server.run(f"{share} {options} -c ls").returncode != 0
    works = server.run(f"{share} -U ana%{deploy_lab.password('ana')} -c ls")
    assert works.returncode == 0, works.stdout


def test_encryption_is_offered(deploy_lab: DeployLab) -> None:
    share = f"smbclient //127.0.0.10/research_data -U ana%{deploy_lab.password('ana')}"
    deploy_lab.server.check(f"{share} --client-protection=encrypt -c ls")


def test_a_share_of_that_name_is_left_alone(deploy_lab: DeployLab) -> None:
    server = deploy_lab.server
    before = server.snapshot("/etc", "/srv")
    server.check("cp /etc/samba/smb.conf /root/smb.conf && sed -i '$ d' /etc/samba/smb.conf")
    server.check("printf '[Other]\\n path = /tmp\\n' >>/etc/samba/smb.conf")
    result = server.run("/root/deploy/install-server.sh --share other --folder /srv/other")
    server.check("cp /root/smb.conf /etc/samba/smb.conf")
    assert result.returncode == 1
    assert "there is a share [other] already" in result.stderr
    assert "remedy: Choose another name with --share" in result.stderr
    assert server.snapshot("/etc", "/srv") == before


def test_settings_that_samba_refuses_are_taken_back(deploy_lab: DeployLab) -> None:
    server = deploy_lab.server
    before = server.snapshot("/etc", "/srv")
    template = "/root/deploy/templates/smb-ludwig.conf"
    server.check(f"cp {template} /root/kept && echo '    no such setting = yes' >>{template}")
    result = server.run("/root/deploy/install-server.sh --members ana,bob")
    server.check(f"cp /root/kept {template}")
    assert result.returncode == 1
    assert "Samba does not accept the settings" in result.stderr
    assert server.snapshot("/etc", "/srv") == before
