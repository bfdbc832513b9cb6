"""The cluster from one seed, with coordinators: groups of both protocols and transactions of both versions live through
cuts, fail-overs and power losses.

Every request of a living broker is answered; no partition has two owners under valid leases, in peace every one has its
owner; an acknowledged offset stays; a transaction is all or nothing, and none stays open.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.broker.produce import transactional
from penstock.broker.transaction_links import TransactionLinks
from penstock.coordinator import loader
from penstock.coordinator.answers import Answers
from penstock.coordinator.group import commands, consumer_target
from penstock.coordinator.group.reconcile import reconcile
from penstock.coordinator.group.shard import GroupShard
from penstock.coordinator.runtime import Write
from penstock.protocol.errors import ErrorCode
from penstock.testing.simulation.run import run_seed

FAULT_SECONDS = 5.0


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("chunk", range(3))
def test_fixed_seeds_keep_every_promise_of_the_coordinators(chunk: int) -> None:
    for seed in range(chunk * 3, chunk * 3 + 3):
        outcome = run_seed(seed, FAULT_SECONDS, coordinators=True)
        assert outcome.violation is None, f"{outcome.summary}\nreplay: --coordinators --seed {seed} --seconds 5"
        assert outcome.coordinated


def test_a_seed_with_coordinators_replays_exactly() -> None:
    assert run_seed(1, 2.0, coordinators=True) == run_seed(1, 2.0, coordinators=True)


def _answers_before_it_is_committed(patch: pytest.MonkeyPatch) -> None:
    def park(self: Any, shard: Any, last_offset: int, write: Write, done: Any) -> None:
        self.succeed(write, done)

    patch.setattr(Answers, "park", park)


def _verifies_nothing(patch: pytest.MonkeyPatch) -> None:
    async def ask(link: Any, name: str, pid: int, epoch: int, start: Any, ability: Any, enabled: bool) -> Any:
        return {key: (ErrorCode.NONE, guard) for key, guard in start().items()}

    patch.setattr(transactional, "ask_coordinator", ask)


def _takes_over_without_a_word(patch: pytest.MonkeyPatch) -> None:
    async def fence(*arguments: Any) -> bool:
        return True

    patch.setattr(TransactionLinks, "fence", fence)


def _gives_away_what_others_hold(patch: pytest.MonkeyPatch) -> None:
    def careless(member: Any, epoch: int, target: Any, owners: Any, owned: Any, subscribed: Any) -> Any:
        return reconcile(member, epoch, target, {}, owned, subscribed)

    patch.setattr(consumer_target, "reconcile", careless)


def _commits_for_anybody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(commands, "_check_commit", lambda *arguments: ErrorCode.NONE)


def _loads_without_markers(patch: pytest.MonkeyPatch) -> None:
    original = loader._replay_batch

    def replay(machine: Any, data: bytes, header: Any) -> Iterator[int]:
        if header.is_control:
            yield 0
        else:
            yield from original(machine, data, header)

    patch.setattr(loader, "_replay_batch", replay)


def _loads_the_first_part_only(patch: pytest.MonkeyPatch) -> None:
    original = GroupShard.replay_rows

    def rows(self: Any, found: Any, base_offset: int, producer: Any) -> None:
        if base_offset < 20:
            original(self, found, base_offset, producer)

    patch.setattr(GroupShard, "replay_rows", rows)


@pytest.mark.parametrize(
    ("break_a_rule", "found_by"),
    [
        (_answers_before_it_is_committed, 0),
        (_verifies_nothing, 0),
        (_takes_over_without_a_word, 0),
        (_gives_away_what_others_hold, 3),
        (_commits_for_anybody, 0),
        (_loads_without_markers, 0),
        (_loads_the_first_part_only, 0),
    ],
)
def test_a_broken_rule_of_a_coordinator_is_found(
    break_a_rule: Callable[[pytest.MonkeyPatch], None], found_by: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_a_rule(monkeypatch)
    found = (run_seed(seed, FAULT_SECONDS, coordinators=True).violation for seed in (found_by, *range(40)))
    assert any(found), "the simulation is blind to this"
