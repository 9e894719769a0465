"""The part of a submission that makes a job exist: deal out the tasks, write them, publish."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ludwig import codec, errors, job_records, registry
from ludwig.client import sweep
from ludwig.client.lab import Lab
from ludwig.client.nodes_choice import weights
from ludwig.client.submission import Submission
from ludwig.model import Contract, Job, Origin

__all__ = ["Code", "publish"]


@dataclass(frozen=True)
class Code:
    """What a job runs."""

    sha256: str
    entry: str
    package: str
    contract: Contract


def publish(
    lab: Lab,
    project: str,
    number: int,
    submission: Submission,
    code: Code,
    *,
    named: Mapping[str, dict[str, Any]],
    needed: Mapping[str, int],
    origin: Origin,
    hosts: Sequence[str],
    nonce: str,
    retry_of: int | None = None,
) -> tuple[Job, bytes]:
    stamp = registry.reserve_stamp(lab.drive, project, datetime.now(), nonce)
    chunks, payloads = sweep.chunks(
        named,
        needed,
        weights=weights(lab, hosts, submission.gpus),
        stamp=stamp,
        per=submission.per,
        random=random.Random(nonce),  # noqa: S311 – a shuffle
    )
    params = codec.encode_params(named)
    job = Job(
        project=project,
        job=number,
        nonce=nonce,
        stamp=stamp,
        contract=code.contract,
        entry=code.entry,
        package=code.package,
        source=code.sha256,
        params_sha256=codec.sha256(params),
        chunks=chunks,
        per="chunk" if submission.per == "chunk" else "task",
        retries=submission.retries,
        gpus=submission.gpus,
        python=submission.python,
        balance=submission.balance,
        env_names=tuple(sorted(submission.env)),
        origin=origin,
        retry_of=retry_of,
    )
    try:
        return job, job_records.publish_job(lab.drive, job, payloads, params)
    except errors.Exists as error:
        raise errors.SubmitError(
            f"job {number} took so long to submit that somebody else's submission gave it up. "
            "Nothing was started: submit again."
        ) from error
