"""`ludwig demo` as a newcomer has it: an empty home, no variables, nobody at the terminal."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import psutil
import pytest
from PIL import Image

from ludwig import Client
from ludwig.config import load_lab
from tests.harness import wait_until
from tests.processes import has_ended

LUDWIG = Path(sys.executable).with_name("ludwig")
CURVES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")

# One after the other: each starts a lab of its own.
pytestmark = [pytest.mark.xdist_group("demo"), pytest.mark.timeout(240)]


class Newcomer:
    """Somebody with an empty home and an empty folder, who must find both as tidy afterwards."""

    def __init__(self, folder: Path) -> None:
        self.home, self.here, self.temporary = (folder / name for name in ("home", "here", "tmp"))
        for place in (self.home, self.here, self.temporary):
            place.mkdir()

    @property
    def environment(self) -> dict[str, str]:
        # smbd and sshd are found on other paths by the demo itself.
        return {"HOME": str(self.home), "PATH": os.defpath, "TMPDIR": str(self.temporary)}

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        with (self.here.parent / "out").open("w") as out:
            return subprocess.Popen(
                [str(LUDWIG), "demo", *arguments],
                cwd=self.here,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )

    @property
    def told(self) -> str:
        return (self.here.parent / "out").read_text()

    def processes(self) -> list[psutil.Process]:
        """Those that were started with a path in our folder, or work there."""
        found = []
        for process in psutil.process_iter(["cmdline", "cwd"]):
            words = [*(process.info["cmdline"] or ()), process.info["cwd"] or ""]
            if any(str(self.here) in word for word in words) and not has_ended(process):
                found.append(process)
        return found

    def check_tidy(self) -> None:
        assert self.processes() == []
        assert list(self.home.iterdir()) == []
        assert list(self.temporary.iterdir()) == []


@pytest.fixture
def newcomer(tmp_path: Path) -> Iterator[Newcomer]:
    newcomer = Newcomer(tmp_path)
    yield newcomer
    for process in newcomer.processes():
        process.kill()


def check_story(text: str) -> None:
    assert "\x1b" not in text and "Traceback" not in text
    for expected in (
        "$ ludwig submit spirals",
        "4 configurations × 3 replications = 12 tasks",
        "hebb loses its power, on purpose",
        "12 of 12 tasks are done",
        "hebb  silent",
        "hoff  idle",
        "learning_curves.png",
    ):
        assert expected in text, text
    again = re.search(r"Tasks? [\d and]+ died with hebb and w\w+ run again on hoff", text)
    assert again, f"nothing was lost with the node that died:\n{text}"


def check_frame(frame: pd.DataFrame) -> None:
    runs = frame.groupby(["lr", "hidden"])["job_name"].nunique()
    assert len(runs) == 4 and set(runs) == {3}
    assert len(frame) == 4 * 3 * 31
    last = frame[frame["epoch"] == 600]
    assert last[last["lr"] == 0.03]["accuracy"].mean() > 0.95
    assert frame["loss"].notna().all()


def check_picture(path: Path) -> None:
    """It has curves: a good deal of each of their colours, and the bands between them."""
    with Image.open(path) as image:
        image.load()
        assert image.format == "PNG"
        width, height = image.size
        assert width > 1000 and height > 400
        pixels = image.convert("RGB").getcolors(maxcolors=width * height)
    assert pixels is not None
    counts = {colour: count for count, colour in pixels}
    assert len(counts) > 500
    assert counts[(255, 255, 255)] < 0.95 * width * height
    for code in CURVES:
        colour = tuple(bytes.fromhex(code[1:]))
        assert counts.get(colour, 0) > 500, f"no curve in {code}"


def git(newcomer: Newcomer, *arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(
        command,
        cwd=newcomer.here,
        env=newcomer.environment,
        check=True,
        capture_output=True,
        text=True,
    ).stdout


@pytest.mark.needs_git
def test_the_whole_story(newcomer: Newcomer) -> None:
    """In a repository, as in a clone of this one: nothing of the demo gets into it."""
    git(newcomer, "init", "-q")
    demo = newcomer.start()
    assert demo.wait(timeout=200) == 0, newcomer.told
    check_story(newcomer.told)
    newcomer.check_tidy()
    assert git(newcomer, "for-each-ref") == git(newcomer, "status", "--porcelain") == ""
    assert {path.name for path in newcomer.here.iterdir()} == {".git", "ludwig-demo"}
    folder = newcomer.here / "ludwig-demo"
    kept = {
        ".gitignore",
        "agents",
        "drive",
        "inboxes",
        "learning_curves.png",
        "ludwig.toml",
        "project",
    }
    assert {path.name for path in folder.iterdir()} == kept
    check_picture(folder / "learning_curves.png")
    # What it says one can do afterwards.
    with Client("spirals", config=load_lab(folder / "ludwig.toml")) as client:
        check_frame(client.results(cache=False))
        assert client.job(1).status().ok
        assert "test accuracy" in client.job(1).logs(3)
    seen = subprocess.run(
        [str(LUDWIG), "status", "1"],
        cwd=folder,
        env=newcomer.environment,
        capture_output=True,
        text=True,
    )
    assert "12 done" in seen.stdout, seen.stderr


def test_ctrl_c_leaves_nothing(newcomer: Newcomer) -> None:
    """In the middle, with a node dead and tasks running; and again at once, out of impatience."""
    demo = newcomer.start()
    wait_until(lambda: "loses its power" in newcomer.told, timeout=120, alive=[demo])
    demo.send_signal(signal.SIGINT)
    time.sleep(0.05)  # not waiting for anything: this is how fast impatient people are
    demo.send_signal(signal.SIGINT)
    assert demo.wait(timeout=60) == 130
    assert "Stopped. No process is left" in newcomer.told
    newcomer.check_tidy()
    assert list(newcomer.here.iterdir()) == []


def test_kill_while_the_agents_start(newcomer: Newcomer) -> None:
    demo = newcomer.start("--folder", "lab")
    wait_until(lambda: len(newcomer.processes()) > 1, timeout=60, alive=[demo])
    demo.send_signal(signal.SIGTERM)
    assert demo.wait(timeout=60) == 130
    newcomer.check_tidy()
    assert list(newcomer.here.iterdir()) == []


@pytest.mark.parametrize(
    ("folder", "words"),
    [("mine", "mine is not empty: name another folder."), ("/proc/x", "/proc/x cannot be made:")],
)
def test_a_folder_that_cannot_be_had(newcomer: Newcomer, folder: str, words: str) -> None:
    (newcomer.here / "mine").mkdir()
    (newcomer.here / "mine" / "thesis.txt").touch()
    demo = newcomer.start("--folder", folder)
    assert demo.wait(timeout=60) == 2
    assert newcomer.told.startswith(f"ludwig: {words}") and newcomer.told.count("\n") == 1
    assert (newcomer.here / "mine" / "thesis.txt").exists()


@pytest.mark.needs_smbd
@pytest.mark.needs_sshd
def test_over_real_servers(newcomer: Newcomer) -> None:
    demo = newcomer.start("--smb")
    assert demo.wait(timeout=200) == 0, newcomer.told
    check_story(newcomer.told)
    newcomer.check_tidy()
    folder = newcomer.here / "ludwig-demo"
    check_picture(folder / "learning_curves.png")
    runs = list((folder / "drive" / "spirals" / "runs").glob("param_*/*num*/accuracy.csv"))
    assert len(runs) == 12
    left = {path.name for path in folder.iterdir()}
    assert not left & {"home", "servers", "caches"}, "keys and passwords of servers that are gone"
