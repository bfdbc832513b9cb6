"""A fetch looks only at partitions with news: beside each fetch of random sessions the full look finds nothing more."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from raw_client import RawClient, batch, ensure_topic, produce_request
from usual_oracle import GeneralWay, general_way

import penstock
from penstock.broker.api.fetch import FetchHandler, Results
from penstock.broker.fetch.usual import UsualFetch
from penstock.protocol import messages
from penstock.replication import reads

__all__ = ["general_way"]

PARTITIONS = 8
VERSION = 12


class FullLook:
    """The oracle: what resting partitions would say, were they asked."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.missed: list[str] = []
        self.looks = self.rested = 0
        read = FetchHandler.read

        def both(
            handler: FetchHandler, connection: Any, request: Any, context: Any, *args: Any, **fields: Any
        ) -> Results:
            results = read(handler, connection, request, context, *args, **fields)
            if context.session is not None:
                self.look(handler, connection, request, context.session)
            return results

        patch.setattr(FetchHandler, "read", both)
        take = UsualFetch.take

        def looked_at(usual: UsualFetch, *args: Any) -> bool:
            taken = take(usual, *args)
            if taken and usual._session is not None:
                self.look(usual._handler, usual._connection, usual._request, usual._session)
            return taken

        patch.setattr(UsualFetch, "take", looked_at)

    def look(self, handler: FetchHandler, connection: Any, request: Any, session: Any) -> None:
        self.looks += 1
        assert session.partitions.keys() == {(p.name, p.index) for p in (*session.news.due(), *session.news.resting)}
        turns = [asked.turn for asked in session.partitions.values()]
        assert turns == sorted(turns), "the turns are not the order of the session"
        for asked, partition in session.news.resting.items():
            if partition.dirty:
                continue  # it is stirred when it is written
            self.rested += 1
            found = handler.find(request, asked)
            fetched = reads.fetch(partition, asked.offset, asked.max_bytes, handler.bound(request), leader_only=False)
            told = (asked.told_high_watermark, asked.told_log_start_offset)
            if (
                found is not partition
                or not handler.may_fetch(connection, request, asked)
                or fetched.answers_at_once
                or fetched.size
                or told != (fetched.high_watermark, fetched.log_start_offset)
            ):
                self.missed.append(f"{partition!r} at {asked.offset}")


@pytest.fixture
def full_look(monkeypatch: pytest.MonkeyPatch) -> FullLook:
    return FullLook(monkeypatch)


@pytest.fixture
def busy() -> Iterator[penstock.Broker]:
    with penstock.Broker(num_partitions=PARTITIONS, settings={"auto.create.topics.enable": "true"}) as running:
        yield running


class Reader:
    """A consumer with a session that follows what it is told, by hand."""

    def __init__(self, port: int, topic: str, draw: random.Random, committed: bool) -> None:
        self.client = RawClient(port)
        self.topic, self.draw, self.committed = topic, draw, committed
        self.session, self.epoch = 0, 0
        self.positions = dict.fromkeys(range(PARTITIONS), 0)
        self.high_watermarks: dict[int, int] = {}
        self.moved: set[int] = set(self.positions)

    def fetch(self, max_bytes: int = 1 << 20, max_wait_ms: int = 0) -> None:
        api = messages.api("fetch").load_all_versions()
        wanted = [
            api.FetchPartition(partition=index, fetch_offset=self.positions[index], partition_max_bytes=max_bytes)
            for index in sorted(self.moved)
        ]
        request = api.Request(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            session_id=self.session,
            session_epoch=self.epoch,
            isolation_level=int(self.committed),
            topics=[api.FetchTopic(topic=self.topic, partitions=wanted)] if wanted else [],
        )
        answer = self.client.call("fetch", VERSION, request)
        assert answer.error_code == 0
        self.session, self.epoch = answer.session_id, self.epoch + 1
        self.moved.clear()
        for topic in answer.responses:
            for told in topic.partitions:
                self._take(told)

    def _take(self, told: Any) -> None:
        index = told.partition_index
        if told.error_code == 1:  # out of range: its records were deleted
            self.positions[index] = max(told.log_start_offset, self.positions[index] + 1)
            self.moved.add(index)
            return
        assert told.error_code == 0
        self.high_watermarks[index] = told.high_watermark
        records = bytes(told.records or b"")
        at = 0
        while at + 61 <= len(records):
            base, length = int.from_bytes(records[at : at + 8], "big"), int.from_bytes(records[at + 8 : at + 12], "big")
            if at + 12 + length > len(records):
                break
            last = int.from_bytes(records[at + 23 : at + 27], "big")
            self.positions[index] = max(self.positions[index], base + last + 1)
            self.moved.add(index)
            at += 12 + length


def delete_records(client: RawClient, topic: str, index: int) -> None:
    api = messages.api("delete_records").load_all_versions()
    partition = api.DeleteRecordsPartition(partition_index=index, offset=-1)
    request = api.Request(topics=[api.DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=5000)
    client.call("delete_records", 2, request)


def test_sessions_read_in_slices_miss_nothing(
    busy: penstock.Broker, topic: str, full_look: FullLook, general_way: GeneralWay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.broker.api.fetch.SLICED_FROM", 2)
    monkeypatch.setattr("penstock.broker.fetch.sliced.PARTITIONS_PER_SLICE", 2)
    test_random_sessions_miss_nothing(busy, topic, full_look, general_way, 3)


@pytest.mark.parametrize("seed", range(3))
def test_random_sessions_miss_nothing(
    busy: penstock.Broker, topic: str, full_look: FullLook, general_way: GeneralWay, seed: int
) -> None:
    story(busy, topic, seed, lambda draw: draw.randrange(PARTITIONS), (150, 1000, 1 << 20), (0, 0, 0, 5))
    assert full_look.missed == []
    assert general_way.differences == []
    assert full_look.rested > 100, "nothing rested: the test shows nothing"


@pytest.mark.parametrize("seed", range(2))
def test_random_sessions_that_mostly_read_one_partition_miss_nothing(
    busy: penstock.Broker, topic: str, full_look: FullLook, general_way: GeneralWay, seed: int
) -> None:
    story(busy, topic, seed, lambda draw: 0 if draw.random() < 0.95 else 1, (150,), (5,))
    assert full_look.missed == []
    assert general_way.differences == []
    assert general_way.served >= 5, "nothing took the short way: the test shows nothing"


def story(
    busy: penstock.Broker,
    topic: str,
    seed: int,
    partition: Callable[[random.Random], int],
    limits: tuple[int, ...],
    waits: tuple[int, ...],
) -> None:
    """Producers, transactions, deletions and four readers; in the end all have read everything."""
    from confluent_kafka import Producer

    draw = random.Random(seed)
    settings = {"bootstrap.servers": busy.bootstrap, "transactional.id": "t", "linger.ms": 0, "log_level": 0}
    transactions = Producer(settings)
    transactions.init_transactions()
    with RawClient(busy.port) as writer:
        ensure_topic(busy.port, topic)
        readers = [Reader(busy.port, topic, draw, committed=number % 2 == 1) for number in range(4)]
        in_transaction = False
        for _ in range(250):
            what = draw.random()
            index = partition(draw)
            if what < 0.3:
                writer.call("produce", 9, produce_request(topic, batch(b"x" * draw.randrange(300)), partition=index))
            elif what < 0.33:
                delete_records(writer, topic, index)
            elif what < 0.4:
                if in_transaction:
                    (transactions.commit_transaction if draw.random() < 0.5 else transactions.abort_transaction)()
                else:
                    transactions.begin_transaction()
                    transactions.produce(topic, b"y", partition=index)
                    transactions.flush()
                in_transaction = not in_transaction
            else:
                reader = draw.choice(readers)
                reader.fetch(draw.choice(limits), draw.choice(waits))
        if in_transaction:
            transactions.commit_transaction()
        for reader in readers:
            reader.fetch()
            while reader.moved:
                reader.fetch()
        ends = [readers[0].positions[index] for index in range(PARTITIONS)]
        for reader in readers:
            assert [reader.positions[index] for index in range(PARTITIONS)] == ends
            assert [reader.high_watermarks[index] for index in range(PARTITIONS)] == ends
            reader.client.socket.close()


def test_an_idle_partition_is_not_looked_at(busy: penstock.Broker, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ensure_topic(busy.port, topic)
    looked: list[int] = []
    fetch = reads.fetch

    def counted(partition: Any, *args: Any, **fields: Any) -> Any:
        looked.append(partition.index)
        return fetch(partition, *args, **fields)

    monkeypatch.setattr(reads, "fetch", counted)
    reader = Reader(busy.port, topic, random.Random(0), committed=False)
    with RawClient(busy.port) as writer:
        reader.fetch()
        assert sorted(looked) == list(range(PARTITIONS)), "the first fetch of a session is a full one"
        looked.clear()
        reader.fetch()
        assert looked == []
        writer.call("produce", 9, produce_request(topic, batch(b"news"), partition=3))
        reader.fetch()
        assert (looked, reader.positions[3]) == ([3], 1)
    reader.client.socket.close()
