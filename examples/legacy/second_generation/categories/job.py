from pathlib import Path
import zlib

import numpy as np
import pandas as pd

from categories.model import Network


def load_contexts(path):
    rows = [line.split() for line in path.read_text().splitlines()]
    categories = sorted({row[0] for row in rows})
    x = np.array([[float(n) for n in row[1:]] for row in rows])
    return x, np.array([categories.index(row[0]) for row in rows])


def main(param2val):
    # importable because the folder was sent to the drive with -e
    from toolbox.scores import accuracy, cross_entropy

    project_path = Path(param2val['project_path'])
    save_path = Path(param2val['save_path'])
    print('Starting', param2val['param_name'], param2val['job_name'])
    rng = np.random.RandomState(zlib.crc32(param2val['job_name'].encode()))

    x, y = load_contexts(project_path / 'data' / '{}.txt'.format(param2val['corpus']))
    weights_p = project_path.parent / 'Lexicon' / 'weights.txt'  # another project's
    if weights_p.exists():
        x = x * float(weights_p.read_text())
    if param2val['noise'] is not None:
        x = x + rng.normal(0, param2val['noise'], x.shape)

    net = Network(
        (x.shape[1], *param2val['hidden_sizes'], y.max() + 1), rng=rng, **param2val['init']
    )
    accuracies, losses = [], []
    for epoch in range(param2val['num_epochs']):
        factor = [f for start, f in param2val['schedule'] if epoch >= start][-1]
        net.train(x, y, param2val['learning_rate'] * factor)
        probs = net.forward(x)[-1]
        accuracies.append(accuracy(probs, y))
        losses.append(cross_entropy(probs, y))

    # the folder is there already, and moved to the drive at the end
    np.savez(save_path / 'weights.npz', *net.weights)
    (Path(__file__).parent.parent / 'scratch.txt').write_text('this copy of the code is mine')

    index = pd.Index(range(param2val['num_epochs']), name='epoch')
    return [pd.Series(accuracies, index, name='accuracy'), pd.Series(losses, index, name='loss')]
