"""What each task runs: train a network on the parity of bits, save the model, return the curve."""

import os
import signal
from pathlib import Path

import pandas as pd
import torch
from src.parity import bits, network

EPOCHS = 15


def main(param2val):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # comes with the file, and would end us at once
    stop = Path(os.environ["LUDWIG_STOP"])
    device = "cuda:0" if torch.cuda.is_available() else "cpu"
    print(f"on {torch.cuda.get_device_name(0) if device != 'cpu' else 'the CPU'}", flush=True)
    torch.manual_seed(sum(map(ord, param2val["job_name"])))
    inputs, parity = bits(param2val.get("bits", 6), device)
    model = network(inputs.shape[1], param2val["hidden"]).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=param2val["lr"], momentum=0.9)
    losses = []
    for epoch in range(param2val.get("epochs", EPOCHS)):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), parity)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        print(f"epoch {epoch}: loss {losses[-1]:.4f}", flush=True)
        if stop.exists():
            print("told to stop", flush=True)
            break
    torch.save(model.state_dict(), Path(param2val["save_path"]) / "model.pt")
    return [pd.Series(losses, name="loss").rename_axis("epoch")]
