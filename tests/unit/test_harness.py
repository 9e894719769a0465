"""The harness itself: the servers are real, behave as a lab's do, and leave nothing behind."""

import encodings.idna  # noqa: F401 - while we may: `as_somebody` cannot read where we live
import os
import pwd
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests import jail_users
from tests.harness import (
    Daemon,
    SftpServer,
    SmbServer,
    SmbShare,
    SshHome,
    program,
    release_port,
    reserve_port,
    wait_until,
)
from tests.processes import clear_forgotten, make_state_folder

Run = subprocess.CompletedProcess[str]


def run(*command: str | Path, stdin: str = "", env: dict[str, str] | None = None) -> Run:
    return subprocess.run(
        [str(part) for part in command],
        input=stdin,
        env=env,
        capture_output=True,
        text=True,
        timeout=30,
    )


class TestWaiting:
    def test_gives_back_what_it_waited_for(self) -> None:
        answers = iter([None, 0, "there"])
        assert wait_until(lambda: next(answers)) == "there"

    def test_says_the_last_thing_it_saw(self) -> None:
        with pytest.raises(AssertionError, match=r"0\.05 s in vain for tea\nlast seen: 'cold'"):
            wait_until(Cold, timeout=0.05, what="tea")

    def test_an_error_is_not_yet(self, tmp_path: Path) -> None:
        with pytest.raises(AssertionError, match="last seen: FileNotFoundError"):
            wait_until((tmp_path / "nothing").read_text, timeout=0.05)

    def test_fails_early_when_a_process_died(self, tmp_path: Path) -> None:
        daemon = Daemon([sys.executable, "-c", "exit('no licence')"], log=tmp_path / "log")
        daemon.start()
        started = time.monotonic()
        with pytest.raises(AssertionError, match="ended with 1; its log ends:\nno licence"):
            wait_until(lambda: False, timeout=60, what="a miracle", alive=[daemon])
        assert time.monotonic() - started < 30
        daemon.stop()

    def test_what_a_process_did_before_it_ended_counts(self, tmp_path: Path) -> None:
        made = tmp_path / "made"
        process = subprocess.Popen([sys.executable, "-c", f"open({str(made)!r}, 'x')"])
        process.wait()
        assert wait_until(made.exists, alive=[process])


class Cold:
    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "'cold'"


class TestDaemon:
    FAMILY = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}]); "
    CHILD = "import os, time; os.setsid(); print('up', flush=True); time.sleep(600)"

    @pytest.mark.parametrize("end", ["stop", "kill"])
    def test_children_that_left_the_session_end_too(self, tmp_path: Path, end: str) -> None:
        code = self.FAMILY.format(child=self.CHILD) + "time.sleep(600)"
        daemon = Daemon([sys.executable, "-c", code], log=tmp_path / "log")
        daemon.start()
        wait_until(lambda: "up" in daemon.log_tail(), alive=[daemon])
        children = psutil.Process(daemon.pid).children(recursive=True)
        assert len(children) == 1
        getattr(daemon, end)()
        assert daemon.poll() is not None
        assert not any(alive(child) for child in children)

    def test_a_suspended_one_can_be_stopped(self, tmp_path: Path) -> None:
        daemon = Daemon([sys.executable, "-c", "import time; time.sleep(600)"], log=tmp_path / "l")
        daemon.start()
        daemon.suspend()
        daemon.stop()
        assert daemon.poll() is not None
        assert daemon not in Daemon.running

    def test_what_a_killed_run_left_is_cleared(self, tmp_path: Path) -> None:
        code = (
            "import os, pathlib, sys; from tests.processes import *\n"
            "state = make_state_folder('test', pathlib.Path(sys.argv[1]))\n"
            "sleeper = 'import time; time.sleep(600)'\n"
            "daemon = Daemon([sys.executable, '-c', sleeper, f'{state}/x'], log=state / 'log')\n"
            "daemon.start(); print(daemon.pid, flush=True); os._exit(0)"
        )
        left = psutil.Process(int(run(sys.executable, "-c", code, tmp_path).stdout))
        (folder,) = tmp_path.iterdir()
        mine = make_state_folder("test", tmp_path)
        clear_forgotten(tmp_path)
        assert not folder.exists()
        assert mine.exists()
        wait_until(lambda: not alive(left), what="the forgotten process to end")

    def test_ports_are_given_once(self) -> None:
        ports = [reserve_port() for _ in range(50)]
        assert len(set(ports)) == 50
        for port in ports:
            release_port(port)


def alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def smbclient_command(server: SmbServer | SmbShare, command: str, password: str = "") -> list[str]:
    login = f"{server.user}%{password or server.password}"
    share = f"//127.0.0.1/{server.share}"
    return [program("smbclient"), "-p", str(server.port), "-U", login, share, "-c", command]


def smbclient(server: SmbServer | SmbShare, command: str, *, password: str = "") -> Run:
    return run(*smbclient_command(server, command, password))


@pytest.mark.needs_smbd
@pytest.mark.needs_smbclient
class TestSmbServer:
    def test_smbclient_can_put_a_file(self, smb_server: SmbServer, tmp_path: Path) -> None:
        (tmp_path / "here").write_text("hello")
        done = smbclient(smb_server, f"put {tmp_path / 'here'} there")
        assert done.returncode == 0, done
        assert (smb_server.folder / "there").read_text() == "hello"

    def test_a_wrong_password_is_refused(self, smb_server: SmbServer) -> None:
        done = smbclient(smb_server, "ls", password="wrong")
        assert done.returncode != 0
        assert "LOGON_FAILURE" in done.stdout + done.stderr

    def test_listens_on_loopback_only(self, smb_server: SmbServer) -> None:
        assert addresses(smb_server.daemon) == {("127.0.0.1", smb_server.port)}

    @pytest.mark.parametrize("end", ["stop", "kill"])
    def test_comes_back_on_the_same_port(self, smb_server: SmbServer, end: str) -> None:
        (smb_server.folder / "kept").touch()
        url = smb_server.url
        getattr(smb_server, end)()
        assert smbclient(smb_server, "ls").returncode != 0
        smb_server.start()
        assert smb_server.url == url
        assert "kept" in smbclient(smb_server, "ls").stdout

    def test_a_suspended_one_hangs_until_resumed(self, smb_server: SmbServer) -> None:
        smb_server.suspend()
        quiet = subprocess.DEVNULL
        client = subprocess.Popen(smbclient_command(smb_server, "ls"), stdout=quiet, stderr=quiet)
        with pytest.raises(subprocess.TimeoutExpired):
            client.wait(0.3)
        smb_server.resume()
        assert client.wait(10) == 0

    def test_settings_win(self, make_smb_server: Callable[..., SmbServer]) -> None:
        server = make_smb_server(share_settings={"read only": "yes"})
        done = smbclient(server, "mkdir new")
        assert "ACCESS_DENIED" in done.stdout + done.stderr or "WRITE_PROTECT" in done.stdout

    def test_leaves_nothing_behind(self) -> None:
        with SmbServer() as server:
            smbclient(server, "ls")
            family = psutil.Process(server.daemon.pid).children(recursive=True)
            assert family
        assert not server.state.exists()
        assert not any(alive(process) for process in family)

    def test_starts_quickly(self) -> None:
        best = 10.0
        for _ in range(3):
            started = time.monotonic()
            with SmbServer():
                best = min(best, time.monotonic() - started)
        assert best < 1.0

    @pytest.mark.parametrize("turn", [1, 2])
    def test_a_share_is_fresh_for_every_test(self, smb_share: SmbShare, turn: int) -> None:
        assert list(smb_share.folder.iterdir()) == []
        done = smbclient(smb_share, f"mkdir {smb_share.path}/turn{turn}")
        assert done.returncode == 0, done
        assert (smb_share.folder / f"turn{turn}").is_dir()


def addresses(daemon: Daemon) -> set[tuple[str, int]]:
    connections = psutil.Process(daemon.pid).net_connections("tcp")
    return {(c.laddr.ip, c.laddr.port) for c in connections if c.status == psutil.CONN_LISTEN}


def sftp(ssh: SshHome, host: str, *commands: str) -> Run:
    return run(program("sftp"), "-b", "-", "-F", ssh.config, host, stdin="\n".join(commands))


@pytest.mark.needs_sshd
@pytest.mark.needs_sftp
class TestSftpServer:
    def test_an_upload_arrives_in_the_inbox(
        self, sftp_server: Callable[..., SftpServer], ssh_home: SshHome, tmp_path: Path
    ) -> None:
        (tmp_path / "here").write_text("hello")
        node = sftp_server("hoff")
        done = sftp(
            ssh_home, "hoff", f"put {tmp_path / 'here'} there.tmp", "rename there.tmp there"
        )
        assert done.returncode == 0, done
        assert (node.inbox / "there").read_text() == "hello"
        assert (node.inbox / "there").stat().st_uid == pwd.getpwnam(node.user).pw_uid

    def test_a_shell_is_refused(
        self, sftp_server: Callable[..., SftpServer], ssh_home: SshHome
    ) -> None:
        sftp_server("hoff")
        done = run(program("ssh"), "-F", ssh_home.config, "hoff", "echo", "in")
        assert done.returncode != 0
        assert "in\n" not in done.stdout

    def test_listens_on_loopback_only(self, sftp_server: Callable[..., SftpServer]) -> None:
        node = sftp_server("hoff")
        assert addresses(node.daemon) == {("127.0.0.1", node.port)}

    def test_another_key_is_refused(
        self, sftp_server: Callable[..., SftpServer], ssh_home: SshHome, tmp_path: Path
    ) -> None:
        node = sftp_server("hoff")
        stranger = SshHome(tmp_path / "stranger")
        trusted = ssh_home.known_hosts.read_text().split(" ", 1)[1].strip()
        stranger.add_host("hoff", port=node.port, user=node.user, host_key=trusted)
        done = sftp(stranger, "hoff", "ls")
        assert done.returncode != 0
        assert "Permission denied" in done.stderr

    def test_several_nodes_at_once(
        self, sftp_server: Callable[..., SftpServer], ssh_home: SshHome
    ) -> None:
        nodes = [sftp_server(name) for name in ("hoff", "hebb", "hinton")]
        for node in nodes:
            assert sftp(ssh_home, node.name, f"mkdir for_{node.name}").returncode == 0
        nodes[0].stop()
        assert sftp(ssh_home, "hoff", "ls").returncode != 0
        assert sftp(ssh_home, "hebb", "ls").returncode == 0
        nodes[0].start()
        assert sftp(ssh_home, "hoff", "ls").returncode == 0
        for node in nodes:
            assert [path.name for path in node.inbox.iterdir()] == [f"for_{node.name}"]

    @pytest.mark.needs_root
    def test_the_jail_holds(
        self, sftp_server: Callable[..., SftpServer], ssh_home: SshHome
    ) -> None:
        sftp_server("hoff")
        assert sftp(ssh_home, "hoff", "ls /").stdout.split()[-1] == "/inbox"
        assert sftp(ssh_home, "hoff", "ls /etc").returncode != 0
        assert sftp(ssh_home, "hoff", "mkdir /elsewhere").returncode != 0

    @pytest.mark.needs_root
    def test_two_accounts_share_an_inbox(
        self, sftp_server: Callable[..., SftpServer], ssh_home: SshHome
    ) -> None:
        node = sftp_server("hoff", accounts=2)
        assert sftp(ssh_home, "hoff", "mkdir one").returncode == 0
        assert sftp(ssh_home, "hoff-2", "mkdir two").returncode == 0
        owners = [(node.inbox / name).owner() for name in ("one", "two")]
        assert owners == node.users
        assert sftp(ssh_home, "hoff-2", "rmdir one").returncode != 0

    @pytest.mark.needs_root
    def test_users_are_removed(self) -> None:
        code = (
            "from tests import jail_users; name = jail_users.take(); "
            "import pwd; pwd.getpwnam(name); print(name)"
        )
        done = run(sys.executable, "-c", code)
        assert done.returncode == 0, done
        with pytest.raises(KeyError):
            pwd.getpwnam(done.stdout.strip())

    @pytest.mark.needs_root
    def test_users_of_a_killed_run_are_removed_by_the_next(self) -> None:
        code = "from tests import jail_users; import os; print(jail_users.take()); os._exit(0)"
        flushed = code.replace("take())", "take(), flush=True)")
        forgotten = run(sys.executable, "-c", flushed).stdout.strip()
        assert pwd.getpwnam(forgotten)
        run(sys.executable, "-c", "from tests import jail_users; jail_users.take()")
        with pytest.raises(KeyError):
            pwd.getpwnam(forgotten)
        assert forgotten not in jail_users._made

    def test_leaves_nothing_behind(self, ssh_home: SshHome) -> None:
        with SftpServer("hoff", ssh_home) as node:
            assert sftp(ssh_home, "hoff", "ls").returncode == 0
        assert not node.state.exists()
        assert node.daemon.poll() is not None


@pytest.mark.needs_root
class TestUnprivileged:
    """The servers work for somebody who is not root, too: on a laptop, in somebody's account."""

    @pytest.mark.needs_smbd
    @pytest.mark.needs_smbclient
    def test_smb(self) -> None:
        assert as_somebody(put_over_smb) == ""

    @pytest.mark.needs_sshd
    @pytest.mark.needs_sftp
    def test_sftp(self) -> None:
        assert as_somebody(put_over_sftp) == ""


def put_over_smb(folder: Path) -> None:
    with SmbServer() as server:
        assert smbclient(server, "mkdir new").returncode == 0, server.daemon.log_tail()
        assert (server.folder / "new").is_dir()


def put_over_sftp(folder: Path) -> None:
    ssh = SshHome(folder / "home")
    with SftpServer("hoff", ssh) as node:
        done = sftp(ssh, "hoff", "mkdir new")
        assert done.returncode == 0, f"{done}\n{node.daemon.log_tail()}"
        assert (node.inbox / "new").is_dir()


def as_somebody(action: Callable[[Path], None]) -> str:
    """Do it in a forked process that is not root; gives what went wrong, or nothing."""
    user = pwd.getpwnam(jail_users.take())
    with tempfile.TemporaryDirectory() as name:
        folder, report = Path(name), Path(name, "report")
        os.chown(folder, user.pw_uid, user.pw_gid)
        child = os.fork()
        if child == 0:
            try:
                os.setgroups([])
                os.setgid(user.pw_gid)
                os.setuid(user.pw_uid)
                action(folder)
                report.touch()
            except BaseException:
                report.write_text(traceback.format_exc())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        jail_users.give_back(user.pw_name)
        return report.read_text()
