"""The long chaos: a lab of four nodes under fire, by hand.

python -m benchmarks.chaos --seed 7 --tasks 300 --minutes 5
python -m benchmarks.chaos --seeds 1-20          # one after another
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

from tests.chaos import Chaos


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", default="1-3", help="from-to")
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=2.0)
    options = parser.parse_args()
    first, _, last = options.seeds.partition("-")
    seeds = [options.seed] if options.seed is not None else range(int(first), int(last) + 1)
    bad = 0
    home = os.environ.get("HOME", "")
    for seed in seeds:
        # Not `…-<number>-…`: test runs remove folders whose number is a process that is gone.
        folder = Path(tempfile.mkdtemp(prefix=f"ludwig-chaos-seed{seed}-"))
        report = Chaos(folder, seed=seed, tasks=options.tasks).run(options.minutes * 60)
        os.environ["HOME"] = home
        print(report, flush=True)
        if report.problems:
            bad += 1
            print(f"  everything is in {folder}; replay with --seed {seed}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
