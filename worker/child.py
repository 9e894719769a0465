"""What runs one attempt next to the user's code: `<python> child.py <attempt folder>`.

Owns the supervisor (the process that is started) and the job (its one fork, which becomes the
user's code). Runs under the job's interpreter, from Python 3.8 on: standard library only, never
`ludwig`. It knows no drive and no agent; it reads `order.json` and leaves `process.json` and
`exit.json` behind, so that an agent that was replaced meanwhile learns the true end.

Tasks can be short and many, and each pays for this file. So nothing is imported that a bare
`python run.py` would not have loaded, unless it is needed: `json`, `signal`, `runpy`, `pickle` and
`ctypes` each cost more than the fork. Supervisor and job stay in one file for the same reason: both
need what is below, and a module more is 0.1 ms more for every task, a third of what this one costs.
"""

# pathlib and contextlib are among what is too slow to import here.
# ruff: noqa: PTH100, PTH103, PTH104, PTH110, PTH118, PTH120, PTH123, PTH208, SIM105
from __future__ import annotations

import gc
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, NoReturn

SIGHUP, SIGINT, SIGKILL, SIGTERM = 1, 2, 9, 15
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LEFTOVER_GRACE_S = 1.0
SETTLE_AFTER_S = 5.0
"""An attempt that took longer is not repeated lightly: its results are synced before its end is."""


class Unusable(Exception):
    """The user's code cannot be run, or what it returned cannot be saved: the message is all."""


def main(arguments: list[str]) -> None:
    """Supervise the attempt in the folder that is named; the forked job returns from here too."""
    if len(arguments) != 2:
        sys.exit("usage: child.py ATTEMPT_FOLDER")
    folder = os.path.abspath(arguments[1])
    order = read_json(folder + "/order.json")
    reader, writer = os.pipe()
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    supervisor = os.getpid()
    started = time.monotonic()
    # What exists so far is never collected: that would copy every page after the fork.
    gc.disable()
    gc.freeze()
    if os.path.exists(folder + "/stop"):
        finish(folder, Ending(signal=SIGTERM))
    pid = os.fork()
    if pid == 0:
        gc.enable()
        os.close(reader)
        os.setsid()
        prctl(PR_SET_PDEATHSIG, SIGKILL)
        if os.getppid() != supervisor:
            os._exit(1)
        run_job(order, folder, Report(writer))
        return
    os.close(writer)
    supervise(folder, order, pid, reader, started)


# --- the supervisor --------------------------------------------------------------------------


class Ending:
    """How an attempt ended; becomes `exit.json`."""

    def __init__(self, signal: int | None = None) -> None:
        self.exit_code: int | None = None
        self.signal = signal
        self.seconds = 0.0
        self.cpu_seconds = 0.0
        self.memory_max = 0
        self.user_code_started = False
        self.error = ""
        self.left_behind = 0
        self.synced = False

    def count(self, usage: Any) -> None:
        self.cpu_seconds += usage.ru_utime + usage.ru_stime
        unit = 1 if sys.platform == "darwin" else 1024
        self.memory_max = max(self.memory_max, usage.ru_maxrss * unit)


def supervise(folder: str, order: dict[str, Any], job: int, reader: int, started: float) -> None:
    """Wait for the job and for what it leaves behind, write down how it ended, and go."""
    forward_signals(job)
    me = os.getpid()
    write_json(
        folder + "/process.json",
        {"pid": me, "start": start_time(me), "group": job, "boot": boot_id()},
    )
    # Whoever wants a stop writes the file, then looks for process.json; we do it the other way
    # round, so that one of us sees the other.
    if os.path.exists(folder + "/stop"):
        signal_group(job, SIGTERM)
    ending = Ending()
    while True:
        pid, status, usage = os.wait4(-1, 0)
        ending.count(usage)
        if pid == job:
            break
    ending.seconds = time.monotonic() - started
    if os.WIFSIGNALED(status):
        ending.signal = os.WTERMSIG(status)
    else:
        ending.exit_code = os.WEXITSTATUS(status)
    read_report(reader, ending)
    end_leftovers(job, ending)
    if ending.seconds >= SETTLE_AFTER_S:
        sync_results(order)
        ending.synced = True
    finish(folder, ending)


def finish(folder: str, ending: Ending) -> NoReturn:
    try:
        write_json(folder + "/exit.json", dict(vars(ending), boot=boot_id()), durable=ending.synced)
    except OSError as error:
        say(f"how the task ended could not be written down: {error}")
        os._exit(1)
    os._exit(0)


def forward_signals(job: int) -> None:
    """Who signals the supervisor means the job: the supervisor itself stays to tell the end."""
    import _signal  # type: ignore[import-not-found]

    for number in (SIGTERM, SIGINT, SIGHUP):
        _signal.signal(number, lambda received, _: signal_group(job, received))


def signal_group(job: int, number: int) -> None:
    try:
        os.killpg(job, number)
    except OSError:
        # It has not made its own group yet, or is gone.
        send(job, number)


def read_report(reader: int, ending: Ending) -> None:
    """What the job said about itself: '+' when the user's code began, then its error, if any."""
    os.set_blocking(reader, False)  # a process left behind may hold the other end
    try:
        report = os.read(reader, 65536)
    except OSError:
        report = b""
    ending.user_code_started = report[:1] == b"+"
    ending.error = report[1:].decode("utf-8", "replace")


def end_leftovers(job: int, ending: Ending) -> None:
    """End what the job left running: politely, then not. Orphans come to us, the subreaper."""
    if not reap(ending):
        return
    found = descendants(os.getpid())
    ending.left_behind = len(found)
    names = ", ".join(f"{pid} ({name})" for pid, name in sorted(found.items())[:10])
    say(f"ending {len(found)} process(es) that the task left behind: {names}")
    signal_group(job, SIGTERM)
    for pid in found:
        send(pid, SIGTERM)
    deadline = time.monotonic() + LEFTOVER_GRACE_S
    while reap(ending):
        if time.monotonic() > deadline:
            for pid in descendants(os.getpid()):
                send(pid, SIGKILL)
        time.sleep(0.01)


def reap(ending: Ending) -> bool:
    """Whether there are still children, after taking notice of those that ended."""
    try:
        while True:
            pid, _, usage = os.wait4(-1, os.WNOHANG)
            if pid == 0:
                return True
            ending.count(usage)
    except ChildProcessError:
        return False


def send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        pass


def descendants(root: int) -> dict[int, str]:
    """Every live process below `root`, by name. Empty where there is no /proc."""
    parents = {}
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return {}
    for pid in pids:
        fields = stat_fields(pid)
        if fields and fields[1] not in ("Z", "X"):
            parents[pid] = (int(fields[2]), fields[0])
    found: dict[int, str] = {}
    for pid in parents:
        line, above = [pid], parents[pid][0]
        while above in parents and above != root and above not in found and above not in line:
            line.append(above)
            above = parents[above][0]
        if above == root or above in found:
            found.update((each, parents[each][1]) for each in line)
    return found


def stat_fields(pid: int) -> list[str]:
    """Name, state, parent … of /proc/<pid>/stat; the name may hold spaces and parentheses."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    head, _, rest = text.rpartition(")")
    return [head.partition("(")[2], *rest.split()]


def start_time(pid: int) -> int:
    """When a process began, in clock ticks since boot: with it, a pid means one process only."""
    fields = stat_fields(pid)
    return int(fields[20]) if fields else 0


def boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def sync_results(order: dict[str, Any]) -> None:
    """What `exit.json` speaks of is on the disk before it is."""
    for param_name, job_name in order["runs"]:
        top = os.path.join(order["workspace"], result_folder(order, param_name, job_name))
        for path, _, names in os.walk(top):
            for name in [*names, "."]:
                try:
                    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
                    file = os.open(os.path.join(path, name), flags)
                except OSError:
                    continue
                try:
                    os.fsync(file)
                except OSError:
                    pass
                os.close(file)


def prctl(option: int, value: int) -> None:
    """Linux only, and done without where it cannot be had."""
    if not sys.platform.startswith("linux"):
        return
    try:
        import _ctypes  # a tenth of what `ctypes` costs

        function = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]
        _ctypes.call_function(function, (option, value, 0, 0, 0))
    except Exception:
        try:
            import ctypes

            ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
        except Exception:
            say("this interpreter has no ctypes: processes left behind may be overlooked")


def say(message: str) -> None:
    """A line of our own in the log."""
    try:
        os.write(2, f"ludwig: {message}\n".encode("utf-8", "replace"))
    except OSError:
        pass


def read_json(path: str) -> Any:
    with open(path, encoding="utf-8") as file:
        return parse_json(file.read())


def parse_json(text: str) -> Any:
    try:
        import _json  # the C scanner alone: `json` would compile regular expressions

        return _json.make_scanner(_Plain())(text, 0)[0]  # type: ignore[arg-type]
    except Exception:
        import json

        return json.loads(text)


class _Plain:
    """What the C scanner asks of a `json.JSONDecoder`."""

    strict = True
    object_hook = object_pairs_hook = parse_constant = None
    parse_float, parse_int = float, int
    memo: dict[str, str] = {}  # noqa: RUF012


def write_json(path: str, record: dict[str, Any], durable: bool = False) -> None:
    """Whole or not at all: written under another name, then renamed."""
    items = ",".join(f'"{key}":{to_json(value)}' for key, value in record.items())
    temporary = path + ".new"
    with open(temporary, "wb", buffering=0) as file:
        file.write(f"{{{items}}}\n".encode("ascii"))
        if durable:
            os.fsync(file.fileno())
    os.rename(temporary, path)


def to_json(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (int, float)):
        return repr(value)
    try:
        from _json import encode_basestring_ascii
    except ImportError:
        from json.encoder import encode_basestring_ascii
    return str(encode_basestring_ascii(value))


# --- the job ---------------------------------------------------------------------------------


class Report:
    """The job's end of the pipe to the supervisor: whether the user's code began, and its error."""

    def __init__(self, pipe: int) -> None:
        self.pipe = pipe
        self.inode = os.fstat(pipe).st_ino
        self.begun = False

    def begin(self) -> None:
        self.begun = True
        os.write(self.pipe, b"+")

    def error(self, text: str) -> None:
        """The user's code may have closed the pipe, or have another file of that number by now."""
        try:
            if os.fstat(self.pipe).st_ino == self.inode:
                line = ("" if self.begun else "-") + text
                os.write(self.pipe, line.encode("utf-8", "replace")[:4000])
        except OSError:
            pass


def run_job(order: dict[str, Any], folder: str, report: Report) -> None:
    """Become the user's code. Returns when it is through: Python then ends as it always does."""
    try:
        os.chdir(order["workspace"])
        for param_name, job_name in order["runs"]:
            os.makedirs(result_folder(order, param_name, job_name) + "/saves", exist_ok=True)
        entry = os.path.join(order["workspace"], order["entry"])
        sys.argv = [order["entry"]]
        if order["contract"] == "script":
            run_script(order, entry, report)
        else:
            run_function(order, folder, entry, report)
    except SystemExit as error:
        if error.code not in (None, 0):
            report.error(f"SystemExit: {error.code}")
        raise
    except BaseException as error:
        fail(error, report)


def fail(error: BaseException, report: Report) -> None:
    """Say what happened as Python does, without our own frames, and exit as Python does."""
    report.error(describe(error))
    trace = users_part(error.__traceback__)
    if isinstance(error, Unusable):
        say(str(error))
    elif not report.begun:
        say(f"the task cannot be started: {describe(error)}")
    else:
        sys.excepthook(type(error), error.with_traceback(trace), trace)
    if isinstance(error, KeyboardInterrupt):
        import _signal

        _signal.signal(SIGINT, _signal.SIG_DFL)
        os.kill(os.getpid(), SIGINT)
    sys.exit(1)


def describe(error: BaseException) -> str:
    """The last line of a traceback, for the one who asks why a task failed."""
    try:
        text = str(error)
    except Exception:
        text = "(its message cannot be shown)"
    if isinstance(error, Unusable):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def users_part(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and trace.tb_frame.f_code.co_filename == OWN_FILE:
        trace = trace.tb_next
    return trace


def set_path(order: dict[str, Any], entry: str) -> None:
    """As `python run.py` has it, then the workspace, and at the end the project on the drive."""
    if sys.path and os.path.abspath(sys.path[0]) == os.path.dirname(os.path.abspath(OWN_FILE)):
        del sys.path[0]
    first = [os.path.dirname(entry), order["workspace"]]
    if order["contract"] == "function":
        # A module of a package is imported through the package: a `random.py` in there must not
        # hide Python's own.
        first.reverse()
        if os.path.exists(os.path.join(first[1], "__init__.py")):
            del first[1]
    sys.path[:0] = first if len(set(first)) == len(first) else first[:1]
    if order["project_path"] not in ("", *sys.path):
        sys.path.append(order["project_path"])


def new_main() -> dict[str, Any]:
    """The names of a `__main__` that is not this file: `multiprocessing` would run that again."""
    module = type(sys)("__main__")
    module.__dict__.update(__builtins__=__builtins__, __annotations__={})
    sys.modules["__main__"] = module
    return module.__dict__


def run_script(order: dict[str, Any], entry: str, report: Report) -> None:
    """What `python run.py` does."""
    from _frozen_importlib_external import SourceFileLoader

    with open(entry, "rb") as file:
        source = file.read()
    set_path(order, entry)
    names = new_main()
    names.update(__file__=entry, __cached__=None, __loader__=SourceFileLoader("__main__", entry))
    report.begin()
    exec(compile(source, entry, "exec", dont_inherit=True), names)  # noqa: S102


def run_function(order: dict[str, Any], folder: str, entry: str, report: Report) -> None:
    """Call `main(param2val)` of the entry for each param2val of the chunk; save what it returns."""
    returned = beside("returned")
    chunk = load_chunk(folder, len(order["runs"]))
    with open(entry, "rb"):
        set_path(order, entry)
    new_main()
    name = order["entry"][: -len(".py")].replace("/", ".")
    report.begin()
    __import__(name)
    function = getattr(sys.modules[name], "main", None)
    if not callable(function):
        raise Unusable(f"{order['entry']} defines no main(param2val).")
    for param2val, (param_name, job_name) in zip(chunk, order["runs"]):  # noqa: B905 - Python 3.8
        results = result_folder(order, param_name, job_name)
        param2val.update(
            param_name=param_name,
            job_name=job_name,
            project_path=order["project_path"],
            save_path=results + "/saves",
        )
        value = function(param2val)
        try:
            returned.save(value, results)
        except returned.NotSavable as error:
            code = getattr(function, "__code__", None)
            line = f", line {code.co_firstlineno}" if code else ""
            say(f'Traceback (most recent call last):\n  File "{entry}"{line}, in main')
            raise Unusable(f"main() of {order['entry']} returned {error}") from None


def beside(name: str) -> Any:
    """A module that lies beside this file. Not left where imports look: the user may have one."""
    if name not in LOADED:
        LOADED[name] = __import__(name)
        del sys.modules[name]
    return LOADED[name]


def preload() -> None:
    """Load what every attempt needs, for an interpreter that is kept warm (`warm.py`)."""
    beside("returned")
    for name in ("_ctypes", "_json", "_pickle"):
        try:
            __import__(name)
        except ImportError:
            pass


def load_chunk(folder: str, length: int) -> list[dict[str, Any]]:
    try:
        from _pickle import loads
    except ImportError:
        from pickle import loads
    with open(folder + "/chunk.pkl", "rb") as file:
        # The agent has verified these bytes, and this is the user's own process.
        chunk = loads(file.read())  # noqa: S301
    if not isinstance(chunk, list) or len(chunk) != length:
        raise Unusable(f"the chunk does not hold the {length} runs of this task.")
    return chunk


def result_folder(order: dict[str, Any], param_name: str, job_name: str) -> str:
    """Where the files of one run gather, relative to the working directory."""
    return f"{order['source_name']}_runs/{param_name}/{job_name}"


OWN_FILE = main.__code__.co_filename
LOADED: dict[str, Any] = {}

if __name__ == "__main__":
    main(sys.argv)
