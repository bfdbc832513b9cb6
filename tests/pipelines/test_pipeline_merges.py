"""A topic with tombstones into tables that merge, through Spark: the shipped examples, and a run after the first."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from penstock.pipelines.execution import Execution, Place, run
from penstock.pipelines.load import load
from penstock.pipelines.spec import PipelineSpec, SpecError, from_data

EXAMPLES = Path(__file__).parents[2] / "examples" / "pipelines"
NAMES = ("topic-to-sql", "topic-to-delta-merge", "topic-to-iceberg")
pytestmark = pytest.mark.spark


@pytest.fixture
def place(broker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("EXAMPLE_SQL", f"sqlite:///{tmp_path}/orders.db")
    monkeypatch.setenv("EXAMPLE_FOLDER", str(tmp_path))
    return Place({"bootstrap.servers": broker.bootstrap}, str(tmp_path / "state"))


def all_examples(topic: str) -> PipelineSpec:
    """The examples differ in their sinks only: one pipeline with all of them is one query."""
    data = load(EXAMPLES / f"{NAMES[0]}.yml").to_data()
    data["name"] = f"merges-{uuid.uuid4().hex[:6]}"
    data["sources"]["orders"]["options"]["topic"] = topic
    for name in NAMES[1:]:
        other = load(EXAMPLES / f"{name}.yml").to_data()
        assert other["views"] == data["views"]
        data["sinks"] |= {f"{name.split('-')[2]}_table": other["sinks"]["table"]}
    return from_data(data)


def order(key: str, amount: float | None) -> tuple[str, str | None]:
    return key, None if amount is None else json.dumps({"amount": amount, "at": "2026-01-02T03:04:05Z"})


def everywhere(folder: Path) -> list[tuple[Any, ...]]:
    """What all three tables hold."""
    with sa.create_engine(f"sqlite:///{folder}/orders.db").connect() as connection:
        found = [tuple(row) for row in connection.execute(sa.text("SELECT id, amount FROM orders ORDER BY id"))]
    iceberg = load_catalog("default", type="sql", uri=f"sqlite:///{folder}/catalog.db").load_table("shop.orders")
    for table in (DeltaTable(folder / "orders-merged").to_pyarrow_table(), iceberg.scan().to_arrow()):
        rows = table.to_pylist()
        assert sorted((row["id"], row["amount"]) for row in rows) == found
        assert {row["at"] for row in rows} == {datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)}
    return found


def test_tables_follow_a_topic_with_tombstones(
    spark: Any, place: Place, new_topic: Callable[..., str], produce: Callable[..., None], tmp_path: Path
) -> None:
    topic = new_topic(label="orders", partitions=1)
    spec = all_examples(topic)
    produce(topic, [order("a", 1), order("b", 2), order("a", 3), order("c", 4), order("c", None)])
    run(spec, spark, place, until_caught_up=True)
    assert everywhere(tmp_path) == [("a", 3.0), ("b", 2.0)]
    produce(topic, [order("a", None), order("b", 5), order("d", 6), order("e", 7), order("e", None)])
    run(spec, spark, place, until_caught_up=True)
    assert everywhere(tmp_path) == [("b", 5.0), ("d", 6.0)]
    bad = spec.to_data()
    bad["sinks"]["table"]["options"]["key"] = ["amount"]
    with pytest.raises(SpecError, match=r"no unique index on \(amount\)"):
        Execution.prepare(from_data(bad), spark, place, keep=False)
