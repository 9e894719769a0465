"""What each task runs: fit a polynomial to noisy points, one more point at a time."""

import numpy as np
import pandas as pd
from src.curves import sample, truth


def main(param2val):
    random = np.random.default_rng(sum(map(ord, param2val["job_name"])))
    x, y = sample(random, param2val["samples"], param2val["noise"])
    grid = np.linspace(-1, 1, 200)
    counts = range(param2val["degree"] + 2, len(x) + 1)
    train, test = [], []
    for count in counts:
        fit = np.polynomial.Polynomial.fit(x[:count], y[:count], param2val["degree"])
        train.append(float(np.mean((fit(x[:count]) - y[:count]) ** 2)))
        test.append(float(np.mean((fit(grid) - truth(grid)) ** 2)))
        print(f"{count} points: test error {test[-1]:.4f}")
    index = pd.Index(counts, name="points")
    # Each Series becomes <name>.csv, and a column of the frame.
    return [pd.Series(train, index, name="train_error"), pd.Series(test, index, name="test_error")]
