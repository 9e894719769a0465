"""As much of torch as `examples/pytorch` uses, for machines without it. Computes with numpy.

Learns for real, so that the example's curve falls. Found by a task only where torch is absent.
"""
# ruff: noqa: B905

import pickle
import types

import numpy as np

_random = np.random.default_rng(0)


def manual_seed(seed):
    global _random
    _random = np.random.default_rng(seed)


class Tensor:
    def __init__(self, values, trace=None):
        self.values = np.asarray(values, dtype=float)
        self.shape = self.values.shape
        self.trace = trace

    def item(self):
        return float(self.values)

    def backward(self):
        self.trace()


def tensor(values, device=None):
    return Tensor(values)


def save(value, path):
    path.write_bytes(pickle.dumps(value))


class Linear:
    def __init__(self, inputs, outputs):
        bound = inputs**-0.5
        self.weight = _random.uniform(-bound, bound, (inputs, outputs))
        self.bias = _random.uniform(-bound, bound, outputs)
        self.gradients = [np.zeros_like(self.weight), np.zeros_like(self.bias)]

    def forward(self, given):
        self.given = given
        return given @ self.weight + self.bias

    def backward(self, gradient):
        self.gradients[0] += self.given.T @ gradient
        self.gradients[1] += gradient.sum(0)
        return gradient @ self.weight.T


class Tanh:
    def forward(self, given):
        self.out = np.tanh(given)
        return self.out

    def backward(self, gradient):
        return gradient * (1 - self.out**2)


class Sequential:
    def __init__(self, *layers):
        self.layers = layers

    def to(self, device):
        return self

    def parameters(self):
        return [layer for layer in self.layers if isinstance(layer, Linear)]

    def state_dict(self):
        return {str(i): layer.weight for i, layer in enumerate(self.parameters())}

    def __call__(self, given):
        values = given.values
        for layer in self.layers:
            values = layer.forward(values)

        def trace(gradient):
            for layer in reversed(self.layers):
                gradient = layer.backward(gradient)

        return Tensor(values, trace)


def mse_loss(guess, truth):
    difference = guess.values - truth.values
    gradient = 2 * difference / difference.size
    return Tensor(np.mean(difference**2), lambda: guess.trace(gradient))


class SGD:
    def __init__(self, parameters, lr, momentum):
        self.layers, self.lr, self.momentum = parameters, lr, momentum
        self.speed = [[0.0, 0.0] for _ in self.layers]

    def zero_grad(self):
        for layer in self.layers:
            for gradient in layer.gradients:
                gradient[...] = 0

    def step(self):
        for layer, speed in zip(self.layers, self.speed):
            for i, (value, gradient) in enumerate(zip((layer.weight, layer.bias), layer.gradients)):
                speed[i] = self.momentum * speed[i] + gradient
                value -= self.lr * speed[i]


cuda = types.SimpleNamespace(is_available=lambda: False, get_device_name=lambda index: "")
nn = types.SimpleNamespace(
    Linear=Linear,
    Tanh=Tanh,
    Sequential=Sequential,
    functional=types.SimpleNamespace(mse_loss=mse_loss),
)
optim = types.SimpleNamespace(SGD=SGD)
