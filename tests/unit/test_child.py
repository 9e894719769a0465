"""The user's code sees what DESIGN.md promises, and its end is written down truly."""

import ast
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ludwig.model import Run
from tests.attempts import PROJECT, RUN, Attempt, ending, nursery

__all__ = ["nursery"]
pytestmark = pytest.mark.usefixtures("nursery")


@pytest.fixture
def short_path() -> Iterator[Path]:
    """Sockets are made below it."""
    with tempfile.TemporaryDirectory(prefix="ludwig-") as name:
        yield Path(name)


WORKER = Path(__file__).parents[2] / "worker"


def test_script_runs_like_python_run_py(tmp_path: Path) -> None:
    attempt = Attempt(
        tmp_path,
        {
            "helper.py": "VALUE = 7\n",
            "run.py": """
                import os, sys, helper
                print(__name__, sys.argv, __file__, os.getcwd(), helper.VALUE, __spec__)
                print(sys.path[0], sys.path[-1], sys.modules['__main__'].helper.VALUE)
                print([x for x in ("child", "returned", "ludwig", "json") if x in sys.modules])
            """,
        },
        python="/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable,
    )
    end = attempt.run()
    assert end.ok, attempt.log
    tree = attempt.tree
    assert attempt.log.splitlines() == [
        f"__main__ ['run.py'] {tree}/run.py {tree} 7 None",
        f"{tree} {tmp_path}/drive/{PROJECT} 7",
        "[]",
    ]


def test_script_in_a_folder_finds_its_neighbours_and_the_root(tmp_path: Path) -> None:
    files = {
        "top.py": "A = 1\n",
        "src/near.py": "B = 2\n",
        "src/run.py": "import near, top, os\nprint(near.B + top.A)\n",
    }
    attempt = Attempt(tmp_path, files, entry="src/run.py")
    assert attempt.run().ok
    assert attempt.log == "3\n"


@pytest.mark.parametrize(
    ("code", "exit_code", "number", "error"),
    [
        ("pass", 0, None, ""),
        ("import sys; sys.exit(3)", 3, None, "SystemExit: 3"),
        ("import sys; sys.exit('no data')", 1, None, "SystemExit: no data"),
        ("raise SystemExit", 0, None, ""),
        ("1/0", 1, None, "ZeroDivisionError: division by zero"),
        ("import os; os._exit(9)", 9, None, ""),
        ("import os; os.abort()", None, signal.SIGABRT, ""),
        ("import os; os.kill(os.getpid(), 9)", None, signal.SIGKILL, ""),
        ("raise KeyboardInterrupt", None, signal.SIGINT, "KeyboardInterrupt"),
        ("import os; os.closerange(3, 100); raise OSError('gone')", 1, None, ""),
        ("def f(:", 1, None, "SyntaxError: "),
    ],
)
def test_exit(
    tmp_path: Path, code: str, exit_code: int | None, number: int | None, error: str
) -> None:
    end = Attempt(tmp_path, {"run.py": code}).run()
    assert (end.exit_code, end.signal) == (exit_code, number)
    assert end.error == error or (error.endswith(": ") and end.error.startswith(error))
    assert end.user_code_started
    assert not end.vanished


def test_traceback_is_pythons_own(tmp_path: Path) -> None:
    code = "def f():\n    return {}['x']\nf()\n"
    attempt = Attempt(tmp_path, {"run.py": code})
    attempt.run()
    bare = subprocess.run(
        [sys.executable, "run.py"], cwd=attempt.tree, capture_output=True, text=True
    )
    assert attempt.log == bare.stderr


def test_files_left_open_threads_and_atexit_are_finished(tmp_path: Path) -> None:
    code = """
        import atexit, threading
        f = open("kept.txt", "w"); f.write("all of it")
        atexit.register(print, "at exit")
        gate = threading.Event()
        thread = threading.Thread(target=lambda: (gate.wait(), print("thread")))
        thread.start()
        threading.Timer(0.05, gate.set).start()
    """
    attempt = Attempt(tmp_path, {"run.py": code})
    assert attempt.run().ok
    assert attempt.log == "thread\nat exit\n"
    assert (attempt.tree / "kept.txt").read_text() == "all of it"


def test_stdout_and_stderr_in_order_and_unicode(tmp_path: Path) -> None:
    code = """
        import os, subprocess, sys
        for i in range(20):
            print("out ä→🎉", i); print("err", i, file=sys.stderr)
        subprocess.run(["echo", "from a child"], check=True)
        os.write(1, b"raw\\n")
    """
    attempt = Attempt(tmp_path, {"run.py": code})
    assert attempt.run().ok
    expected = [line for i in range(20) for line in (f"out ä→🎉 {i}", f"err {i}")]
    assert attempt.log.splitlines() == [*expected, "from a child", "raw"]


def test_what_it_used(tmp_path: Path) -> None:
    code = """
        import time
        block = bytearray(b"x") * (200 << 20)
        end = time.process_time() + 0.3
        while time.process_time() < end: pass
    """
    end = Attempt(tmp_path, {"run.py": code}).run()
    assert 200 << 20 < end.memory_max < 400 << 20
    assert 0.3 <= end.cpu_seconds < 5
    assert end.seconds >= 0.3


def test_script_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUDWIG_SMB_PASSWORD", "secret")
    code = """
        import json, os
        print(json.dumps(dict(os.environ)))
        assert os.path.isdir(os.environ["LUDWIG_SAVE_PATH"])
        open(os.environ["LUDWIG_SAVE_PATH"] + "/model.bin", "w").close()
    """
    attempt = Attempt(
        tmp_path, {"run.py": code}, env={"SEED": "5", "LUDWIG_TASK": "99"}, gpus=("GPU-a", "GPU-b")
    )
    assert attempt.run().ok, attempt.log
    env = __import__("json").loads(attempt.log)
    folder = attempt.folder
    expected = {
        "LUDWIG_PROJECT": PROJECT,
        "LUDWIG_PROJECT_PATH": str(tmp_path / "drive" / PROJECT),
        "LUDWIG_JOB": "1",
        "LUDWIG_TASK": "1",
        "LUDWIG_ATTEMPT": "1",
        "LUDWIG_CHUNK": str(folder / "chunk.pkl"),
        "LUDWIG_SAVE_PATH": str(attempt.results / "saves"),
        "LUDWIG_STOP": str(folder / "stop"),
        "CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "PYTHONUNBUFFERED": "1",
        "SEED": "5",
    }
    assert {name: env.get(name) for name in expected} == expected
    assert "LUDWIG_SMB_PASSWORD" not in env
    assert Path(env["TMPDIR"]).resolve() == folder / "tmp"
    assert (attempt.results / "saves" / "model.bin").exists()


FUNCTION = """
    from pathlib import Path
    def main(param2val):
        print({k: (type(v).__name__, v) for k, v in sorted(param2val.items())})
        assert not Path(param2val["save_path"]).is_absolute()
        Path(param2val["save_path"], "model.txt").write_text("weights")
        return {"accuracy": 0.5, "epochs": 3}
    if __name__ == "__main__":
        raise SystemExit("not to be run")
"""


def test_function_gets_exactly_four_keys(tmp_path: Path) -> None:
    attempt = Attempt(tmp_path, {"run.py": FUNCTION}, contract="function")
    end = attempt.run()
    assert end.ok, attempt.log
    got = ast.literal_eval(attempt.log)
    assert got == {
        "lr": ("float", 0.1),
        "param_name": ("str", RUN.param_name),
        "job_name": ("str", RUN.job_name),
        "project_path": ("str", str(tmp_path / "drive" / PROJECT)),
        "save_path": ("str", f"src_runs/{RUN.param_name}/{RUN.job_name}/saves"),
    }
    assert (attempt.results / "saves" / "model.txt").read_text() == "weights"
    assert (attempt.results / "results.csv").read_text() == ",accuracy,epochs\n0,0.5,3\n"


def test_function_in_a_package(tmp_path: Path) -> None:
    files = {
        "net/__init__.py": "",
        "net/random.py": "raise RuntimeError('not the one')\n",
        "net/params.py": "SIZE = 4\n",
        "net/job.py": """
            import random
            from pathlib import Path
            from .params import SIZE
            from net import params
            def main(param2val):
                root = Path(__file__).parent.parent
                (root / "scratch").mkdir()
                print(__name__, SIZE, params.SIZE, root == Path.cwd(), random.random() < 1)
        """,
    }
    attempt = Attempt(tmp_path, files, contract="function", entry="net/job.py")
    assert attempt.run().ok, attempt.log
    assert attempt.log == "net.job 4 4 True True\n"


def test_function_of_a_chunk_saves_each_run_in_its_own_folder(tmp_path: Path) -> None:
    runs = tuple(Run("param_001", f"x_num{i}") for i in range(3))
    chunk = [
        {"i": i, "param_name": r.param_name, "job_name": r.job_name} for i, r in enumerate(runs)
    ]
    code = "def main(p):\n    return {'i': p['i']}\n"
    attempt = Attempt(tmp_path, {"run.py": code}, contract="function", chunk=chunk, runs=runs)
    assert attempt.run().ok
    for i, run in enumerate(runs):
        folder = attempt.tree / "src_runs" / run.param_name / run.job_name
        assert (folder / "results.csv").read_text() == f",i\n0,{i}\n"
        assert (folder / "saves").is_dir()


@pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="pandas is only on the tests' own path")
def test_function_returns_pandas(tmp_path: Path) -> None:
    code = """
        import pandas as pd
        def main(p):
            return [pd.Series([1.5, 2.5], index=pd.Index([10, 20], name="step"), name="loss")]
    """
    attempt = Attempt(tmp_path, {"run.py": code}, contract="function")
    assert attempt.run().ok, attempt.log
    assert (attempt.results / "loss.csv").read_text() == "step,loss\n10,1.5\n20,2.5\n"


def test_function_that_returns_nonsense_fails_with_a_reason(tmp_path: Path) -> None:
    code = "def main(p):\n    return 42\n"
    attempt = Attempt(tmp_path, {"run.py": code}, contract="function")
    end = attempt.run()
    assert end.exit_code == 1
    assert end.user_code_started
    assert end.error.startswith("main() of run.py returned an object of type int. Return a list")
    assert "Traceback" in attempt.log
    assert f'File "{attempt.tree}/run.py", line 1, in main' in attempt.log


def test_function_traceback_begins_in_the_users_code(tmp_path: Path) -> None:
    code = "def main(p):\n    raise ValueError('bad lr')\n"
    attempt = Attempt(tmp_path, {"run.py": code}, contract="function")
    assert attempt.run().error == "ValueError: bad lr"
    assert attempt.log.splitlines()[:2] == [
        "Traceback (most recent call last):",
        f'  File "{attempt.tree}/run.py", line 2, in main',
    ]
    assert "child.py" not in attempt.log


@pytest.mark.parametrize("contract", ["script", "function"])
def test_missing_entry_is_not_the_codes_fault(tmp_path: Path, contract: str) -> None:
    attempt = Attempt(tmp_path, {"other.py": ""}, contract=contract)
    end = attempt.run()
    assert end.exit_code == 1
    assert not end.user_code_started
    assert end.error.startswith("FileNotFoundError")
    assert "ludwig: the task cannot be started" in attempt.log


def test_chunk_that_cannot_be_unpickled_is_not_the_codes_fault(tmp_path: Path) -> None:
    attempt = Attempt(tmp_path, {"run.py": "def main(p): pass"}, contract="function")
    (attempt.folder / "chunk.pkl").unlink()
    (attempt.folder / "chunk.pkl").write_bytes(pickle.dumps([])[:-1])
    end = attempt.run()
    assert not end.ok
    assert not end.user_code_started


def test_function_without_main(tmp_path: Path) -> None:
    attempt = Attempt(tmp_path, {"run.py": "def mian(p): pass"}, contract="function")
    end = attempt.run()
    assert end.error == "run.py defines no main(param2val)."
    assert attempt.log == "ludwig: run.py defines no main(param2val).\n"


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
@pytest.mark.parametrize("contract", ["script", "function"])
def test_multiprocessing(short_path: Path, contract: str, method: str) -> None:
    code = f"""
        import multiprocessing
        def double(x): return 2 * x
        def main(p=None):
            with multiprocessing.get_context("{method}").Pool(2) as pool:
                print(pool.map(double, [1, 2, 3]))
            pool.join()
        if __name__ == "__main__":
            main()
    """
    attempt = Attempt(short_path, {"run.py": code}, contract=contract)
    end = attempt.run()
    assert end.ok, attempt.log
    assert attempt.log.splitlines()[0] == "[2, 4, 6]"


def test_stop_before_the_start_runs_nothing(tmp_path: Path) -> None:
    attempt = Attempt(tmp_path, {"run.py": "print('ran')"})
    (attempt.folder / "stop").touch()
    end = attempt.run()
    assert (end.signal, end.user_code_started) == (signal.SIGTERM, False)
    assert attempt.log == ""


@pytest.mark.parametrize("name", ["child.py", "returned.py", "warm.py"])
def test_works_from_python_3_8_on(name: str) -> None:
    """By syntax and by the modules it imports; `test_other_interpreters` runs what is here."""
    tree = ast.parse((WORKER / name).read_text(), feature_version=(3, 8))
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(str(node.module))
        # What came after 3.8 and is easily used without a thought.
        elif isinstance(node, ast.Attribute):
            later = {"removeprefix", "removesuffix", "pidfd_open", "waitstatus_to_exitcode"}
            assert node.attr not in later | {"is_relative_to", "with_stem", "readlink"}
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            assert not isinstance(node.left, ast.Dict), "dict | dict is Python 3.9"
    assert imported <= {
        *("__future__", "gc", "os", "sys", "time", "types", "typing", "csv", "ctypes", "json"),
        *("json.encoder", "pickle", "returned", "_ctypes", "_frozen_importlib_external"),
        *("_json", "_pickle", "_signal", "_socket", "child"),
    }


def interpreters() -> list[str]:
    """Every Python from 3.8 on that this machine has; not pyenv's shims, which are scripts."""
    names = [f"python3.{minor}" for minor in range(8, 16)]
    found = {shutil.which(name) for name in [*names, "python3", "pypy3"]}
    paths = {path for path in found if path and "shims" not in path}
    for path in (Path.home() / ".pyenv" / "versions").glob("3.*/bin/python3"):
        if int(path.parts[-3].split(".")[1]) >= 8:
            paths.add(str(path))
    return sorted({*paths, sys.executable})


@pytest.mark.parametrize("python", interpreters())
@pytest.mark.parametrize("contract", ["script", "function"])
def test_other_interpreters(tmp_path: Path, python: str, contract: str) -> None:
    code = "import sys\ndef main(p):\n    print(sys.executable)\n    return {'x': 1}\n"
    if contract == "script":
        code += "main(None)\n"
    attempt = Attempt(tmp_path, {"run.py": code}, contract=contract, python=python)
    assert attempt.run().ok, attempt.log
    assert attempt.log == f"{python}\n"


def test_runs_as_a_plain_file_too(tmp_path: Path) -> None:
    attempt = Attempt(tmp_path, {"run.py": "def main(p): return {'x': 1}"}, contract="function")
    ending(attempt.start())
    for name in ("exit.json", "process.json"):
        (attempt.folder / name).unlink()
    command = [sys.executable, str(WORKER / "child.py"), str(attempt.folder)]
    assert subprocess.run(command).returncode == 0
    assert (attempt.folder / "exit.json").read_text().startswith('{"exit_code":0,')
