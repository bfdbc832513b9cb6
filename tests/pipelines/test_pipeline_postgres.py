"""A real PostgreSQL, started from the system's package: rows in by a growing column, rows out exactly once."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.pipelines.connectors.base import Batch, Context
from penstock.pipelines.connectors.postgres import PostgresSink
from penstock.pipelines.execution import Execution, Place, run
from penstock.pipelines.load import load
from penstock.pipelines.spec import PipelineSpec, SpecError, from_data
from penstock.pipelines.storage import LocalStorage
from penstock.testing.databases import NotInstalled, postgres_server

EXAMPLES = Path(__file__).parents[2] / "examples" / "pipelines"
pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    try:
        with postgres_server() as dsn:
            yield dsn
    except NotInstalled as missing:
        pytest.skip(f"not installed: {missing}")


def sql(dsn: str, text: str) -> list[tuple[Any, ...]]:
    import psycopg

    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(text)
        return cursor.fetchall() if cursor.description else []


def example(name: str, **options: Any) -> PipelineSpec:
    data = load(EXAMPLES / f"{name}.yml").to_data()
    data["name"] = f"{name}-{uuid.uuid4().hex[:6]}"
    for part in (*data["sources"].values(), *data["sinks"].values()):
        part["options"].update({key: value for key, value in options.items() if key in part["options"]})
    return from_data(data)


@pytest.fixture
def place(broker: Any, tmp_path: Path, postgres: str, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("EXAMPLE_POSTGRES", postgres)
    return Place({"bootstrap.servers": broker.bootstrap}, str(tmp_path / "state"))


def test_a_snapshot_and_then_what_is_new(
    spark: Any, place: Place, postgres: str, new_topic: Callable[..., str], read_topic: Callable[..., Any]
) -> None:
    sql(
        postgres, "CREATE TABLE customers (id bigserial PRIMARY KEY, name text, rating numeric(4,2), since timestamptz)"
    )
    sql(postgres, "INSERT INTO customers (name, rating, since) VALUES ('Ada', 4.5, '2026-01-01Z'), ('Bob', NULL, NULL)")
    topic = new_topic(label="customers")
    spec = example("postgres-to-topic", topic=topic)
    run(spec, spark, place, until_caught_up=True)
    sql(postgres, "INSERT INTO customers (name) VALUES ('Cy')")
    run(spec, spark, place, until_caught_up=True)
    rows = sorted((json.loads(message.value()) for message in read_topic(topic)), key=lambda row: row["id"])
    assert [(row["id"], row["name"], row["rating"]) for row in rows] == [
        (1, "Ada", 4.5),
        (2, "Bob", None),
        (3, "Cy", None),
    ]
    with pytest.raises(SpecError, match="has no column 'idd'"):
        Execution.prepare(example("postgres-to-topic", topic=topic, column="idd"), spark, place)


def test_upserts_and_a_batch_that_comes_again(
    spark: Any, place: Place, postgres: str, new_topic: Callable[..., str], produce: Callable[..., None], tmp_path: Path
) -> None:
    topic = new_topic(partitions=1, label="orders")
    produce(
        topic,
        [json.dumps({"id": "a", "amount": 1, "at": "2026-01-01T00:00:00Z"}), json.dumps({"id": "b", "amount": 2})],
    )
    spec = example("topic-to-postgres", topic=topic)
    run(spec, spark, place, until_caught_up=True)
    produce(topic, [json.dumps({"id": "a", "amount": 3}), json.dumps({"id": "a", "amount": 4})])
    run(spec, spark, place, until_caught_up=True)
    assert sql(postgres, "SELECT id, amount FROM orders ORDER BY id") == [("a", 4.0), ("b", 2.0)]
    # The same batch of the same query does nothing; the next one does.
    options = PostgresSink.Options(dsn=postgres, table="orders", key=("id",))
    sink = PostgresSink("again", options, Context(spark, "p", {}, LocalStorage(str(tmp_path))))
    rows = spark.createDataFrame([("c", 9.0, None)], "id STRING, amount DOUBLE, at TIMESTAMP")
    sink.write(rows, Batch("q", 5))
    sql(postgres, "DELETE FROM orders WHERE id = 'c'")
    sink.write(rows, Batch("q", 5))
    assert sql(postgres, "SELECT count(*) FROM orders WHERE id = 'c'") == [(0,)]
    sink.write(rows, Batch("q", 6))
    assert sql(postgres, "SELECT count(*) FROM orders WHERE id = 'c'") == [(1,)]


def test_a_table_of_another_schema_is_refused(spark: Any, postgres: str, tmp_path: Path) -> None:
    sql(postgres, "CREATE TABLE strange (other text)")
    context = Context(spark, "p", {}, LocalStorage(str(tmp_path)))
    sink = PostgresSink("out", PostgresSink.Options(dsn=postgres, table="strange"), context)
    rows = spark.createDataFrame([("c",)], "id STRING")
    with pytest.raises(SpecError, match="the table strange has no column 'id'"):
        sink.check(rows.schema)
    away = PostgresSink("out", PostgresSink.Options(dsn="postgresql://nobody@127.0.0.1:1/x", table="t"), context)
    with pytest.raises(SpecError, match="PostgreSQL cannot be reached"):
        away.check(rows.schema)
