"""Submit the grid, wait, and print the mean error of each configuration."""

import sys

from ludwig import Client, grid

SWEEP = grid(degree=[1, 3, 9], noise=[0.1, 0.3], samples=30)

if __name__ == "__main__":
    with Client("grid", local="--local" in sys.argv) as client:
        job = client.submit(src_ps=["src"], param2val_list=SWEEP, reps=2)
        job.wait(check=True)
        frame = job.results(last=True)
        means = frame.groupby(["noise", "degree"])["test_error"].mean()
        print(means.unstack().round(3))
