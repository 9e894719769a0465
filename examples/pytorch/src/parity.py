"""The data and the model."""

import torch


def bits(count, device):
    """Every pattern of some bits, and whether its ones are odd in number."""
    rows = [[float(n >> i & 1) for i in range(count)] for n in range(2**count)]
    parity = [[sum(row) % 2] for row in rows]
    return torch.tensor(rows, device=device), torch.tensor(parity, device=device)


def network(inputs, hidden):
    return torch.nn.Sequential(
        torch.nn.Linear(inputs, hidden), torch.nn.Tanh(), torch.nn.Linear(hidden, 1)
    )
