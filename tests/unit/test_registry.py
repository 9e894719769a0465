"""Names without gaps, promises that are kept once, numbers that nobody else has."""

import subprocess
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import msgspec
import pytest

from ludwig import codec, errors, job_records, layout, registry
from ludwig.drives.folder import FolderDrive
from ludwig.model import Plan
from ludwig.registry import Registry
from tests import staged
from tests.hooked_drive import CutAt, HookedDrive
from tests.simsubmit import ORIGIN

FILES = layout.project_files("trees")
WHEN = datetime(2026, 11, 18, 10, 0, 0)


@pytest.fixture
def drive(tmp_path: Path) -> FolderDrive:
    return FolderDrive(tmp_path)


def hashes(*numbers: int) -> list[str]:
    return [codec.params_hash({"lr": number}) for number in numbers]


def wish(*numbers: int, reps: int = 1) -> "Wish":
    return Wish(hashes(*numbers), reps)


class Wish:
    """So many replications of these; those promised to others count."""

    def __init__(self, wanted: list[str], reps: int) -> None:
        self.wanted, self.reps = wanted, reps
        self.asked = 0

    def __call__(self, now: Registry) -> tuple[Mapping[str, str], Mapping[str, int]]:
        self.asked += 1
        names = now.name_new(self.wanted)
        by_hash = now.by_hash() | {hash_: name for name, hash_ in names.items()}
        counted: dict[str, int] = {}
        for runs in now.promised.values():
            for name, count in runs.items():
                counted[name] = counted.get(name, 0) + count
        missing = {by_hash[h]: self.reps - counted.get(by_hash[h], 0) for h in self.wanted}
        return names, {name: count for name, count in missing.items() if count > 0}


def promise(drive: FolderDrive, wanted: Wish, job: int, nonce: str = "") -> Mapping[str, int]:
    known = registry.read_registry(drive, "trees")
    return registry.promise(drive, known, wanted, job=job, nonce=nonce or f"nonce-{job:04d}")


def test_configurations_are_numbered_without_gaps(drive: FolderDrive) -> None:
    assert promise(drive, wish(1, 2), 1) == {"param_001": 1, "param_002": 1}
    assert promise(drive, wish(2, 3), 2) == {"param_003": 1}
    assert promise(drive, wish(3, 4, reps=2), 3) == {"param_003": 1, "param_004": 2}
    known = registry.read_registry(drive, "trees")
    assert list(known.names) == ["param_001", "param_002", "param_003", "param_004"]
    assert known.plans == 3
    assert known.by_hash()[hashes(3)[0]] == "param_003"


def test_nothing_is_published_when_nothing_is_needed(drive: FolderDrive) -> None:
    promise(drive, wish(1), 1)
    assert promise(drive, wish(1), 2) == {}
    assert drive.list(FILES.params) == ["000001.json"]


def test_the_second_of_two_submitters_sees_the_promise_of_the_first(drive: FolderDrive) -> None:
    """Both read the registry while it is empty."""
    one, two = (registry.read_registry(drive, "trees") for _ in range(2))
    first, second = wish(1, 2), wish(2, 3)
    assert registry.promise(drive, one, first, job=1, nonce="nonce-one") == {
        "param_001": 1,
        "param_002": 1,
    }
    assert registry.promise(drive, two, second, job=2, nonce="nonce-two") == {"param_003": 1}
    assert (first.asked, second.asked) == (1, 2)
    assert two.promised == {1: {"param_001": 1, "param_002": 1}, 2: {"param_003": 1}}


class Late(HookedDrive):
    """A drive whose listings lag: they show nothing new."""

    def list(self, path: str) -> list[str]:
        return []


def test_a_listing_that_lags_does_no_harm(drive: FolderDrive) -> None:
    late = Late(drive)
    known = registry.read_registry(late, "trees")
    for number in (1, 2, 3):
        promise(drive, wish(number), number)
    got = registry.promise(late, known, wish(3, 4), job=9, nonce="nonce-late")
    assert got == {"param_004": 1}
    assert known.plans == 4


def test_a_promise_whose_answer_was_lost_is_found_again(drive: FolderDrive) -> None:
    drive.make_folders(FILES.params)
    hooked = HookedDrive(drive, CutAt(2, "after", errors.DriveTimeout("publishing", "")))
    with pytest.raises(errors.DriveTimeout):
        registry.promise(hooked, Registry("trees"), wish(1), job=1, nonce="nonce-0001")
    promise(drive, wish(2), 2)
    assert promise(drive, wish(1), 1, "nonce-0001") == {"param_001": 1}
    assert registry.read_registry(drive, "trees").plans == 2


def test_a_removed_plan_stops_submissions(drive: FolderDrive) -> None:
    """Else its number would be given again, and with it the names of the plans after it."""
    for number in (1, 2, 3):
        promise(drive, wish(number), number)
    drive.remove(FILES.plan(2))
    with pytest.raises(errors.Malformed, match=r"000002.*gone"):
        promise(drive, wish(4), 4)
    assert sorted(drive.list(FILES.params)) == ["000001.json", "000003.json"]


def test_only_what_is_new_is_read(drive: FolderDrive) -> None:
    promise(drive, wish(1), 1)
    known = registry.read_registry(drive, "trees")
    promise(drive, wish(2), 2)
    drive.remove(FILES.plan(1))  # would be missed if it were read again
    assert registry.read_registry(drive, "trees", onto=known) is known
    assert list(known.names) == ["param_001", "param_002"]


def test_names_of_an_old_drive_are_kept(drive: FolderDrive) -> None:
    known = Registry("trees")
    first, second = hashes(1, 2)
    known.add(Plan(nonce="12345678", names={"param_7": first, "param_12": first}))
    assert known.by_hash()[first] == "param_7"
    assert known.by_hash() == {first: "param_7"}
    assert known.name_new([first, second]) == {"param_013": second}


def test_every_job_has_a_number_of_its_own(drive: FolderDrive) -> None:
    assert [registry.reserve_job(drive, "trees") for _ in range(3)] == [1, 2, 3]
    drive.make_folders(f"{FILES.jobs}/0041")
    drive.make_folders(f"{FILES.jobs}/strange")
    assert registry.reserve_job(drive, "trees") == 42
    assert registry.reserve_job(Late(drive), "trees") == 4


def test_every_job_has_a_second_of_its_own(drive: FolderDrive) -> None:
    stamps = [registry.reserve_stamp(drive, "trees", WHEN, f"nonce-{n}") for n in range(3)]
    assert stamps == ["2026-11-18-10-00-00", "2026-11-18-10-00-01", "2026-11-18-10-00-02"]
    assert registry.reserve_stamp(drive, "trees", WHEN, "nonce-0") == stamps[0]


def test_an_abandoned_job_cannot_appear_later(drive: FolderDrive) -> None:
    number = registry.reserve_job(drive, "trees")
    assert job_records.abandon_job(drive, "trees", number, origin=ORIGIN, nonce="somebody-else")
    job = job_records.read_job(drive, "trees", number)
    assert job.abandoned
    assert not list(job.numbers())
    submitted = msgspec.structs.replace(job, nonce="the-submitter", abandoned=False)
    with pytest.raises(errors.Exists):
        job_records.publish_job(drive, submitted, {}, b"{}")
    assert job_records.read_job(drive, "trees", number) == job


RACER = """
import sys
from datetime import datetime
from pathlib import Path
from ludwig import registry
from ludwig.drives.folder import FolderDrive
from tests.unit.test_registry import WHEN, promise, wish

drive, me = FolderDrive(sys.argv[1]), int(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
for round in range(10):
    job = registry.reserve_job(drive, "trees")
    runs = promise(drive, wish(round, round + 1, me * 1000 + round), job, f"nonce-{me}-{round}")
    stamp = registry.reserve_stamp(drive, "trees", WHEN, f"nonce-{me}-{round}")
    print(job, stamp, *runs, flush=True)
"""
RACERS = 4


def test_processes_that_submit_at_once(tmp_path: Path) -> None:
    """No number twice, no gap, no configuration promised twice."""
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(tmp_path), str(me)],
            cwd=staged.ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for me in range(1, RACERS + 1)
    ]
    try:
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n"
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("go\n")
            racer.stdin.flush()
        outputs = [racer.communicate(timeout=60)[0] for racer in racers]
    finally:
        for racer in racers:
            racer.kill()
            racer.wait()
    assert [racer.returncode for racer in racers] == [0] * RACERS
    rows = [line.split() for output in outputs for line in output.splitlines()]
    assert sorted(int(row[0]) for row in rows) == list(range(1, RACERS * 10 + 1))
    assert len({row[1] for row in rows}) == RACERS * 10
    promised = [name for row in rows for name in row[2:]]
    known = registry.read_registry(FolderDrive(tmp_path), "trees")
    assert sorted(promised) == sorted(set(promised)), "promised twice"
    assert sorted(promised) == sorted(known.names)
    assert len(set(known.names.values())) == len(known.names), "one configuration has two names"
    numbers = [layout.parse_param(name) for name in known.names]
    assert numbers == list(range(1, 11 + RACERS * 10 + 1))
