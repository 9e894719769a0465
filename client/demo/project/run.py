"""What every task runs: train one small network, return its learning curves."""

import pandas as pd
from spirals.data import two_spirals
from spirals.network import Network


def main(param2val):
    seed = sum(map(ord, param2val["job_name"]))  # another one for every replication
    train, test = two_spirals(400, seed=1), two_spirals(400, seed=2)
    network = Network(param2val["hidden"], param2val["lr"], seed=seed)
    epochs, accuracy, loss = [], [], []
    for epoch in range(param2val["epochs"] + 1):
        if epoch % 20 == 0:
            epochs.append(epoch)
            accuracy.append(network.accuracy(test))
            loss.append(network.loss(train))
            print(f"epoch {epoch:4}  loss {loss[-1]:.3f}  test accuracy {accuracy[-1]:.2f}")
        network.train(train)
    index = pd.Index(epochs, name="epoch")
    return [pd.Series(accuracy, index, name="accuracy"), pd.Series(loss, index, name="loss")]
