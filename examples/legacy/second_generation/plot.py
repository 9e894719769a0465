import sys

import matplotlib

matplotlib.use('Agg')
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from ludwig.results import gen_param_paths

from categories.params import param2default, param2requests

fig, ax = plt.subplots()
for param_path, label in gen_param_paths('second_generation', param2requests, param2default):
    dfs = [pd.read_csv(p, index_col=0) for p in sorted(param_path.glob('*num*/accuracy.csv'))]
    y = pd.concat(dfs, axis=1).mean(axis=1)
    ax.plot(y.index, y, label=label)
    checkpoints = sorted(param_path.glob('**/saves/weights.npz'))
    norms = [np.linalg.norm(np.load(p)['arr_0']) for p in checkpoints]
    print(label.replace('\n', ' '), 'accuracy={:.2f}'.format(y.iloc[-1]), 'norms', len(norms))
ax.set_xlabel('Epoch')
ax.set_ylabel('Accuracy')
ax.legend(frameon=False)
fig.savefig(sys.argv[1])
