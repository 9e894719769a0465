import numpy as np


class Network:
    def __init__(self, sizes, scale, bias, rng):
        self.weights = [rng.normal(0, scale, pair) for pair in zip(sizes, sizes[1:])]
        self.biases = [np.full(n, float(bias)) for n in sizes[1:]]

    def forward(self, x):
        outputs = [x]
        for i, (w, b) in enumerate(zip(self.weights, self.biases)):
            z = outputs[-1] @ w + b
            last = i == len(self.weights) - 1
            outputs.append(self.softmax(z) if last else np.tanh(z))
        return outputs

    @staticmethod
    def softmax(z):
        e = np.exp(z - z.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)

    def train(self, x, y, rate):
        outputs = self.forward(x)
        delta = outputs[-1].copy()
        delta[np.arange(len(y)), y] -= 1
        delta /= len(y)
        for i in reversed(range(len(self.weights))):
            grad_w, grad_b = outputs[i].T @ delta, delta.sum(axis=0)
            delta = (delta @ self.weights[i].T) * (1 - outputs[i] ** 2)
            self.weights[i] -= rate * grad_w
            self.biases[i] -= rate * grad_b
