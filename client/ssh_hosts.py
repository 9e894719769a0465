"""The Hosts that a user has in ~/.ssh/config, for `ludwig init` to offer. Reads nothing else."""

from __future__ import annotations

import shlex
from pathlib import Path

__all__ = ["ssh_hosts"]


def ssh_hosts(config: Path | None = None) -> list[str]:
    """The names without wildcards, in the order of the file; [] if there is none.

    `Include` is followed; what cannot be read is passed over.
    """
    found: dict[str, None] = {}
    _read(config or Path.home() / ".ssh" / "config", found, depth=0)
    return list(found)


def _read(file: Path, found: dict[str, None], depth: int) -> None:
    try:
        lines = file.read_text(errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        keyword, _, rest = line.strip().replace("=", " ", 1).partition(" ")
        try:
            words = shlex.split(rest, comments=True)
        except ValueError:
            continue
        if keyword.lower() == "host":
            found.update((word, None) for word in words if not set(word) & set("*?!"))
        elif keyword.lower() == "include" and depth < 8:
            for pattern in words:
                # Relative to the folder of the file, as ssh has it for a user's own.
                place = file.parent / Path(pattern).expanduser()
                relative = place.relative_to(place.anchor)
                for path in sorted(Path(place.anchor).glob(str(relative))):
                    _read(path, found, depth + 1)
