"""A Slurm of one node on loopback, with its own munge, all of it in one temporary folder."""

from __future__ import annotations

import os
import secrets
import shlex
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.packages import Missing, debian
from tests.harness import Daemon, release_port, reserve_port, wait_until

__all__ = ["Slurm"]

CONFIG = """\
ClusterName=bench
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/d.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
MpiDefault=none
MaxArraySize=100000
MaxJobCount=100000
SchedulerParameters=default_queue_depth=10000,sched_interval=1,batch_sched_delay=0
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=1 State=UNKNOWN
PartitionName=bench Nodes={host} Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""


class Slurm:
    """munged, slurmctld and slurmd, until `close`. Needs root, as a slurmd that runs jobs does."""

    def __init__(self, folder: Path) -> None:
        if os.geteuid() != 0:
            raise Missing("slurmd runs as root")
        packages = ("slurmctld", "slurmd", "slurm-client", "munge")
        programs = {
            name: debian(name, *packages) for name in ("munged", "slurmctld", "slurmd", "sbatch")
        }
        self.folder = folder
        for name in ("state", "spool", "out"):
            (folder / name).mkdir(parents=True)
        self.ports = [reserve_port(), reserve_port()]
        host = socket.gethostname().partition(".")[0]
        self.config = folder / "slurm.conf"
        self.config.write_text(CONFIG.format(host=host, folder=folder, ports=self.ports))
        self.env = {**os.environ, "SLURM_CONF": str(self.config)}
        key = folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        munge = [programs["munged"], "--foreground", "--force", f"--key-file={key}"]
        munge += [f"--socket={folder}/munge.socket", f"--pid-file={folder}/munge.pid"]
        munge += [f"--log-file={folder}/munge.log", f"--seed-file={folder}/munge.seed"]
        self.daemons = [
            Daemon(munge, log=folder / "munged.log"),
            Daemon([programs["slurmctld"], "-D"], log=folder / "slurmctld.log", env=self.env),
            Daemon([programs["slurmd"], "-D"], log=folder / "slurmd.log", env=self.env),
        ]
        try:
            for daemon in self.daemons:
                daemon.start()
                time.sleep(0.5)
            wait_until(self._idle, what="an idle node", timeout=30, alive=self.daemons)
        except AssertionError as error:
            self.close()
            raise Missing(f"Slurm did not start: {str(error)[:300]}") from error

    def _idle(self) -> bool:
        seen = subprocess.run(
            ["sinfo", "-h", "-o", "%T"], env=self.env, capture_output=True, text=True
        )
        assert "idle" in seen.stdout, seen.stdout + seen.stderr
        return True

    def run(self, number: int, task: Sequence[str]) -> None:
        """One array. `sbatch --wait` asks ever more seldom, so the queue is asked instead."""
        command = ["sbatch", "--parsable", f"--array=1-{number}", "--ntasks=1"]
        command += [f"--output={self.folder}/out/%a", f"--wrap=exec {shlex.join(task)}"]
        job = subprocess.run(
            command, env=self.env, check=True, capture_output=True, text=True, cwd=self.folder
        ).stdout.strip()
        while subprocess.run(
            ["squeue", "-h", "-j", job], env=self.env, capture_output=True, text=True
        ).stdout.strip():
            time.sleep(0.2)

    def close(self) -> None:
        for daemon in reversed(self.daemons):
            daemon.stop()
        for port in self.ports:
            release_port(port)
