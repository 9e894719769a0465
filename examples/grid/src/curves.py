"""The curve that is to be found, and noisy samples of it."""

import numpy as np


def truth(x):
    return np.sin(3 * x)


def sample(random, count, noise):
    x = random.uniform(-1, 1, count)
    return x, truth(x) + random.normal(0, noise, count)
