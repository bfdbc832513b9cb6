"""The hand-written codecs say the same on the wire as the ones compiled from Kafka's schemas, in every version."""

from __future__ import annotations

import struct
import uuid
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.broker.fetch.codec import encode_fetch, parse_fetch
from penstock.broker.metadata import codec as metadata_codec
from penstock.broker.network.outbox import FileRegion
from penstock.broker.network.wire import MalformedFrame, begin_frame, end_frame
from penstock.broker.produce.codec import PartitionResult, encode_produce, parse_produce
from penstock.broker.produce.shape import shape_of
from penstock.protocol import messages
from penstock.replication.reads import Fetched

TOPIC_ID = uuid.UUID("8a1f2d3c-0000-4111-8222-333344445555")
PARSE_ERRORS = (MalformedFrame, struct.error, IndexError, UnicodeDecodeError)

names = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=30)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)


def decoded(name: str, version: int, frame_bytes: bytes, flexible_header: bool) -> Any:
    size, correlation_id = struct.unpack_from(">ii", frame_bytes)
    assert size == len(frame_bytes) - 4
    assert correlation_id == 99
    return messages.decode_response(messages.api(name).key, version, frame_bytes, 9 if flexible_header else 8)


@pytest.mark.parametrize("version", range(3, 14))
@given(
    transactional_id=st.none() | names,
    acks=st.integers(-2, 2),
    timeout_ms=int32,
    topics=st.lists(
        st.tuples(names, st.lists(st.tuples(int32, st.none() | st.binary(max_size=300)), max_size=3)), max_size=3
    ),
)
@settings(max_examples=25, deadline=None)
def test_a_produce_request_is_parsed_as_kafka_encodes_it(
    version: int, transactional_id: str | None, acks: int, timeout_ms: int, topics: Any
) -> None:
    api = messages.api("produce").load_all_versions()
    request = api.Request(transactional_id=transactional_id, acks=acks, timeout_ms=timeout_ms)
    request.topic_data = [
        api.TopicProduceData(
            name=name,
            topic_id=TOPIC_ID,
            partition_data=[api.PartitionProduceData(index=index, records=records) for index, records in partitions],
        )
        for name, partitions in topics
    ]
    body = messages.encode_request(0, version, request)
    buffer = bytearray(b"before" + body + b"after")

    parsed = parse_produce(buffer, version, 6, 6 + len(body))

    assert (parsed.transactional_id, parsed.acks, parsed.timeout_ms) == (transactional_id, acks, timeout_ms)
    assert len(parsed.topics) == len(topics)
    for (name, partitions), (parsed_name, parsed_partitions) in zip(topics, parsed.topics, strict=True):
        assert parsed_name == (TOPIC_ID.bytes if version >= 13 else name.encode())
        assert [(index, buffer[at : at + size] if size >= 0 else None) for index, at, size in parsed_partitions] == (
            partitions
        )


@pytest.mark.parametrize("version", range(3, 14))
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_a_damaged_produce_request_is_refused_and_never_read_past_its_frame(version: int, data: st.DataObject) -> None:
    api = messages.api("produce").load_all_versions()
    request = api.Request(
        acks=1,
        timeout_ms=1,
        topic_data=[
            api.TopicProduceData(name="t", partition_data=[api.PartitionProduceData(index=0, records=b"x" * 80)])
        ],
    )
    body = bytearray(messages.encode_request(0, version, request))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    body = body[: data.draw(st.integers(0, len(body)))]
    try:
        parsed = parse_produce(body + bytes(1000), version, 0, len(body))
    except PARSE_ERRORS:
        return
    for _, partitions in parsed.topics:
        for _, at, size in partitions:
            assert size <= 0 or at + size <= len(body)


def result(index: int, error: int, offset: int, errors: Any = (), message: str | None = None) -> PartitionResult:
    made = PartitionResult(index, error, message)
    made.base_offset, made.append_time_ms, made.log_start_offset = offset, 12, 5
    made.record_errors = errors
    return made


@pytest.mark.parametrize("version", range(3, 14))
def test_a_produce_answer_is_what_kafka_would_decode(version: int) -> None:
    name = TOPIC_ID.bytes if version >= 13 else b"orders"
    results = [(name, [result(0, 0, 42), result(1, 87, -1, ((3, "bad key"), (4, None)), "refused"), result(2, 6, -1)])]
    leaders = {(name, 2): (4, 9, "host", 9092, "rack")}

    answer = decoded("produce", version, encode_produce(version, 99, results, 17, leaders), version >= 9)

    assert answer.throttle_time_ms == 17
    (topic,) = answer.responses
    assert topic.topic_id == TOPIC_ID if version >= 13 else topic.name == "orders"
    good, bad, moved = topic.partition_responses
    assert (good.index, good.error_code, good.base_offset, good.log_append_time_ms) == (0, 0, 42, 12)
    assert (bad.index, bad.error_code) == (1, 87)
    if version >= 5:
        assert good.log_start_offset == 5
    if version >= 8:
        assert [(e.batch_index, e.batch_index_error_message) for e in bad.record_errors] == [(3, "bad key"), (4, None)]
        assert bad.error_message == "refused"
    if version >= 10:
        assert (moved.current_leader.leader_id, moved.current_leader.leader_epoch) == (4, 9)
        assert [(n.node_id, n.host, n.port, n.rack) for n in answer.node_endpoints] == [(4, "host", 9092, "rack")]


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("size", [61, 126, 127, 128, 5000, 20_000, 300_000])
def test_a_request_of_the_usual_shape_is_recognised_and_answered_like_any_other(version: int, size: int) -> None:
    api = messages.api("produce").load_all_versions()

    def body(records: bytes, partition: int = 3) -> bytes:
        data = api.PartitionProduceData(index=partition, records=records)
        topic = api.TopicProduceData(name="orders", topic_id=TOPIC_ID, partition_data=[data])
        return bytes(messages.encode_request(0, version, api.Request(acks=1, timeout_ms=5, topic_data=[topic])))

    first = body(b"a" * 100)
    shape = shape_of(parse_produce(first, version, 0, len(first)), first, version, 0, object())
    if version < 7:
        assert shape is None  # its batches may not use every codec
        return
    assert shape is not None
    again = bytearray(b"xx" + body(b"b" * size) + b"next frame")

    found = shape.match(again, version, 2, len(again) - 10)

    assert found is not None
    assert again[found[0] : sum(found)] == b"b" * size
    name = TOPIC_ID.bytes if version >= 13 else b"orders"
    assert shape.answer(99, 42, 12, 5) == encode_produce(version, 99, [(name, [result(3, 0, 42)])], 0)
    other = bytearray(body(b"b" * size, partition=4))
    assert shape.match(other, version, 0, len(other)) is None
    assert shape.match(again, version, 2, len(again) - 11) is None


class Region(NamedTuple):
    file: Any
    position: int
    length: int


class File:
    fd = 0


@pytest.mark.parametrize("version", range(4, 19))
@given(
    partitions=st.lists(st.tuples(names, int32, int64, int32, int32), max_size=4),
    forgotten=st.lists(st.tuples(names, int32), max_size=3),
    session=st.tuples(int32, int32),
    rack=names,
)
@settings(max_examples=25, deadline=None)
def test_a_fetch_request_is_parsed_as_kafka_encodes_it(
    version: int, partitions: Any, forgotten: Any, session: Any, rack: str
) -> None:
    api = messages.api("fetch").load_all_versions()
    request = api.Request(replica_id=-1, max_wait_ms=5, min_bytes=2, max_bytes=3000, isolation_level=1, rack_id=rack)
    request.session_id, request.session_epoch = session
    request.topics = [
        api.FetchTopic(
            topic=name,
            topic_id=TOPIC_ID,
            partitions=[
                api.FetchPartition(
                    partition=index,
                    fetch_offset=offset,
                    partition_max_bytes=max_bytes,
                    current_leader_epoch=epoch,
                    last_fetched_epoch=4,
                    log_start_offset=6,
                )
            ],
        )
        for name, index, offset, max_bytes, epoch in partitions
    ]
    request.forgotten_topics_data = [
        api.ForgottenTopic(topic=name, topic_id=TOPIC_ID, partitions=[index]) for name, index in forgotten
    ]
    body = messages.encode_request(1, version, request)

    parsed = parse_fetch(bytearray(b"-" + body + b"-"), version, 1, 1 + len(body))

    assert (parsed.max_wait_ms, parsed.min_bytes, parsed.max_bytes, parsed.isolation_level) == (5, 2, 3000, 1)
    wire_names = [TOPIC_ID.bytes if version >= 13 else name.encode() for name, *_ in partitions]
    assert [p.name for p in parsed.partitions] == wire_names
    assert [(p.index, p.offset, p.max_bytes) for p in parsed.partitions] == [p[1:4] for p in partitions]
    if version >= 7:
        assert (parsed.session_id, parsed.session_epoch) == session
        assert [index for _, index in parsed.forgotten] == [index for _, index in forgotten]
    if version >= 9:
        assert [p.current_leader_epoch for p in parsed.partitions] == [p[4] for p in partitions]
    if version >= 11:
        assert parsed.rack_id == rack


@pytest.mark.parametrize("version", [15, 16, 17, 18])
def test_a_followers_fetch_names_itself_in_a_tagged_field(version: int) -> None:
    api = messages.api("fetch").load_all_versions()
    request = api.Request(topics=[], forgotten_topics_data=[])
    request.replica_state = api.ReplicaState(replica_id=3, replica_epoch=77)
    body = messages.encode_request(1, version, request)
    parsed = parse_fetch(bytes(body), version, 0, len(body))
    assert (parsed.replica_id, parsed.replica_epoch) == (3, 77)


class Aborted(NamedTuple):
    producer_id: int
    first_offset: int


@pytest.mark.parametrize("version", range(4, 19))
def test_a_fetch_answer_is_what_kafka_would_decode(version: int) -> None:
    api = messages.api("fetch").load_all_versions()
    request = api.Request(
        topics=[
            api.FetchTopic(
                topic="orders", topic_id=TOPIC_ID, partitions=[api.FetchPartition(partition=i) for i in range(4)]
            )
        ]
    )
    body = messages.encode_request(1, version, request)
    asked = parse_fetch(bytes(body), version, 0, len(body)).partitions
    fetched = [
        Fetched(0, 10, 9, 1, Region(File(), 500, 20), [Aborted(5, 6)]),
        Fetched(6),
        Fetched(0, 10, 9, 1, None, None, (2, 30)),
        Fetched(0, 7, 7, 0, Region(File(), 0, 300)),
    ]
    leaders = {(asked[1].name, 1): (4, 9, "host", 9092, None)}

    parts = encode_fetch(version, 99, 0, 1234, list(zip(asked, fetched, strict=True)), leaders)

    regions = [part for part in parts if type(part) is FileRegion]
    assert [(r.position, r.length) for r in regions] == [(500, 20), (0, 300)]
    on_wire = b"".join(b"r" * part.length if type(part) is FileRegion else bytes(part) for part in parts)
    answer = decoded("fetch", version, on_wire, version >= 12)
    (topic,) = answer.responses
    data, moved, diverged, last = topic.partitions
    assert (data.high_watermark, data.last_stable_offset, bytes(data.records)) == (10, 9, b"r" * 20)
    assert [(a.producer_id, a.first_offset) for a in data.aborted_transactions] == [(5, 6)]
    assert (moved.error_code, bytes(moved.records), moved.aborted_transactions) == (6, b"", None)
    assert bytes(last.records) == b"r" * 300
    if version >= 7:
        assert answer.session_id == 1234
    if version >= 12:
        assert (diverged.diverging_epoch.epoch, diverged.diverging_epoch.end_offset) == (2, 30)
    if version >= 16:
        assert moved.current_leader.leader_id == 4
        assert [n.node_id for n in answer.node_endpoints] == [4]


@pytest.mark.parametrize("version", range(14))
@pytest.mark.parametrize("topics", [None, [], ["a"], ["a", "long-name" * 20]])
def test_a_metadata_request_is_parsed_as_kafka_encodes_it(version: int, topics: list[str] | None) -> None:
    if version == 0 and topics is None:
        topics = []
    api = messages.api("metadata").load_all_versions()
    wanted = api.request_struct("MetadataRequestTopic")
    request = api.Request(
        topics=None if topics is None else [wanted(name=name) for name in topics],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    body = messages.encode_request(3, version, request)
    parsed = metadata_codec.parse_metadata(bytes(body), version, 0, len(body))
    if topics is None or (version == 0 and not topics):
        assert parsed.topics is None
    else:
        assert parsed.topics == [(bytes(16), name) for name in topics]
    assert parsed.allow_auto_topic_creation is (version < 4)
    assert parsed.include_topic_operations is (version >= 8)


@pytest.mark.parametrize("version", range(14))
def test_a_metadata_answer_is_what_kafka_would_decode(version: int) -> None:
    out = begin_frame(99, version >= 9)
    brokers = [metadata_codec.BrokerRow(1, "one", 9092, None), metadata_codec.BrokerRow(2, "two", 9093, "r")]
    out += metadata_codec.encode_brokers(version, brokers, "cluster", 2)
    out += metadata_codec.encode_count(version, 2)
    rows = [
        metadata_codec.PartitionRow(0, 0, 1, 4, (1, 2), (1,), (2,)),
        metadata_codec.PartitionRow(5, 1, -1, 5, (), (), ()),
    ]
    out += metadata_codec.encode_topic(version, 0, "orders", TOPIC_ID.bytes, True, rows)
    out += metadata_codec.encode_topic_end(version, 8)
    out += metadata_codec.encode_topic(version, 3, "gone", bytes(16), False, [])
    out += metadata_codec.encode_topic_end(version, metadata_codec.NOT_ASKED)
    out += metadata_codec.encode_end(version, 6)

    answer = decoded("metadata", version, bytes(end_frame(out)), version >= 9)

    assert [(b.node_id, b.host, b.port) for b in answer.brokers] == [(1, "one", 9092), (2, "two", 9093)]
    orders, gone = answer.topics
    assert (orders.error_code, orders.name, gone.error_code, gone.name) == (0, "orders", 3, "gone")
    first, second = orders.partitions
    assert (first.leader_id, first.replica_nodes, first.isr_nodes, second.error_code) == (1, [1, 2], [1], 5)
    if version >= 1:
        assert (answer.controller_id, orders.is_internal, answer.brokers[1].rack) == (2, True, "r")
    if version >= 5:
        assert first.offline_replicas == [2]
    if version >= 7:
        assert first.leader_epoch == 4
    if version >= 10:
        assert orders.topic_id == TOPIC_ID
