import shutil
import zlib

import numpy as np
import pandas as pd
import yaml

from perceptrons import config
from perceptrons.data import count_ngrams, load_words
from perceptrons.params import make_params


def softmax(z):
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def train_job(param2val):
    """train one model, and move everything it left to the file server when it is done"""
    params = make_params(param2val)
    print('Starting {} {}'.format(params.param_name, params.job_name))
    np.random.seed(zlib.crc32(params.job_name.encode()))

    words, y = load_words(config.RemoteDirs.corpora / '{}.txt'.format(params.corpus))
    x = count_ngrams(words, params.ngrams)
    weights = np.random.normal(0, 0.5, (x.shape[1], y.max() + 1))

    local_dir = config.LocalDirs.runs / params.param_name / params.job_name
    local_dir.mkdir(parents=True, exist_ok=True)
    accuracies, losses = [], []
    for epoch in range(params.num_epochs):
        probs = softmax(x @ weights)
        accuracies.append(np.mean(probs.argmax(axis=1) == y))
        losses.append(-np.log(probs[np.arange(len(y)), y]).mean())
        probs[np.arange(len(y)), y] -= 1
        weights -= params.learning_rate * x.T @ probs / len(y)
        print('epoch={} accuracy={:.2f}'.format(epoch, accuracies[-1]), flush=True)

    index = pd.Index(range(params.num_epochs), name='epoch')
    pd.DataFrame({'accuracy': accuracies}, index).to_csv(local_dir / 'accuracy.csv')
    pd.DataFrame({'loss': losses}, index).to_csv(local_dir / 'loss.csv')
    pd.DataFrame(weights).to_csv(local_dir / 'weights.csv', index=False)
    save_to_server(param2val, local_dir)


def save_to_server(param2val, local_dir):
    remote_dir = config.RemoteDirs.runs / param2val['param_name'] / param2val['job_name']
    remote_dir.mkdir(parents=True, exist_ok=True)
    param2val_p = remote_dir.parent / 'param2val.yaml'
    if not param2val_p.exists():
        with param2val_p.open('w') as f:
            yaml.dump({**param2val, 'job_name': None}, f, default_flow_style=False)
    for p in sorted(local_dir.glob('*.csv')):
        shutil.move(str(p), str(remote_dir / p.name))
