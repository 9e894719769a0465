"""From what a user asks for to the list of tasks: grids, checks, shares and names. Pure.

Time and randomness are passed in; nothing here touches a drive.
"""

from __future__ import annotations

import itertools
import pickle
import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ludwig import codec, errors, layout
from ludwig.model import Chunk, Run, Task
from ludwig.sweep import expand

__all__ = ["Configuration", "check_params", "chunks", "grid", "shares"]

Params = dict[str, Any]

PICKLE_PROTOCOL = 4
"""Readable by every Python that a job may run under."""


class Configuration(NamedTuple):
    """One param2val, checked, with the hash by which it is known."""

    params: Params
    hash: str


def grid(**values: Any) -> list[Params]:
    """Every combination of the parameters that are lists; the others stay as they are.

    >>> grid(lr=[0.1, 0.2], hidden=64)
    [{'lr': 0.1, 'hidden': 64}, {'lr': 0.2, 'hidden': 64}]
    """
    axes = {name: value if isinstance(value, list) else [value] for name, value in values.items()}
    for name, axis in axes.items():
        if not axis:
            raise errors.ParameterError(f"{name}=[] leaves nothing to run: give it a value.")
    return expand(axes, values)


def check_params(param2val_list: Sequence[Mapping[str, Any]]) -> list[Configuration]:
    """The configurations of a sweep, each once, in the order given. `ParameterError` names the
    first that cannot be sent."""
    if isinstance(param2val_list, Mapping) or not isinstance(param2val_list, Sequence):
        raise errors.ParameterError("param2val_list must be a list of dicts, one for each task.")
    if not param2val_list:
        raise errors.ParameterError("param2val_list is empty: there is nothing to run.")
    found: dict[str, Configuration] = {}
    for index, params in enumerate(param2val_list):
        one = _check_one(params, f"param2val_list[{index}]")
        found.setdefault(one.hash, one)
    return list(found.values())


def _check_one(params: Mapping[str, Any], where: str) -> Configuration:
    if not isinstance(params, Mapping):
        raise errors.ParameterError(f"{where} is a {type(params).__name__}; it must be a dict.")
    checked: Params = {}
    for key, value in params.items():
        if not isinstance(key, str) or not key or key.startswith("!"):
            raise errors.ParameterError(f"{where}: {key!r} is no parameter's name; use a word.")
        if key in codec.RESERVED:
            if value is None:
                continue  # LudwigCluster's own helpers put them there, to be filled in
            raise errors.ParameterError(
                f"{where}: {key!r} is given by Ludwig to every task. Use another name."
            )
        checked[key] = codec.from_plain(codec.to_plain(value, where=f"{where}[{key!r}]"))
    return Configuration(checked, codec.params_hash(checked))


def shares(count: int, weights: Mapping[str, int]) -> dict[str, int]:
    """How many of `count` tasks each host gets, by its weight; they add up to `count`."""
    total = sum(weights.values())
    exact = {host: count * weight / total for host, weight in weights.items()}
    given = {host: int(share) for host, share in exact.items()}
    by_remainder = sorted(weights, key=lambda host: (given[host] - exact[host], host))
    for host in by_remainder[: count - sum(given.values())]:
        given[host] += 1
    return given


def chunks(
    named: Mapping[str, Params],
    needed: Mapping[str, int],
    *,
    weights: Mapping[str, int],
    stamp: str,
    per: str,
    random: random.Random,
) -> tuple[dict[str, Chunk], dict[str, bytes]]:
    """The tasks of a job, dealt out to the hosts in random order, and each host's chunk as bytes.

    `named` are the configurations by param_name, `needed` how many replications of each. Random, so
    that expensive configurations do not all end up on one node.
    """
    deck = [name for name, count in needed.items() for _ in range(count)]
    random.shuffle(deck)
    records: dict[str, Chunk] = {}
    payloads: dict[str, bytes] = {}
    number = itertools.count()
    task_number = itertools.count(1)
    position = 0
    for host, share in shares(len(deck), weights).items():
        hand = deck[position : position + share]
        position += share
        runs = [Run(name, f"{stamp}_{_plain_host(host)}_num{next(number)}") for name in hand]
        groups = [runs] if per == "chunk" and runs else [[run] for run in runs]
        data = bytearray()
        tasks = []
        for group in groups:
            payload = _pickle(group, named)
            tasks.append(
                Task(
                    next(task_number),
                    len(data),
                    len(payload),
                    codec.sha256(payload),
                    tuple(group),
                )
            )
            data += payload
        records[layout.check_host(host)] = Chunk(tasks=tuple(tasks))
        if tasks:
            payloads[host] = bytes(data)
    return records, payloads


def _plain_host(host: str) -> str:
    """job_name is split at '_' by people's scripts."""
    return host.replace("_", "-")


def _pickle(runs: Sequence[Run], named: Mapping[str, Params]) -> bytes:
    dicts = [
        {**named[run.param_name], "param_name": run.param_name, "job_name": run.job_name}
        for run in runs
    ]
    return pickle.dumps(dicts, protocol=PICKLE_PROTOCOL)
