"""A perceptron that learns which side of a line points are on. Standard library only."""

import random


def train(param2val):
    """Yields the accuracy after each epoch."""
    # Replications differ by their job_name, so it makes a good seed.
    dice = random.Random(param2val["job_name"])
    points = [(dice.uniform(-1, 1), dice.uniform(-1, 1), 1.0) for _ in range(200)]
    labels = [1 if x + 0.5 * y > 0.2 else -1 for x, y, _ in points]
    weights = [dice.uniform(-1, 1) for _ in range(3)]
    for _ in range(param2val["epochs"]):
        right = 0
        for point, label in zip(points, labels):
            guess = 1 if sum(w * v for w, v in zip(weights, point)) > 0 else -1
            right += guess == label
            step = param2val["learning_rate"] * (label - guess)
            weights = [w + step * v for w, v in zip(weights, point)]
        yield right / len(points)
