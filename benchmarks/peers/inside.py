"""Runs inside the peers' own virtual environment: `python inside.py PEER FOLDER TASK…`.

Reads a number of tasks from a line of stdin, has the peer run that many fresh processes on two
slots, and answers with a line. Never imports Ludwig.
"""

# mypy: ignore-errors

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SLOTS = 2


def hyperqueue(folder, *task):
    """Its own LocalCluster: a server and a worker with two cores; tasks are external programs."""
    from hyperqueue import Job, LocalCluster
    from hyperqueue.cluster import WorkerConfig

    with LocalCluster() as cluster:
        cluster.start_worker(WorkerConfig(cores=SLOTS))
        client = cluster.client()

        def run(number):
            job = Job()
            for _ in range(number):
                job.program(list(task))
            client.wait_for_jobs([client.submit(job)])

        yield run


def submitit(folder, *task):
    """A process of its own per task already: the function itself is trivial."""
    import submitit as package

    executor = package.LocalExecutor(folder=folder)

    def one(_):
        # The local executor starts whatever it is given at once: two threads make two slots.
        executor.submit(trivial, 1).result()

    def run(number):
        with ThreadPoolExecutor(SLOTS) as pool:
            list(pool.map(one, range(number)))

    yield run


def trivial(value):
    return value


def dask(folder, *task):
    """Its workers live on; the fresh process is what the task starts."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=SLOTS, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):

        def run(number):
            tasks = [[*task, str(i)] for i in range(number)]
            client.gather(client.map(subprocess.check_call, tasks, pure=False))

        yield run


def main():
    peer, *where = sys.argv[1:]
    Path(where[0]).mkdir(parents=True, exist_ok=True)
    for run in globals()[peer](*where):
        print("ready", flush=True)
        for line in sys.stdin:
            run(int(line))
            print("done", flush=True)


if __name__ == "__main__":
    main()
