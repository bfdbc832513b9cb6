"""Fetches that look like the last one: the short way says what the general one says, and leaves nothing behind."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Any

import pytest
from raw_client import RawClient, batch, ensure_topic, fetch_request, frame, produce_request, request_frame
from usual_oracle import GeneralWay, general_way

import penstock
from penstock.log import cold
from penstock.log.log import Log
from penstock.protocol import messages
from penstock.security.acls import AclSet, Rules

__all__ = ["general_way"]

VERSIONS = range(7, 19)


def produce(port: int, topic: str, *values: bytes) -> None:
    with RawClient(port) as client:
        for value in values:
            client.call("produce", 9, produce_request(topic, batch(value)))


def named(version: int, topic: str, topic_id: Any) -> dict[str, Any]:
    return {"topic": "" if version >= 13 else topic, "topic_id": topic_id if version >= 13 else None}


class Session:
    """One partition in a session of its own."""

    def __init__(self, port: int, version: int, topic: str, topic_id: Any, **fields: Any) -> None:
        self.client = RawClient(port)
        self.version = version
        self.fields = {**named(version, topic, topic_id), **fields}
        self.id, self.epoch = 0, 0
        self.ask(0, max_wait_ms=0)
        self.id = self.read().session_id
        assert self.id

    def ask(self, offset: int, max_wait_ms: int = 20_000) -> None:
        request = fetch_request(
            offset=offset, session_id=self.id, session_epoch=self.epoch, max_wait_ms=max_wait_ms, **self.fields
        )
        self.client.send(request_frame("fetch", self.version, request))
        self.epoch += 1

    def read(self) -> Any:
        return self.client.read_response("fetch", self.version)[1]

    def records(self) -> bytes:
        answer = self.read()
        assert answer.error_code == 0
        (told,) = answer.responses[0].partitions
        assert told.error_code == 0
        return bytes(told.records or b"")


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_same_bytes_as_of_a_first_fetch(
    broker: penstock.Broker, topic: str, version: int, general_way: GeneralWay
) -> None:
    topic_id = ensure_topic(broker.port, topic)
    produce(broker.port, topic, b"one", b"two" * 100, b"three")
    with RawClient(broker.port) as usual:
        for isolation_level in (0, 1):
            for offset in (0, 1, 2, 3, 4, 1, 2):
                asked = fetch_request(
                    offset=offset, isolation_level=isolation_level, max_bytes=200, **named(version, topic, topic_id)
                )
                sent = request_frame("fetch", version, asked)
                usual.send(sent)
                with RawClient(broker.port) as fresh:
                    fresh.send(sent)
                    assert usual.read_frame() == fresh.read_frame()
    assert general_way.differences == []
    assert general_way.served >= 8, "nothing took the short way"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_that_waits_at_the_end(
    broker: penstock.Broker, topic: str, version: int, general_way: GeneralWay
) -> None:
    topic_id = ensure_topic(broker.port, topic)
    readers = [Session(broker.port, version, topic, topic_id, isolation_level=number % 2) for number in range(4)]
    for offset in range(5):
        for reader in readers:
            reader.ask(offset)
        produce(broker.port, topic, b"record %d" % offset)
        for reader in readers:
            assert b"record %d" % offset in reader.records()
    assert general_way.differences == []
    assert general_way.served >= 12
    for reader in readers:
        reader.client.socket.close()


def test_a_poll_that_ends_without_records(broker: penstock.Broker, topic: str, general_way: GeneralWay) -> None:
    ensure_topic(broker.port, topic)
    reader = Session(broker.port, 12, topic, None)
    for offset in (0, 1):
        reader.ask(offset)
        produce(broker.port, topic, b"%d" % offset)
        assert reader.records()
    for _ in range(3):
        reader.ask(2, max_wait_ms=30)  # another shape, then one that comes again
        assert reader.read().responses == []
    assert general_way.empty >= 2
    produce(broker.port, topic, b"2")
    reader.ask(2, max_wait_ms=30)
    assert reader.records()
    reader.client.socket.close()


def test_whoever_hangs_up_is_forgotten(broker: penstock.Broker, topic: str, general_way: GeneralWay) -> None:
    ensure_topic(broker.port, topic)
    reader = Session(broker.port, 12, topic, None)
    for offset in (0, 1):
        reader.ask(offset)
        produce(broker.port, topic, b"%d" % offset)
        assert reader.records()
    running: Any = broker._broker
    partition = running.replicas.partitions[(topic, 0)]
    reader.ask(2)
    until(lambda: len(partition.fetch_waits) == 1)
    parked = running.replicas.parking.fetch_waits
    assert running.dispatcher.long_polls >= set(partition.fetch_waits)
    reader.client.socket.close()
    until(lambda: not partition.fetch_waits)
    assert running.replicas.parking.fetch_waits == parked - 1
    assert general_way.differences == []


def test_a_topic_that_goes_is_told(broker: penstock.Broker, topic: str, general_way: GeneralWay) -> None:
    ensure_topic(broker.port, topic)
    reader = Session(broker.port, 12, topic, None)
    for offset in (0, 1):
        reader.ask(offset)
        produce(broker.port, topic, b"%d" % offset)
        assert reader.records()
    reader.ask(2)
    api = messages.api("delete_topics").load_all_versions()
    with RawClient(broker.port) as client:
        client.call("delete_topics", 5, api.Request(topic_names=[topic], timeout_ms=10_000))
    (told,) = reader.read().responses[0].partitions
    assert told.error_code in (3, 6)
    reader.client.socket.close()


def test_a_wrong_epoch_and_a_closed_session_are_told(broker: penstock.Broker, topic: str) -> None:
    ensure_topic(broker.port, topic)
    produce(broker.port, topic, b"0", b"1", b"2")
    reader = Session(broker.port, 12, topic, None)
    for offset in (0, 1, 2):
        reader.ask(offset)
        assert reader.records()
    reader.epoch += 1
    reader.ask(0)
    assert reader.read().error_code == 71
    reader.epoch -= 2
    reader.ask(0)
    assert reader.records()
    with RawClient(broker.port) as other:  # a final epoch closes it, whoever says so
        other.call("fetch", 12, fetch_request(topic, 0, session_id=reader.id, session_epoch=-1))
    reader.ask(0)
    assert reader.read().error_code == 70
    reader.client.socket.close()


def test_answers_stay_in_the_order_of_requests(broker: penstock.Broker, topic: str) -> None:
    """A fetch that can be answered at once waits behind a produce that cannot yet."""
    ensure_topic(broker.port, topic)
    produce(broker.port, topic, b"0", b"1")
    with RawClient(broker.port) as client:
        for _ in range(2):
            client.call("fetch", 12, fetch_request(topic, 0))
        frames = b""
        for number in range(0, 60, 3):
            frames += request_frame("produce", 9, produce_request(topic, batch(b"v")), number)
            frames += request_frame("fetch", 12, fetch_request(topic, number % 2), number + 1)
            frames += request_frame("fetch", 12, fetch_request(topic, 1), number + 2)
        client.send(frames)
        answered = [struct.unpack_from(">i", client.read_frame())[0] for _ in range(60)]
    assert answered == list(range(60))


def test_other_partitions_of_the_session_are_not_missed(broker: penstock.Broker, topic: str) -> None:
    """While the usual one is waited for, another partition of the session gets records."""
    api = messages.api("create_topics").load_all_versions()
    fetch = messages.api("fetch").load_all_versions()
    with RawClient(broker.port) as client:
        wanted = api.CreatableTopic(name=topic, num_partitions=2, replication_factor=1)
        client.call("create_topics", 5, api.Request(topics=[wanted], timeout_ms=10_000))
        ensure_topic(broker.port, topic)
        both = [fetch.FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=1000) for n in (0, 1)]
        first = fetch.Request(
            max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_epoch=0,
            topics=[fetch.FetchTopic(topic=topic, partitions=both)],
        )  # fmt: skip
        session_id = client.call("fetch", 12, first).session_id
        with RawClient(broker.port) as writer:
            for offset in range(4):
                asked = fetch_request(
                    topic, offset, session_id=session_id, session_epoch=offset + 1, max_wait_ms=20_000
                )
                client.send(request_frame("fetch", 12, asked))
                partition = int(offset == 3)
                writer.call("produce", 9, produce_request(topic, batch(b"v"), partition=partition))
                (told,) = client.read_response("fetch", 12)[1].responses[0].partitions
                assert (told.partition_index, bool(told.records)) == (partition, True)


@pytest.mark.parametrize(("min_bytes", "max_bytes"), [(0, 1 << 20), (1, 0)])
def test_who_wants_no_bytes_does_not_wait(broker: penstock.Broker, topic: str, min_bytes: int, max_bytes: int) -> None:
    ensure_topic(broker.port, topic)
    asked = fetch_request(topic, 0, max_wait_ms=15_000, min_bytes=min_bytes, max_bytes=max_bytes)
    began = time.monotonic()
    with RawClient(broker.port) as client:
        for _ in range(3):
            client.call("fetch", 12, asked)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_is_not_mistaken_for_none(broker: penstock.Broker, topic: str, version: int) -> None:
    """Behind a fetch without a session, on the same connection."""
    topic_id = ensure_topic(broker.port, topic)
    produce(broker.port, topic, b"0")
    name = named(version, topic, topic_id)
    ended = Session(broker.port, version, topic, topic_id)
    ended.client.socket.close()
    with RawClient(broker.port) as client:
        for session_id in (0, ended.id):
            for _ in range(2):
                asked = fetch_request(offset=0, session_id=session_id, session_epoch=-1, **name)
                assert client.call("fetch", version, asked).responses
            asked = fetch_request(offset=0, session_id=session_id, session_epoch=1, **name)
            assert client.call("fetch", version, asked).error_code == 70
            asked = fetch_request(offset=0, session_id=session_id, session_epoch=0, **name)
            assert client.call("fetch", version, asked).session_id


@pytest.mark.parametrize("version", [12, 13])
def test_numbers_written_longer_than_need_be(broker: penstock.Broker, topic: str, version: int) -> None:
    """They move the offset by a byte, and all the bytes around it may be zeros."""
    topic_id = ensure_topic(broker.port, topic)
    with RawClient(broker.port) as client:
        client.call("produce", 9, produce_request(topic, batch(b"0")))
        client.call("produce", 9, produce_request(topic, batch(*[b"v"] * 255)))
        client.call("produce", 9, produce_request(topic, batch(b"256")))
        for offset in (0, 256):
            asked = fetch_request(offset=offset, current_leader_epoch=0, **named(version, topic, topic_id))
            body = bytes(messages.encode_request(1, version, asked))
            assert body[25] == 2  # one topic
            client.send(frame(1, version, body[:25] + b"\x82\x00" + body[26:]))
            (told,) = client.read_response("fetch", version)[1].responses[0].partitions
            assert int.from_bytes(told.records[:8], "big") == offset


def test_pages_that_are_missing_for_one_keep_nobody_else_waiting(
    broker: penstock.Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fetch that must not wait for the disk writes what is staged, and so wakes others."""
    ensure_topic(broker.port, topic)
    produce(broker.port, topic, b"0", b"1")
    read = Log.read
    refused: list[int] = []

    def on_the_disk_only(log: Log, offset: int, *args: Any, **fields: Any) -> Any:
        if log.name == f"{topic}-0" and offset == 1 and cold.must_not_wait() and len(refused) < 2:
            refused.append(offset)
            raise cold.ColdPages
        return read(log, offset, *args, **fields)

    monkeypatch.setattr(Log, "read", on_the_disk_only)
    running: Any = broker._broker
    waits = running.replicas.partitions[(topic, 0)].fetch_waits
    with RawClient(broker.port) as much, RawClient(broker.port) as any_record, RawClient(broker.port) as writer:
        refused += [1, 1]
        much.send(request_frame("fetch", 12, fetch_request(topic, 1, max_wait_ms=15_000, min_bytes=100)))
        until(lambda: len(waits) == 1)
        any_record.send(request_frame("fetch", 12, fetch_request(topic, 2, max_wait_ms=15_000)))
        until(lambda: len(waits) == 2)
        refused.clear()
        began = time.monotonic()
        writer.send(
            request_frame("produce", 9, produce_request(topic, batch(b"v" * 100)))
            + request_frame("fetch", 12, fetch_request(topic, 0))
        )
        for client in (much, any_record):
            (told,) = client.read_response("fetch", 12)[1].responses[0].partitions
            assert told.records
        assert time.monotonic() - began < 10
    assert refused


def test_other_rules_and_another_asker_are_looked_at(broker: penstock.Broker, topic: str) -> None:
    """They may hide or show other partitions of the session than the usual one."""
    ensure_topic(broker.port, topic)
    produce(broker.port, topic, b"0", b"1")
    running: Any = broker._broker
    reader = Session(broker.port, 12, topic, None)
    reader.ask(0)
    assert reader.records()
    (session,) = [one for one in running.fetch_sessions.sessions.values() if one.id == reader.id]
    usual = session.usual
    assert usual._holds()

    class Rights:
        rules = Rules(AclSet(), frozenset(), True)

        def may_read(self, *_: object) -> bool:
            return True

    rights: Any = Rights()
    usual._rules = rights.rules
    assert usual._may_read(rights)
    rights.rules = Rules(AclSet(), frozenset(), True)
    assert not usual._may_read(rights)
    api = messages.api("fetch").load_all_versions()
    nothing_named = api.Request(
        max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_id=reader.id, session_epoch=reader.epoch, topics=[],
        isolation_level=1,
    )  # fmt: skip
    assert reader.client.call("fetch", 12, nothing_named).error_code == 0
    assert not usual._holds()
    reader.client.socket.close()
