"""How much a node claims early: more the shorter its tasks are, and nothing that others miss."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from ludwig import job_records
from ludwig.drives.folder import FolderDrive
from ludwig.model import Claim, Ticket
from ludwig.nodes import Observer
from ludwig.view import JobView
from ludwig.worker.appetite import EARLY_MAX, TOO_EARLY_S, Appetite
from ludwig.worker.bench import Bench
from ludwig.worker.held import Held, OpenJob, Phase
from ludwig.worker.machine import Machine
from tests.simsubmit import job_record

SLOTS = 2


class Node:
    """Two slots, both in use, and a job of some tasks."""

    def __init__(self, folder: Path, *, hosts: tuple[str, ...] = ("hoff",), tasks: int = 100):
        drive = FolderDrive(folder)
        job, chunks, params = job_record(
            "trees",
            1,
            {"param_001": {"lr": 1}},
            {"param_001": tasks},
            hosts=hosts,
            in_turn=False,
            nonce="12345678",
            stamp="2026-11-18-10-00-00",
        )
        job_records.publish_job(drive, job, chunks, params)
        self.opened = OpenJob(
            job=job,
            ticket=Ticket(project="trees", job=1, sha256="0" * 64),
            view=JobView(drive, job),
            params={},
            source=folder,
            user="ana",
            order=1,
        )
        self.bench = Bench(lambda path: None)
        self.room = 0
        self.suspicious = False
        machine = SimpleNamespace(
            may_claim=lambda job, others_fine: True,
            suspects=lambda job: self.suspicious,
            room=lambda wanted: self.room,
            slots=lambda wanted: SLOTS,
            needs=lambda wanted: 0,
        )
        self.appetite = Appetite(
            "hoff",
            machine=cast(Machine, machine),
            bench=self.bench,
            observer=Observer(drive, silent_s=60),
        )
        for _ in range(SLOTS):
            self.hold("running")

    def hold(self, phase: Phase, *, early: bool = False, ago: float = 0.0) -> Held:
        task = self.opened.shares.of("hoff").first()
        assert task is not None
        self.opened.view.note_claim(task, 1)
        then = time.monotonic() - ago
        held = Held(
            open_job=self.opened,
            task=self.opened.tasks[task][1],
            attempt=1,
            claim=Claim(host="hoff", boot="b", beat=1, nonce="12345678"),
            folder=Path(),
            phase=phase,
            claimed_at=then,
            started_at=then,
            early=early,
        )
        self.bench.add(held)
        return held

    def fill(self) -> list[int]:
        """Claim as the foreman does; how many at a time."""
        batches = []
        while self.appetite.wants_more(self.opened):
            many = self.appetite.how_many(self.opened)
            for _ in range(many):
                self.hold("waiting")
            batches.append(many)
        return batches


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_one_for_each_slot_until_it_is_known_that_tasks_are_short(node: Node) -> None:
    assert node.fill() == [1, 1]


def test_what_would_be_claimed_anyway_is_not_early(node: Node) -> None:
    node.opened.pace = 0.01
    assert not node.appetite.has_enough(node.opened)
    for _ in range(SLOTS):
        node.hold("waiting")
    assert node.appetite.has_enough(node.opened)
    node.room = SLOTS + 1
    assert not node.appetite.has_enough(node.opened), "they can start now"


def test_short_tasks_are_claimed_some_at_a_time(node: Node) -> None:
    node.opened.pace = 0.02
    assert node.fill() == [SLOTS * EARLY_MAX]
    waiting = node.bench.waiting()
    for held in waiting[: SLOTS * EARLY_MAX // 2]:
        assert node.fill() == [], "half of them may start before more are claimed"
        node.bench.drop(held, keep=True)
    assert node.fill() == []
    node.bench.drop(waiting[-1], keep=True)
    assert node.fill() == [SLOTS * EARLY_MAX // 2 + 1]


def test_no_more_than_a_quarter_of_a_second_of_work_waits(node: Node) -> None:
    node.opened.pace = 0.1
    assert sum(node.fill()) == SLOTS * 2


def test_one_long_task_counts_for_many_short_ones(node: Node) -> None:
    node.opened.pace = 0.0
    node.opened.ended_after(10.0)
    for _ in range(10):
        node.opened.ended_after(0.01)
    assert node.fill() == [1, 1]
    for _ in range(20):
        node.opened.ended_after(0.01)
    assert node.opened.pace < 0.1


def test_what_runs_long_counts_before_it_has_ended(node: Node) -> None:
    node.opened.pace = 0.01
    node.bench.drop(node.bench.running()[0], keep=True)
    node.hold("running", ago=5.0)
    assert node.fill() == [1, 1]


def test_little_is_left_to_everybody(tmp_path: Path) -> None:
    node = Node(tmp_path, tasks=SLOTS + 2 * SLOTS + 3)
    node.opened.pace = 0.01
    assert sum(node.fill()) == 3


def test_nothing_is_claimed_early_of_what_is_suspicious_or_not_ours(tmp_path: Path) -> None:
    node = Node(tmp_path, hosts=("hoff", "hebb"))
    node.opened.pace = 0.01
    node.suspicious = True
    assert node.appetite.how_many(node.opened) == 1
    node.suspicious = False
    assert node.appetite.how_many(node.opened) > 1
    for task in node.opened.job.chunks["hoff"].numbers:
        node.opened.view.note_claim(task, 1)
    node.opened.helping = "hebb"
    assert node.appetite.how_many(node.opened) == 1


def test_what_was_claimed_early_goes_back_when_something_runs_long(tmp_path: Path) -> None:
    node = Node(tmp_path, hosts=("hoff", "hebb"))
    node.opened.pace = 0.01
    for _ in range(SLOTS):
        node.hold("waiting", early=True, ago=2 * TOO_EARLY_S)
    beyond = node.hold("waiting", early=True, ago=2 * TOO_EARLY_S)
    usual = node.hold("waiting", ago=2 * TOO_EARLY_S)
    recent = node.hold("waiting", early=True)

    def go_back() -> list[Held]:
        now = time.monotonic()
        return [held for held in node.bench.waiting() if node.appetite.was_too_early(held, now)]

    assert go_back() == [], "what runs has just begun"
    node.hold("running", ago=2 * TOO_EARLY_S)
    assert go_back() == [beyond], "one may wait for each slot, as ever"
    node.bench.drop(beyond, keep=True)
    assert go_back() == []
    recent.claimed_at -= 2 * TOO_EARLY_S
    assert go_back() == [recent]
    assert usual in node.bench.waiting()


def test_a_node_that_is_alone_keeps_what_it_claimed(node: Node) -> None:
    for _ in range(2 * SLOTS):
        node.hold("waiting", early=True, ago=2 * TOO_EARLY_S)
    node.hold("running", ago=2 * TOO_EARLY_S)
    now = time.monotonic()
    assert not any(node.appetite.was_too_early(held, now) for held in node.bench.waiting())
