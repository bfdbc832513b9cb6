"""The cluster from one seed, on the real log: appends, truncations and recoveries over files that lose unsynced pages.

Beside the invariants of the simulation: a kill leaves exactly what was written, a power loss all that was synced.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.log import maintenance, recovery
from penstock.log.leader_epochs import LeaderEpochs
from penstock.testing.simulation.run import run_seed

FAULT_SECONDS = 5.0


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("chunk", range(5))
def test_fixed_seeds_keep_every_invariant_on_the_real_log(chunk: int) -> None:
    for seed in range(chunk * 6, chunk * 6 + 6):
        outcome = run_seed(seed, FAULT_SECONDS, min_isr_changes=bool(seed % 2), real_logs=True)
        replay = f"--seed {seed} --seconds 5 --real-logs{' --min-isr-changes' if seed % 2 else ''}"
        assert outcome.violation is None, f"{outcome.summary}\nreplay: {replay}"
        assert outcome.acknowledged > 0


def test_a_seed_on_real_files_replays_exactly() -> None:
    assert run_seed(15, FAULT_SECONDS, real_logs=True) == run_seed(15, FAULT_SECONDS, real_logs=True)


def _says_synced_and_is_not(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(maintenance, "fsync_path", lambda path: None)


def _keeps_the_epochs_of_what_was_cut(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LeaderEpochs, "truncate_from_end", lambda self, offset: None)


def _loads_one_batch_less(patch: pytest.MonkeyPatch) -> None:
    original = recovery._sound_batches

    def sound(segment: Any) -> Iterator[Any]:
        yield from list(original(segment))[:-1]

    patch.setattr(recovery, "_sound_batches", sound)


@pytest.mark.parametrize(
    ("break_a_rule", "found_by"),
    [(_says_synced_and_is_not, 9), (_keeps_the_epochs_of_what_was_cut, 8), (_loads_one_batch_less, 5)],
)
def test_a_broken_rule_of_the_log_is_found(
    break_a_rule: Callable[[pytest.MonkeyPatch], None], found_by: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_a_rule(monkeypatch)
    found = (run_seed(seed, FAULT_SECONDS, real_logs=True).violation for seed in (found_by, *range(60)))
    assert any(found), "the simulation is blind to this"
