"""Every disk call fails once: at every place of the log, of the compaction process and of the store."""

from __future__ import annotations

import pytest

from penstock.testing.disk import cleaning, faults, store
from penstock.testing.disk.__main__ import attempt


def _try(*plans: object) -> None:
    for plan in plans:
        try:
            attempt(str(plan))
        except Exception as error:
            pytest.fail(f"python -m penstock.testing.disk '{plan}' reproduces: {type(error).__name__}: {error}")


def test_a_fault_at_every_place_breaks_no_promise(on_a_quick_disk: None) -> None:
    """Each place × each error, once and lasting, at its first, middle and last call."""
    _try(*faults.plans(every_call=False))


def test_a_compaction_that_meets_a_fault_takes_nothing_away(on_a_quick_disk: None) -> None:
    """In the process itself; every call of it is part of `make prove-disk`."""
    places = {plan.fault.site: plan for plan in cleaning.plans(every_call=False) if plan.fault.error == "ENOSPC"}
    _try(*places.values())


def test_a_store_whose_statements_are_refused_keeps_its_word(on_a_quick_disk: None) -> None:
    _try(*(plan for number, plan in enumerate(store.plans()) if number % 3 == 0))


def test_a_store_without_room_goes_on_when_there_is_some() -> None:
    with store.small_disk() as folder:
        if folder is None:
            pytest.skip("it takes root to mount a small file system")
        told, refused = store.fill_small_disk(folder)
    assert told and refused
