"""A lab under fire: what a seeded adversary does to it, and what must hold in the end.

    python -m benchmarks.chaos --seed 7 --tasks 300 --minutes 5

Four nodes, each behind a jailed SFTP account and a gate to a real smbd; a few hundred tasks that
write a shard each. The adversary kills, freezes, cuts off, fills, corrupts and cancels, in an order
that depends on the seed alone. In the end every task that was not cancelled has ended once, every
shard is there once and whole, what was cancelled is dead, no agent has stumbled, and whatever went
wrong was shown to the user with its reason (`chaos_judge.py`, `chaos_eyes.py`).
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from ludwig import errors, job_records
from ludwig.client.job import Job
from ludwig.client.lab import Lab as ClientLab
from ludwig.client.submit import Submission, submit
from ludwig.config import DriveConfig, LabConfig, NodeConfig
from tests.cable import Cable, Forbidden
from tests.chaos_eyes import Eyes
from tests.chaos_judge import Report, judge
from tests.gate import Gate
from tests.harness import SftpServer, SmbServer, SshHome, program, wait_until
from tests.lab import Lab, toml

__all__ = ["Chaos"]

T = TypeVar("T")

HOSTS = ("hoff", "norman", "hebb", "hinton")
SILENT_S = 2.0
DRIVE_BYTES = 192 << 20
RUN = """
import hashlib, os, random, time

def main(param2val):
    dice = random.Random(param2val["shard"])
    print("working on", param2val["shard"], flush=True)
    time.sleep(dice.uniform(0.02, param2val["longest"]))
    data = dice.randbytes(20_000)
    with open(os.path.join(param2val["save_path"], "shard.bin"), "wb") as file:
        file.write(data)
    with open(os.path.join(param2val["save_path"], "shard.sha256"), "w") as file:
        file.write(hashlib.sha256(data).hexdigest())
"""


class Chaos:
    """Builds the lab, lets the adversary loose, and heals everything in the end."""

    def __init__(self, folder: Path, *, seed: int, tasks: int, longest: float = 3.0) -> None:
        self.dice = random.Random(seed)
        self.folder, self.count, self.longest = folder, tasks, longest
        self.report = Report(seed)
        self.stack = contextlib.ExitStack()
        self.frozen: list[Callable[[], None]] = []
        self.jobs: list[Job] = []
        self.others: list[Job] = []
        self.filler = Path()
        self.died: dict[str, float] = {}
        self.cables: dict[str, Cable] = {}
        self.began = time.monotonic()

    # --- the lab ---------------------------------------------------------------------------------

    def build(self) -> None:
        share = self.folder / "share"
        share.mkdir(parents=True)
        near = ""
        if os.geteuid() == 0:
            self._small_disk(share)
            near = self._lay_cable(HOSTS[3])
        interfaces = {"interfaces": f"127.0.0.1/8 {near}"}
        self.smb = self.stack.enter_context(
            SmbServer(folder=share / "drive", global_settings=interfaces)
        )
        self.filler = share / "drive" / "filler"
        home = SshHome(self.folder / "ssh")
        os.environ["HOME"] = str(home.home)
        self.sftp = {h: self.stack.enter_context(SftpServer(h, home)) for h in HOSTS}
        self.gates = {h: self.stack.enter_context(Gate(self.smb.port)) for h in HOSTS}
        self.lab = self.stack.enter_context(
            Lab(self.folder / "lab", hosts=HOSTS, smb=self.smb, silent_s=SILENT_S)
        )
        for host in HOSTS:
            url = self.smb.url.replace(f":{self.smb.port}/", f":{self.gates[host].port}/")
            if cable := self.cables.get(host):
                url = self.smb.url.replace("127.0.0.1", cable.near)
                self.lab[host].wrap(*cable.node)
            self.lab[host].configure(
                inbox=str(self.sftp[host].inbox), slots=2, drive={"url": url}, grace_s=0.5
            )
        self._skew_clock(HOSTS[1], 5)
        self._skew_clock(HOSTS[2], -3)
        self.client = ClientLab(
            LabConfig(
                drive=DriveConfig(**self.lab.drive_settings),
                nodes={host: NodeConfig(address=host) for host in HOSTS},
            ),
            self.lab.drive,
        )
        self.eyes = Eyes(self.smb.folder, self._environment(), self.report.problems.append)
        self.lab.start()

    def _environment(self) -> dict[str, str]:
        """What a person's terminal has, for the command `ludwig`."""
        lines = ["[drive]"]
        lines += [f"{key} = {toml(value)}" for key, value in self.lab.drive_settings.items()]
        for host in HOSTS:
            lines += [f"[nodes.{host}]", f'address = "{host}"']
        config = self.folder / "ludwig.toml"
        config.write_text("\n".join(lines) + "\n")
        mine = {"LUDWIG_CONFIG": str(config), "XDG_CACHE_HOME": str(self.folder / "cache")}
        return {**os.environ, **self.lab.env, **mine}

    def _lay_cable(self, host: str) -> str:
        """That node is on a network of its own. The near end's address, for the server."""
        try:
            self.cables[host] = self.stack.enter_context(Cable())
        except Forbidden as error:
            self._write(f"no cable for {host}: {error}")
            return ""
        return f"{self.cables[host].near}/30"

    def _small_disk(self, share: Path) -> None:
        """A file system of its own, so that it can be filled."""
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DRIVE_BYTES}", "tmpfs", str(share)], check=True
        )
        self.stack.callback(subprocess.run, ["umount", "-l", str(share)], check=False)

    def _skew_clock(self, host: str, hours: int) -> None:
        """The node's wall clock is hours off, from its start on."""
        library = self.folder / "clock_skew.so"
        if not library.exists():
            source = Path(__file__).parent / "clock_skew" / "clock_skew.c"
            command = [program("gcc"), "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
            subprocess.run(command, check=True)
        skew = f"LUDWIG_TEST_SKEW={hours * 3600}"
        self.lab[host].wrap("env", f"LD_PRELOAD={library}", skew)
        self.report.deeds.append(f"skew {host} {hours} h")

    def submit(self, project: str, count: int, longest: float) -> Job:
        home = self.lab.home / project
        (home / "src").mkdir(parents=True, exist_ok=True)
        (home / "src" / "__init__.py").touch()
        (home / "run.py").write_text(RUN)
        params = [{"shard": number, "longest": longest} for number in range(count)]
        submission = Submission(src_ps=[Path("src")], param2val_list=params, root=home, retries=12)
        done = self._insist(lambda: submit(self.client, project, submission))
        # Nothing to do: the first try had made the job before it failed.
        number = done.job or job_records.list_jobs(self.lab.drive, project)[-1]
        return Job(self.client, project, number)

    def _insist(self, action: Callable[[], T]) -> T:
        """A person tries again when the drive was away."""

        def tried() -> T:
            try:
                return action()
            except (errors.DriveError, errors.SubmitError) as error:
                raise AssertionError(str(error)) from error

        return wait_until(tried, timeout=60, interval=0.2, what="a person insists")

    # --- the adversary ---------------------------------------------------------------------------

    def run(self, seconds: float) -> Report:
        started = time.monotonic()
        try:
            self.build()
            self.jobs = [self.submit("trees", self.count, self.longest)]
            deck: list[tuple[str, Callable[[], str]]] = []
            while time.monotonic() - started < seconds and not self._is_over(self.jobs[0]):
                if not deck:  # every deed comes once before one comes again
                    deck = list(self._deeds().items())
                    self.dice.shuffle(deck)
                self._do(*deck.pop())
                self._pause(self.dice.uniform(0.1, 0.7))
            for name, deed in deck:  # the job may be over before every deed has come once
                if not any(done.split()[0] == name for done in self.report.deeds):
                    self._do(name, deed)
            self.heal()
            judge(
                self.report,
                self.lab,
                self.smb.folder,
                jobs=[*self.jobs, *self.others],
                eyes=self.eyes,
            )
        finally:
            self.report.seconds = time.monotonic() - started
            self.heal_frozen()
            if self.report.problems and self.smb.folder.exists():
                shutil.copytree(self.smb.folder, self.folder / "drive-kept", dirs_exist_ok=True)
            self.stack.close()
        return self.report

    def _do(self, name: str, deed: Callable[[], str]) -> None:
        if said := deed():
            self.report.deeds.append(f"{name} {said}")
            self._write(self.report.deeds[-1])

    def _write(self, line: str) -> None:
        """Into a diary beside the logs of the agents: to find out what a failure came from."""
        with (self.folder / "deeds.log").open("a") as file:
            file.write(f"{time.monotonic() - self.began:7.2f} {time.strftime('%T')} {line}\n")

    def _deeds(self) -> dict[str, Callable[[], str]]:
        deeds = {
            "kill-agent": self.kill_agent,
            "kill-node": self.kill_node,
            "kill-job": self.kill_job,
            "freeze-agent": self.freeze_agent,
            "cut-off": self.cut_off,
            "restart-server": self.restart_server,
            "freeze-server": self.freeze_server,
            "corrupt": self.corrupt,
            "delete": self.delete,
            "cancel": self.cancel,
            "other-job": self.other_job,
            "revive": self.revive,
            "revive-more": self.revive,
        }
        if os.geteuid() == 0:
            deeds["fill"] = self.fill
        if self.cables:
            deeds["link-down"] = self.pull_cable
        return deeds

    def _pause(self, seconds: float) -> None:
        """The adversary waits a moment: how long is part of the seed, not a condition."""
        end = time.monotonic() + seconds
        wait_until(lambda: time.monotonic() >= end, timeout=seconds + 30)

    def _living(self) -> list[str]:
        return [host for host in HOSTS if self.lab[host].poll() is None]

    def kill_agent(self) -> str:
        living = self._living()
        if len(living) < 2:
            return ""
        host = self.dice.choice(living)
        self.lab[host].kill_alone()
        self.died[host] = time.monotonic()
        return host

    def kill_node(self) -> str:
        living = self._living()
        if len(living) < 3:
            return ""
        host = self.dice.choice(living)
        self.lab[host].kill()
        self.died[host] = time.monotonic()
        return host

    def revive(self) -> str:
        dead = [host for host in HOSTS if self.lab[host].poll() is not None]
        if not dead:
            return ""
        host = self.dice.choice(dead)
        self._check_death(host)
        if time.monotonic() - self.died.get(host, 0.0) > SILENT_S:
            self.eyes.expect_silent(host)
        self.lab[host].start()
        return host

    def _check_death(self, host: str) -> None:
        """Agents die by our hand only."""
        if (status := self.lab[host].poll()) != -signal.SIGKILL:
            self.report.problems.append(f"the agent {host} ended by itself with {status}")

    def kill_job(self) -> str:
        found = sorted(self.lab.processes() - {os.getpid()})
        if not found:
            return ""
        pid = self.dice.choice(found)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return f"pid {pid}"

    def freeze_agent(self) -> str:
        """Longer than a node may be silent: when it thaws, it is a zombie."""
        living = self._living()
        if len(living) < 2 or self.frozen:
            return ""
        host = self.dice.choice(living)
        pid = self.lab[host].pid
        os.kill(pid, signal.SIGSTOP)

        def thaw() -> None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

        look = partial(self.eyes.expect_silent, host)
        return self._for_a_while(thaw, host, SILENT_S * 1.5, look)

    def cut_off(self) -> str:
        if self.frozen:
            return ""
        host = self.dice.choice([host for host in HOSTS if host not in self.cables])
        self.gates[host].shut()
        look = partial(self.eyes.expect_silent, host)
        return self._for_a_while(self.gates[host].open, host, SILENT_S * 1.5, look)

    def pull_cable(self) -> str:
        """A link that is down, in the node's own network."""
        ((host, cable),) = self.cables.items()
        if self.frozen:
            return ""
        cable.pull()
        look = partial(self.eyes.expect_silent, host)
        return self._for_a_while(cable.plug, host, SILENT_S * 1.5, look)

    def freeze_server(self) -> str:
        if self.frozen:
            return ""
        self.smb.suspend()
        return self._for_a_while(self.smb.resume, "smbd", self.dice.uniform(0.5, 2.0))

    def _for_a_while(
        self,
        undo: Callable[[], None],
        what: str,
        seconds: float,
        look: Callable[[], None] = lambda: None,
    ) -> str:
        self.frozen.append(undo)
        self._pause(seconds)
        look()
        self.heal_frozen()
        return f"{what} {seconds:.1f} s"

    def restart_server(self) -> str:
        self.smb.kill()
        self._pause(self.dice.uniform(0.0, 1.0))
        self.smb.start()
        return "smbd"

    def fill(self) -> str:
        with contextlib.suppress(OSError), self.filler.open("wb") as file:
            while True:
                file.write(bytes(1 << 20))
                file.flush()
        self._pause(self.dice.uniform(0.5, 2.0))
        self.eyes.expect_full(self.jobs[0])
        self.filler.unlink(missing_ok=True)
        return "drive"

    def _files(self) -> list[Path]:
        """Files that only Ludwig writes, and that nobody needs to be able to read."""
        top = self.smb.folder
        found = [
            path
            for kind in ("claims", "events", "done", "logs")
            for path in top.glob(f"*/.ludwig/jobs/*/{kind}/**/*")
            if path.is_file()
        ]
        return sorted([*found, *top.glob(".ludwig/nodes/*.json")])

    def corrupt(self) -> str:
        return self._harm(lambda path: path.write_bytes(b'{"version": 1, "half'))

    def delete(self) -> str:
        return self._harm(lambda path: path.unlink())

    def _harm(self, harm: Callable[[Path], object]) -> str:
        files = self._files()
        if not files:
            return ""
        path = self.dice.choice(files)
        with contextlib.suppress(OSError):
            before = path.read_bytes()
            harm(path)
            self.eyes.note_harm(path, before)
        return str(path.relative_to(self.smb.folder))

    def cancel(self) -> str:
        """One task, rarely: most are to end well."""
        if self.dice.random() > 0.3 and any(
            deed.startswith("cancel") for deed in self.report.deeds
        ):
            return ""
        task = self.dice.randrange(1, self.count + 1)
        with contextlib.suppress(errors.DriveError):
            self.jobs[0].cancel(task)
            return f"task {task}"
        return ""

    def other_job(self) -> str:
        """Somebody else submits, and cancels what was there before."""
        with contextlib.suppress(errors.LudwigError, AssertionError):
            if self.others:
                self.others[-1].cancel()
            if len(self.others) < 3:
                self.others.append(self.submit(f"other{len(self.others)}", 6, 30.0))
            return f"{len(self.others)}"
        return ""

    def _is_over(self, job: Job) -> bool:
        with contextlib.suppress(errors.LudwigError):
            return job.status().finished
        return False

    # --- the end ---------------------------------------------------------------------------------

    def heal_frozen(self) -> None:
        while self.frozen:
            self.frozen.pop()()

    def heal(self) -> None:
        """Everything is well again: now the lab has to finish by itself."""
        self.heal_frozen()
        self.filler.unlink(missing_ok=True)
        if self.smb.daemon.poll() is not None:
            self.smb.start()
        for host in HOSTS:
            if self.lab[host].poll() is not None:
                self._check_death(host)
                self.lab[host].start()
        for job in self.others:
            self._insist(partial(_cancelled, job))
        for job in (*self.jobs, *self.others):
            wait_until(
                partial(self._finished, job),
                timeout=120,
                interval=0.3,
                what=f"the end of {job.project}/{job.id}",
            )

    def _finished(self, job: Job) -> bool:
        try:
            status = job.status()
        except errors.DriveError as error:
            raise AssertionError(str(error)) from error
        left = [(t.task, t.state, t.why) for t in status.tasks if t.task not in status.over]
        assert status.finished, left[:5]
        return True


def _cancelled(job: Job) -> bool:
    job.cancel()
    return True
