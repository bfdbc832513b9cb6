"""The examples of delivery semantics run as a user runs them, each with its crash, and say what they promise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("at_most_once", "lost 3, more than once 0"),
        ("at_least_once", "lost 0, more than once 2"),
        ("exactly_once", "lost 0, more than once 0"),
        ("queue_vs_pubsub", "the groups got 40 and 40 of 40 records"),
    ],
)
def test_an_example_shows_its_outcome(name: str, says: str) -> None:
    done = subprocess.run([sys.executable, EXAMPLES / f"{name}.py"], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert says in done.stdout
