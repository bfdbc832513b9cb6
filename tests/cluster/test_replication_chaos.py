"""Three minutes of chaos on real processes; `make prove-chaos` runs thirty."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cluster.zookeeper_process import ZooKeeperUnavailable, find_jars, find_java
from penstock.testing.chaos.checker import History

MINUTES = float(os.environ.get("PENSTOCK_CHAOS_MINUTES", "3"))


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(MINUTES * 60 + 600)
def test_nothing_is_lost_doubled_or_reordered_in_chaos(tmp_path: Path) -> None:
    try:
        find_java()
        find_jars()
    except ZooKeeperUnavailable as reason:
        pytest.skip(str(reason))
    command = [sys.executable, "-m", "penstock.testing.chaos", "--minutes", str(MINUTES), "--seed", "7"]
    run = subprocess.run([*command, "--folder", str(tmp_path)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, f"{run.stdout}\n{run.stderr[-4000:]}"
    assert "GOOD" in run.stdout


def history_of(*values: str) -> History:
    history = History()
    for offset, value in enumerate(values):
        history.send(value)
        history.acknowledge(value, 0, offset, 0.0)
    return history


def test_the_checker_is_content_with_what_is_right() -> None:
    history = history_of("p/0", "p/1")
    history.see(0, 0, "p/0")
    assert history.judge({0: [(0, "p/0"), (1, "p/1")]}).good


def test_the_checker_needs_no_offset_to_know_that_a_record_is_there() -> None:
    history = history_of("p/0")
    history.send("p/1")
    history.acknowledge("p/1", 0, None, 0.0)
    assert history.judge({0: [(0, "p/0"), (1, "p/1")]}).good
    assert history.judge({0: [(0, "p/0")]}).lost


def test_the_checker_finds_each_kind_of_fault() -> None:
    assert history_of("p/0", "p/1").judge({0: [(0, "p/0")]}).lost
    assert history_of("p/0").judge({0: [(0, "p/0"), (1, "p/0")]}).duplicate
    assert history_of("p/0", "p/1").judge({0: [(0, "p/1"), (1, "p/0")]}).reordered
    assert history_of("p/0").judge({0: [(0, "p/0"), (1, "p/9")]}).phantom
    assert history_of("p/0").judge({0: [(4, "p/0")]}).phantom
    aborted = history_of()
    aborted.send("txn1/0")
    aborted.end(["txn1/0"], committed=False)
    assert aborted.judge({0: [(0, "txn1/0")]}).aborted
    committed = history_of("txn1/0")
    committed.end(["txn1/0"], committed=True)
    assert committed.judge({0: []}).lost


def test_the_checker_finds_a_record_that_changed_under_a_reader() -> None:
    history = history_of("p/0", "p/1")
    history.see(0, 0, "p/0")
    history.see(0, 0, "p/1")
    assert history.judge({0: [(0, "p/0"), (1, "p/1")]}).phantom
    vanished = history_of()
    vanished.send("p/5")
    vanished.see(0, 3, "p/5")
    assert vanished.judge({0: []}).lost
