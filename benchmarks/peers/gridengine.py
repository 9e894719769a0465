"""A Grid Engine of one node in namespaces of its own, all of it in one temporary folder.

Grid Engine insists on host names that resolve both ways to something that is not loopback. So its
two daemons and every command of its user live on a machine of their own: a host name, a hosts file
and a network that is nothing but its loopback device, on which one address for documentation
(RFC 5737) lies. Nothing of it can be seen from outside, the ports included.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.packages import Missing, debian
from tests.harness import Daemon, wait_until

__all__ = ["GridEngine", "GridEngineArray"]

HOST, ADDRESS, CELL = "bench", "198.51.100.1", "bench"
PROGRAMS = Path("/usr/lib/gridengine")
SHARED = Path("/usr/share/gridengine")
PACKAGES = ("gridengine-master", "gridengine-exec", "gridengine-client", "iproute2")

MACHINE = f"""
hostname {HOST} && mount --bind "$1/hosts" /etc/hosts && ip link set lo up &&
ip address add {ADDRESS}/32 dev lo && touch "$1/machine" && exec sleep infinity
"""
BOOTSTRAP = """\
admin_user         none
default_domain     none
ignore_fqdn        true
spooling_method    classic
spooling_lib       libspoolc
spooling_params    {spool}
binary_path        {programs}
qmaster_spool_dir  {folder}/qmaster
security_mode      none
listener_threads   2
worker_threads     2
scheduler_threads  1
"""
GLOBAL = {
    "execd_spool_dir": "{folder}/execd",
    "min_uid": "0",
    "min_gid": "0",
    "mailer": "/bin/true",
    "reporting_params": "accounting=true reporting=false flush_time=00:00:15"
    " accounting_flush_time=00:00:00 joblog=false sharelog=00:00:00",
}
SCHEDULER = """\
algorithm                         default
schedule_interval                 0:0:1
maxujobs                          0
queue_sort_method                 load
job_load_adjustments              NONE
load_adjustment_decay_time        0:0:0
load_formula                      np_load_avg
schedd_job_info                   false
flush_submit_sec                  1
flush_finish_sec                  1
params                            none
reprioritize_interval             0:0:0
halftime                          168
usage_weight_list                 cpu=1.000000,mem=0.000000,io=0.000000
compensation_factor               5.000000
weight_user                       0.250000
weight_project                    0.250000
weight_department                 0.250000
weight_job                        0.250000
weight_tickets_functional         0
weight_tickets_share              0
share_override_tickets            TRUE
share_functional_shares           TRUE
max_functional_jobs_to_schedule   200
report_pjob_tickets               TRUE
max_pending_tasks_per_job         50
halflife_decay_list               none
policy_hierarchy                  OFS
weight_ticket                     0.500000
weight_waiting_time               0.278000
weight_deadline                   3600000.000000
weight_urgency                    0.500000
weight_priority                   0.000000
max_reservation                   0
default_duration                  INFINITY
"""
"""Looks for work as often as it can be told to, and never holds back because of the load."""

QUEUE = {
    "qname": "bench",
    "hostlist": HOST,
    "seq_no": "0",
    "load_thresholds": "NONE",
    "suspend_thresholds": "NONE",
    "nsuspend": "1",
    "suspend_interval": "00:05:00",
    "priority": "0",
    "min_cpu_interval": "00:05:00",
    "processors": "UNDEFINED",
    "qtype": "BATCH",
    "rerun": "FALSE",
    "slots": "2",
    "tmpdir": "/tmp",
    "shell": "/bin/sh",
    "shell_start_mode": "posix_compliant",
    "initial_state": "default",
    "notify": "00:00:60",
}
UNSET = {
    *("ckpt_list", "pe_list", "prolog", "epilog", "starter_method", "suspend_method"),
    *("resume_method", "terminate_method", "owner_list", "user_lists", "xuser_lists"),
    *("subordinate_list", "complex_values", "projects", "xprojects", "calendar"),
}
LIMITS = ["rt", "cpu", "fsize", "data", "stack", "core", "rss", "vmem"]


class GridEngine:
    """qmaster and execd until `close`. Needs root, as an execd that runs jobs does."""

    def __init__(self, folder: Path) -> None:
        if os.geteuid() != 0:
            raise Missing("execd runs as root")
        for name in ("sge_qmaster", "sge_execd", "qsub", "ip", "unshare", "nsenter"):
            debian(name, *PACKAGES)
        self.folder = folder
        self.env = {**os.environ, "SGE_ROOT": str(folder), "SGE_CELL": CELL, "SGE_ND": "1"}
        self.env |= {"SGE_QMASTER_PORT": "6444", "SGE_EXECD_PORT": "6445"}
        self.env["LD_LIBRARY_PATH"] = str(PROGRAMS)
        self.daemons: list[Daemon] = []
        try:
            self._write_cell()
            self._start()
        except (AssertionError, OSError, subprocess.SubprocessError) as error:
            self.close()
            raise Missing(f"Grid Engine did not start: {str(error)[:300]}") from error

    def _write_cell(self) -> None:
        common = self.folder / CELL / "common"
        for folder in (common, self.folder / "qmaster" / "job_scripts", self.folder / "execd"):
            folder.mkdir(parents=True)
        (self.folder / "util").symlink_to(SHARED / "util")
        self.spool = f"{common};{self.folder}/qmaster"
        names = {"folder": self.folder, "spool": self.spool, "programs": PROGRAMS}
        (common / "bootstrap").write_text(BOOTSTRAP.format(**names))
        (common / "act_qmaster").write_text(f"{HOST}\n")
        (self.folder / "hosts").write_text(f"127.0.0.1 localhost\n{ADDRESS} {HOST}\n")
        usual = dict(
            line.split(None, 1)
            for line in (SHARED / "default-configuration").read_text().splitlines()
            if not line.startswith("#")
        )
        usual |= {key: value.format(**names) for key, value in GLOBAL.items()}
        (self.folder / "global").write_text(_lines(usual))
        (self.folder / "scheduler").write_text(SCHEDULER)
        queue = QUEUE | dict.fromkeys(UNSET, "NONE")
        queue |= {f"{kind}_{limit}": "INFINITY" for limit in LIMITS for kind in "sh"}
        (self.folder / "queue").write_text(_lines(queue))

    def _start(self) -> None:
        machine = ["unshare", "-m", "-n", "-u", "sh", "-c", MACHINE, "machine", str(self.folder)]
        self._add(machine, "machine")
        wait_until((self.folder / "machine").exists, what="a machine", alive=self.daemons)
        self.inside = ["nsenter", "-t", str(self.daemons[0].pid), "-m", "-n", "-u"]
        resources = SHARED / "util" / "resources"
        self._program("spoolinit", "classic", "libspoolc", self.spool, "init")
        self._program("spooldefaults", "configuration", str(self.folder / "global"))
        self._program("spooldefaults", "complexes", str(resources / "centry"))
        self._program("spooldefaults", "usersets", str(resources / "usersets"))
        self._program("spooldefaults", "managers", "root")
        self._add([*self.inside, str(PROGRAMS / "sge_qmaster")], "qmaster")
        wait_until(self._answers, what="a qmaster", timeout=30, alive=self.daemons)
        self.call("qconf", "-as", HOST)
        self.call("qconf", "-Msconf", str(self.folder / "scheduler"))
        self._add([*self.inside, str(PROGRAMS / "sge_execd")], "execd")
        wait_until(self._has_node, what="an execd", timeout=60, alive=self.daemons)
        self.call("qconf", "-Aq", str(self.folder / "queue"))
        self.run(1, ["/bin/true"])

    def _add(self, command: list[str], name: str) -> None:
        daemon = Daemon(command, log=self.folder / f"{name}.log", env=self.env)
        self.daemons.append(daemon)
        daemon.start()

    def _program(self, name: str, *words: str) -> None:
        self.call(str(PROGRAMS / name), *words)

    def call(self, *words: str) -> str:
        """What a command of Grid Engine says; `AssertionError` if it failed."""
        done = subprocess.run(
            [*self.inside, *words],
            env=self.env,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
        )
        said = done.stdout + done.stderr
        assert done.returncode == 0, f"{shlex.join(words)}: {said.strip()}"
        return done.stdout

    def _answers(self) -> bool:
        return bool(self.call("qconf", "-sh"))

    def _has_node(self) -> bool:
        """Listed with what it has, not with dashes."""
        seen = self.call("qhost", "-h", HOST)
        assert seen.splitlines()[-1].split()[2:3] not in ([], ["-"]), seen
        return True

    def run(self, number: int, task: Sequence[str]) -> None:
        """One array. `Missing` if a task of it did not end well."""
        quiet = ["-o", "/dev/null", "-e", "/dev/null", "-wd", str(self.folder)]
        options = ["-terse", "-t", f"1-{number}", "-b", "y", "-shell", "n", *quiet]
        job = self.call("qsub", *options, *task).partition(".")[0].strip()
        while left := self.call("qstat"):
            if "Eqw" in left:
                raise Missing(f"Grid Engine: {left}")
            time.sleep(0.2)
        ends = self._exit_statuses(job)
        if ends != ["0"] * number:
            raise Missing(f"Grid Engine: {number} tasks ended as {sorted(set(ends))}, {len(ends)}")

    def _exit_statuses(self, job: str) -> list[str]:
        """From the accounting, accounting(5): the job's number is the 6th field, this the 13th."""
        lines = (self.folder / CELL / "common" / "accounting").read_text().splitlines()
        records = [line.split(":") for line in lines if not line.startswith("#")]
        return [record[12] for record in records if record[5] == job]

    def close(self) -> None:
        for daemon in reversed(self.daemons):
            daemon.stop()


def _lines(settings: dict[str, str]) -> str:
    return "".join(f"{key} {value}\n" for key, value in settings.items())


class GridEngineArray:
    name, share = "Grid Engine, qsub -t", 0.5

    def __init__(self, task: Sequence[str], folder: Path) -> None:
        self._task = task
        self._engine = GridEngine(folder / "gridengine")

    def run(self, number: int) -> None:
        self._engine.run(number, self._task)

    def close(self) -> None:
        self._engine.close()
