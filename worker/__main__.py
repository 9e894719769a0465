"""`python -m ludwig.worker`, where the command `ludwig-worker` is not on the PATH."""

from ludwig.worker.cli import main

main()
