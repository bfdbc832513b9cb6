"""Writing topics with Spark: the columns of Spark's own sink, exactly once, also when a batch runs again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.spark


@pytest.fixture
def save(broker: BrokerProcess) -> Callable[..., None]:
    def write(rows: Any, **options: str) -> None:
        writer = rows.write.format("penstock").option("kafka.bootstrap.servers", broker.bootstrap)
        writer.options(**options).mode("append").save()

    return write


def pairs(messages: list[Any]) -> list[tuple[Any, Any]]:
    return sorted((message.key(), message.value()) for message in messages)


def test_a_table_is_written_with_keys_headers_and_partitions(
    spark: Any, save: Callable[..., None], new_topic: Callable[..., str], read_topic: Callable[..., list[Any]]
) -> None:
    topic = new_topic(partitions=3)
    rows = spark.sql(
        "select * from values ('k1', 'v1', 2, array(struct('h' as key, binary('x') as value))), ('k2', null, 1, null)"
        " as t(key, value, partition, headers)"
    )
    save(rows, topic=topic, **{"kafka.compression.type": "zstd"})
    found = {message.key(): message for message in read_topic(topic)}
    assert (found[b"k1"].value(), found[b"k1"].partition(), found[b"k1"].headers()) == (b"v1", 2, [("h", b"x")])
    assert (found[b"k2"].value(), found[b"k2"].partition(), found[b"k2"].headers()) == (None, 1, None)


def test_keys_go_where_other_clients_send_them(
    spark: Any,
    save: Callable[..., None],
    new_topic: Callable[..., str],
    produce: Callable[..., None],
    read_topic: Callable[..., list[Any]],
) -> None:
    ours, theirs = new_topic(partitions=5), new_topic(partitions=5)
    save(spark.range(200).selectExpr("concat('key-', id) as key", "'v' as value"), topic=ours)
    produce(theirs, [(f"key-{i}".encode(), b"v") for i in range(200)], partitioner="murmur2_random")
    places = [{message.key(): message.partition() for message in read_topic(topic)} for topic in (ours, theirs)]
    assert places[0] == places[1]


def test_a_column_may_choose_the_topic(
    spark: Any, save: Callable[..., None], new_topic: Callable[..., str], read_topic: Callable[..., list[Any]]
) -> None:
    even, odd = new_topic(), new_topic()
    save(spark.range(10).selectExpr(f"if(id % 2 = 0, '{even}', '{odd}') as topic", "cast(id as string) as value"))
    assert sorted(int(message.value()) for message in read_topic(even)) == [0, 2, 4, 6, 8]
    assert sorted(int(message.value()) for message in read_topic(odd)) == [1, 3, 5, 7, 9]


def test_at_least_once_needs_no_transactions(
    spark: Any, save: Callable[..., None], new_topic: Callable[..., str], read_topic: Callable[..., list[Any]]
) -> None:
    topic = new_topic()
    save(spark.range(1000).selectExpr("cast(id as string) as value"), topic=topic, deliveryGuarantee="at-least-once")
    assert sorted(int(message.value()) for message in read_topic(topic)) == list(range(1000))


def test_a_named_version_is_written_once(
    spark: Any, save: Callable[..., None], new_topic: Callable[..., str], read_topic: Callable[..., list[Any]]
) -> None:
    topic = new_topic()
    rows = spark.range(5).selectExpr("cast(id as string) as value")
    for version in ("1", "1", "2"):
        save(rows, topic=topic, txnAppId=f"app-{topic}", txnVersion=version)
    assert len(read_topic(topic)) == 10


def test_mistakes_are_told_in_one_line(spark: Any, save: Callable[..., None], broker: BrokerProcess) -> None:
    with pytest.raises(Exception, match="a column named value is missing"):
        save(spark.range(1), topic="t")
    with pytest.raises(Exception, match="no topic: give the option topic"):
        save(spark.range(1).selectExpr("cast(id as string) as value"))
    with pytest.raises(Exception, match="column value is bigint; it must be string or binary"):
        save(spark.range(1).selectExpr("id as value"), topic="t")
    with pytest.raises(Exception, match="cannot be overwritten"):
        writer = spark.range(1).selectExpr("cast(id as string) as value").write.format("penstock")
        writer.option("kafka.bootstrap.servers", broker.bootstrap).option("topic", "t").mode("overwrite").save()


def test_a_batch_that_runs_again_after_a_lost_checkpoint_entry_writes_nothing_twice(
    spark: Any,
    broker: BrokerProcess,
    new_topic: Callable[..., str],
    produce: Callable[..., None],
    read_topic: Callable[..., list[Any]],
    tmp_path: Path,
) -> None:
    source, target = new_topic(), new_topic()
    produce(source, [b"%d" % i for i in range(100)])

    def run() -> None:
        query = (
            spark.readStream.format("penstock")
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .option("subscribe", source)
            .option("startingOffsets", "earliest")
            .load()
            .selectExpr("uuid() as key", "value")  # never the same twice
            .writeStream.format("penstock")
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .option("topic", target)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    run()
    first = pairs(read_topic(target))
    assert sorted(int(value) for _, value in first) == list(range(100))
    # As if the driver had died after the sink's commit and before Spark noted it.
    shutil.rmtree(tmp_path / "checkpoint" / "commits")
    run()
    assert pairs(read_topic(target)) == first
    produce(source, [b"100"])
    run()
    assert len(read_topic(target)) == 101
