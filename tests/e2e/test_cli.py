"""The real command `ludwig`, started as a user would, against a lab whose agents are the test."""

import json
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import ludwig
from ludwig import job_records, layout, queue
from ludwig.model import Stop
from tests.fakelab import FakeLab
from tests.labdrive import LabDrive

LUDWIG = str(Path(sys.executable).parent / "ludwig")
COMMANDS = ("submit", "status", "logs", "cancel", "retry", "results", "nodes", "doctor", "init")


@pytest.fixture
def lab(tmp_path: Path) -> FakeLab:
    lab = FakeLab(tmp_path)
    lab.beat("hoff")
    lab.beat("hebb")
    return lab


def call(lab: FakeLab, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LUDWIG, *arguments],
        cwd=lab.home,
        env=lab.environment,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
    )


def good(lab: FakeLab, *arguments: str) -> str:
    done = call(lab, *arguments)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    return done.stdout


def wrong(lab: FakeLab, *arguments: str, status: int = 2) -> str:
    done = call(lab, *arguments)
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    assert done.stderr.startswith("ludwig: ")
    assert "Traceback" not in done.stderr
    return done.stderr


def half_done(lab: FakeLab) -> None:
    job = lab.submit(6)
    lab.accept(job)
    lab.end(job, 1)
    lab.log(job, 2, b"Traceback (most recent call last):\nValueError: no\n")
    lab.end(job, 2, "failed", why="exit status 1")
    held = lab.start(job, 3, "hoff")
    lab.beat("hoff", state="busy", running=(held,))


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example_and_the_environment(lab: FakeLab, command: str) -> None:
    text = good(lab, command, "--help")
    assert f"Example:  ludwig {command}" in text
    assert "LUDWIG_CONFIG" in text


def test_help_names_every_command(lab: FakeLab) -> None:
    assert all(command in good(lab, "--help") for command in COMMANDS)
    assert good(lab) == good(lab, "-h")
    assert good(lab, "--version") == f"ludwig {ludwig.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nods"], "No such command 'nods'. Did you mean 'nodes'? See ludwig --help"),
        (["status", "--jsn"], "No such option: --jsn"),
        (["status", "abc"], "See ludwig status --help"),
        (["status", "9"], "has no job 9"),
        (["status", "-p", "nope"], "There are: trees"),
        (["logs", "1", "99"], "Its tasks are 1 to 6"),
        (["logs", "1", "2", "--attempt", "3"], "There is 1."),
        (["cancel"], "Name the job and add --yes"),
        (["results", "1", "--all"], "not both"),
        (["submit", "nowhere"], "nowhere"),
        (["submit", "--grid", "lr"], "write --grid NAME=VALUE"),
        (["init", "--url", "ftp://x/y", "--force"], "smb://host"),
    ],
)
def test_wrong_usage(lab: FakeLab, arguments: list[str], words: str) -> None:
    half_done(lab)
    assert words in wrong(lab, *arguments)


def test_a_drive_that_is_not_mounted(lab: FakeLab) -> None:
    lab.root.rename(lab.folder / "away")
    text = wrong(lab, "status", status=1)
    assert "the drive is not mounted" in text and str(lab.toml) in text


def test_debug_shows_the_traceback_anywhere(lab: FakeLab) -> None:
    for arguments in (["--debug", "status", "9"], ["status", "9", "--debug"]):
        done = call(lab, *arguments)
        assert done.returncode == 2
        assert "Traceback" in done.stderr and "ludwig: project trees has no job 9" in done.stderr


def test_status_json(lab: FakeLab) -> None:
    half_done(lab)
    counts = {"queued": 3, "running": 1, "done": 1, "failed": 1, "lost": 0, "stopped": 0}
    told = json.loads(good(lab, "status", "--json"))
    assert told == {
        "project": "trees",
        "jobs": [{"job": 1, "state": "running", "counts": counts}],
    }
    told = json.loads(good(lab, "status", "1", "--json"))
    (job,) = told["jobs"]
    assert job["counts"] == counts
    assert job["tasks"][2] == {
        "task": 3,
        "state": "running",
        "node": "hoff",
        "attempt": 1,
        "param_name": "param_003",
        "job_name": "2026-11-18-10-01-00_hoff_num2",
        "why": "on hoff",
    }


def test_status_for_people(lab: FakeLab) -> None:
    half_done(lab)
    lab.submit(1, user="bob")
    mine = good(lab, "status")
    assert "1/6  1 running, 3 queued, 1 failed" in mine and "bob" not in mine
    assert "bob" in good(lab, "status", "--all")
    page = good(lab, "status", "1")
    assert "on hoff" not in page.partition("TASK")[2].partition("queued")[0], "NODE says so"
    for words in (
        "Job 1 of trees: running – 1 running, 3 queued, 1 done, 1 failed (6 tasks)",
        "from laptop:/home/ana/trees",
        "git diff refs/ludwig/1",
        "4–6  waits for a free slot on hebb",
        "ValueError: no",
        str(lab.root / "trees/.ludwig/jobs/0001/logs/0000/0002.1.log"),
    ):
        assert words in page, page
    assert all(line == line.rstrip() for line in page.splitlines()), "blanks at the end of a line"
    assert "param_003" in good(lab, "status", "1", "--tasks")


def test_what_others_wrote_is_shown_as_it_is(lab: FakeLab) -> None:
    job = lab.submit(1)
    lab.end(job, 1, "failed", why="[/folder] :smile: [bold]x[/bold] KeyError: 'a[0]'")
    page = good(lab, "status", "1") + good(lab, "status", "1", "--tasks")
    assert page.count("[/folder] :smile: [bold]x[/bold] KeyError: 'a[0]'") == 2
    lab.beat("hoff", state="quarantined", why="[/red] it [smells]")
    assert "[/red] it [smells]" in good(lab, "nodes")
    assert "[/red] it [smells]" in call(lab, "doctor").stdout


def test_status_lists_only_the_latest_of_many_finished_jobs(lab: FakeLab) -> None:
    for _ in range(6):
        lab.end(lab.submit(1), 1)
    text = good(lab, "status", "-n", "2")
    assert "and 4 older ones" in text
    assert len(text.splitlines()) == 5


def test_nodes_json(lab: FakeLab) -> None:
    half_done(lab)
    lab.beat("hebb", age=100)
    hebb, hoff = json.loads(good(lab, "nodes", "--json"))
    assert (hebb["host"], hebb["state"], hebb["running"]) == ("hebb", "silent", [])
    assert "silent for 2 min" in hebb["why"]
    assert hoff["state"] == "busy"
    assert hoff["running"] == [{"project": "trees", "job": 1, "task": 3, "attempt": 1}]
    assert set(hoff) == {"host", "state", "why", "gpus", "running"}
    assert set(hoff["gpus"][0]) == {
        "name", "utilization", "memory_used", "memory_total", "temperature", "power",
    }  # fmt: skip


def test_logs(lab: FakeLab) -> None:
    half_done(lab)
    assert good(lab, "logs").endswith("ValueError: no\n")
    assert good(lab, "logs", "1", "2", "-n", "1") == "ValueError: no\n"
    assert good(lab, "logs", "1", "2", "3", "-n", "1") == "0002 | ValueError: no\n"
    assert "has printed nothing yet" in call(lab, "logs", "1", "5").stderr


def test_logs_follow_until_the_task_ends(lab: FakeLab) -> None:
    half_done(lab)
    job = job_records.read_job(lab.drive, "trees", 1)
    lab.log(job, 3, b"one\n")
    with subprocess.Popen(
        [LUDWIG, "logs", "1", "3", "-f"],
        cwd=lab.home,
        env=lab.environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "one\n"
        lab.log(job, 3, b"two\n")
        assert process.stdout.readline() == "two\n"
        lab.end(job, 3)
        assert process.stdout.read() == ""
    assert process.returncode == 0


@pytest.mark.parametrize(
    "command",
    [["nodes", "--watch", "--json"], ["status", "--watch", "--json"], ["logs", "-f"]],
)
def test_interrupted(lab: FakeLab, command: list[str]) -> None:
    half_done(lab)
    lab.log(job_records.read_job(lab.drive, "trees", 1), 3, b"one\n")
    process = subprocess.Popen(
        [LUDWIG, *command],
        cwd=lab.home,
        env=lab.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip()
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=20)
    assert process.returncode == 130
    assert stderr == ""


def test_a_reader_that_leaves(lab: FakeLab) -> None:
    half_done(lab)
    done = subprocess.run(
        f"{LUDWIG} status 1 --tasks | true",
        shell=True,
        cwd=lab.home,
        env=lab.environment,
        capture_output=True,
        text=True,
    )
    assert "Traceback" not in done.stderr and "Broken" not in done.stderr


def test_cancel(lab: FakeLab) -> None:
    half_done(lab)
    assert "Asked the nodes to stop task 5 of job 1" in good(lab, "cancel", "1", "5")
    assert "Asked the nodes to stop job 1" in good(lab, "cancel", "--yes")
    assert (lab.root / layout.job_files("trees", 1).stop()).exists()
    theirs = lab.submit(1, user="bob")
    assert "bob's job 2" in wrong(lab, "cancel", str(theirs.job))


def test_cancel_what_is_over(lab: FakeLab) -> None:
    lab.end(lab.submit(1), 1)
    assert "is over (1 done)" in good(lab, "cancel", "1")
    assert not (lab.root / layout.job_files("trees", 1).stop()).exists()


def test_submit_and_retry(lab: FakeLab) -> None:
    (lab.home / "src").mkdir()
    (lab.home / "src" / "model.py").write_text("x = 1\n")
    (lab.home / "run.py").write_text("def main(param2val):\n    return []\n")
    order = ["submit", "src", "--grid", "lr=0.1,0.2", "--set", "epochs=10", "--reps", "2"]
    assert "4 tasks could go to hoff, hebb" in good(lab, *order, "--test")
    assert job_records.list_jobs(lab.drive, "trees") == []
    told = json.loads(good(lab, *order, "--json"))
    assert told == {"project": "trees", "job": 1, "tasks": 4, "nodes": ["hoff", "hebb"]}
    job = job_records.read_job(lab.drive, "trees", 1)
    params = job_records.read_params(lab.drive, job)
    assert sorted(one["lr"] for one in params.values()) == [0.1, 0.2]  # type: ignore[type-var]
    assert all(one["epochs"] == 10 for one in params.values())
    assert "Nothing to do: 2 runs of each are there or under way" in good(lab, *order)
    queue.stop(lab.drive, job, Stop())
    again = json.loads(good(lab, "retry", "1", "--json"))
    assert again["tasks"] == 4 and again["job"] > 1
    assert "project trees has no job 99" in wrong(lab, "retry", "99")
    assert "ludwig status 1 --watch -p shrubs" in good(lab, *order, "-p", "shrubs")


def test_submit_a_package(lab: FakeLab) -> None:
    package = lab.home / "walnut"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "job.py").write_text("def main(param2val):\n    return []\n")
    (package / "params.py").write_text(
        "param2requests = {'lr': [1, 2, 3]}\nparam2default = {'lr': 0, 'n': 5}\n"
    )
    told = json.loads(good(lab, "submit", "--json", "--node", "hebb"))
    assert (told["tasks"], told["nodes"]) == (3, ["hebb"])
    assert job_records.read_job(lab.drive, "trees", told["job"]).entry == "walnut/job.py"
    assert "did you mean 'lr'" in wrong(lab, "submit", "--set", "lrr=3")


def test_results(lab: FakeLab, tmp_path: Path) -> None:
    half_done(lab)
    done = call(lab, "results", "1")
    assert done.returncode == 0, done.stderr
    assert "not all of job 1 of trees is in the table" in done.stderr
    assert "Use one of these endings" in wrong(lab, "results", "1", "--out", "table.doc")


def test_results_of_real_runs(lab: FakeLab) -> None:
    maker = LabDrive(lab.drive, "shrubs")
    job = maker.submit([{"lr": 0.1}, {"lr": 0.2}], reps=2)
    for task in (1, 2, 3, 4):
        maker.finish(job, task, {"loss.csv": f"step,loss\n0,1.0\n1,{task / 10}\n"})
    text = good(lab, "results", "-p", "shrubs")
    first, second = text.splitlines()[1:3]
    assert "param_001" in first and "0.1" in first and "0.15 ± " in first
    assert "param_002" in second and "lowest loss first" in text
    assert len(json.loads(good(lab, "results", "-p", "shrubs", "--json"))) == 8
    assert len(json.loads(good(lab, "results", "-p", "shrubs", "--all", "--last", "--json"))) == 4
    assert "step" in good(lab, "results", "-p", "shrubs", "--rows")
    assert "8 rows of job 1 of shrubs are in" in good(
        lab, "results", "-p", "shrubs", "-o", "table.csv", "--plot", "curves.png"
    )
    assert (lab.home / "table.csv").read_text().count("\n") == 9
    assert (lab.home / "curves.png").read_bytes().startswith(b"\x89PNG")
    both = ("--summary", "-o", "means.csv", "--plot", "curves.svg")
    assert "4 rows of job 1" in good(lab, "results", "-p", "shrubs", *both)
    assert "loss_std" in (lab.home / "means.csv").read_text()
    assert "loss_std" not in (lab.home / "curves.svg").read_text(), "the band, not panels"


def test_results_of_a_job_that_only_failed(lab: FakeLab) -> None:
    job = lab.submit(1)
    lab.log(job, 1, b"NameError: name 'x'\n")
    lab.end(job, 1, "failed", why="exit status 1")
    assert "NameError: name 'x'" in wrong(lab, "results", status=1)


def test_doctor(lab: FakeLab) -> None:
    assert "Nothing stands in the way." in good(lab, "doctor")
    lab.beat("hebb", state="quarantined", why="it smells")
    done = call(lab, "doctor", "--json")
    assert done.returncode == 1
    assert [one["what"] for one in json.loads(done.stdout) if one["level"] == "problem"] == [
        "quarantined: it smells"
    ]


def test_init_writes_what_can_be_read(lab: FakeLab, tmp_path: Path) -> None:
    home = tmp_path / "new project"
    home.mkdir()
    drive = tmp_path / "new drive"
    drive.mkdir()
    environment = {k: v for k, v in lab.environment.items() if k != "LUDWIG_CONFIG"}

    def init(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [LUDWIG, "init", *arguments]
        return subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True)

    done = init(
        "--url", str(drive), "--node", "hoff", "--node", "hebb=10.0.0.7:2222", "--user", "ana"
    )
    assert done.returncode == 0, done.stderr
    text = (home / "ludwig.toml").read_text()
    assert tomllib.loads(text) == {
        "drive": {"url": str(drive), "user": "ana"},
        "nodes": {"hoff": {"address": "hoff"}, "hebb": {"address": "10.0.0.7:2222"}},
    }
    assert text.count("# ") > 8
    assert "is there already" in init("--url", str(drive)).stderr
    assert "Add --yes" in init("--drive").stderr
    assert "is ready" in init("--drive", "--yes").stdout
    assert "already" in init("--drive", "--yes").stdout
    assert (drive / layout.FORMAT).exists()


def test_completion(lab: FakeLab) -> None:
    environment = {
        **lab.environment,
        "_LUDWIG_COMPLETE": "complete_bash",
        "COMP_WORDS": "ludwig sta",
        "COMP_CWORD": "1",
    }
    done = subprocess.run([LUDWIG], env=environment, capture_output=True, text=True, cwd=lab.home)
    assert done.stdout.split() == ["status"]
    environment |= {"COMP_WORDS": "ludwig submit --node h", "COMP_CWORD": "3"}
    done = subprocess.run([LUDWIG], env=environment, capture_output=True, text=True, cwd=lab.home)
    assert done.stdout.split() == ["hoff", "hebb"]
