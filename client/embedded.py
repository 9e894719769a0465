"""A lab in a folder of this machine: a drive, and agents as processes. For debugging and the demo.

Everything is as in a real lab but the distances: the drive is a folder, the inboxes are folders,
the agents are real ones. Owns its folder and the processes it starts, and ends them by their ids.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from ludwig import errors
from ludwig.client.lab import Lab
from ludwig.config import LabConfig, load_lab
from ludwig.drives import open_drive, write_format
from ludwig.nodes import Observer

__all__ = ["EmbeddedLab"]

START_S = 30.0


class EmbeddedLab:
    """`start` brings up the agents; `close` ends everything that was started."""

    def __init__(
        self,
        folder: Path,
        hosts: Sequence[str],
        *,
        slots: int | str = 1,
        node_silent_s: float = 10.0,
        grace_s: float = 2.0,
    ) -> None:
        self.folder = folder.absolute()
        self.hosts = tuple(hosts)
        self._slots, self._silent_s, self._grace_s = slots, node_silent_s, grace_s
        self._agents: dict[str, subprocess.Popen[bytes]] = {}
        self.lab: Lab | None = None

    @property
    def drive_folder(self) -> Path:
        return self.folder / "drive"

    def start(self) -> Lab:
        """The lab, with its agents up and heard of."""
        _need_worker()
        self.drive_folder.mkdir(parents=True, exist_ok=True)
        drive = open_drive(str(self.drive_folder))
        with contextlib.suppress(errors.Exists):
            write_format(drive)
        # What lies here is neither source nor to be committed.
        (self.folder / ".gitignore").write_text("*\n")
        for host in self.hosts:
            self.start_agent(host)
        self.lab = Lab(self._config(), drive, local=True)
        self.lab.closing.append(self.close)
        self._await_agents()
        return self.lab

    def start_agent(self, host: str) -> None:
        """Start one agent; its output goes to `agents/<host>.log`."""
        inbox = self.folder / "inboxes" / host
        for name in ("tickets", "sources"):
            (inbox / name).mkdir(parents=True, exist_ok=True)
        config = self.folder / "agents" / f"{host}.toml"
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(self._worker_toml(host, inbox), encoding="utf-8")
        with (config.with_suffix(".log")).open("ab") as log:
            self._agents[host] = subprocess.Popen(
                [sys.executable, "-m", "ludwig.worker", "run", "--config", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=_environment(),
            )

    def kill_node(self, host: str) -> None:
        """A power cut: the agent and everything it started are gone."""
        agent = self._agents.pop(host)
        family = [psutil.Process(agent.pid), *psutil.Process(agent.pid).children(recursive=True)]
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        agent.wait()

    def close(self) -> None:
        """End the agents. Jobs must be over or cancelled: what runs is left running."""
        for agent in self._agents.values():
            agent.terminate()
        for agent in self._agents.values():
            try:
                agent.wait(timeout=15)
            except subprocess.TimeoutExpired:
                agent.kill()
                agent.wait()
        self._agents.clear()

    def _config(self) -> LabConfig:
        path = self.folder / "ludwig.toml"
        nodes = "".join(
            f'\n[nodes.{host}]\naddress = "folder:inboxes/{host}"\n' for host in self.hosts
        )
        path.write_text(
            f'[drive]\nurl = "drive"\nnode_silent_s = {self._silent_s}\n{nodes}', encoding="utf-8"
        )
        return load_lab(path, environ={})

    def _worker_toml(self, host: str, inbox: Path) -> str:
        values: Mapping[str, object] = {
            "hostname": host,
            "inbox": str(inbox),
            "work": str(self.folder / "nodes" / host),
            "python": sys.executable,
            "slots": self._slots,
            "grace_s": self._grace_s,
            "disk_max_percent": 100,
            "disk_free_min_gb": 0.05,
        }
        lines = [f"{key} = {_toml(value)}" for key, value in values.items()]
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            lines.append('user = "root"')  # only the user's own code runs here
        lines += ["[drive]", f"url = {_toml(str(self.drive_folder))}"]
        lines += [f"node_silent_s = {self._silent_s}"]
        return "\n".join(lines) + "\n"

    def _await_agents(self) -> None:
        """Wait for the first heartbeat of each; say what is in the log of one that died."""
        if self.lab is None:
            return
        observer = Observer(self.lab.drive, silent_s=self._silent_s)
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            observer.look(time.monotonic())
            waiting = [host for host in self.hosts if observer.beat(host) is None]
            if not waiting:
                return
            for host in waiting:
                if self._agents[host].poll() is not None:
                    self.close()
                    log = (self.folder / "agents" / f"{host}.log").read_text("utf-8", "replace")
                    raise errors.LudwigError(f"the agent {host} did not start:\n{log[-2000:]}")
            time.sleep(0.05)
        self.close()
        raise errors.LudwigError(f"no heartbeat of {', '.join(waiting)} within {START_S:g} s.")


def _toml(value: object) -> str:
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return str(value)


def _environment() -> dict[str, str]:
    """Ours without what would override the agents' files."""
    return {key: value for key, value in os.environ.items() if not key.startswith("LUDWIG_")}


def _need_worker() -> None:
    """An agent needs the `worker` extra, and a system with POSIX processes."""
    if sys.platform == "win32":
        raise errors.UsageError(
            "agents need Linux: local runs do not work on Windows. Submit to a lab instead."
        )
    missing = [name for name in ("watchdog", "pynvml") if importlib.util.find_spec(name) is None]
    if missing:
        raise errors.UsageError(
            f"an agent on this machine needs {' and '.join(missing)}: "
            "pip install 'ludwigcluster[worker]'"
        )
