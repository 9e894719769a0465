"""Two interleaved spirals: a classic that a linear model cannot tell apart."""

import numpy as np


def two_spirals(count, seed):
    """Points in the plane, and which spiral each is on (0 or 1)."""
    random = np.random.default_rng(seed)
    turn = np.sqrt(random.random(count)) * 2.2 * np.pi
    label = np.arange(count) % 2
    angle = turn + np.pi * label
    points = np.stack([np.cos(angle), np.sin(angle)], axis=1) * (turn / 7)[:, None]
    return points + random.normal(0, 0.02, points.shape), label.astype(float)
