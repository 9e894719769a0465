"""A lab in a folder of this machine: a drive, and agents as processes. For debugging and the demo.

Everything is as in a real lab but the distances: the drive is a folder, the inboxes are folders,
the agents are real ones. Owns its folder and the processes it starts, and ends them by their ids.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import psutil

from ludwig import errors
from ludwig.client.lab import Lab
from ludwig.config import LabConfig, load_lab
from ludwig.drive import Drive
from ludwig.drives import open_drive, write_format
from ludwig.nodes import Observer

__all__ = ["EmbeddedLab", "end_processes", "remove_folder"]

START_S = 30.0
LEAVE_S = 15.0


class EmbeddedLab:
    """`start` brings up the agents; `close` ends everything that was started.

    With `project`, the folder's `ludwig.toml` names it: `ludwig status` works from there.
    """

    def __init__(
        self,
        folder: Path,
        hosts: Sequence[str],
        *,
        slots: int | str = 1,
        node_silent_s: float = 10.0,
        grace_s: float = 2.0,
        project: str = "",
    ) -> None:
        self.folder = folder.absolute()
        self.hosts = tuple(hosts)
        self._slots, self._silent_s, self._grace_s = slots, node_silent_s, grace_s
        self._project = project
        self._agents: dict[str, subprocess.Popen[bytes]] = {}
        self.lab: Lab | None = None

    @property
    def drive_folder(self) -> Path:
        return self.folder / "drive"

    def inbox(self, host: str) -> Path:
        return self.folder / "inboxes" / host

    # --- what a lab with servers has otherwise ---------------------------------------------------

    def drive_keys(self) -> Mapping[str, object]:
        """The keys of `[drive]`, in both files."""
        return {"url": str(self.drive_folder), "node_silent_s": self._silent_s}

    def node_keys(self, host: str) -> Mapping[str, object]:
        """The keys of `[nodes.<host>]`: how clients reach its inbox."""
        return {"address": f"folder:{self.inbox(host)}"}

    def open_drive(self) -> Drive:
        return open_drive(str(self.drive_folder))

    def agent_environment(self) -> dict[str, str]:
        """Ours without what would override the agents' files."""
        return {key: value for key, value in os.environ.items() if not key.startswith("LUDWIG_")}

    # --- life ------------------------------------------------------------------------------------

    def start(self) -> Lab:
        """The lab, with its agents up and heard of."""
        _need_worker()
        for folder in (self.folder, self.drive_folder):
            folder.mkdir(parents=True, exist_ok=True)
        # What lies here is neither source nor to be committed.
        (self.folder / ".gitignore").write_text("*\n")
        for host in self.hosts:
            for name in ("tickets", "sources"):
                (self.inbox(host) / name).mkdir(parents=True, exist_ok=True)
        drive = self.open_drive()
        write_format(drive)
        for host in self.hosts:
            self.start_agent(host)
        self.lab = Lab(self._config(), drive, local=True)
        self.lab.closing.append(self.close)
        self._await_agents(drive)
        return self.lab

    def start_agent(self, host: str) -> None:
        """Start one agent; its output goes to `agents/<host>.log`."""
        config = self._agent_file(host)
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(self._worker_toml(host), encoding="utf-8")
        with config.with_suffix(".log").open("ab") as log:
            self._agents[host] = subprocess.Popen(
                [sys.executable, "-m", "ludwig.worker", "run", "--config", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=self.agent_environment(),
            )

    def kill_node(self, host: str) -> None:
        """A power cut: the agent and everything it started are gone when this returns."""
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(self._agents[host].pid).suspend()  # what is suspended starts nothing new
        end_processes(lambda: self._family([host]))
        self._agents.pop(host).wait()

    def kill(self) -> None:
        """A power cut for all: nothing is asked, nothing is left. May be called at any time."""
        for agent in self._agents.values():
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(agent.pid).suspend()
        end_processes(lambda: self._family(self.hosts))
        for agent in self._agents.values():
            agent.wait()
        self._agents.clear()

    def close(self) -> None:
        """End the agents in order. What still runs then is killed: cancel it before.

        The folder can be removed afterwards; agents make their copies of source read-only.
        """
        for agent in self._agents.values():
            agent.terminate()
        deadline = time.monotonic() + LEAVE_S
        for agent in self._agents.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                agent.wait(timeout=max(0.1, deadline - time.monotonic()))
        self.kill()
        for host in self.hosts:
            _make_removable(self._work(host))

    # --- inside ----------------------------------------------------------------------------------

    def _agent_file(self, host: str) -> Path:
        return self.folder / "agents" / f"{host}.toml"

    def _work(self, host: str) -> Path:
        return self.folder / "nodes" / host

    def _family(self, hosts: Iterable[str]) -> list[psutil.Process]:
        """The agents of some hosts, their descendants, and attempts whose agent is gone.

        An agent and an attempt are started with a path in our folder as an argument; so one is
        found even if we were interrupted before we noted its process id.
        """
        marks = [str(self._agent_file(host)) for host in hosts]
        folders = tuple(f"{self._work(host)}/" for host in hosts)
        found: dict[int, psutil.Process] = {}
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or ()
            if any(word in marks or word.startswith(folders) for word in words):
                found[process.pid] = process
                with contextlib.suppress(psutil.NoSuchProcess):
                    found |= {child.pid: child for child in process.children(recursive=True)}
        return list(found.values())

    def _config(self) -> LabConfig:
        path = self.folder / "ludwig.toml"
        lines = [f"project = {_toml(self._project)}"] if self._project else []
        lines += ["[drive]", *_pairs(self.drive_keys())]
        for host in self.hosts:
            lines += [f"[nodes.{host}]", *_pairs(self.node_keys(host))]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return load_lab(path, environ={})

    def _worker_toml(self, host: str) -> str:
        values: dict[str, object] = {
            "hostname": host,
            "inbox": str(self.inbox(host)),
            "work": str(self._work(host)),
            "python": sys.executable,
            "slots": self._slots,
            "grace_s": self._grace_s,
            "disk_max_percent": 100,
            "disk_free_min_gb": 0.05,
        }
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            values["user"] = "root"  # only the user's own code runs here
        return "\n".join([*_pairs(values), "[drive]", *_pairs(self.drive_keys())]) + "\n"

    def _await_agents(self, drive: Drive) -> None:
        """Wait for the first heartbeat of each; say what is in the log of one that died."""
        observer = Observer(drive, silent_s=self._silent_s)
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            observer.look(time.monotonic())
            waiting = [host for host in self.hosts if observer.beat(host) is None]
            if not waiting:
                return
            for host in waiting:
                if self._agents[host].poll() is not None:
                    self.kill()
                    log = self._agent_file(host).with_suffix(".log").read_text("utf-8", "replace")
                    raise errors.LudwigError(f"the agent {host} did not start:\n{log[-2000:]}")
            time.sleep(0.05)
        self.kill()
        raise errors.LudwigError(f"no heartbeat of {', '.join(waiting)} within {START_S:g} s.")


def end_processes(find: Callable[[], list[psutil.Process]], *, timeout_s: float = 10.0) -> None:
    """Kill what `find` finds, until it finds nothing that is alive."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        alive = [process for process in find() if _is_alive(process)]
        if not alive:
            return
        for process in alive:
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                process.kill()
        psutil.wait_procs(alive, timeout=0.2)


def remove_folder(folder: Path) -> None:
    """Remove a folder with what an agent left in it. No error if it is gone."""
    _make_removable(folder)
    shutil.rmtree(folder, ignore_errors=True)


def _make_removable(folder: Path) -> None:
    for parent, names, _ in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            with contextlib.suppress(OSError):
                if not path.is_symlink():
                    path.chmod(path.stat().st_mode | stat.S_IRWXU)


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _pairs(values: Mapping[str, object]) -> list[str]:
    return [f"{key} = {_toml(value)}" for key, value in values.items()]


def _toml(value: object) -> str:
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return str(value).lower() if isinstance(value, bool) else str(value)


def _need_worker() -> None:
    """An agent needs the `worker` extra, and Linux."""
    if sys.platform != "linux":
        raise errors.UsageError(
            f"agents need Linux, and this is {sys.platform}: the demo and --local need a Linux "
            "container, or WSL. Submitting to a lab works from here."
        )
    missing = [name for name in ("watchdog", "pynvml") if importlib.util.find_spec(name) is None]
    if missing:
        raise errors.UsageError(
            f"an agent on this machine needs {' and '.join(missing)}: "
            "pip install 'ludwigcluster[worker]'"
        )
