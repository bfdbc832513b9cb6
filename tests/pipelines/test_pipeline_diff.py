"""What would change: the spec as plain data, and what a checkpoint would lose."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.pipelines.checkpoint import PipelineState
from penstock.pipelines.difference import Change, QueryChange, spec_changes, state_changes
from penstock.pipelines.execution import Execution, Place
from penstock.pipelines.spec import from_data
from penstock.pipelines.storage import LocalStorage

TOTALS = {
    "version": 2,
    "sources": ["penstock orders"],
    "stateful": ["Aggregate by country of sum(amount)"],
    "operators": [],
    "sinks": ["out"],
    "mode": "update",
}


def test_entries_that_come_go_or_change_are_named_by_their_place() -> None:
    old = {"name": "p", "sinks": {"out": {"options": {"key": ["id"]}}, "gone": {"connector": "files"}}, "alerts": []}
    new = {"name": "p", "sinks": {"out": {"options": {"key": ["id", "n"]}}}, "trigger": "1 second"}
    assert spec_changes(old, new) == [
        Change("sinks.out.options.key", '["id"]', '["id", "n"]'),
        Change("sinks.gone.connector", "files", ""),
        Change("trigger", "", "1 second"),
    ]
    assert spec_changes(new, new) == []


def test_the_state_that_a_checkpoint_would_lose_is_named(tmp_path: Path) -> None:
    state = PipelineState(LocalStorage(str(tmp_path)), "p")
    assert state_changes(state, {"out": TOTALS}) == [QueryChange("out", True, "has not run yet")]
    assert list(tmp_path.iterdir()) == []
    state.open("out", TOTALS)
    assert state_changes(state, {"out": TOTALS}) == [QueryChange("out", True, "")]
    lost = ("offsets of penstock orders", "Aggregate by country of sum(amount)")
    by_city = {**TOTALS, "stateful": ["Aggregate by city of max(amount)"]}
    assert state_changes(state, {"out": by_city}) == [
        QueryChange(
            "out", False, "its stateful operations have changed (was Aggregate by country of sum(amount); would be"
            " Aggregate by city of max(amount))", lost,
        )
    ]  # fmt: skip
    assert state_changes(state, {"other": TOTALS}) == [
        QueryChange("other", False, "begins where its sources say"),
        QueryChange("out", False, "is no longer there: what it has read is forgotten", lost),
    ]


@pytest.mark.spark
def test_a_changed_window_is_seen_before_it_is_applied(
    spark: Any, broker: Any, tmp_path: Path, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=1, label="orders")
    place = Place({"bootstrap.servers": broker.bootstrap}, str(tmp_path / "state"))
    name = f"totals-{uuid.uuid4().hex[:6]}"

    def totals(by: str) -> Any:
        schema = "country STRING, city STRING, amount DOUBLE"
        source = {"topic": topic, "format": {"type": "json", "schema": schema}, "on_bad_record": "drop"}
        return from_data(
            {
                "name": name,
                "sources": {"orders": {"connector": "topic", "options": source}},
                "views": {"totals": {"sql": f"SELECT {by}, sum(amount) AS total FROM orders GROUP BY {by}"}},
                "sinks": {"out": {"from": "totals", "connector": "console", "output_mode": "update"}},
            }
        )

    Execution.prepare(totals("country"), spark, place)  # leaves a checkpoint
    state = place.state_of(totals("city"))
    same = Execution(totals("country"), spark, place, keep=False).fingerprints()
    assert [item.fits for item in state_changes(state, same)] == [True]
    changed = Execution(totals("city"), spark, place, keep=False).fingerprints()
    (found,) = state_changes(state, changed)
    assert not found.fits and any("by country" in item for item in found.lost)
