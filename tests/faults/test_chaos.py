"""A short chaos with a fixed seed; the long one is `python -m benchmarks.chaos`."""

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
    assert len({deed.split()[0] for deed in report.deeds}) >= 6, report.deeds
