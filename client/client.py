"""`Client`: a project of the lab, to submit to and to read from.

The first thing a user imports, so it loads nothing heavy: submitting and reading results are
imported when they are used.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ludwig import errors, layout
from ludwig.client.job import EmptyJob, Job, LudwigWarning
from ludwig.client.lab import Lab, open_lab
from ludwig.client.local import open_local_lab
from ludwig.client.lookout import Lookout, find_job
from ludwig.client.progress import make_transfer
from ludwig.client.status import JobSummary, NodeStatus
from ludwig.closing import Closing
from ludwig.config import LabConfig

if TYPE_CHECKING:
    import pandas

    from ludwig.client.submission import Submitted

__all__ = ["Client", "LudwigWarning"]


class Client(Closing):
    """A project. Made from the lab's configuration found from this folder; see `open_lab`.

    `param2default` completes every `param2val` that is submitted. With `local=True` everything
    runs on this machine, without a lab.
    """

    def __init__(
        self,
        project_name: str,
        param2default: Mapping[str, Any] | None = None,
        *,
        config: LabConfig | None = None,
        lab: Lab | None = None,
        local: bool = False,
    ) -> None:
        self.project = layout.check_project(project_name)
        self.param2default = dict(param2default or {})
        if local:
            self.lab = open_local_lab(project_name)
        else:
            self.lab = lab if lab is not None else open_lab(config)
        make_project(self.lab, project_name)

    def submit(
        self,
        src_ps: Sequence[Path | str],
        data_ps: Sequence[Path | str] = (),
        param2val_list: Sequence[Mapping[str, Any]] = ({},),
        *,
        reps: int = 1,
        worker: str | None = None,
        nodes: Sequence[str] | None = None,
        run_f_name: str = "run.py",
        test: bool = False,
        per: Literal["task", "chunk"] = "task",
        env: Mapping[str, str] | None = None,
        retries: int = 1,
        gpus: int | None = None,
        python: str | None = None,
        balance: bool = True,
        root: Path | str | None = None,
        progress: bool | None = None,
    ) -> Job:
        """Send source to the nodes, data and tasks to the drive; returns the job, not its end.

        `src_ps`: folders of source, one of which holds `run_f_name`. `data_ps`: folders that go to
        the drive, once. `param2val_list`: one dict per configuration (see `ludwig.grid`). `reps`:
        how many finished runs of each there shall be in the end, earlier ones included.
        `worker`/`nodes`: only these. `test`: check everything, start nothing. `per="chunk"`: all
        that a node gets is one task. `retries`: how often a failed task is tried again on
        its node, then once on another; 0 for never. `gpus`: None for one slot, 0 for CPU work, n
        for exactly n GPUs. `python`: the interpreter there. `root`: the project's folder, if it is
        not the one we are in.

        Everything is checked before anything is changed. Raises `UsageError`s, `SubmitError`,
        `DriveError`s; after any of them nothing was submitted, and doing it again is safe. Nodes
        that were left out, and the like, are `LudwigWarning`s. When nothing was submitted because
        of `test`, or because `reps` runs are there or under way, the job returned is empty
        (`job.id == 0`): waiting for it takes no time, and its results are the project's.
        """
        job, submitted = self._submit(
            src_ps=[Path(path) for path in src_ps],
            data_ps=[Path(path) for path in data_ps],
            param2val_list=[{**self.param2default, **one} for one in param2val_list],
            reps=reps,
            worker=worker,
            nodes=list(nodes) if nodes is not None else None,
            run_f_name=run_f_name,
            test=test,
            per=per,
            env=dict(env or {}),
            retries=retries,
            gpus=gpus,
            python=python,
            balance=balance,
            root=Path(root) if root is not None else Path.cwd(),
            progress=progress,
        )
        for note in submitted.warnings:
            warnings.warn(note, LudwigWarning, stacklevel=2)
        return job

    def _submit(
        self, *, test: bool, progress: bool | None, **options: Any
    ) -> tuple[Job, Submitted]:
        """The job and what was done; for callers that tell it in their own way."""
        from ludwig.client import submit

        with make_transfer(progress) as told:
            submitted = submit.submit(
                self.lab, self.project, submit.Submission(**options), test=test, progress=told
            )
        job = Job(self.lab, self.project, submitted.job) if submitted.job else None
        return job or EmptyJob(self.lab, self.project), submitted

    def job(self, number: int | None = None) -> Job:
        """A job by its number; the last one by default. `UsageError` if there is none."""
        job = Job(self.lab, self.project, find_job(self.lab, self.project, number))
        job.status()
        return job

    def jobs(self, *, user: str | None = None) -> list[JobSummary]:
        """The jobs of this project, oldest first; those of one user."""
        return Lookout(self.lab).jobs(self.project, user=user)

    def nodes(self) -> list[NodeStatus]:
        """How every node of the lab is."""
        return Lookout(self.lab).nodes()

    def results(self, **options: Any) -> pandas.DataFrame:
        """The results of the whole project as one tidy frame; options of `read_results`."""
        from ludwig.client.results import read_results

        frame: pandas.DataFrame = read_results(self.lab.drive, self.project, **options)
        return frame

    def close(self) -> None:
        """Give up connections, and what `local=True` has started."""
        self.lab.close()

    def __repr__(self) -> str:
        return f"<Client of {self.project} on {self.lab.drive.where}>"


def make_project(lab: Lab, project: str) -> None:
    """The project's folder. `NameNotAllowed` for one that differs from another by case alone."""
    if lab.drive.exists(project):
        return
    for name in lab.drive.list(""):
        if name.casefold() == project.casefold() and name != project:
            raise errors.NameNotAllowed(
                f"project name '{project}' differs from '{name}' on {lab.drive.where} by case "
                f"alone, which Windows shares cannot tell apart. Use '{name}', or another name."
            )
    lab.drive.make_folders(project)
