"""Reading topics with Spark: nothing to register, Spark's own options and columns, nothing lost, nothing twice."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.spark


@pytest.fixture
def table(spark: Any, broker: BrokerProcess) -> Callable[..., Any]:
    def load(**options: str) -> Any:
        return (
            spark.read.format("penstock").option("kafka.bootstrap.servers", broker.bootstrap).options(**options).load()
        )

    return load


@pytest.fixture
def run(spark: Any, broker: BrokerProcess, tmp_path: Path) -> Callable[..., Any]:
    """Runs a stream until it has caught up; returns the query. Rows land in a table of the given name."""

    def until_caught_up(name: str, checkpoint: str = "checkpoint", **options: str) -> Any:
        stream = spark.readStream.format("penstock").option("kafka.bootstrap.servers", broker.bootstrap)
        query = (
            stream.options(**options)
            .load()
            .writeStream.format("parquet")
            .option("path", str(tmp_path / name))
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return query

    return until_caught_up


def test_a_table_has_the_columns_of_sparks_kafka_source(
    spark: Any, table: Callable[..., Any], new_topic: Callable[..., str], broker: BrokerProcess
) -> None:
    from confluent_kafka import Producer

    topic = new_topic(partitions=1)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, b"v1", b"k1", timestamp=1_700_000_000_123, headers=[("h", b"x"), ("n", None)])
    producer.produce(topic, None, None, timestamp=1_700_000_000_124)
    producer.flush(30)
    found = table(subscribe=topic, includeHeaders="true").orderBy("offset")
    assert found.columns == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
    ]  # fmt: skip
    first, second = found.collect()
    assert (bytes(first.key), bytes(first.value), first.topic, first.partition, first.offset) == (
        b"k1", b"v1", topic, 0, 0,
    )  # fmt: skip
    assert first.timestamp.timestamp() == pytest.approx(1_700_000_000.123)
    assert [(pair.key, pair.value and bytes(pair.value)) for pair in first.headers] == [("h", b"x"), ("n", None)]
    assert (second.key, second.value, second.headers, second.timestampType) == (None, None, None, 0)
    assert "headers" not in table(subscribe=topic).columns


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read(
    codec: str, table: Callable[..., Any], new_topic: Callable[..., str], produce: Callable[..., None]
) -> None:
    topic = new_topic()
    produce(topic, [(b"%d" % i, b"value %d " % i * 20) for i in range(500)], **{"compression.type": codec})
    rows = table(subscribe=topic).selectExpr("cast(key as string) k", "cast(value as string) v").collect()
    assert {row.k: row.v for row in rows} == {str(i): f"value {i} " * 20 for i in range(500)}
    assert len(rows) == 500


def test_offsets_and_times_bound_a_table(
    table: Callable[..., Any], new_topic: Callable[..., str], broker: BrokerProcess
) -> None:
    from confluent_kafka import Producer

    topic = new_topic(partitions=1)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for i in range(10):
        producer.produce(topic, b"%d" % i, timestamp=1_700_000_000_000 + i * 1000)
    producer.flush(30)

    def values(**options: str) -> list[int]:
        return sorted(int(row.value) for row in table(subscribe=topic, **options).select("value").collect())

    assert values(startingOffsets=f'{{"{topic}":{{"0":3}}}}', endingOffsets=f'{{"{topic}":{{"0":5}}}}') == [3, 4]
    assert values(startingTimestamp="1700000004000", endingTimestamp="1700000007000") == [4, 5, 6]
    assert values(startingOffsetsByTimestamp=f'{{"{topic}":{{"0":1700000008500}}}}') == [9]
    assert values(startingTimestamp="1900000000000", startingOffsetsByTimestampStrategy="latest") == []
    with pytest.raises(Exception, match="no record at or after the starting time"):
        values(startingTimestamp="1900000000000")
    with pytest.raises(Exception, match="holds offsets 0 to 10, but 3 to 50 are asked for"):
        values(startingOffsets=f'{{"{topic}":{{"0":3}}}}', endingOffsets=f'{{"{topic}":{{"0":50}}}}')


def test_a_large_partition_is_split_into_tasks(
    table: Callable[..., Any], new_topic: Callable[..., str], produce: Callable[..., None]
) -> None:
    topic = new_topic(partitions=1)
    produce(topic, [b"%d" % i for i in range(1000)])
    split = table(subscribe=topic, minPartitions="5")
    assert split.rdd.getNumPartitions() == 5
    assert sorted(int(row.value) for row in split.select("value").collect()) == list(range(1000))


def test_mistakes_are_told_in_one_line(spark: Any, table: Callable[..., Any], new_topic: Callable[..., str]) -> None:
    with pytest.raises(Exception, match="topic 'nowhere' does not exist"):
        table(subscribe="nowhere").count()
    with pytest.raises(Exception, match="did you mean startingOffsets"):
        table(subscribe="a", startingOffset="earliest").count()
    topic = new_topic()
    with pytest.raises(Exception, match="has 2 partitions, not number 7"):
        table(assign=f'{{"{topic}":[0,7]}}').count()
    reader = spark.read.format("penstock").option("kafka.bootstrap.servers", "127.0.0.1:1").option("subscribe", "a")
    with pytest.raises(Exception, match=r"leave \.schema"):
        reader.schema("value string").load().count()


def test_a_stream_takes_everything_once_in_limited_batches_and_shows_its_lag(
    spark: Any,
    run: Callable[..., Any],
    new_topic: Callable[..., str],
    produce: Callable[..., None],
    broker: BrokerProcess,
    tmp_path: Path,
) -> None:
    from confluent_kafka import Consumer, TopicPartition

    topic = new_topic(partitions=2)
    group = f"group-{uuid.uuid4().hex}"
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "40", "kafka.group.id": group}
    produce(topic, [b"%d" % i for i in range(50)], partition=0)
    produce(topic, [b"%d" % i for i in range(50, 100)], partition=1)
    query = run("out", **options)
    assert [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]] == [40, 40, 20]
    # A second run goes on where the first ended.
    produce(topic, [b"%d" % i for i in range(100, 110)], partition=0)
    run("out", **options)
    found = spark.read.parquet(str(tmp_path / "out")).selectExpr("cast(value as string) v").collect()
    assert sorted(int(row.v) for row in found) == list(range(110))
    # Its progress is a consumer group as any other.
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    committed = consumer.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)], timeout=30)
    consumer.close()
    assert [entry.offset for entry in committed] == [60, 50]


def test_new_partitions_and_new_topics_join_a_running_stream(
    spark: Any,
    run: Callable[..., Any],
    new_topic: Callable[..., str],
    produce: Callable[..., None],
    broker: BrokerProcess,
    tmp_path: Path,
) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions

    label = uuid.uuid4().hex[:6]
    first = new_topic(partitions=1, name=f"join-{label}-a")
    options = {"subscribePattern": f"join-{label}-.*", "startingOffsets": "earliest"}
    produce(first, [b"1", b"2"])
    run("out", **options)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_partitions([NewPartitions(first, 2)])[first].result(30)
    second = new_topic(partitions=1, name=f"join-{label}-b")
    produce(first, [b"3"], partition=1)
    produce(second, [b"4"])
    run("out", **options)
    found = spark.read.parquet(str(tmp_path / "out")).selectExpr("cast(value as string) v").collect()
    assert sorted(row.v for row in found) == ["1", "2", "3", "4"]


def test_a_recreated_topic_is_noticed_by_its_id(
    spark: Any,
    run: Callable[..., Any],
    new_topic: Callable[..., str],
    produce: Callable[..., None],
    broker: BrokerProcess,
    tmp_path: Path,
) -> None:
    from confluent_kafka.admin import AdminClient

    topic = new_topic(partitions=1)
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    produce(topic, [b"old-%d" % i for i in range(5)])
    run("out", **options)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([topic])[topic].result(30)
    deadline = time.monotonic() + 30
    while topic in admin.list_topics(timeout=10).topics:
        assert time.monotonic() < deadline
    new_topic(partitions=1, name=topic)
    produce(topic, [b"new-%d" % i for i in range(8)])  # more than before: the offset alone would not tell
    with pytest.raises(Exception, match="was deleted and created anew"):
        run("out", **options)
    run("out", **options, failOnDataLoss="false")
    found = spark.read.parquet(str(tmp_path / "out")).selectExpr("cast(value as string) v").collect()
    assert sorted(row.v for row in found) == [f"new-{i}" for i in range(8)] + [f"old-{i}" for i in range(5)]


def test_deleted_records_stop_the_stream_or_are_passed_over(
    spark: Any,
    run: Callable[..., Any],
    new_topic: Callable[..., str],
    produce: Callable[..., None],
    broker: BrokerProcess,
    tmp_path: Path,
) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    topic = new_topic(partitions=1)
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    produce(topic, [b"%d" % i for i in range(5)])
    run("out", **options)
    produce(topic, [b"%d" % i for i in range(5, 10)])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, 8)]).values():
        future.result(30)
    with pytest.raises(Exception, match="offset 5 was deleted, the log begins at 8"):
        run("out", **options)
    run("out", **options, failOnDataLoss="false")
    found = spark.read.parquet(str(tmp_path / "out")).selectExpr("cast(value as string) v").collect()
    assert sorted(int(row.v) for row in found) == [0, 1, 2, 3, 4, 8, 9]


def test_a_crash_in_the_first_batch_does_not_skip_what_came_after_latest(
    spark: Any,
    broker: BrokerProcess,
    new_topic: Callable[..., str],
    produce: Callable[..., None],
    tmp_path: Path,
) -> None:
    # Given a stream from "latest" whose first batch was planned but did not end,
    topic = new_topic(partitions=1)
    produce(topic, [b"before"])

    def start(fails: bool) -> Any:
        stream = (
            spark.readStream.format("penstock")
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .option("subscribe", topic)
            .load()
            .selectExpr(f"if({str(fails).lower()}, raise_error('crash'), cast(value as string)) v")
        )
        return (
            stream.writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )

    query = start(fails=True)
    deadline = time.monotonic() + 120
    while query.isActive:
        assert time.monotonic() < deadline
        produce(topic, [b"mine"])
    assert "crash" in str(query.exception())
    read_before = [int(row.offset) for row in _all(spark, broker, topic)]
    # when it starts again, while "latest" has moved on,
    produce(topic, [b"later"])
    query = start(fails=False)
    query.processAllAvailable()
    query.stop()
    # then everything since its true beginning is there.
    found = [row.v for row in spark.read.parquet(str(tmp_path / "out")).collect()]
    assert "later" in found
    assert "mine" in found
    assert len(found) <= len(read_before) + 1


def _all(spark: Any, broker: BrokerProcess, topic: str) -> list[Any]:
    reader = spark.read.format("penstock").option("kafka.bootstrap.servers", broker.bootstrap)
    return reader.option("subscribe", topic).load().collect()
