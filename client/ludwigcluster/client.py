"""`Client` as projects of LudwigCluster call it: Ludwig's own, with the arguments of its time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ludwig.client import client
from ludwig.client.job import Job
from ludwig.errors import ParameterError
from ludwig.sweep import expand
from ludwigcluster.config import SFTP

__all__ = ["Client"]


class Client(client.Client):
    """As `ludwig.Client`; submits to `SFTP.worker_names` where somebody has changed that."""

    @property
    def project_name(self) -> str:
        return self.project

    def submit(
        self,
        src_ps: Sequence[Path | str],
        data_ps: Sequence[Path | str] | None = None,
        param2val_list: Sequence[Mapping[str, Any]] | None = None,
        reps: int = 1,
        test: bool = False,
        worker: str | None = None,
        *,
        param2requests: Mapping[str, Sequence[Any]] | None = None,
        nodes: Sequence[str] | None = None,
        **options: Any,
    ) -> Job:
        """See `ludwig.Client.submit`. With `param2requests` instead of the list, the requested
        values are combined on top of the client's `param2default`."""
        if (param2val_list is None) == (param2requests is None):
            raise ParameterError("give submit() either param2val_list or param2requests.")
        if param2val_list is None:
            param2val_list = expand(param2requests or {}, self.param2default)
        if worker is None and nodes is None:
            nodes = SFTP.chosen
        return super().submit(
            src_ps,
            data_ps or (),
            param2val_list,
            reps=reps,
            test=test,
            worker=worker,
            nodes=nodes,
            **options,
        )
