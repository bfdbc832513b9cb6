"""Three minutes of chaos on real processes; `make prove-chaos` runs thirty."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cluster.zookeeper_process import ZooKeeperUnavailable, find_jars, find_java
from penstock.testing.chaos.checker import History
from penstock.testing.chaos.silences import Incident, bound_seconds, find_silences

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


def test_a_silence_is_told_beside_its_fault() -> None:
    incidents = [Incident("kill", 10.0, 14.0, 2), Incident("isolate", 40.0, 50.0, 2)]
    longest, shortest = find_silences([0.0, 1.0, 11.0, 13.0, 15.0, 17.0, 19.0, 45.0, 46.0], incidents, min_live=2)
    assert (longest.began, longest.ended) == (19.0, 45.0) and longest.cause == "isolate +21.0 s"
    assert (shortest.began, shortest.ended) == (1.0, 11.0) and shortest.cause == "kill +9.0 s"


def test_a_silence_without_a_fault_names_the_last_one() -> None:
    (silence,) = find_silences([20.0, 60.0], [Incident("kill", 5.0, 14.0, 2)], min_live=2, began=5.0)
    assert silence.cause == "nothing; last kill, over 6.0 s before"
    assert (silence.began, silence.judged_seconds) == (15.0, 40.0)


def test_what_nobody_could_have_answered_is_not_judged() -> None:
    two_gone = Incident("kill two", 12.0, 40.0, 1)
    (silence,) = find_silences([10.0, 50.0], [two_gone], min_live=2)
    assert (silence.seconds, silence.judged_seconds) == (40.0, 10.0)
    (busy,) = find_silences([10.0, 50.0], [Incident("kill", 12.0, 49.0, 2, is_busy=True)], min_live=2)
    assert busy.judged_seconds == 2.0


def test_the_bound_is_the_slowest_way_to_notice_a_fault() -> None:
    assert bound_seconds(4000, 9000, 5000) == 14.0
    assert bound_seconds(4000, 3000, 10_000) == 20.0
