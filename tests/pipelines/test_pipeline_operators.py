"""Each operator's example on its cases: as `penstock pipeline test` runs them, and from real topics to real ones."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer

from penstock.pipelines.execution import Place, run
from penstock.pipelines.load import load
from penstock.pipelines.operators.state import in_order
from penstock.pipelines.spec import SpecError, from_data
from penstock.pipelines.spec_yaml import load_text
from penstock.pipelines.trial import _compare, run_case, run_cases

EXAMPLES = Path(__file__).parents[2] / "examples" / "pipelines"
pytestmark = pytest.mark.spark
FOR_EVER = {"retention.ms": "-1"}  # the cases have timestamps of long ago


@pytest.mark.parametrize("name", ["sessions", "table-to-changelog"])
def test_example(spark: Any, name: str) -> None:
    for result in run_cases(load(EXAMPLES / f"{name}.yml"), spark, EXAMPLES / f"{name}.cases.yml"):
        assert result.differences == [], result.name


@pytest.mark.parametrize("name", sorted(path.name.removesuffix(".cases.yml") for path in EXAMPLES.glob("*.cases.yml")))
def test_example_reaches_its_sinks(
    name: str, spark: Any, broker: Any, tmp_path: Path, new_topic: Callable[..., str], read_topic: Callable[..., Any]
) -> None:
    # Given the records of the example's first case, in real topics,
    case = yaml.safe_load((EXAMPLES / f"{name}.cases.yml").read_text())[0]
    data = load(EXAMPLES / f"{name}.yml").to_data()
    data["name"] = f"{name}-{uuid.uuid4().hex[:6]}"
    for source, entry in data["sources"].items():
        entry["options"]["topic"] = new_topic(partitions=1, label=source, **FOR_EVER)
        write(broker.bootstrap, entry["options"]["topic"], case["given"].get(source, []))
    for sink, entry in data["sinks"].items():
        entry["options"]["topic"] = new_topic(partitions=1, label=sink)
    # when the pipeline runs until it is caught up,
    place = Place({"bootstrap.servers": broker.bootstrap}, str(tmp_path / "state"))
    run(from_data(data), spark, place, until_caught_up=True)
    # then each sink's topic holds the rows that the case expects.
    for sink, expected in case["expect"].items():
        if sink in data["sinks"]:
            found = read_topic(data["sinks"][sink]["options"]["topic"])
            rows = [json.loads(message.value()) for message in found if message.value() is not None]
            assert len(found) == len(expected)
            assert _compare([visible(row) for row in expected if not row.get("_deleted")], rows) == []


def visible(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if not key.startswith("_")}


def write(bootstrap: str, topic: str, records: list[dict[str, Any]]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for record in records:
        at = datetime.fromisoformat(record.get("timestamp", "2026-01-01T00:00:00Z"))
        value = record.get("value")
        text = value if value is None or isinstance(value, str) else json.dumps(value, default=str)
        producer.produce(topic, text, record.get("key"), timestamp=int(at.timestamp() * 1000))
    assert producer.flush(30) == 0


# --- order ---


def test_what_was_written_later_is_newer_whatever_its_timestamp_says() -> None:
    def row(time: int, partition: int, offset: int, topic: str = "t") -> dict[str, Any]:
        return {"_at": {"time": time, "topic": topic, "partition": partition, "offset": offset}}

    assert [item["_at"]["offset"] for item in in_order([row(5, 0, 3), row(9, 0, 1), row(1, 0, 2)])] == [1, 2, 3]
    merged = in_order([row(30, 1, 7), row(10, 0, 1), row(40, 0, 2), row(20, 1, 6)])
    assert [item["_at"]["offset"] for item in merged] == [1, 6, 7, 2]


# --- a table that is looked up in ---


def test_a_table_is_loaded_whole_before_the_first_row_looks_something_up(
    spark: Any,
    broker: Any,
    tmp_path: Path,
    new_topic: Callable[..., str],
    produce: Callable[..., None],
    read_topic: Callable[..., Any],
) -> None:
    orders, customers, out = (
        new_topic(partitions=1, label=label, **FOR_EVER) for label in ("orders", "customers", "out")
    )
    produce(orders, [json.dumps({"order_id": f"o{n}", "customer_id": f"c{n}"}) for n in range(20)])
    produce(customers, [(f"c{n}", json.dumps({"name": f"n{n}"})) for n in range(40)])
    # An update whose clock was behind, and which is the newest nevertheless.
    write(broker.bootstrap, customers, [{"key": "c3", "value": {"name": "new"}, "timestamp": "2001-01-01T00:00:00Z"}])
    data = load(EXAMPLES / "join-latest.yml").to_data()
    data["name"] = f"lookup-{uuid.uuid4().hex[:6]}"
    data["settings"] = {"max_rows_per_trigger": 10}
    for name, topic in (("orders", orders), ("customers", customers)):
        data["sources"][name]["options"] |= {"topic": topic, "on_bad_record": "drop"}
    data["sources"]["orders"]["options"]["format"]["schema"] = "order_id STRING, customer_id STRING"
    data["sources"]["customers"]["options"]["format"]["schema"] = "name STRING"
    data["sinks"]["out"]["options"]["topic"] = out
    run(from_data(data), spark, Place({"bootstrap.servers": broker.bootstrap}, str(tmp_path)), until_caught_up=True)
    found = {row["order_id"]: row["customer_name"] for row in (json.loads(m.value()) for m in read_topic(out))}
    assert found == {f"o{n}": "new" if n == 3 else f"n{n}" for n in range(20)}


def test_a_case_that_does_not_hold_says_what_differs(spark: Any) -> None:
    spec = load(EXAMPLES / "clean-orders.yml")
    case = {"given": {"orders": [{"value": {"id": "a", "amount": 1}}]}, "expect": {"out": [{"id": "b"}]}}
    found = run_case(spec, spark, case).differences
    assert found[0] == 'out: missing {"id": "b"}'
    assert found[1].startswith('out: unexpected {"id": "a", "amount": 1.0')
    with pytest.raises(SpecError, match="there is no source 'oders'"):
        run_case(spec, spark, {"given": {"oders": []}})


@pytest.mark.parametrize(
    ("view", "message"),
    [
        ("SELECT id, amunt FROM orders", r"view v: .*`amunt` cannot be resolved.*`amount`"),
        ("SELECT id FROM oders", r"view v: .*`oders` cannot be found"),
        ("SELEC id FROM orders", r"view v: .*[Ss]yntax error at or near 'SELEC'"),
        (
            "{operator: remember, from: orders, key: idd, ttl: 1 day}",
            r"view v: there is no column 'idd'; did you mean 'id'",
        ),
    ],
)
def test_an_unknown_column_or_table_is_one_line_with_the_view(spark: Any, view: str, message: str) -> None:
    spec = load_text(
        "name: p\nsources:\n  orders: {topic: o, format: {type: json, schema: 'id STRING, amount DOUBLE'}}\n"
        f"views:\n  v: {view}\nsinks:\n  out: {{from: v, topic: out}}\n"
    )
    with pytest.raises(SpecError, match=message) as caught:
        run_case(spec, spark, {"given": {"orders": []}, "expect": {"out": []}})
    assert "\n" not in str(caught.value)
