"""Names kept from LudwigCluster for scripts that look through `runs/` themselves.

`gen_param_paths` gives folders of this machine: those of the mounted drive, or copies of an SMB
share that is not mounted. Reading results into one frame is `job.results()`. Imports no pandas.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ludwig import codec, errors, layout
from ludwig.drive import Drive
from ludwig.drives.folder import FolderDrive
from ludwig.sweep import expand

__all__ = ["gen_all_param2vals", "gen_param_paths"]

Params = Mapping[str, Any]


def gen_all_param2vals(
    param2requests: Mapping[str, Sequence[Any]], param2default: Params
) -> Iterator[dict[str, Any]]:
    """Every combination of the requested values, the other parameters at their defaults."""
    yield from expand(param2requests, param2default)


def gen_param_paths(
    project_name: str,
    param2requests: Mapping[str, Sequence[Any]],
    param2default: Params,
    runs_path: Path | None = None,
    ludwig_data_path: Path | None = None,
    label_params: Sequence[str] | None = None,
    isolated: bool = False,
    label_n: bool = True,
    verbose: bool = True,
    require_all_found: bool = True,
) -> Iterator[tuple[Path, str]]:
    """The folder and a label of every requested configuration that has runs, by number.

    A label has a line `k=v` for every requested parameter and those of `label_params`, and
    `n=<replications>`. Looks in `runs_path`, else in the project's folder below `ludwig_data_path`,
    else (`isolated`) in `runs/` here, else on the lab's drive. `SystemExit` if a configuration is
    missing, unless `require_all_found` is false. `verbose` has no effect: a library does not print.
    """
    wanted = [_comparable(params) for params in gen_all_param2vals(param2requests, param2default)]
    drive, project_or_runs = _where(project_name, runs_path, ludwig_data_path, isolated=isolated)
    try:
        names = list(dict.fromkeys([*param2requests, *(label_params or ())]))
        found = [
            (name, params, runs)
            for name, params, runs in _configurations(drive, project_or_runs)
            if _comparable(params) in wanted
        ]
        there = [_comparable(params) for _, params, _ in found]
        missing = [params for params in wanted if params not in there]
        if missing and require_all_found:
            first = ", ".join(f"{k}={missing[0].get(k)}" for k in names)
            raise SystemExit(
                f"Of {len(wanted)} requested configurations of {project_name!r}, {len(missing)} "
                f"have no runs in {drive.where}/{project_or_runs}. The first is: {first}."
            )
        for name, params, runs in found:
            lines = [f"{key}={params.get(key)}" for key in names]
            if label_n:
                lines.append(f"n={len(runs)}")
            yield _local(drive, f"{project_or_runs}/{name}".lstrip("/"), runs), "\n".join(lines)
    finally:
        drive.close()


def _where(
    project: str, runs: Path | None, data: Path | None, *, isolated: bool
) -> tuple[Drive, str]:
    """A drive, and the folder of the runs on it."""
    if runs is not None:
        return FolderDrive(runs), ""
    if isolated:
        return FolderDrive(Path.cwd() / "runs"), ""
    folder = layout.project_files(project).runs
    return (FolderDrive(data) if data is not None else _lab_drive()), folder


def _lab_drive() -> Drive:
    """The lab's drive, as a folder where it is mounted."""
    from ludwig.config import load_lab
    from ludwig.drives import open_drive

    lab = load_lab().drive
    drive = open_drive(lab.url, mount=lab.mount, user=lab.user)
    if drive.mount is not None and (drive.mount / layout.FORMAT).exists():
        return FolderDrive(drive.mount)
    return drive


def _configurations(drive: Drive, folder: str) -> Iterator[tuple[str, dict[str, Any], list[str]]]:
    """(param_name, parameters, names of its runs) of each that has runs."""
    try:
        names = drive.list(folder)
    except (errors.NotFound, errors.WrongKind):
        return
    for name in sorted(filter(layout.parse_param, names), key=_number):
        place = f"{folder}/{name}".lstrip("/")
        with suppress(errors.NotFound, errors.WrongKind, errors.Malformed):
            path = f"{place}/param2val.yaml"
            params = codec.from_yaml(drive.read(path), path)
            runs = [e.name for e in drive.scan(place) if e.is_folder and layout.is_run(e.name)]
            if runs:
                yield name, params, sorted(runs)


def _number(name: str) -> tuple[int, str]:
    return layout.parse_param(name) or 0, name


def _comparable(value: Any) -> Any:
    """What two configurations have in common when they are the same: old ones had lists for
    tuples, and Ludwig's own keys do not count."""
    if isinstance(value, Mapping):
        return {k: _comparable(v) for k, v in value.items() if k not in codec.RESERVED}
    if isinstance(value, (list, tuple)):
        return [_comparable(item) for item in value]
    if isinstance(value, bool):
        return f"!{value}"  # True is not 1 here
    return codec.to_plain(value)


# --- a share that is not mounted ---------------------------------------------------------------


def _local(drive: Drive, place: str, runs: Sequence[str]) -> Path:
    """The folder on this machine: where it is, or a copy. A finished run is copied once."""
    if isinstance(drive, FolderDrive):
        return Path(drive.where) / place
    target = _copies() / hashlib.sha256(drive.where.encode()).hexdigest()[:24] / place
    target.mkdir(parents=True, exist_ok=True)
    _copy(target / "param2val.yaml", lambda scratch: _fetch(drive, place, scratch))
    copies = {run if "num" in run else f"{run}_num": run for run in runs}  # scripts glob for it
    for name, run in copies.items():
        _copy(target / name, lambda scratch, run=run: drive.download(f"{place}/{run}", scratch))
    for stale in target.iterdir():
        if "num" in stale.name and stale.is_dir() and stale.name not in copies:
            shutil.rmtree(stale, ignore_errors=True)
    return target


def _fetch(drive: Drive, place: str, scratch: Path) -> None:
    scratch.write_bytes(drive.read(f"{place}/param2val.yaml"))


def _copy(target: Path, fetch: Any) -> None:
    """Put a copy in place whole, unless there is one."""
    if target.exists():
        return
    scratch = target.with_name(f".{secrets.token_hex(8)}")
    try:
        fetch(scratch)
        with suppress(OSError):  # somebody else was first
            scratch.rename(target)
    finally:
        if scratch.is_dir():
            shutil.rmtree(scratch, ignore_errors=True)
        else:
            scratch.unlink(missing_ok=True)


def _copies() -> Path:
    import platformdirs

    chosen = os.environ.get("LUDWIG_CACHE")
    return (Path(chosen) if chosen else platformdirs.user_cache_path("ludwig")) / "runs"
