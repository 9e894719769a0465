"""The script contract: the seed's own run.py, its chunk, and what scripts write by themselves."""

from __future__ import annotations

import os
from pathlib import Path
from textwrap import indent

import pytest

from tests.harness import SmbServer
from tests.jobs import tasks_in
from tests.lab import Agent, Lab
from tests.tools import program

# The README of LudwigCluster, word for word; only what it tells the reader to fill in is filled in.
SEED_RUN = """\
from pathlib import Path
import pickle
from your_module import neural_net_job

hostname = 'your_hostname'
# load list of neural network configurations provided by ludwigcluster (saved to file server)
p = Path('/media/research_data/<your_project_name>') / '{}_param2val_chunk.pkl'.format(hostname)  
with p.open('rb') as f:
    param2val_chunk = pickle.load(f)
# iterate over neural network configurations, and for each, do some neural_net_job
for param2val in param2val_chunk:
    neural_net_job(param2val)
"""  # noqa: W291

SEED_SAVING = """\
from pathlib import Path
import shutil

for epoch in range(10):
    data = train_epoch()
    save_to_worker(data)  # save intermediate data to worker

# at end of training copy all data files to file server
for data_path in Path('/var/sftp/ludwig/<unique_data_folder_name>').glob('data*.csv'):
    src = str(data_path)
    dst = '/media/research_data/<your_project_name>/{}'.format(data_path.name)
    shutil.move(src, dst)
"""


def fill_in(text: str, hostname: str = "hoff") -> str:
    text = text.replace("<your_project_name>", "trees").replace("'your_hostname'", hostname)
    return text.replace("<unique_data_folder_name>", "tree_data")


YOUR_MODULE = f"""\
import os

def neural_net_job(param2val):
    print('training', sorted(param2val))
    os.makedirs('/var/sftp/ludwig/tree_data', exist_ok=True)
    name = '/var/sftp/ludwig/tree_data/data_{{}}.csv'.format(param2val['job_name'])

    def train_epoch():
        return param2val['lr'] * 2

    def save_to_worker(data):
        with open(name, 'a') as f:
            print(data, file=f)

{indent(fill_in(SEED_SAVING), "    ")}
"""


def as_in_the_lab(agent: Agent, hostname: str) -> None:
    """Give the agent a machine of its own name, with the drive where the seed expects it."""
    layers = agent.folder / "layers"
    for name in ("upper", "working"):
        (layers / name).mkdir(parents=True)
    script = f"""
        set -e
        hostname {hostname}
        mount -t tmpfs none /media
        mkdir /media/research_data
        mount --bind {agent.lab.root} /media/research_data
        mount -t overlay overlay \
            -o lowerdir=/var,upperdir={layers}/upper,workdir={layers}/working /var
        mkdir -p /var/sftp/ludwig
        exec "$@"
    """
    agent.configure(slots=1, drive={"url": "/media/research_data"})
    agent.wrap(program("unshare"), "-u", "-m", "sh", "-c", script, "sh")


@pytest.mark.needs_root
@pytest.mark.needs_unshare
@pytest.mark.parametrize(
    "hostname", ["'hoff'", "__import__('socket').gethostname()"], ids=["written", "asked"]
)
def test_the_seeds_own_scripts_run_as_they_are(tmp_path: Path, hostname: str) -> None:
    with Lab(tmp_path, hosts=("hoff", "hebb")) as lab:
        written = hostname == "'hoff'"
        for name, agent in lab.agents.items():
            as_in_the_lab(agent, name)
        lab.start()
        files = {"src/run.py": fill_in(SEED_RUN, hostname), "src/your_module.py": YOUR_MODULE}
        options = {"nodes": ["hoff"]} if written else {}
        job = lab.submit(files, [{"lr": 1}, {"lr": 2}, {"lr": 3}], reps=2, **options)
        assert job.status().record.contract == "script"
        ends = lab.wait(job)
        assert [done.outcome for done in ends.values()] == ["done"] * 6
        moved = sorted((lab.root / "trees").glob("data_*.csv"))
        names = {
            run.job_name for _, task in tasks_in(job.status().record).values() for run in task.runs
        }
        assert {path.name for path in moved} == {f"data_{name}.csv" for name in names}
        contents = [path.read_text() for path in moved]
        assert sorted(contents) == sorted(f"{2 * lr}\n" * 10 for lr in (1, 1, 2, 2, 3, 3))
        keys = "training ['job_name', 'lr', 'param_name']"
        assert all(lab.log(job, task).startswith(keys) for task in ends)
        # A folder for each run, since finished runs are counted there.
        assert all(len(folders) == 1 for folders in lab.runs(job).values())


WAITING = """
import os, pickle, time
from pathlib import Path

project = Path(os.environ["LUDWIG_PROJECT_PATH"])
mine = Path({folder!r}) / os.environ["LUDWIG_TASK"]
mine.touch()
print("ready", flush=True)
while not Path({folder!r}, "open").exists():
    time.sleep(0.01)
with (project / "hoff_param2val_chunk.pkl").open("rb") as f:
    param2val_chunk = pickle.load(f)
for param2val in param2val_chunk:
    print("lr", param2val["lr"], param2val["job_name"], flush=True)
"""


def saw_its_own(lab: Lab, job: object, task: int) -> bool:
    record = job.status().record  # type: ignore[attr-defined]
    (run,) = tasks_in(record)[task][1].runs
    return run.job_name in lab.log(job, task)  # type: ignore[arg-type]


@pytest.mark.needs_root
@pytest.mark.needs_unshare
def test_isolated_scripts_run_side_by_side_and_see_their_own_chunk(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.mkdir()
    with Lab(tmp_path, slots=2) as lab:
        lab.start()
        job = lab.submit(WAITING.format(folder=str(gate)), [{"lr": n} for n in range(12)])
        lab.until(lambda: len(list(gate.iterdir())) == 2, "two to run at once")
        lab.until(lambda: len(lab.claims(job)) == 4, "others to be claimed and placed meanwhile")
        (gate / "open").touch()
        ends = lab.wait(job)
        assert [done.outcome for done in ends.values()] == ["done"] * 12
        assert all(saw_its_own(lab, job, task) for task in ends)


@pytest.mark.needs_root
def test_without_isolation_scripts_of_a_project_take_turns(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.mkdir()
    with Lab(tmp_path, slots=2, env={"PATH": "/nonexistent"}) as lab:
        hoff = lab["hoff"]
        hoff.wrap(program("setpriv"), "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin")
        lab.start()
        job = lab.submit(WAITING.format(folder=str(gate)), [{"lr": n} for n in range(5)])
        lab.until(lambda: "ready" in lab.log(job, 1), "the first")
        lab.until(lambda: len(lab.claims(job)) == 2, "the second to be claimed")
        assert len(hoff.lines("started")) == 1
        (gate / "open").touch()
        ends = lab.wait(job)
        assert [done.outcome for done in ends.values()] == ["done"] * 5
        assert all(saw_its_own(lab, job, task) for task in ends)


WRITES_ITSELF = """
import os, pickle
from pathlib import Path

project = Path(os.environ["LUDWIG_PROJECT_PATH"])
with (project / "hoff_param2val_chunk.pkl").open("rb") as f:
    param2val_chunk = pickle.load(f)
for param2val in param2val_chunk:
    folder = project / "runs" / param2val["param_name"] / param2val["job_name"]
    folder.mkdir(parents=True)
    attempt = os.environ["LUDWIG_ATTEMPT"]
    (folder / f"half_{attempt}.csv").write_text("1")
    if attempt == "1":
        raise SystemExit("died half-way")
    (folder / "acc.csv").write_text(str(param2val["lr"]))
"""


def test_what_a_script_writes_to_runs_itself_counts_once_and_whole(tmp_path: Path) -> None:
    with Lab(tmp_path) as lab:
        lab.start()
        job = lab.submit(WRITES_ITSELF, [{"lr": 1}, {"lr": 2}])
        ends = lab.wait(job)
        for task, done in ends.items():
            assert (done.outcome, done.attempt, done.moved) == ("done", 2, False)
            assert sorted(file.path for file in done.files[0]) == ["acc.csv", "half_2.csv"]
            (folder,) = lab.runs(job)[task]
            names = sorted(p.name for p in folder.iterdir())
            assert names == ["acc.csv", "half_2.csv"], "what the first attempt left is gone"
            assert (folder.parent / "param2val.yaml").exists()
        assert not list((lab.job_folder(job) / "staging").iterdir())


def test_a_chunk_can_be_one_task(tmp_path: Path) -> None:
    run = WAITING.format(folder=str(tmp_path))
    (tmp_path / "open").touch()
    with Lab(tmp_path) as lab:
        lab.start()
        job = lab.submit(run, [{"lr": n} for n in range(3)], per="chunk")
        (done,) = lab.wait(job).values()
        assert done.outcome == "done"
        assert lab.log(job, 1).count("lr ") == 3
        assert len(lab.runs(job)[1]) == 3


def test_a_node_that_only_speaks_smb_refuses_scripts(tmp_path: Path, smb_server: SmbServer) -> None:
    with Lab(tmp_path, smb=smb_server) as lab:
        lab.start()
        job = lab.submit(WAITING.format(folder=str(tmp_path)))
        refusal = lab.job_folder(job) / "refused" / "hoff.json"
        lab.until(refusal.exists, "the refusal")
        (row,) = job.status().tasks
        assert row.state == "queued" and "mount" in row.why
        assert os.listdir(lab.job_folder(job) / "claims" / "0000") == []  # noqa: PTH208
