"""Probes of Produce and of idempotent producers."""

from __future__ import annotations

import struct
import time
from typing import Any

from penstock.protocol import messages
from penstock.protocol.batch import build_batch
from penstock.protocol.codecs import Codec
from penstock.protocol.crc import crc32c
from penstock.protocol.records import Record
from penstock.testing.probes.harness import Session, probe


def batch(
    count: int = 1, key: bytes | None = b"k", value: bytes | None = b"v", timestamp: int | None = None, **more: Any
) -> bytearray:
    now = int(time.time() * 1000) if timestamp is None else timestamp
    records = [Record(offset=i, timestamp=now, key=key, value=value, headers=()) for i in range(count)]
    return bytearray(build_batch(records, **more))


def reseal(data: bytearray) -> bytearray:
    """Make the checksum right again after the header was changed."""
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return data


def produce(
    session: Session, topic: str, data: bytes | bytearray | None, version: int = 9, acks: int = -1, partition: int = 0
) -> Any:
    api = messages.api("produce").load_all_versions()
    row = api.PartitionProduceData(index=partition, records=None if data is None else bytes(data))
    wanted = api.TopicProduceData(partition_data=[row])
    if version >= 13:
        wanted.topic_id = session.topic_id(topic)
    else:
        wanted.name = topic
    request = api.Request(acks=acks, timeout_ms=3000, topic_data=[wanted])
    if acks == 0:
        session.send("produce", version, request)
        return None
    answer = session.call("produce", version, request)
    result = answer.responses[0].partition_responses[0]
    return result.error_code, result.base_offset, len(result.record_errors), result.log_start_offset


for _version in range(3, 14):

    @probe(f"produce v{_version}")
    def _produce(session: Session, version: int = _version) -> Any:
        topic = session.topic()
        return produce(session, topic, batch(3), version), produce(session, topic, batch(2), version)


for _acks in (0, 1, -1, 2, -2, 5):

    @probe(f"produce with acks {_acks}")
    def _acks_probe(session: Session, acks: int = _acks) -> Any:
        topic = session.topic()
        first = produce(session, topic, batch(), acks=acks)
        return first, produce(session, topic, batch(), acks=1)


@probe("produce with acks 0 to a topic that is not there closes the connection")
def _acks_zero(session: Session) -> Any:
    session.topic()
    produce(session, "not-there", batch(), acks=0)
    return session.read_raw()


@probe("produce: unknown topic")
def _unknown(session: Session) -> Any:
    return produce(session, "never-created", batch())


for _partition in (1, -1, 2**31 - 1):

    @probe(f"produce: partition {_partition}")
    def _partition_probe(session: Session, partition: int = _partition) -> Any:
        return produce(session, session.topic(), batch(), partition=partition)


def _with(offset: int, layout: str, value: int, seal: bool = True) -> bytearray:
    data = batch(2)
    struct.pack_into(layout, data, offset, value)
    return reseal(data) if seal else data


BAD_BATCHES: dict[str, Any] = {
    "no bytes": lambda: b"",
    "null records": lambda: None,
    "half a header": lambda: bytes(batch()[:30]),
    "cut in the last byte": lambda: bytes(batch()[:-1]),
    "one byte too many": lambda: bytes(batch()) + b"\0",
    "two batches": lambda: bytes(batch()) + bytes(batch()),
    "a wrong checksum": lambda: _with(17, ">I", 1, seal=False),
    "magic 0": lambda: _with(16, ">b", 0),
    "magic 1": lambda: _with(16, ">b", 1),
    "magic 3": lambda: _with(16, ">b", 3),
    "a length of zero": lambda: _with(8, ">i", 0),
    "a negative length": lambda: _with(8, ">i", -1),
    "a length beyond the data": lambda: _with(8, ">i", 1_000_000),
    "a base offset of 5": lambda: _with(0, ">q", 5, seal=False),
    "the control bit": lambda: _with(21, ">h", 0x20),
    "a record count of 0": lambda: _with(57, ">i", 0),
    "a record count of -1": lambda: _with(57, ">i", -1),
    "a record count too high": lambda: _with(57, ">i", 3),
    "a last offset delta too high": lambda: _with(23, ">i", 5),
    "a negative last offset delta": lambda: _with(23, ">i", -1),
    "an unknown codec": lambda: _with(21, ">h", 5),
    "codec 7": lambda: _with(21, ">h", 7),
    "log append time declared": lambda: _with(21, ">h", 0x08),
    "a producer id without a sequence": lambda: _with(43, ">q", 4000),
    "a leader epoch of its own": lambda: _with(12, ">i", 77, seal=False),
    "the transactional bit without an id": lambda: _with(21, ">h", 0x10),
    "a far future timestamp": lambda: batch(timestamp=int(time.time() * 1000) + 3 * 3_600_000),
    "an ancient timestamp": lambda: batch(timestamp=1000),
    "no timestamp": lambda: batch(timestamp=-1),
    "a tombstone": lambda: batch(value=None),
    "no key": lambda: batch(key=None),
}  # fmt: skip
for _label, _make in BAD_BATCHES.items():

    @probe(f"produce: {_label}")
    def _bad(session: Session, make: Any = _make) -> Any:
        topic = session.topic()
        data = make()
        first = produce(session, topic, None if data is None else bytes(data))
        return first, produce(session, topic, bytes(batch()))


for _codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):

    @probe(f"produce: {_codec.name.lower()}")
    def _codecs(session: Session, codec: Codec = _codec) -> Any:
        topic = session.topic()
        return produce(session, topic, bytes(batch(5, codec=codec))), produce(
            session, topic, bytes(batch(5, codec=codec)), version=6
        )


@probe("produce: larger than max.message.bytes")
def _too_large(session: Session) -> Any:
    return produce(session, session.topic(max_message_bytes="1000"), bytes(batch(value=b"x" * 2000)))


@probe("produce: compacted topic refuses a null key")
def _compacted(session: Session) -> Any:
    topic = session.topic(cleanup_policy="compact")
    return produce(session, topic, bytes(batch(3, key=None))), produce(session, topic, bytes(batch(3)))


@probe("produce: compacted topic refuses a null key inside gzip")
def _compacted_gzip(session: Session) -> Any:
    topic = session.topic(cleanup_policy="compact")
    return produce(session, topic, bytes(batch(3, key=None, codec=Codec.GZIP))), produce(
        session, topic, bytes(batch(3, codec=Codec.GZIP))
    )


@probe("produce: log append time topic")
def _append_time(session: Session) -> Any:
    topic = session.topic(message_timestamp_type="LogAppendTime")
    return produce(session, topic, bytes(batch(2, timestamp=1000)))


@probe("produce: timestamp bounds of the topic")
def _bounds(session: Session) -> Any:
    topic = session.topic(message_timestamp_before_max_ms="1000", message_timestamp_after_max_ms="1000")
    now = int(time.time() * 1000)
    return [produce(session, topic, bytes(batch(timestamp=now + shift))) for shift in (0, 60_000, -60_000)]


@probe("produce: the codec of the topic wins")
def _topic_codec(session: Session) -> Any:
    topic = session.topic(compression_type="gzip")
    return produce(session, topic, bytes(batch(20, value=b"a" * 50)))


def producer_id(session: Session) -> int:
    api = messages.api("init_producer_id")
    answer = session.call("init_producer_id", 4, api.Request(transactional_id=None, transaction_timeout_ms=60_000))
    return int(answer.producer_id)


SEQUENCES: dict[str, list[tuple[int, int, int]]] = {  # (epoch, base sequence, count)
    "in order": [(0, 0, 2), (0, 2, 3), (0, 5, 1)],
    "a duplicate": [(0, 0, 2), (0, 2, 2), (0, 0, 2), (0, 2, 2)],
    "a gap": [(0, 0, 1), (0, 5, 1)],
    "starts above zero": [(0, 7, 1), (0, 8, 1)],
    "an older epoch": [(3, 0, 1), (2, 1, 1)],
    "a newer epoch": [(0, 0, 1), (1, 0, 1), (0, 1, 1)],
    "a newer epoch not at zero": [(0, 0, 1), (1, 4, 1)],
    "a duplicate beyond the last five": [*[(0, n, 1) for n in range(7)], (0, 0, 1), (0, 6, 1)],
    "a partial duplicate": [(0, 0, 4), (0, 1, 2)],
    "wrap-around": [(0, 2**31 - 2, 2), (0, 0, 1)],
}
for _label, _steps in SEQUENCES.items():

    @probe(f"idempotent produce: {_label}")
    def _sequences(session: Session, steps: list[tuple[int, int, int]] = _steps) -> Any:
        topic = session.topic()
        pid = producer_id(session)
        return [
            produce(session, topic, bytes(batch(count, producer_id=pid, producer_epoch=epoch, base_sequence=sequence)))
            for epoch, sequence, count in steps
        ]


for _version in range(6):

    @probe(f"init producer id v{_version}")
    def _init(session: Session, version: int = _version) -> Any:
        api = messages.api("init_producer_id")
        answer = session.call(
            "init_producer_id", version, api.Request(transactional_id=None, transaction_timeout_ms=1000)
        )
        return answer.error_code, answer.producer_id >= 0, answer.producer_epoch


@probe("init producer id: an empty transactional id")
def _init_empty(session: Session) -> Any:
    api = messages.api("init_producer_id")
    return session.call("init_producer_id", 4, api.Request(transactional_id="", transaction_timeout_ms=1000)).error_code


@probe("describe producers: after an idempotent batch")
def _describe_producers(session: Session) -> Any:
    topic = session.topic()
    pid = producer_id(session)
    produce(session, topic, bytes(batch(3, producer_id=pid, producer_epoch=0, base_sequence=0)))
    api = messages.api("describe_producers")
    request = api.Request(topics=[api.TopicRequest(name=topic, partition_indexes=[0, 5])])
    answer = session.call("describe_producers", 0, request)
    partitions = sorted(answer.topics[0].partitions, key=lambda p: p.partition_index)
    producers = [
        (a.producer_id == pid, a.producer_epoch, a.last_sequence, a.coordinator_epoch, a.current_txn_start_offset)
        for p in partitions
        for a in p.active_producers
    ]
    return [p.error_code for p in partitions], producers
