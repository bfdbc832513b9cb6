"""Pipelines against a real broker: clean records on, bad ones aside, each exactly once; refusals in one line."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.pipelines.execution import Execution, PipelineFailed, Place, run
from penstock.pipelines.formats.dead_letters import OFFSET, REASON, STACK, TOPIC
from penstock.pipelines.load import load
from penstock.pipelines.spec import PipelineSpec, SpecError, from_data
from penstock.pipelines.spec_yaml import load_text

EXAMPLES = Path(__file__).parents[2] / "examples" / "pipelines"
pytestmark = pytest.mark.spark
GOOD = [(f"k{n}", json.dumps({"id": f"k{n}", "amount": float(n), "country": "de"})) for n in range(1, 9)]
BAD = [("x", b"{oops"), (None, b'{"id": "z", "amount": "many"}'), (None, b"[1]"), (None, b""), (None, b"\xff\xfe")]
GOOD[3] = (GOOD[3][0], f"\r\n\t {GOOD[3][1]}\n")  # blanks around an object are no fault
BAD += [(None, b'{"id": "t", "amount": 1}{"id": "u"}')]


@pytest.fixture
def place(broker: Any, tmp_path: Path) -> Place:
    return Place({"bootstrap.servers": broker.bootstrap}, str(tmp_path / "state"))


def renamed(spec: PipelineSpec, topic: str, **changes: Any) -> PipelineSpec:
    """An example with topics and a name of this test's own."""
    data = spec.to_data()
    data["name"] = f"{spec.name}-{uuid.uuid4().hex[:6]}"
    for source in data["sources"].values():
        if "topic" in source.get("options", {}):
            source["options"]["topic"] = topic
    for sink in data["sinks"].values():
        if "topic" in sink.get("options", {}):
            sink["options"]["topic"] = f"{topic}.out"
    return from_data({**data, **changes})


def once(spec: PipelineSpec, spark: Any, place: Place) -> None:
    run(spec, spark, place, until_caught_up=True)


def test_bad_records_go_aside_with_their_story_and_a_second_run_adds_nothing(
    spark: Any,
    place: Place,
    new_topic: Callable[..., str],
    produce: Callable[..., None],
    read_topic: Callable[..., Any],
) -> None:
    topic = new_topic(partitions=1, label="orders")
    produce(topic, [*GOOD[:4], *BAD, ("gone", None)])
    spec = renamed(load(EXAMPLES / "clean-orders.yml"), topic)
    once(spec, spark, place)
    produce(topic, GOOD[4:])
    once(spec, spark, place)
    written = [json.loads(message.value()) for message in read_topic(f"{topic}.out")]
    assert sorted((row["id"], row["country"]) for row in written) == [(f"k{n}", "DE") for n in range(1, 9)]
    letters = {message.value(): dict(message.headers()) for message in read_topic(spec.dead_letter_topic)}
    assert set(letters) == {value for _, value in BAD}
    first = letters[b"{oops"]
    assert first[REASON].startswith(b"JSONDecodeError") and b"Traceback" in first[STACK]
    assert (first[TOPIC], first[OFFSET]) == (topic.encode(), b"4")


def test_a_changed_pipeline_is_refused_and_a_deleted_topic_stops_it(
    spark: Any, place: Place, new_topic: Callable[..., str], produce: Callable[..., None], broker: Any
) -> None:
    topic = new_topic(label="orders")
    produce(topic, GOOD)
    spec = renamed(load(EXAMPLES / "topic-to-files.yml"), topic)
    data = spec.to_data()
    data["sinks"]["files"]["options"]["path"] = f"{place.state_folder}/out"
    spec = from_data(data)
    once(spec, spark, place)
    changed = {**data, "views": {"plain": "SELECT id, max(amount) AS amount FROM orders GROUP BY id"}}
    changed["sinks"]["files"]["output_mode"] = "append"
    with pytest.raises(SpecError, match="stateful operations have changed"):
        Execution.prepare(from_data(changed), spark, place)
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.delete_topics([topic])[topic].result(30)
    with pytest.raises((SpecError, PipelineFailed), match=topic):
        once(spec, spark, place)


def test_an_expectation_that_must_hold_stops_the_pipeline_before_anything_is_written(
    spark: Any,
    place: Place,
    new_topic: Callable[..., str],
    produce: Callable[..., None],
    read_topic: Callable[..., Any],
) -> None:
    topic = new_topic(label="orders")
    out = new_topic(name=f"{topic}.out")
    produce(topic, [*GOOD, ("neg", json.dumps({"id": "neg", "amount": -1}))])
    expectations = [{"view": "clean", "condition": "amount > 0", "action": "fail"}]
    spec = renamed(load(EXAMPLES / "clean-orders.yml"), topic, expectations=expectations)
    with pytest.raises(PipelineFailed, match="expectation 'amount > 0' of clean is not met"):
        once(spec, spark, place)
    assert read_topic(out) == []


def test_files_and_tables(
    spark: Any,
    place: Place,
    new_topic: Callable[..., str],
    produce: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EXAMPLE_FOLDER", str(tmp_path))
    topic = new_topic(partitions=1, label="orders")
    produce(topic, GOOD)
    for name in ("topic-to-files", "topic-to-delta", "topic-to-parquet"):
        spec = renamed(load(EXAMPLES / f"{name}.yml"), topic)
        once(spec, spark, place)
    once(spec, spark, place)  # nothing is new, nothing is written again
    expected = {f"k{n}" for n in range(1, 9)}
    assert {row.id for row in spark.read.json(str(tmp_path / "out-json")).collect()} == expected
    table = spark.read.parquet(str(tmp_path / "orders-parquet"))
    assert table.count() == 8 and {row.id for row in table.collect()} == expected
    from deltalake import DeltaTable

    assert sorted(DeltaTable(str(tmp_path / "orders-delta")).to_pyarrow_table()["id"].to_pylist()) == sorted(expected)
    # A table of another schema is refused before anything runs.
    data = renamed(load(EXAMPLES / "topic-to-parquet.yml"), topic).to_data()
    data["views"]["plain"] = "SELECT id, CAST(amount AS STRING) AS amount FROM orders"
    with pytest.raises(SpecError, match="has another schema: amount is double there and string here"):
        Execution.prepare(from_data(data), spark, place)


def test_files_in_and_the_generator(
    spark: Any,
    place: Place,
    new_topic: Callable[..., str],
    read_topic: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EXAMPLE_FOLDER", str(tmp_path))
    (tmp_path / "incoming").mkdir()
    (tmp_path / "incoming" / "a.csv").write_text("id,amount\na,1.5\nb,2.5\n")
    out = new_topic(label="from-files")
    data = renamed(load(EXAMPLES / "files-to-topic.yml"), "unused").to_data()
    data["sinks"]["out"]["options"]["topic"] = out
    once(from_data(data), spark, place)
    assert sorted(message.key() for message in read_topic(out)) == [b"a", b"b"]
    made = new_topic(label="made-up")
    data = renamed(load(EXAMPLES / "generate-orders.yml"), "unused").to_data()
    data["sinks"]["orders"]["options"]["topic"] = made
    once(from_data(data), spark, place)
    assert len({message.key() for message in read_topic(made)}) == 100


def test_avro_in_protobuf_out_and_jdbc(
    spark: Any,
    place: Place,
    new_topic: Callable[..., str],
    produce: Callable[..., None],
    read_topic: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from datetime import UTC, datetime

    from penstock.pipelines.formats import avro, protobuf
    from tests.pipelines.test_pipeline_formats import READING, reading_descriptor

    monkeypatch.setenv("EXAMPLE_FOLDER", str(tmp_path))
    (tmp_path / "reading.desc").write_bytes(reading_descriptor())
    topic = new_topic(partitions=1, label="readings")
    at = datetime(2026, 1, 1, tzinfo=UTC)
    values = [
        avro.write_value(_required(READING), {"sensor": f"s{n}", "celsius": float(n), "at": at}) for n in (10, 25)
    ]
    produce(topic, [*values, b"\xff\xff"])
    spec = renamed(load(EXAMPLES / "avro-to-protobuf.yml"), topic)
    once(spec, spark, place)
    (message,) = read_topic(f"{topic}.out")
    read = protobuf._Reader(reading_descriptor(), None, False)(message.value())
    assert read == {"sensor": "s25", "celsius": 25.0, "at": at}
    assert [letter.value() for letter in read_topic(spec.dead_letter_topic)] == [b"\xff\xff"]
    # Spark brings Derby: a JDBC driver that needs no jar of ours.
    monkeypatch.setenv("EXAMPLE_JDBC_URL", f"jdbc:derby:{tmp_path}/derby;create=true")
    monkeypatch.setenv("EXAMPLE_JDBC_DRIVER", "org.apache.derby.iapi.jdbc.AutoloadedDriver")
    orders = new_topic(partitions=1, label="orders")
    produce(orders, GOOD)
    once(renamed(load(EXAMPLES / "topic-to-jdbc.yml"), orders), spark, place)
    options = {"url": f"jdbc:derby:{tmp_path}/derby", "driver": "org.apache.derby.iapi.jdbc.AutoloadedDriver"}
    assert spark.read.format("jdbc").options(**options, dbtable="orders").load().count() == 8


def _required(schema: dict[str, Any]) -> dict[str, Any]:
    """The example's schema: the temperature is always there."""
    fields = [{**item, "type": "double"} if item["name"] == "celsius" else item for item in schema["fields"]]
    return {**schema, "fields": fields}


def test_a_schema_is_inferred_once_and_kept(
    spark: Any,
    place: Place,
    new_topic: Callable[..., str],
    produce: Callable[..., None],
    read_topic: Callable[..., Any],
) -> None:
    topic = new_topic(partitions=1, label="orders")
    text = f"name: inferred-{uuid.uuid4().hex[:6]}\nsources:\n  orders: {{topic: {topic}, format: json}}\n"
    text += f"sinks:\n  out: {{from: orders, topic: {topic}.out}}\n"
    spec = load_text(text)
    with pytest.raises(SpecError, match="holds no JSON object yet to infer the schema from"):
        Execution.prepare(spec, spark, place)
    produce(topic, [json.dumps({"id": "a", "amount": 1.5})])
    once(spec, spark, place)
    produce(topic, [json.dumps({"id": "b", "amount": 2.5, "new": True})])
    once(spec, spark, place)
    found = [json.loads(message.value()) for message in read_topic(f"{topic}.out")]  # of two partitions
    assert sorted(found, key=lambda row: row["id"]) == [{"amount": 1.5, "id": "a"}, {"amount": 2.5, "id": "b"}]
