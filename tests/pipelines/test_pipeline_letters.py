"""Letters come back: through the pipeline's own retry topic, and each once whatever is killed."""

from __future__ import annotations

import collections
import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from penstock.cli.main import run as penstock
from penstock.client.sync import SyncClient
from penstock.pipelines.execution import Place, run
from penstock.pipelines.redrive import Wanted, redrive
from penstock.pipelines.spark import sink_transactions
from penstock.pipelines.spec import from_data

LARGE = {"max.message.bytes": "8000000"}


def letter(producer: Producer, dead: str, number: int, **told: str) -> None:
    headers = {f"penstock.dlq.{name}": value.encode() for name, value in told.items()}
    producer.produce(dead, b"%d" % number, b"k%d" % number, headers=headers)
    producer.poll(0)


@pytest.mark.spark
def test_a_pipeline_reads_its_retry_topic_beside_the_source_that_the_letter_is_of(
    spark: Any,
    broker: Any,
    new_topic: Callable[..., str],
    produce: Callable[..., None],
    read_topic: Callable[..., Any],
    tmp_path: Path,
    capsys: Any,
) -> None:
    # Given two topics of which one holds a record that does not decode yet,
    first, second, out = new_topic(label="first"), new_topic(label="second"), new_topic(label="out")
    produce(first, [("a", '{"id": "a", "n": 1}'), ("b", '{"id": "b", "n": "many"}')])
    produce(second, [("c", '{"id": "c", "n": 3}')])
    name = f"p-{uuid.uuid4().hex[:6]}"
    place = Place({"bootstrap.servers": broker.bootstrap}, str(tmp_path / "state"))

    def pipeline(kind: str) -> Any:
        form = {"type": "json", "schema": f"id STRING, n {kind}"}
        return from_data(
            {
                "name": name,
                "sources": {"ones": {"topic": first, "format": form}, "others": {"topic": second, "format": form}},
                "views": {"both": "SELECT id, 'ones' AS of FROM ones UNION ALL SELECT id, 'others' FROM others"},
                "sinks": {"out": {"from": "both", "topic": out}},
            }
        )

    run(pipeline("INT"), spark, place, until_caught_up=True)
    # when the pipeline is repaired and the letter goes to its retry topic, which nobody has made,
    there = ["--json", "-b", broker.bootstrap]
    assert penstock(["dlq", "redrive", name, "--to", f"{name}.retry", "--dry-run", *there]) == 0
    assert json.loads(capsys.readouterr().out)["redriven"] == 1
    assert penstock(["dlq", "redrive", name, "--to", "other.retry", *there]) == 0
    assert json.loads(capsys.readouterr().out)["left"] == 1
    assert penstock(["dlq", "redrive", name, "--to", f"{name}.retry", *there]) == 0
    assert json.loads(capsys.readouterr().out)["to"] == {f"{name}.retry": 1}
    run(pipeline("STRING"), spark, place, until_caught_up=True)
    # then its own source takes it, the other does not, and whoever else reads the topic sees nothing new.
    rows = [json.loads(message.value()) for message in read_topic(out)]
    assert sorted((row["id"], row["of"]) for row in rows) == [("a", "ones"), ("b", "ones"), ("c", "others")]
    assert len(read_topic(first)) == 2
    run(pipeline("STRING"), spark, place, until_caught_up=True)
    assert len(read_topic(out)) == 3


def test_only_records_of_the_pipeline_go_to_its_retry_topic() -> None:
    wanted = Wanted(to="p.retry")
    assert wanted.target({"penstock.dlq.pipeline": b"p"}) == "p.retry"
    assert wanted.target({"penstock.dlq.pipeline": b"q"}) is None
    assert wanted.target({"penstock.dlq.pipeline": b"p", "penstock.dlq.expectation": b"n > 0"}) is None


def test_redrive_killed_at_any_moment_brings_each_letter_back_once(
    broker: Any, new_topic: Callable[..., str], read_topic: Callable[..., Any], capsys: Any
) -> None:
    origin = new_topic(partitions=2, label="origin")
    dead = new_topic(partitions=2, name=f"{origin}.dlq")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    letters = 6_000
    for number in range(letters):
        letter(producer, dead, number, reason="A" if number % 3 else "B", topic=origin, partition=str(number % 2))
    assert producer.flush(60) == 0
    watcher = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "watch", "log_level": 0})

    def written() -> int:
        ends = [watcher.get_watermark_offsets(TopicPartition(origin, index), timeout=30)[1] for index in range(2)]
        return sum(ends)

    command = [sys.executable, "-m", "penstock.cli.main", "dlq", "redrive", origin, "-b", broker.bootstrap]
    kills = 0
    # Killed when something of it is in the topic: inside a transaction, between two, or at a commit.
    for wait_s in (0.0, 0.004, 0.012, 0.03):
        before = written()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while written() == before and process.poll() is None:
            pass
        time.sleep(wait_s)  # the moment of the kill, not a wait for something
        kills += process.poll() is None
        process.kill()
        process.wait()
    assert kills
    there = ["--json", "-b", broker.bootstrap]
    for options in (["--reason", "A"], []):
        assert penstock(["dlq", "redrive", origin, *options, *there]) == 0
    capsys.readouterr()
    assert penstock(["dlq", "redrive", origin, *there]) == 0
    assert json.loads(capsys.readouterr().out)["redriven"] == 0
    watcher.close()
    back = collections.Counter(int(message.value()) for message in read_topic(origin))
    assert len(back) == letters and set(back.values()) == {1}
    with SyncClient(broker.bootstrap) as client:
        mine = f"penstock-redrive-{dead}"
        assert not client.run(lambda inner: sink_transactions.open_under_prefix(inner, mine))


def test_redrive_ends_where_the_letters_ended_when_it_began_though_more_come_all_the_time(
    broker: Any, new_topic: Callable[..., str], read_topic: Callable[..., Any]
) -> None:
    origin = new_topic(partitions=2, label="origin")
    dead = new_topic(partitions=1, name=f"{origin}.dlq")  # no other whose news would make an answer without news of it
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0, "linger.ms": 0})
    for number in range(20):
        letter(producer, dead, number, reason="A", topic=origin, partition=str(number % 2))
    assert producer.flush(60) == 0
    is_over, has_begun = threading.Event(), threading.Event()
    written: list[int] = []
    most = 20_000  # two minutes at least: without an end of its own, redrive would run for as long as this does

    def write_on() -> None:
        for number in range(20, most):
            letter(producer, dead, number, reason="A", topic=origin, partition=str(number % 2))
            written.append(number)
            has_begun.set()
            if is_over.wait(0.006):
                return

    writer = threading.Thread(target=write_on)
    writer.start()
    try:
        has_begun.wait()
        result = redrive({"bootstrap.servers": broker.bootstrap}, dead, Wanted(), dry_run=False)
    finally:
        is_over.set()
        writer.join()
    assert producer.flush(60) == 0
    assert 20 <= result.written < 20 + len(written)
    # What came meanwhile is the next one's, and each came back once.
    redrive({"bootstrap.servers": broker.bootstrap}, dead, Wanted(), dry_run=False)
    back = collections.Counter(int(message.value()) for message in read_topic(origin))
    assert sorted(back) == [*range(20), *written] and set(back.values()) == {1}


def test_a_letter_that_its_topic_does_not_take_is_left_and_keeps_no_other_back(
    broker: Any, new_topic: Callable[..., str], read_topic: Callable[..., Any], capsys: Any
) -> None:
    # Given letters of a topic for small records, of one that is gone, and one of four megabytes,
    small, large = new_topic(label="small", **{"max.message.bytes": "2000"}), new_topic(label="large", **LARGE)
    dead = new_topic(partitions=1, name=f"{small}.dlq", **LARGE)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0, "message.max.bytes": 8_000_000})
    for number, (topic, value) in enumerate(
        [(small, b"a"), (small, os.urandom(4000)), ("gone", b"b"), (large, bytes(4_000_000)), (small, b"c")]
    ):
        headers = {"penstock.dlq.topic": topic.encode(), "penstock.dlq.reason": b"A"}
        producer.produce(dead, value, b"k%d" % number, headers=headers)
    assert producer.flush(60) == 0
    # when they are redriven, and redriven again,
    there = ["--json", "-b", broker.bootstrap]
    assert penstock(["dlq", "redrive", small, *there]) == 0
    first = json.loads(capsys.readouterr().out)
    assert penstock(["dlq", "redrive", small, *there]) == 0
    second = json.loads(capsys.readouterr().out)
    # then all but two are back, once, and why those are not is said each time.
    assert (first["redriven"], first["left"], second["redriven"], second["left"]) == (3, 2, 0, 2)
    assert first["refused"] == {"there is no topic gone": 1, f"{small} says: Message size too large": 1}
    assert second["refused"] == first["refused"]
    assert sorted(message.value() for message in read_topic(small)) == [b"a", b"c"]
    assert [len(message.value()) for message in read_topic(large)] == [4_000_000]


def test_letters_of_a_topic_that_was_made_again_are_not_taken_for_those_before(
    broker: Any, new_topic: Callable[..., str], read_topic: Callable[..., Any]
) -> None:
    origin, admin = new_topic(label="origin"), AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for _ in range(2):
        dead = new_topic(partitions=1, name=f"{origin}.dlq")
        for number in range(3):
            letter(producer, dead, number, reason="A", topic=origin)
        assert producer.flush(60) == 0
        assert redrive({"bootstrap.servers": broker.bootstrap}, dead, Wanted(), dry_run=False).written == 3
        admin.delete_topics([dead])[dead].result(30)
    assert len(read_topic(origin)) == 6
