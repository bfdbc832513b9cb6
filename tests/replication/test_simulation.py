"""The cluster from one seed: 150 fixed seeds keep every invariant, runs repeat exactly, and broken rules are found.

A seed that once failed stays in REGRESSIONS with what it taught.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from penstock.cluster import changes, elections, eligible
from penstock.replication import following
from penstock.replication.partition import Partition
from penstock.testing.simulation.run import run_seed

FAULT_SECONDS = 5.0
CHUNKS = 15
SEEDS_PER_CHUNK = 10

REGRESSIONS = {
    20: "a follower whose disk was full never fetched again",
    74: "the same, with a leader change",
    12: "a registration whose answer was lost is taken for another broker's",
    46: "a watch that fired while its owner stood still was lost",
    196: "who died and came back must not count as one that never left",
    1022: "a deposed leader that wakes up may lack what its successors committed",
}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_fixed_seeds_keep_every_invariant(chunk: int) -> None:
    for seed in range(chunk * SEEDS_PER_CHUNK, (chunk + 1) * SEEDS_PER_CHUNK):
        outcome = run_seed(seed, FAULT_SECONDS)
        replay = f"python -m penstock.testing.simulation --seed {seed} --seconds {FAULT_SECONDS:g}"
        assert outcome.violation is None, f"{outcome.summary}\nreplay: {replay}"
        assert outcome.acknowledged > 0


def test_nothing_is_lost_while_the_min_isr_changes() -> None:
    changes_made = 0
    for seed in range(6):
        outcome = run_seed(seed, FAULT_SECONDS, min_isr_changes=True)
        assert outcome.violation is None, f"{outcome.summary}\nreplay: --seed {seed} --seconds 5 --min-isr-changes"
        changes_made += sum("sets min.insync.replicas" in line for line in outcome.trace)
    assert changes_made > 0


@pytest.mark.parametrize("seed", range(8))
def test_sessions_of_many_partitions_miss_no_news(seed: int) -> None:
    """Several partitions under one leader: most rest while one has news, and the full look beside finds nothing."""
    outcome = run_seed(seed, FAULT_SECONDS, partitions=7)
    assert outcome.violation is None, f"{outcome.summary}\nreplay: --seed {seed} --partitions 7"


@pytest.mark.parametrize("seed", REGRESSIONS)
def test_what_failed_once_stays_right(seed: int) -> None:
    outcome = run_seed(seed, 12.0)
    assert outcome.violation is None, f"{REGRESSIONS[seed]}: {outcome.summary}"


def test_a_seed_replays_exactly() -> None:
    assert run_seed(5, FAULT_SECONDS) == run_seed(5, FAULT_SECONDS)


def _commits_what_only_the_leader_has(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "_committed_end_offset", lambda self, end_offset: end_offset)


def _counts_before_it_is_recorded(patch: pytest.MonkeyPatch) -> None:
    original = Partition._propose

    def propose(self: Partition, isr: tuple[int, ...], joining: tuple[int, ...]) -> None:
        original(self, isr, joining)
        self.isr = isr  # counts before the controller has recorded it

    patch.setattr(Partition, "_propose", propose)


def _follows_without_truncating(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(following, "truncate_diverged", lambda partition, epoch, end: None)


def _elects_anybody(patch: pytest.MonkeyPatch) -> None:
    original = elections.elect

    def elect(changes: object, partition: object, *, unclean: bool) -> object:
        return original(changes, partition, unclean=True)  # type: ignore[arg-type]

    patch.setattr(elections, "elect", elect)


def _trusts_without_proof(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(eligible, "kept_its_logs", lambda broker, epoch: True)


def _calls_everybody_eligible(patch: pytest.MonkeyPatch) -> None:
    original = eligible.remember_eligible

    def remember(now: Any, wanted: Any, min_isr: int, epochs: Any) -> Any:
        right = original(now, wanted, min_isr, epochs)
        if now is None or len(right.isr) < min_isr:
            return right
        left = {r: epochs.get(r, -1) for r in now.isr if r not in right.isr and r in right.replicas}
        return replace(right, eligible=tuple(left), eligible_epochs=tuple(left.values()))

    patch.setattr(changes, "remember_eligible", remember)


@pytest.mark.parametrize(
    ("break_a_rule", "found_by"),
    [
        (_trusts_without_proof, (49, 57, 82)),
        (_calls_everybody_eligible, (56, 63, 88)),
        (_commits_what_only_the_leader_has, (3, 8)),
        (_counts_before_it_is_recorded, (23, 36)),
        (_follows_without_truncating, (5, 8)),
        (_elects_anybody, (21, 47)),
    ],
)
def test_a_broken_rule_is_found(
    break_a_rule: Callable[[pytest.MonkeyPatch], None], found_by: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`found_by` are seeds that found it once; others follow, for the day when a change has moved what seeds do."""
    break_a_rule(monkeypatch)
    assert any(run_seed(seed, 12.0).violation for seed in (*found_by, *range(100))), "the simulation is blind to this"
