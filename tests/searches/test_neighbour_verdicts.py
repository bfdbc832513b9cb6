"""The verdicts over neighbours: what is lost, doubled, moved or strange is named; what cannot be fetched is no pass."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from penstock.testing.neighbours.harness import Record, judge_numbers


def records(*partitions: list[int]) -> list[Record]:
    return [
        Record(index, offset, "", str(number), 0, [])
        for index, numbers in enumerate(partitions)
        for offset, number in enumerate(numbers)
    ]


def test_what_is_as_it_should_be_has_no_problem() -> None:
    assert judge_numbers(records([0, 2, 4], [1, 3]), 5) == []


def test_every_kind_of_fault_is_named() -> None:
    assert judge_numbers(records([0, 2], [1, 3]), 5) == ["lost: 1, first 4"]
    assert judge_numbers(records([0, 2, 2, 4], [1, 3]), 5) == ["more than once: 1, first 2"]
    assert judge_numbers(records([0, 4, 2], [1, 3]), 5) == ["out of order: 1, first 2"]
    assert judge_numbers(records([0, 2, 4, 6], [1, 3]), 5) == ["never written: 1, first 6"]


def test_at_least_once_allows_again_but_neither_loss_nor_disorder() -> None:
    again = records([0, 2, 0, 2, 4], [1, 3])  # a batch repeated after a kill
    assert judge_numbers(again, 5, once=False) == []
    assert judge_numbers(records([2, 0, 2, 4], [1, 3]), 5, once=False) == ["out of order: 1, first 0"]
    assert judge_numbers(records([0, 2], [1, 1]), 5, once=False) == ["lost: 2, first 3"]


def test_a_package_that_cannot_be_fetched_is_said_and_is_no_pass(tmp_path: Path) -> None:
    environment = {**os.environ, "PENSTOCK_PEERS": str(tmp_path), "PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "penstock.testing.neighbours", "storm"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2, done.stderr[-2000:]
    assert done.stdout.startswith("storm: NOT PROVEN, it cannot be had here: no `mvn` on PATH")
