"""What users are told to type next means the project that it was said about."""

from __future__ import annotations

from pathlib import Path

import pytest

from ludwig.client.hints import command


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "trees"
    folder.mkdir()
    for name in ("LUDWIG_CONFIG", "LUDWIG_PROJECT", "LUDWIG_DRIVE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    monkeypatch.chdir(folder)
    return folder


def test_the_project_of_the_folder_goes_without_saying(folder: Path) -> None:
    assert command("status 1", "trees") == "ludwig status 1"
    assert command("status 1", "birds") == "ludwig status 1 -p birds"
    assert command("status 1", "birds of prey") == "ludwig status 1 -p 'birds of prey'"


def test_and_so_does_the_one_in_the_configuration(folder: Path) -> None:
    drive = folder / "drive"
    (folder / "ludwig.toml").write_text(f'project = "birds"\n[drive]\nurl = "{drive}"\n')
    assert command("retry 1", "birds") == "ludwig retry 1"
    assert command("retry 1", "trees") == "ludwig retry 1 -p trees"
