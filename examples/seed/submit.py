"""Submit the sweep to the lab of the nearest ludwig.toml."""

from pathlib import Path

from ludwigcluster.client import Client

param2val_list = [{"learning_rate": 0.1, "epochs": 20}, {"learning_rate": 0.3, "epochs": 20}]

if __name__ == "__main__":
    client = Client("seed")  # creates the project's folder on the drive
    job = client.submit(
        src_ps=[Path("src")],  # source, sent to the nodes
        data_ps=[],  # folders of data, sent to the drive once
        param2val_list=param2val_list,
        reps=2,  # replications of each configuration
    )
    print(job)
