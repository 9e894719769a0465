import argparse

from ludwigcluster.client import Client
from ludwigcluster.config import SFTP
from ludwigcluster.utils import list_all_param2vals

from perceptrons import config
from perceptrons.params import Params


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument(
        '-r',
        '--reps',
        default=2,
        type=int,
        choices=range(1, 11),
        help='Number of runs per configuration',
    )
    parser.add_argument(
        '-w', '--worker', default=None, choices=SFTP.worker_names, help='Submit to one worker only'
    )
    parser.add_argument('-s', '--skip_data', action='store_true', help='Do not upload the corpora')
    parser.add_argument('-t', '--test', action='store_true', help='Start nothing')
    parser.add_argument('-d', '--debug', action='store_true', help='Few epochs')
    namespace = parser.parse_args()

    if namespace.debug:
        Params.num_epochs = [2]

    client = Client(config.RemoteDirs.root.name)
    client.submit(
        src_ps=[config.LocalDirs.src],
        data_ps=[] if namespace.skip_data else [config.LocalDirs.root / 'corpora'],
        param2val_list=list_all_param2vals(Params),
        reps=namespace.reps,
        test=namespace.test,
        worker=namespace.worker,
    )
