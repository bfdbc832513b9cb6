"""The attacks of `make prove-attacks`: each is made once, then runs against a port until its time is over.

Bytes are prepared before the clock starts, so that an attacker costs the machine as little as it can.
"""

from __future__ import annotations

import contextlib
import gzip
import itertools
import socket
import struct
import threading
import time
from collections.abc import Callable

from penstock.protocol import messages
from penstock.protocol.codecs import Codec
from penstock.testing.hostile_batches import bomb, dense_payload, sealed, sealed_as_it_is

Attack = Callable[[int, float], None]
"""(port, when to end by the monotonic clock)."""

LONG_NAMES = [f"{index:02}-{'a' * 200}" for index in range(40)]
_HUGE_BYTES = 100 * 1024 * 1024 - 4096  # just below what a broker takes at all


# -- the wire


def frame(name: str, version: int, request: object) -> bytes:
    key = messages.api(name).key
    header = struct.pack(">hhih", key, version, 7, 6) + b"attack"
    body = (
        header
        + (b"\0" if messages.is_flexible(key, version) else b"")
        + bytes(messages.encode_request(key, version, request))
    )
    return struct.pack(">i", len(body)) + body


def ask(sock: socket.socket, data: bytes) -> bytes:
    sock.sendall(data)
    return _read(sock, struct.unpack(">i", _read(sock, 4))[0])


def _read(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = sock.recv(min(size - len(data), 1 << 20))
        if not part:
            raise ConnectionError("closed")
        data += part
    return bytes(data)


def connect(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), timeout=30)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def produce_frame(topic: str, batch: bytes) -> bytes:
    api = messages.api("produce").load_all_versions()
    data = api.PartitionProduceData(index=0, records=batch)
    topics = [api.TopicProduceData(name=topic, partition_data=[data])]
    return frame("produce", 9, api.Request(acks=1, timeout_ms=10_000, topic_data=topics))


def make_topics(port: int) -> None:
    api = messages.api("create_topics").load_all_versions()
    config = api.CreatableTopicConfig
    topics = [
        api.CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=configs)
        for name, configs in (
            ("plain", []),
            ("read", []),
            ("compacted", [config(name="cleanup.policy", value="compact")]),
            *((name, []) for name in LONG_NAMES),
        )
    ]
    with connect(port) as sock:
        ask(sock, frame("create_topics", 5, api.Request(topics=topics, timeout_ms=30_000)))


# -- the attacks


def _again_and_again(data: bytes) -> Attack:
    def run(port: int, ends: float) -> None:
        while time.monotonic() < ends:
            with contextlib.suppress(OSError), connect(port) as sock:
                while time.monotonic() < ends:
                    ask(sock, data)

    return run


def _dense_compacted() -> Attack:
    return _again_and_again(produce_frame("compacted", sealed(dense_payload(1_000_000), 1_000_000)))


def _keyless() -> Attack:
    return _again_and_again(produce_frame("compacted", sealed(dense_payload(300_000, key=None), 300_000)))


def _late() -> Attack:
    tomorrow = int(time.time() * 1000) + 86_400_000
    return _again_and_again(produce_frame("plain", sealed(dense_payload(1_000_000), 1_000_000, timestamp=tomorrow)))


def _bombs() -> Attack:
    frames = [produce_frame("compacted", bomb(codec)) for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)]

    def run(port: int, ends: float) -> None:
        while time.monotonic() < ends:
            for data in frames:
                with contextlib.suppress(OSError), connect(port) as sock:
                    ask(sock, data)

    return run


def _coordinators() -> Attack:
    api = messages.api("find_coordinator").load_all_versions()
    keys = [f"g{index}" for index in range(300_000)]
    return _again_and_again(frame("find_coordinator", 4, api.Request(key_type=0, coordinator_keys=keys)))


def _offsets() -> Attack:
    api = messages.api("list_offsets").load_all_versions()
    row = api.ListOffsetsPartition
    rows = [row(partition_index=index, current_leader_epoch=-1, timestamp=-1) for index in range(1_000_000)]
    topic = api.ListOffsetsTopic(name="plain", partitions=rows)
    return _again_and_again(frame("list_offsets", 7, api.Request(replica_id=-1, isolation_level=0, topics=[topic])))


def _names() -> Attack:
    api = messages.api("metadata").load_all_versions()
    topic = api.request_struct("MetadataRequestTopic")
    topics = [topic(name=f"n{index}") for index in range(300_000)]
    return _again_and_again(frame("metadata", 9, api.Request(topics=topics, allow_auto_topic_creation=False)))


def _positions() -> Attack:
    api = messages.api("offset_fetch").load_all_versions()
    topic = api.OffsetFetchRequestTopic(name="plain", partition_indexes=list(range(500_000)))
    return _again_and_again(frame("offset_fetch", 6, api.Request(group_id="many", topics=[topic])))


def _tagged() -> Attack:
    """ApiVersions, which needs no login, with two million empty tagged fields in its header."""
    body = struct.pack(">hhih", 18, 3, 7, -1) + b"\x80\x89\x7a" + bytes(4_000_000) + b"\x02x\x02y\x00"
    return _again_and_again(struct.pack(">i", len(body)) + body)


def _configs() -> Attack:
    api = messages.api("describe_configs").load_all_versions()
    one = api.DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
    return _again_and_again(frame("describe_configs", 4, api.Request(resources=[one] * 500, include_synonyms=True)))


def _many_topics() -> Attack:
    api = messages.api("create_topics").load_all_versions()
    topics = [
        api.CreatableTopic(name=f"t{index}", num_partitions=10_000, replication_factor=1, assignments=[], configs=[])
        for index in range(200)
    ]
    return _again_and_again(frame("create_topics", 5, api.Request(topics=topics, timeout_ms=1000, validate_only=True)))


def _stalled_readers() -> Attack:
    api = messages.api("metadata").load_all_versions()
    topic = api.request_struct("MetadataRequestTopic")
    names = [topic(name=f"{index:03}-{'x' * 240}") for index in range(400)]
    data = frame("metadata", 9, api.Request(topics=names, allow_auto_topic_creation=False)) * 64

    def run(port: int, ends: float) -> None:
        readers = [connect(port) for _ in range(30)]
        for reader in readers:
            reader.settimeout(0.2)
            with contextlib.suppress(OSError):
                reader.sendall(data)
        time.sleep(max(ends - time.monotonic(), 0))
        for reader in readers:
            reader.close()

    return run


def _flood() -> Attack:
    api = messages.api("metadata").load_all_versions()
    data = frame("metadata", 9, api.Request(topics=[], allow_auto_topic_creation=False))

    def run(port: int, ends: float) -> None:
        with connect(port) as sock:
            while time.monotonic() < ends:
                sock.sendall(data * 500)
                for _ in range(500):
                    _read(sock, struct.unpack(">i", _read(sock, 4))[0])

    return run


def _half_frames() -> Attack:
    def run(port: int, ends: float) -> None:
        halves = [connect(port) for _ in range(200)]
        for half in halves:
            half.sendall(struct.pack(">i", 4 << 20) + bytes(20_000))
        time.sleep(max(ends - time.monotonic(), 0))
        for half in halves:
            half.close()

    return run


def _storm() -> Attack:
    def run(port: int, ends: float) -> None:
        while time.monotonic() < ends:
            with contextlib.suppress(OSError):
                connect(port).close()

    return run


def _fetches() -> Attack:
    api = messages.api("fetch").load_all_versions()
    rows = [
        api.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in range(1_000_000)
    ]
    topics = [api.FetchTopic(topic="plain", partitions=rows)]
    request = api.Request(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_id=0, session_epoch=-1, topics=topics)
    return _again_and_again(frame("fetch", 12, request))


def _largest_fetches() -> Attack:
    """As many partitions as Penstock takes, in a session each time."""
    api = messages.api("fetch").load_all_versions()
    rows = [
        api.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in range(120_000)
    ]
    topics = [api.FetchTopic(topic="plain", partitions=rows)]
    request = api.Request(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_id=0, session_epoch=0, topics=topics)
    return _again_and_again(frame("fetch", 12, request))


def _gzip_members() -> Attack:
    return _again_and_again(produce_frame("compacted", sealed_as_it_is(gzip.compress(b"") * 50_000, Codec.GZIP)))


def _patterns() -> Attack:
    api = messages.api("consumer_group_heartbeat").load_all_versions()
    numbers = itertools.count()

    def joining() -> bytes:
        number = next(numbers)
        request = api.Request(
            group_id=f"patterns-{number // 60}",
            member_id=f"m{number}",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_regex=f"(((a|b|.){{0,20}}){{0,20}})+x{number}",
            topic_partitions=[],
        )
        return frame("consumer_group_heartbeat", 1, request)

    def run(port: int, ends: float) -> None:
        with connect(port) as sock:
            while time.monotonic() < ends:
                ask(sock, joining())

    return run


def _idle_connections() -> Attack:
    def run(port: int, ends: float) -> None:
        idle: list[socket.socket] = []
        with contextlib.suppress(OSError):
            idle.extend(connect(port) for _ in range(10_000))
        time.sleep(max(ends - time.monotonic(), 0))
        for one in idle:
            one.close()

    return run


def _fill(port: int, topic: str) -> None:
    payload = sealed(bytes(900_000), 1, codec=Codec.NONE)
    with connect(port) as sock:
        for _ in range(8):
            ask(sock, produce_frame(topic, payload))


def _slow_readers() -> Attack:
    api = messages.api("fetch").load_all_versions()
    row = api.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=8 << 20)
    topics = [api.FetchTopic(topic="read", partitions=[row])]
    request = api.Request(max_wait_ms=0, min_bytes=1, max_bytes=8 << 20, session_id=0, session_epoch=-1, topics=topics)
    data = frame("fetch", 12, request)

    def run(port: int, ends: float) -> None:
        _fill(port, "read")
        readers = [connect(port) for _ in range(300)]
        for reader in readers:
            reader.sendall(data)
        while time.monotonic() < ends:
            for reader in readers:
                with contextlib.suppress(OSError):
                    reader.recv(500)
            time.sleep(0.02)
        for reader in readers:
            reader.close()

    return run


def _slow_writers() -> Attack:
    def run(port: int, ends: float) -> None:
        writers = [connect(port) for _ in range(300)]
        for writer in writers:
            writer.sendall(struct.pack(">i", 50_000_000))
        while time.monotonic() < ends:
            for writer in writers:
                with contextlib.suppress(OSError):
                    writer.send(b"\0")
        for writer in writers:
            writer.close()

    return run


def _half_open() -> Attack:
    """Connections that begin a request and are gone without a goodbye: reset, not closed."""
    half = struct.pack(">i", 1 << 20) + bytes(2000)

    def run(port: int, ends: float) -> None:
        while time.monotonic() < ends:
            with contextlib.suppress(OSError):
                sock = connect(port)
                sock.sendall(half)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                sock.close()

    return run


def _huge_requests() -> Attack:
    data = produce_frame("plain", bytes(_HUGE_BYTES))

    def one(port: int, ends: float) -> None:
        while time.monotonic() < ends:
            with contextlib.suppress(OSError), connect(port) as sock:
                ask(sock, data)

    def run(port: int, ends: float) -> None:
        senders = [threading.Thread(target=one, args=(port, ends), daemon=True) for _ in range(8)]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join(max(ends - time.monotonic(), 0) + 20)

    return run


ATTACKS: dict[str, Callable[[], Attack]] = {
    "a million records in a batch, compacted topic": _dense_compacted,
    "300,000 records without keys, compacted topic": _keyless,
    "a million records of tomorrow": _late,
    "bombs of 64 MB in every codec": _bombs,
    "gzip of 50,000 empty members": _gzip_members,
    "FindCoordinator of 300,000 keys": _coordinators,
    "ListOffsets of a million partitions": _offsets,
    "Fetch of a million partitions": _fetches,
    "Fetch of 120,000 partitions, in sessions": _largest_fetches,
    "Metadata of 300,000 topics": _names,
    "OffsetFetch of 500,000 partitions": _positions,
    "two million tagged fields before a login": _tagged,
    "DescribeConfigs of 500 times one broker": _configs,
    "CreateTopics of 200 × 10,000, only validated": _many_topics,
    "60 costly patterns in a group, group after group": _patterns,
    "30 readers that stall": _stalled_readers,
    "300 slow readers": _slow_readers,
    "300 slow writers": _slow_writers,
    "a flood on one connection": _flood,
    "200 half-sent frames of 4 MB": _half_frames,
    "connections reset in the middle of a request": _half_open,
    "a storm of connections": _storm,
    "10,000 idle connections": _idle_connections,
    "8 clients with requests of 100 MB": _huge_requests,
}
