"""What a node runs: every configuration of its chunk, one after the other."""

import os
import pickle
import shutil
import socket
from pathlib import Path

from src.perceptron import train

# Where LudwigCluster had it, or wherever the drive is mounted on this node.
project = Path(os.environ.get("LUDWIG_PROJECT_PATH", "/media/research_data/seed"))
hostname = socket.gethostname().split(".")[0]
chunk = project / f"{hostname}_param2val_chunk.pkl"
# The same bytes, for nodes that go by another name than their machine's.
chunk = Path(os.environ.get("LUDWIG_CHUNK", chunk))

with chunk.open("rb") as file:
    param2val_chunk = pickle.load(file)

for param2val in param2val_chunk:
    scratch = Path("accuracy.csv")  # on the node, while it trains
    with scratch.open("w") as file:
        file.write("epoch,accuracy\n")
        for epoch, accuracy in enumerate(train(param2val)):
            print(f"epoch {epoch:2}  accuracy {accuracy:.2f}")
            file.write(f"{epoch},{accuracy}\n")
    # To the file server only when training is complete.
    run = project / "runs" / param2val["param_name"] / param2val["job_name"]
    run.mkdir(parents=True, exist_ok=True)
    shutil.move(str(scratch), str(run / scratch.name))
