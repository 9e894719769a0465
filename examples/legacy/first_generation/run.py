import argparse
import pickle
import socket
from datetime import datetime

from perceptrons import config
from perceptrons.jobs import train_job
from perceptrons.params import Params

hostname = socket.gethostname()


def run_on_cluster():
    p = config.RemoteDirs.root / '{}_param2val_chunk.pkl'.format(hostname)
    with p.open('rb') as f:
        param2val_chunk = pickle.load(f)
    for param2val in param2val_chunk:
        train_job(param2val)
    print('Finished all jobs at {}.'.format(datetime.now()))


def run_on_host():
    from ludwigcluster.utils import list_all_param2vals

    config.RemoteDirs.corpora = config.LocalDirs.root / 'corpora'
    config.RemoteDirs.runs = config.LocalDirs.root / 'runs'
    for param2val in list_all_param2vals(
        Params, update_d={'param_name': 'test', 'job_name': 'test_num0'}
    ):
        train_job(param2val)


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('-l', '--local', action='store_true')
    namespace = parser.parse_args()
    if namespace.local:
        run_on_host()
    else:
        run_on_cluster()
