"""Eight processes want the same names; some are killed while they publish."""

import itertools
import multiprocessing
import os
import random
import signal
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from ludwig.drive import Drive
from tests.contract import racer
from tests.contract.conftest import CIFS, Place

RACERS, NAMES, WAIT_S = 8, 500, 60
if CIFS:  # its virtual machine is slow
    NAMES, WAIT_S = int(os.environ.get("LUDWIG_TEST_CIFS_NAMES", "60")), 400

# Starts processes in milliseconds, from a small one that has everything imported.
context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["ludwig.drives.smb", "tests.contract.racer"])


@pytest.mark.parametrize("operation", ["create", "publish", "mkdir"])
def test_exactly_one_wins(place: Place, drive: Drive, operation: str) -> None:
    drive.mkdir("race")
    views = itertools.cycle(place.views())
    with context.Manager() as manager:
        start = manager.Barrier(RACERS)
        with ProcessPoolExecutor(RACERS, mp_context=context) as pool:
            races = [
                pool.submit(racer.race, next(views), operation, NAMES, number, start)
                for number in range(RACERS)
            ]
            won = [race.result(WAIT_S) for race in races]
    winners = {number: i for i, numbers in enumerate(won) for number in numbers}
    assert sorted(number for numbers in won for number in numbers) == list(range(NAMES))
    assert sorted(drive.list("race"), key=int) == [str(i) for i in range(NAMES)]
    assert len([numbers for numbers in won if numbers]) > 1, "nobody raced"
    if operation != "mkdir":
        for number, winner in winners.items():
            content = (place.folder / f"race/{number}").read_bytes()
            assert content == f"racer {winner}".encode()


class Publishers:
    """Processes that publish until every name is there, however often they are killed."""

    def __init__(self, place: Place, *, number: int, names: int) -> None:
        self._views, self._names = itertools.cycle(place.views()), names
        self._started = 0
        self.killed = 0
        self._processes = [self._start() for _ in range(number)]

    def _start(self) -> BaseProcess:
        self._started += 1
        given = (next(self._views), self._names, f"writer {self._started}")
        process = context.Process(target=racer.publish_all, args=given, daemon=True)
        process.start()
        return process

    def kill_one(self) -> None:
        index = random.randrange(len(self._processes))
        victim = self._processes[index]
        if victim.is_alive() and victim.pid is not None:
            os.kill(victim.pid, signal.SIGKILL)
            victim.join()
            self.killed += victim.exitcode == -signal.SIGKILL
        self._processes[index] = self._start()

    def finish(self) -> None:
        for process in self._processes:
            process.join(WAIT_S)
        assert [process.exitcode for process in self._processes] == [0] * len(self._processes)


def test_what_is_published_is_never_seen_half_written(
    place: Place, drive: Drive, other: Drive
) -> None:
    names, kills = NAMES, 10 if CIFS else 40
    drive.mkdir("race")
    over = threading.Event()
    halves: list[str] = []
    reads = 0

    def read() -> None:
        nonlocal reads
        while not over.is_set():
            listed = other.list("race")
            for name in random.sample(listed, min(5, len(listed))):
                reads += 1
                if not racer.is_whole(other.read(f"race/{name}")):
                    halves.append(name)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        publishers = Publishers(place, number=4, names=names)
        for target in range(1, kills + 1):  # one kill for each step of the way
            while len(drive.list("race")) < names * target // (kills + 2):
                over.wait(0.002)
            publishers.kill_one()
        publishers.finish()
    finally:
        over.set()
        reader.join()
    assert not halves
    assert reads > 0
    assert publishers.killed >= kills // 2
    assert sorted(drive.list("race"), key=int) == [str(i) for i in range(names)]
    for name in drive.list("race"):
        assert racer.is_whole(drive.read(f"race/{name}"))
    assert_only_rubbish_is_hidden(place.folder / "race", names)


def assert_only_rubbish_is_hidden(folder: Path, names: int) -> None:
    hidden = [path for path in folder.iterdir() if path.name.startswith(".tmp-")]
    assert len(list(folder.iterdir())) == names + len(hidden)
