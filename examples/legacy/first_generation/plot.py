import sys

import matplotlib

matplotlib.use('Agg')
import matplotlib.pyplot as plt
import pandas as pd
import yaml

from perceptrons import config


def gen_runs():
    """yield the parameters of each configuration, and the path to each of its runs"""
    for param_p in sorted(config.RemoteDirs.runs.glob('param_*')):
        with (param_p / 'param2val.yaml').open('r') as f:
            param2val = yaml.load(f, Loader=yaml.FullLoader)
        del param2val['param_name']
        del param2val['job_name']
        yield param2val, sorted(param_p.glob('*num*'))


fig, ax = plt.subplots()
for param2val, job_ps in gen_runs():
    df = pd.concat([pd.read_csv(p / 'accuracy.csv', index_col='epoch') for p in job_ps])
    means = df.groupby(df.index).mean()
    label = 'learning_rate={}\nngrams={}\nn={}'.format(
        param2val['learning_rate'], param2val['ngrams'], len(job_ps)
    )
    ax.plot(means.index, means['accuracy'], label=label)
    print(label.replace('\n', ' '), 'accuracy={:.2f}'.format(means['accuracy'].iloc[-1]))
ax.set_xlabel('Epoch')
ax.set_ylabel('Accuracy')
ax.legend(frameon=False)
fig.savefig(sys.argv[1])
