"""A short chaos with a fixed seed; the long one is `python -m benchmarks.chaos`."""

import os
from pathlib import Path

import pytest

from tests.chaos import Chaos


@pytest.mark.needs_smbd
@pytest.mark.needs_sshd
@pytest.mark.needs_gcc
@pytest.mark.timeout(300)
@pytest.mark.xdist_group("chaos")
def test_nothing_is_lost_under_fire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    report = Chaos(tmp_path, seed=3, tasks=100).run(seconds=40)
    print(report)
    assert not report.problems, str(report)
    kinds = {deed.split()[0] for deed in report.deeds}
    assert {"kill-job", "freeze-agent", "restart-server", "freeze-server", "skew"} <= kinds
    assert {"corrupt", "delete", "cancel", "other-job", "cut-off"} <= kinds, report.deeds
    assert "kill-agent" in kinds or "kill-node" in kinds, report.deeds
    assert os.geteuid() != 0 or "fill" in kinds, report.deeds
