"""A stretch of history through a pipeline: exactly the records between two times, once, whoever repeats it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from penstock.client.records import LATEST
from penstock.client.sync import SyncClient
from penstock.pipelines.backfill import Stretch, backfill
from penstock.pipelines.control import events
from penstock.pipelines.execution import Place
from penstock.pipelines.formats.dead_letters import QUERY, STEP
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


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_backfill_that_is_killed_anywhere_is_completed_by_a_repetition(
    broker: Any, tmp_path: Path, new_topic: Callable[..., str], read_topic: Callable[..., Any]
) -> None:
    # Given records of which some cannot be read and some raise, and a job to two topics and a table.
    from deltalake import DeltaTable

    source, first, last = (new_topic(label=name, **{"retention.ms": "-1"}) for name in ("orders", "first", "last"))
    name, table = f"p-{uuid.uuid4().hex[:6]}", tmp_path / "table"
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for number in range(3000):
        value = "{" if number % 100 == 7 else json.dumps({"id": number, "by": number % 50})
        producer.produce(source, value, str(number), timestamp=1_700_000_000_000 + number)
    assert producer.flush(60) == 0
    spec = {
        "name": name,
        "sources": {"orders": {"topic": source, "format": {"type": "json", "schema": "id INT, `by` INT"}}},
        "views": {"shares": "SELECT id, 100 / `by` AS share FROM orders"},
        "sinks": {
            "first": {"from": "shares", "topic": first},
            "table": {"from": "shares", "connector": "delta", "options": {"path": str(table)}},
            "last": {"from": "shares", "topic": last, "key": "id"},
        },
    }
    (tmp_path / "spec.yml").write_text(json.dumps(spec))
    stretch = ["--from", "1700000000500", "--to", "1700000002500"]
    command = [sys.executable, "-m", "penstock", "pipeline", "backfill", "spec.yml", "-b", broker.bootstrap, *stretch]

    def written(topic: str, *, committed: bool) -> int:
        """Offsets, those of open transactions included unless it shall be committed ones."""
        with SyncClient(broker.bootstrap) as client:
            known = client.metadata([topic]).topics.get(topic)
            keys = [(topic, index) for index in known.partitions] if known is not None else []
            found = client.list_offsets(dict.fromkeys(keys, LATEST), read_committed=committed)
            return sum(answer.offset for answer in found.values())

    moments: list[Callable[[], bool]] = [
        lambda: written(f"{name}.dlq", committed=False) > 0,
        lambda: written(first, committed=False) > 0,
        lambda: written(first, committed=True) > 0,
        table.exists,
        lambda: written(last, committed=False) > 0,
    ]
    # When it is killed, driver and JVM, as soon as each of its outputs has something of it,
    for moment in moments:
        log = (tmp_path / "log").open("a")
        job = subprocess.Popen(command, cwd=tmp_path, start_new_session=True, stdout=log, stderr=log)
        while not moment() and job.poll() is None:
            time.sleep(0.02)
        assert job.poll() is None, (tmp_path / "log").read_text()[-3000:]
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
    # then the same command completes it: each record of the stretch once in each place where it belongs.
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr + (tmp_path / "log").read_text()[-3000:]
    asked = range(500, 2500)
    good = [number for number in asked if number % 100 != 7 and number % 50]
    for topic in (first, last):
        assert sorted(json.loads(message.value())["id"] for message in read_topic(topic)) == good
    assert sorted(DeltaTable(table).to_pyarrow_table()["id"].to_pylist()) == good
    told: dict[bool, list[int]] = {False: [], True: []}
    for letter in read_topic(f"{name}.dlq"):
        has_raised = QUERY in dict(letter.headers())
        told[has_raised].append(json.loads(letter.value())["id"] if has_raised else int(letter.key()))
    assert sorted(told[False]) == [number for number in asked if number % 100 == 7]
    assert sorted(told[True]) == [number for number in asked if not number % 50]
