"""A stretch of history through a pipeline: exactly the records between two times, once, whoever repeats it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from penstock.client.sync import SyncClient
from penstock.pipelines.backfill import Stretch, backfill
from penstock.pipelines.control import events
from penstock.pipelines.execution import Place
from penstock.pipelines.formats.dead_letters import STEP
from penstock.pipelines.spec import SpecError, from_data

HOUR_MS = 3_600_000
BEGIN_MS = 1_790_000_000_000


def test_a_stretch_without_length_is_refused() -> None:
    with pytest.raises(SpecError, match="--from is not before --to"):
        Stretch(5, 5)


@pytest.mark.spark
def test_records_between_two_times_go_through_once(
    spark: Any, broker: Any, new_topic: Callable[..., str], read_topic: Callable[..., Any], tmp_path: Path
) -> None:
    # Given ten hours of orders, one of them broken in the fourth hour,
    topic, out = new_topic(label="orders", **{"retention.ms": "-1"}), new_topic(partitions=3, label="out")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for hour in range(10):
        for number in range(4):
            value = b"{oops" if (hour, number) == (4, 2) else json.dumps({"hour": hour, "n": number})
            producer.produce(topic, value, f"{hour}-{number}", timestamp=BEGIN_MS + hour * HOUR_MS + number)
    # and at last one more of the fifth hour, late, for each partition, at which a step raises,
    for index in range(2):
        late = {"timestamp": BEGIN_MS + 5 * HOUR_MS + 10, "partition": index}
        producer.produce(topic, json.dumps({"hour": 5, "n": -1}), b"late", **late)
    assert producer.flush(30) == 0
    spec = from_data(
        {
            "name": f"p-{uuid.uuid4().hex[:6]}",
            "sources": {"orders": {"topic": topic, "format": {"type": "json", "schema": "hour INT, n INT"}}},
            "views": {
                "halves": "SELECT hour, n, 2 * n / (n + 1) AS half FROM orders",
                "sums": "SELECT hour, sum(n) AS total FROM orders GROUP BY hour",
            },
            "sinks": {
                "out": {"from": "halves", "topic": out, "key": "hour"},
                "sums": {"from": "sums", "topic": out, "key": "hour", "output_mode": "update"},
            },
        }
    )
    place = Place({"bootstrap.servers": broker.bootstrap}, str(tmp_path / "state"))
    # when hours three to five go through it, twice,
    stretch = Stretch(BEGIN_MS + 3 * HOUR_MS, BEGIN_MS + 6 * HOUR_MS)
    for _ in range(2):
        told = backfill(spec, spark, place, stretch, ".v2")
        assert told == {"dead-letters": 1, "row-errors": 2, "out": 11, "sums": 3}
    with SyncClient(broker.bootstrap) as client:  # somebody was seen to run it: its transactions had an owner
        seen = {event["pipeline"] for event in events.recent(client) if event["kind"] == events.ALIVE}
    assert any(name.startswith(f"{spec.name}.backfill-") for name in seen)
    # then they are beside the topic once, and neither the topic nor a checkpoint was touched.
    rows = [json.loads(message.value()) for message in read_topic(f"{out}.v2")]
    assert sorted((row["hour"], row["n"]) for row in rows if "n" in row) == [
        (hour, number) for hour in (3, 4, 5) for number in range(4) if (hour, number) != (4, 2)
    ]
    assert sorted((row["hour"], row["total"]) for row in rows if "total" in row) == [(3, 6), (4, 4), (5, 4)]
    assert len({message.partition() for message in read_topic(f"{out}.v2")} | {0, 1, 2}) == 3
    assert read_topic(out) == []
    letters = [dict(message.headers()) for message in read_topic(spec.dead_letter_topic)]
    assert sorted(headers.get(STEP, b"-") for headers in letters) == [b"-", b"view halves", b"view halves"]
    assert not (tmp_path / "state" / spec.name / "checkpoints").exists()
