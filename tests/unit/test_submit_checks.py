"""Whatever is wrong with a submission is found before anything is changed."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ludwig import errors
from ludwig.client import Client
from ludwig.config import NodeConfig
from ludwig.drive import Usage
from ludwig.drives.folder import FolderDrive
from tests.fakelab import FakeLab


@pytest.fixture
def lab(tmp_path: Path) -> FakeLab:
    lab = FakeLab(tmp_path)
    (lab.home / "src").mkdir()
    (lab.home / "src" / "model.py").write_text("LAYERS = 2\n")
    (lab.home / "run.py").write_text("def main(param2val):\n    return []\n")
    (lab.home / "corpora").mkdir()
    (lab.home / "corpora" / "words.txt").write_text("to be\n")
    return lab


def everything(lab: FakeLab) -> set[Path]:
    return {path for path in lab.folder.rglob("*") if lab.home not in path.parents}


def full(lab: FakeLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FolderDrive, "usage", lambda _: Usage(total=1000, free=95))


def no_nodes(lab: FakeLab, monkeypatch: pytest.MonkeyPatch) -> None:
    for host in lab.hosts:
        (lab.folder / f"inbox-{host}").rmdir()


def not_mounted(lab: FakeLab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.root.rename(lab.folder / "gone")


def nothing(lab: FakeLab, monkeypatch: pytest.MonkeyPatch) -> None:
    return None


@pytest.mark.parametrize(
    ("breaking", "options", "words"),
    [
        (full, {}, r"is 9\d % full .* then submit again"),
        (no_nodes, {}, r"(?s)no node can be reached, so nothing was submitted.*hoff.*hebb"),
        (not_mounted, {}, "there is no folder .* Is the drive mounted"),
        (nothing, {"param2val_list": [{"save_path": 1}]}, "save_path"),
        (nothing, {"param2val_list": [{"f": print}]}, r"\['f'\]"),
        (nothing, {"src_ps": ["nowhere"]}, "nowhere"),
        (nothing, {"run_f_name": "start.py"}, "start.py"),
        (nothing, {"data_ps": ["nowhere"]}, "nowhere"),
        (nothing, {"nodes": ["hebbb"]}, "Did you mean 'hebb'"),
        (nothing, {"reps": 0}, "reps"),
    ],
)
def test_nothing_is_changed(
    lab: FakeLab,
    monkeypatch: pytest.MonkeyPatch,
    breaking: Callable[[FakeLab, pytest.MonkeyPatch], None],
    options: dict[str, object],
    words: str,
) -> None:
    client = Client("trees", lab=lab.lab)
    breaking(lab, monkeypatch)
    before = everything(lab)
    given: dict[str, object] = {
        "src_ps": ["src"],
        "data_ps": ["corpora"],
        "param2val_list": [{"lr": 0.1}],
        "root": lab.home,
        **options,
    }
    with pytest.raises(errors.LudwigError, match=words):
        client.submit(**given)  # type: ignore[arg-type]
    assert everything(lab) == before


def test_a_name_that_cannot_be_a_projects(lab: FakeLab) -> None:
    before = everything(lab)
    with pytest.raises(errors.NameNotAllowed):
        Client("../birds", lab=lab.lab)
    assert everything(lab) == before


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A node that accepts connections, and then says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        yield server


@pytest.fixture
def client(lab: FakeLab, silent: socket.socket) -> Iterator[Client]:
    """Of a lab in which one node does not answer."""
    dead = NodeConfig(address=f"127.0.0.1:{silent.getsockname()[1]}")
    made = lab.lab
    made.config = replace(made.config, nodes={**made.nodes, "dead": dead})
    with Client("trees", lab=made) as client:
        yield client


def test_a_mistake_is_told_before_any_node_is_called(
    lab: FakeLab, client: Client, silent: socket.socket
) -> None:
    mistakes: list[dict[str, Any]] = [
        {"run_f_name": "start.py"},
        {"data_ps": ["nowhere"]},
        {"nodes": ["hebbb"]},
    ]
    for mistake in mistakes:
        with pytest.raises(errors.UsageError):
            client.submit(**{"src_ps": ["src"], "root": lab.home, **mistake})
    with pytest.raises(TimeoutError):
        silent.accept()


def test_a_full_drive_is_told_without_waiting_for_a_dead_node(
    lab: FakeLab, client: Client, silent: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent.settimeout(10)
    calls: list[socket.socket] = []

    def usage(drive: FolderDrive) -> Usage:
        calls.append(silent.accept()[0])
        return Usage(total=1000, free=95)

    monkeypatch.setattr(FolderDrive, "usage", usage)
    with pytest.raises(errors.SubmitError, match="full"):
        client.submit(src_ps=["src"], root=lab.home)
    begun = time.monotonic()
    client.close()
    assert time.monotonic() - begun < 4
    calls[0].close()
