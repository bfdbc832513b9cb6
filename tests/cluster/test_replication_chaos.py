"""Three minutes of chaos on real processes; `make prove-chaos` runs thirty."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cluster.zookeeper_process import SYNC_MS, ZooKeeperUnavailable, find_jars, find_java
from penstock.protocol.batch import build_batch
from penstock.protocol.records import new_record
from penstock.testing.chaos import cut_story
from penstock.testing.chaos.checker import History
from penstock.testing.chaos.damage import Damage, able_brokers
from penstock.testing.chaos.disk_faults import spoil, synced_bytes
from penstock.testing.chaos.silences import GRACE_SECONDS, Incident, bound_seconds, find_silences

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
    # How long a cluster may be silent is judged by `make prove-chaos`, where nobody else uses the machine.
    command += ["--right-is-enough", "--folder", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, f"{run.stdout}\n{run.stderr[-4000:]}"
    assert "lost: 0" in run.stdout


@pytest.mark.cluster
@pytest.mark.slow
def test_a_leader_cut_from_the_controller_alone_does_not_silence_its_partition() -> None:
    """Real network cuts: both keep ZooKeeper, so that nobody's session ends."""
    try:
        find_java()
        find_jars()
    except ZooKeeperUnavailable as reason:
        pytest.skip(str(reason))
    command = [sys.executable, "-m", "penstock.testing.chaos.cut_story", "both"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode == cut_story.SKIPPED:
        pytest.skip(run.stdout)
    assert run.returncode == 0, f"{run.stdout}\n{run.stderr[-4000:]}"
    assert "in sync again" in run.stdout


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
    longest, shortest = find_silences({0: [0.0, 1.0, 11.0, 13.0, 15.0, 17.0, 19.0, 45.0, 46.0]}, incidents, min_live=2)
    assert (longest.began, longest.ended) == (19.0, 45.0) and longest.cause == "isolate +21.0 s"
    assert (shortest.began, shortest.ended) == (1.0, 11.0) and shortest.cause == "kill +9.0 s"


def test_a_silence_without_a_fault_names_the_last_one() -> None:
    (silence,) = find_silences({0: [20.0, 60.0]}, [Incident("kill", 5.0, 14.0, 2)], min_live=2, began=5.0)
    assert silence.cause == "nothing; last kill, over 6.0 s before"
    assert (silence.began, silence.judged_seconds) == (15.0, 40.0)


def test_what_nobody_could_have_answered_is_not_judged() -> None:
    two_gone = Incident("kill two", 12.0, 40.0, 1)
    (silence,) = find_silences({0: [10.0, 50.0]}, [two_gone], min_live=2)
    assert (silence.seconds, silence.judged_seconds) == (40.0, 10.0)
    (busy,) = find_silences({0: [10.0, 50.0]}, [Incident("kill", 12.0, 49.0, 2, is_busy=True)], min_live=2)
    assert busy.judged_seconds == 2.0


def test_a_silent_partition_is_heard_beside_others_that_answer() -> None:
    times = {0: [10.0, 30.0], 1: [float(second) for second in range(60)], 2: [12.0, 28.0]}
    (silence,) = find_silences(times, [Incident("cut", 9.0, 29.0, 2)], min_live=2)
    assert (silence.partitions, silence.began, silence.ended) == ((0, 2), 10.0, 30.0), "they have one cause"


def test_the_bound_is_the_slowest_way_to_notice_a_fault() -> None:
    assert bound_seconds(4000, 9000, 5000) == 14.0
    assert bound_seconds(4000, 3000, 10_000) == 20.0


def test_zookeeper_finds_its_next_leader_within_the_grace_of_the_bound() -> None:
    """No session ends before it has one, and then each of them has its whole time-out before it."""
    assert SYNC_MS / 1000 < GRACE_SECONDS


def whole() -> None:
    """Nothing to heal."""


def test_who_can_work_together_while_something_is_broken() -> None:
    hosts = (1, 2, 3)
    assert able_brokers(hosts, []) == 3
    assert able_brokers(hosts, [Damage(whole, brokers=frozenset({1}))]) == 2
    cut = Damage(whole, cuts=frozenset({frozenset({1, 2})}))
    assert able_brokers(hosts, [cut]) == 2
    assert able_brokers(hosts, [cut, Damage(whole, brokers=frozenset({3}))]) == 1, "1 and 2 live, each alone"
    lost_majority = [Damage(whole, zookeepers=frozenset({number})) for number in (1, 2)]
    assert able_brokers(hosts, lost_majority) == 0, "nothing can be recorded"


def test_a_power_loss_touches_only_what_was_not_synced(tmp_path: Path) -> None:
    batches = [build_batch([new_record(None, str(n).encode(), 0)], base_offset=n) for n in range(5)]
    segment = tmp_path / "00000000000000000000.log"
    whole_log = b"".join(batches)
    synced = sum(len(batch) for batch in batches[:3])
    for seed in range(30):
        segment.write_bytes(whole_log)
        assert synced_bytes(segment, 3) == synced
        spoiled = spoil(segment, synced, random.Random(seed))
        assert segment.read_bytes()[:synced] == whole_log[:synced]
        assert (segment.read_bytes() != whole_log) == spoiled
    segment.write_bytes(whole_log)
    assert not spoil(segment, synced_bytes(segment, 5), random.Random(1)), "all of it was synced"
