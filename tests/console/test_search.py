"""Searching finds what a plain reader finds, in processes that are bounded, can be stopped and hide what is hidden."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from console_world import Console
from playwright.sync_api import expect

from penstock.client.sync import SyncClient
from penstock.console.search.pool import Pool
from penstock.console.search.scan import Scan
from penstock.console.search.wanted import Wanted, predicate
from penstock.operate.errors import UserError
from penstock.protocol.records import Record

expect.set_options(timeout=60_000)
TOPIC = "searched"
EACH = 3_000
QUESTIONS = [
    Wanted(key="key-77"),
    Wanted(key="key-77", exact=True),
    Wanted(value="needle"),
    Wanted(value='{"n": 5}', exact=True),
    Wanted(header="source=web"),
    Wanted(header="source=web", exact=True),
    Wanted(header="eb-1"),
    Wanted(header="nothing="),
    Wanted(key="9", value="needle", header="source=web"),
    Wanted(expression="value.n == 11 or key.endswith('99')"),
    Wanted(expression="headers.source == 'web-1' and value.n > 100"),
    Wanted(expression="value.name == 'é'"),
    Wanted(value="not there"),
]


@pytest.fixture(scope="module")
def searched(console: Console) -> list[tuple[int, Record]]:
    """A topic of two partitions, each codec, with aborted transactions and nulls; what a plain reader reads of it."""
    where = {"bootstrap.servers": console.broker.bootstrap}
    admin = AdminClient(where)
    admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(30)
    dice = random.Random(3)
    for codec in ("none", "lz4", "zstd"):
        producer = Producer({**where, "transactional.id": f"search-{codec}", "compression.type": codec})
        producer.init_transactions(30)
        for good in (True, False, True):
            producer.begin_transaction()
            for number in range(EACH // 6):
                _produce(producer, dice, number)
            producer.flush(30)
            producer.commit_transaction(30) if good else producer.abort_transaction(30)
    consumer = Consumer({**where, "group.id": "plain", "enable.partition.eof": True})
    consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(2)])
    read, ends = [], 0
    while ends < 2:
        message = consumer.poll(30)
        assert message is not None
        if message.error() is not None:
            ends += 1
            continue
        headers = tuple(message.headers() or ())
        record = Record(message.offset(), message.timestamp()[1], message.key(), message.value(), headers)
        read.append((message.partition(), record))
    consumer.close()
    assert len(read) == EACH
    return sorted(read, key=lambda pair: (pair[0], pair[1].offset))


def _produce(producer: Producer, dice: random.Random, number: int) -> None:
    value = {"n": number, "name": dice.choice(["a", "é"])} if number % 3 else {"n": number}
    text = json.dumps(value, ensure_ascii=number % 2 == 0)
    content: Any = None if number % 50 == 0 else f"a needle {number}" if number % 40 == 1 else text
    headers = [("source", f"web-{number % 4}" if number % 8 else b"web")] if number % 5 else None
    producer.produce(TOPIC, content, f"key-{number}", partition=number % 2, headers=headers, timestamp=1_000 + number)


@pytest.fixture(scope="module")
def client(console: Console) -> Iterator[SyncClient]:
    with SyncClient(console.broker.bootstrap) as made:
        yield made


def _spans(client: SyncClient) -> dict[int, tuple[int, int]]:
    keys = [(TOPIC, index) for index in range(2)]
    ends = client.list_offsets(dict.fromkeys(keys, -1), read_committed=True)
    return {key[1]: (0, ends[key].offset) for key in keys}


@pytest.mark.parametrize("wanted", QUESTIONS, ids=str)
def test_it_finds_what_a_plain_reader_finds(
    client: SyncClient, searched: list[tuple[int, Record]], wanted: Wanted
) -> None:
    accepts, spans = predicate(wanted), _spans(client)
    expected = [(partition, record) for partition, record in searched if accepts(TOPIC, partition, record)]
    portions = list(Scan(client, TOPIC, spans, wanted, ()).forwards())
    assert [_tuple(one) for portion in portions for one in portion.found] == [_tuple(one) for one in expected]
    assert sum(portion.read for portion in portions) == sum(end for _, end in spans.values())
    back = [_tuple(one) for portion in Scan(client, TOPIC, spans, wanted, ()).backwards(EACH) for one in portion.found]
    assert sorted(back) == [_tuple(one) for one in expected]


def _tuple(found: tuple[int, Record]) -> tuple[Any, ...]:
    return found[0], *found[1][:4], tuple(found[1].headers)


def test_one_that_is_told_to_stop_goes_no_further(client: SyncClient, searched: Any) -> None:
    scan = Scan(client, TOPIC, _spans(client), Wanted(expression="value.n != -1"), ())
    portions = scan.forwards()
    first = next(portions)
    scan.stop.set()
    rest = sum(portion.read for portion in portions)
    assert 0 < first.read + rest < sum(end for _, end in scan.spans.values())


def test_what_is_masked_is_neither_found_nor_shown(client: SyncClient, searched: Any) -> None:
    spans = _spans(client)

    def found(masks: tuple[str, ...], **what: Any) -> list[Record]:
        portions = Scan(client, TOPIC, spans, Wanted(**what), masks).forwards()
        return [record for portion in portions for _, record in portion.found]

    assert not found(("key",), key="key-77") and not found(("key",), expression='key == "key-77"')
    assert len(found(("key",), key="•••", exact=True)) == EACH
    assert not found(("value.name",), value="é") and not found(("value",), expression='value.name == "é"')
    assert all("é" not in str(record.value) for record in found(("value.name",), value="•••"))
    assert not found(("headers.source",), header="source=web")
    assert not found(("headers",), expression='headers.source == "web-1"')
    assert len(found(("value",), key="key-77", exact=True)) == len(found((), key="key-77", exact=True)) > 0


def _question(console: Console, client: SyncClient, **wanted: Any) -> dict[str, Any]:
    asked = {**Wanted(**wanted).__dict__, "partitions": []}
    return {
        "properties": {"bootstrap.servers": console.broker.bootstrap}, "topic": TOPIC, "spans": _spans(client),
        "backwards": False, "most": None, "wanted": asked, "masks": [], "formats": {}, "form": "rows",
    }  # fmt: skip


def test_processes_are_bounded_and_used_again(console: Console, client: SyncClient, searched: Any) -> None:
    pool, stop = Pool(most=1, most_of_one_user=1), threading.Event()
    try:
        running = pool.ask("ann", _question(console, client, value="needle"), stop)
        assert "rows" in next(running)
        with pytest.raises(UserError, match="1 searches of ann are running"):
            next(pool.ask("ann", _question(console, client, value="needle"), stop))
        gone = threading.Event()
        waiting = pool.ask("bob", _question(console, client, value="needle"), gone, gone.set)
        assert next(waiting, None) is None  # it waited for the only process, and was stopped there
        list(running)
        (process,) = pool._idle
        stop.set()
        assert list(pool.ask("ann", _question(console, client, expression="value.n >= 0"), stop)) is not None
        assert pool._idle == [process] and process.is_alive
        stop.clear()
        assert sum(len(one["rows"]) for one in pool.ask("ann", _question(console, client, value="needle"), stop)) > 0
        left = pool.ask("ann", _question(console, client, value="needle"), stop)
        next(left)
        left.close()
        assert not process.is_alive and pool._idle == []
        assert sum(len(one["rows"]) for one in pool.ask("ann", _question(console, client, value="needle"), stop)) > 0
    finally:
        pool.close()


def test_a_page_searches_with_a_process(page: Any, console: Console, searched: Any) -> None:
    page.goto(f"{console.address}/c/local/topics/{TOPIC}")
    page.get_by_label("Key holds").fill("key-77")
    page.get_by_role("checkbox", name="Whole field").click()
    page.get_by_role("button", name="Search", exact=True).click()
    many = sum(record.key == b"key-77" for _, record in searched)
    expect(page.get_by_text(f"{many} messages,")).to_be_visible()
    with console.client() as friend:
        where = f"{console.local}/topics/{TOPIC}/messages"
        exact = friend.get(where, params={"header": "source=web", "exact": "true", "limit": 1000}).json()
        assert len(exact) == sum(("source", b"web") in record.headers for _, record in searched)
        times = [row["timestamp_ms"] for row in friend.get(where, params={"value": "needle", "limit": 30}).json()]
        assert len(times) == 30 and times == sorted(times, reverse=True)
        whole = friend.get(f"{where}.jsonl", params={"value": "needle"}).text.splitlines()
        assert len(whole) == sum(b"needle" in (record.value or b"") for _, record in searched)
