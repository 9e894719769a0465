"""Two interleaved spirals: a classic that a linear model cannot tell apart."""

import numpy as np

TURNS = 1.6


def two_spirals(count, seed):
    """Points in the plane, and which spiral each is on (0 or 1)."""
    random = np.random.default_rng(seed)
    distance = np.sqrt(random.random(count))
    label = np.arange(count) % 2
    angle = distance * TURNS * 2 * np.pi + np.pi * label
    points = np.stack([np.cos(angle), np.sin(angle)], axis=1) * distance[:, None]
    return points + random.normal(0, 0.02, points.shape), label.astype(float)
