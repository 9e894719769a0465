"""A network with two hidden layers, trained by Adam. Only numpy, so that it runs anywhere."""

import numpy as np


class Network:
    def __init__(self, hidden, lr, seed):
        random = np.random.default_rng(seed)
        sizes = [2, hidden, hidden, 1]
        self.lr = lr
        self.step = 0
        self.weights = [random.normal(0, (2 / a) ** 0.5, (a, b)) for a, b in zip(sizes, sizes[1:])]
        self.weights += [np.zeros(b) for b in sizes[1:]]
        self.mean = [np.zeros_like(w) for w in self.weights]
        self.square = [np.zeros_like(w) for w in self.weights]

    def forward(self, points):
        a, b, c, p, q, r = self.weights
        first = np.tanh(points @ a + p)
        second = np.tanh(first @ b + q)
        return first, second, 1 / (1 + np.exp(-(second @ c + r)[:, 0]))

    def train(self, data):
        """One step of gradient descent over all points."""
        points, label = data
        _, b, c, *_ = self.weights
        first, second, guess = self.forward(points)
        out = ((guess - label) / len(label))[:, None]
        back2 = (out @ c.T) * (1 - second**2)
        back1 = (back2 @ b.T) * (1 - first**2)
        gradients = [points.T @ back1, first.T @ back2, second.T @ out]
        gradients += [back1.sum(0), back2.sum(0), out.sum(0)]
        self.step += 1
        for i, gradient in enumerate(gradients):
            self.mean[i] = 0.9 * self.mean[i] + 0.1 * gradient
            self.square[i] = 0.999 * self.square[i] + 0.001 * gradient**2
            mean = self.mean[i] / (1 - 0.9**self.step)
            square = self.square[i] / (1 - 0.999**self.step)
            self.weights[i] -= self.lr * mean / (np.sqrt(square) + 1e-8)

    def loss(self, data):
        guess = self.forward(data[0])[-1].clip(1e-9, 1 - 1e-9)
        return float(-np.mean(data[1] * np.log(guess) + (1 - data[1]) * np.log(1 - guess)))

    def accuracy(self, data):
        return float(np.mean((self.forward(data[0])[-1] > 0.5) == (data[1] > 0.5)))
