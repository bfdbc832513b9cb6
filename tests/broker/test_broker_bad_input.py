"""Whatever a client sends, only its own connection suffers; everybody else is served, and the log stays readable."""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from raw_client import RawClient, batch, ensure_topic, fetch_request, frame, metadata, produce_request, request_frame

import penstock
from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode


def api_versions_request(software: str) -> object:
    return messages.api("api_versions").Request(client_software_name=software, client_software_version="1.0")


def produce_error(client: RawClient, topic: str, records: bytes | None, version: int = 9, **fields: object) -> int:
    answer = client.call("produce", version, produce_request(topic, records, **fields))  # type: ignore[arg-type]
    return int(answer.responses[0].partition_responses[0].error_code)


def still_serves(broker: penstock.Broker, topic: str) -> None:
    """A fresh client writes and reads."""
    with RawClient(broker.port) as client:
        answer = client.call("produce", 9, produce_request(topic, batch(b"fine"), acks=-1))
        (partition,) = answer.responses[0].partition_responses
        assert partition.error_code == 0
        fetched = client.call("fetch", 12, fetch_request(topic, partition.base_offset))
        assert b"fine" in bytes(fetched.responses[0].partitions[0].records)


@pytest.fixture(scope="module")
def shared_topic(broker: penstock.Broker) -> str:
    ensure_topic(broker.port, "shared")
    return "shared"


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", -1),
        struct.pack(">i", -(2**31)),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 104_857_601),
        struct.pack(">i", 0),
        struct.pack(">i", 3) + b"abc",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(600),
        frame(0, 9, b"")[:4] + struct.pack(">hhih", 0, 9, 1, 30_000) + bytes(20),
    ],
    ids=["minus-one", "most-negative", "huge", "over-limit", "empty", "no-header", "http", "tls", "client-id-too-long"],
)
def test_bytes_that_are_no_request_close_the_connection(
    broker: penstock.Broker, shared_topic: str, data: bytes
) -> None:
    with RawClient(broker.port) as client:
        client.send(data)
        client.socket.shutdown(socket.SHUT_WR)
        assert client.is_closed()
    still_serves(broker, shared_topic)


@pytest.mark.parametrize("api_key", [4, 52, 93, 999, -1, 32767])
def test_an_unknown_api_closes_the_connection(broker: penstock.Broker, api_key: int) -> None:
    with RawClient(broker.port) as client:
        header = struct.pack(">hhih", api_key, 0, 1, -1)
        client.send(struct.pack(">i", len(header)) + header)
        assert client.is_closed()


@pytest.mark.parametrize(("api_key", "version"), [(0, 2), (0, 14), (1, 3), (1, 99), (3, 14), (19, 1)])
def test_an_unsupported_version_closes_the_connection(broker: penstock.Broker, api_key: int, version: int) -> None:
    with RawClient(broker.port) as client:
        header = struct.pack(">hhih", api_key, version, 1, -1)
        client.send(struct.pack(">i", len(header)) + header)
        assert client.is_closed()


@pytest.mark.parametrize("version", [5, 99, 32767])
def test_api_versions_of_an_unknown_version_is_answered_with_the_list(broker: penstock.Broker, version: int) -> None:
    with RawClient(broker.port) as client:
        header = struct.pack(">hhih", 18, version, 5, 3) + b"raw\x00"
        client.send(struct.pack(">i", len(header)) + header)
        data = client.read_frame()
        answer = messages.decode_response(18, 0, data, 4)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        listed = {k.api_key: (k.min_version, k.max_version) for k in answer.api_keys}
        assert (listed[18], listed[0]) == ((0, 4), (0, 13))
        # and the connection goes on
        again = client.call("api_versions", 3, api_versions_request("raw"))
        assert again.error_code == 0


def test_client_software_names_are_checked(broker: penstock.Broker) -> None:
    with RawClient(broker.port) as client:
        answer = client.call("api_versions", 3, api_versions_request("bad name!"))
        assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_a_frame_that_comes_byte_by_byte_is_served(broker: penstock.Broker, shared_topic: str) -> None:
    request = request_frame("produce", 9, produce_request(shared_topic, batch(b"slow")))
    with RawClient(broker.port) as client:
        for position in range(len(request)):
            client.send(request[position : position + 1])
        _, answer = client.read_response("produce", 9)
        assert answer.responses[0].partition_responses[0].error_code == 0


def test_a_connection_dropped_at_each_byte_harms_nobody(broker: penstock.Broker, shared_topic: str) -> None:
    request = request_frame("produce", 9, produce_request(shared_topic, batch(b"dropped", b"dropped too")))
    for cut in range(len(request)):
        with RawClient(broker.port) as client:
            client.send(request[:cut])
    still_serves(broker, shared_topic)


class TestRecords:
    @pytest.fixture
    def client(self, broker: penstock.Broker, shared_topic: str) -> Iterator[RawClient]:
        with RawClient(broker.port) as connected:
            yield connected

    def test_a_wrong_checksum(self, client: RawClient, shared_topic: str) -> None:
        records = bytearray(batch(b"v"))
        records[-1] ^= 1
        assert produce_error(client, shared_topic, bytes(records)) == ErrorCode.CORRUPT_MESSAGE

    @pytest.mark.parametrize(
        ("magic", "error"),
        [
            (0, ErrorCode.INVALID_RECORD),
            (1, ErrorCode.INVALID_RECORD),
            (3, ErrorCode.CORRUPT_MESSAGE),
            (255, ErrorCode.CORRUPT_MESSAGE),
        ],
    )
    def test_a_wrong_magic(self, client: RawClient, shared_topic: str, magic: int, error: int) -> None:
        records = bytearray(batch(b"v"))
        records[16] = magic
        assert produce_error(client, shared_topic, bytes(records)) == error

    @pytest.mark.parametrize("records", [None, b"", b"x", bytes(16), bytes(60)])
    def test_no_whole_batch(self, client: RawClient, shared_topic: str, records: bytes | None) -> None:
        assert produce_error(client, shared_topic, records) in (
            ErrorCode.INVALID_RECORD,
            ErrorCode.CORRUPT_MESSAGE,
        )

    def test_two_batches(self, client: RawClient, shared_topic: str) -> None:
        assert produce_error(client, shared_topic, batch(b"a") + batch(b"b")) == ErrorCode.INVALID_RECORD

    def test_a_cut_batch_behind_a_whole_one_is_dropped(self, client: RawClient, shared_topic: str) -> None:
        assert produce_error(client, shared_topic, batch(b"a") + b"\x00") == 0
        assert produce_error(client, shared_topic, batch(b"a") + batch(b"b")[:-1]) == 0

    def test_a_transactional_batch_without_a_transactional_id(self, client: RawClient, shared_topic: str) -> None:
        records = batch(b"v", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
        assert produce_error(client, shared_topic, records) == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

    def test_a_cut_batch(self, client: RawClient, shared_topic: str) -> None:
        assert produce_error(client, shared_topic, batch(b"value")[:-1]) == ErrorCode.INVALID_RECORD

    @pytest.mark.parametrize("count", [0, -1, 2, 2**31 - 1])
    def test_a_lying_record_count(self, client: RawClient, shared_topic: str, count: int) -> None:
        from penstock.protocol.crc import crc32c

        records = bytearray(batch(b"v"))
        struct.pack_into(">i", records, 57, count)
        struct.pack_into(">I", records, 17, crc32c(bytes(records[21:])))
        assert produce_error(client, shared_topic, bytes(records)) == ErrorCode.INVALID_RECORD

    def test_unknown_topics_and_partitions(self, client: RawClient, shared_topic: str) -> None:
        assert produce_error(client, "no-such-topic", batch(b"v")) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert produce_error(client, shared_topic, batch(b"v"), partition=9) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert produce_error(client, shared_topic, batch(b"v"), partition=-1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_too_large_records(self, client: RawClient, shared_topic: str) -> None:
        assert produce_error(client, shared_topic, batch(b"x" * 1_100_000)) == ErrorCode.MESSAGE_TOO_LARGE

    @pytest.mark.parametrize("acks", [2, -2, 32767])
    def test_acks_that_do_not_exist(self, client: RawClient, shared_topic: str, acks: int) -> None:
        assert produce_error(client, shared_topic, batch(b"v"), acks=acks) == ErrorCode.INVALID_REQUIRED_ACKS

    def test_zstd_before_version_7(self, client: RawClient, shared_topic: str) -> None:
        from penstock.protocol.codecs import Codec

        records = batch(b"v", codec=Codec.ZSTD)
        assert produce_error(client, shared_topic, records, 6) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert produce_error(client, shared_topic, records, 7) == 0

    def test_the_good_partition_of_a_request_is_stored_beside_the_bad_one(
        self, client: RawClient, shared_topic: str
    ) -> None:
        request = produce_request(shared_topic, batch(b"good"))
        bad = produce_request("no-such-topic", batch(b"bad"))
        request.topic_data += bad.topic_data
        answer = client.call("produce", 9, request)
        assert [t.partition_responses[0].error_code for t in answer.responses] == [
            0,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]


def test_acks_0_is_silent_and_its_errors_close_the_connection(broker: penstock.Broker, shared_topic: str) -> None:
    with RawClient(broker.port) as client:
        client.send(request_frame("produce", 9, produce_request(shared_topic, batch(b"quiet"), acks=0), 1))
        # The next answer on the connection is the next request's.
        answer = client.call("produce", 9, produce_request(shared_topic, batch(b"loud")), correlation_id=2)
        assert answer.responses[0].partition_responses[0].error_code == 0
        client.send(request_frame("produce", 9, produce_request("no-such-topic", batch(b"x"), acks=0), 3))
        assert client.is_closed()


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ä", "x" * 250, "a/b"])
def test_invalid_topic_names_are_refused_and_not_created(broker: penstock.Broker, name: str) -> None:
    with RawClient(broker.port) as client:
        assert metadata(client, name).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_client_that_does_not_read_does_not_stop_others_nor_fill_memory(
    broker: penstock.Broker, shared_topic: str
) -> None:
    with RawClient(broker.port) as writer:
        for _ in range(20):
            produce_error(writer, shared_topic, batch(b"x" * 900_000))
    with RawClient(broker.port) as lazy:
        lazy.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        request = request_frame("fetch", 12, fetch_request(shared_topic, 0, max_bytes=16 << 20))
        lazy.socket.settimeout(1.0)
        with pytest.raises(TimeoutError):
            for _ in range(100_000):
                lazy.send(request)  # the broker stops reading at some point, and so does this
        still_serves(broker, shared_topic)


def test_half_a_large_frame_holds_no_memory_for_what_did_not_come(broker: penstock.Broker, shared_topic: str) -> None:
    clients = [RawClient(broker.port) for _ in range(50)]
    try:
        for client in clients:
            client.send(struct.pack(">i", 100_000_000) + b"\x00\x00\x00\x09" + bytes(50_000))
        still_serves(broker, shared_topic)
        held = sum(len(c.view) for listener in broker._broker.listeners for c in list(listener.connections))
        assert held < 50 * 1_000_000
    finally:
        for client in clients:
            client.socket.close()


RECORDED = [
    ("produce", 9, lambda: produce_request("shared", batch(b"a", b"b"))),
    ("produce", 3, lambda: produce_request("shared", batch(b"a"))),
    ("fetch", 12, lambda: fetch_request("shared", 0)),
    ("fetch", 4, lambda: fetch_request("shared", 0)),
    ("metadata", 12, lambda: messages.api("metadata").Request(topics=None)),
    ("api_versions", 3, lambda: api_versions_request("raw")),
    ("list_offsets", 7, lambda: messages.api("list_offsets").Request(replica_id=-1, topics=[])),
]


@given(st.integers(0, len(RECORDED) - 1), st.randoms(use_true_random=False), st.integers(1, 8))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_mutations_of_real_requests_never_stop_the_broker(
    broker: penstock.Broker, shared_topic: str, which: int, chance: random.Random, changes: int
) -> None:
    name, version, make = RECORDED[which]
    data = bytearray(request_frame(name, version, make()))
    for _ in range(changes):
        action = chance.random()
        position = chance.randrange(4, len(data))
        if action < 0.6:
            data[position] = chance.randrange(256)
        elif action < 0.8:
            del data[position : position + chance.randrange(1, 5)]
        else:
            data[position:position] = chance.randbytes(chance.randrange(1, 5))
        if len(data) < 8:
            break
    struct.pack_into(">i", data, 0, len(data) - 4)
    with RawClient(broker.port) as client:
        client.send(bytes(data))
        client.socket.shutdown(socket.SHUT_WR)
        client.socket.settimeout(10)
        try:
            while client.socket.recv(65536):
                pass
        except ConnectionError:
            pass


def test_after_all_of_this_the_log_is_whole(broker: penstock.Broker, shared_topic: str) -> None:
    """Runs last in this file: read everything, batch by batch, and check each."""
    from penstock.protocol.batch import crc_matches, iterate_batches

    offset, seen = 0, 0
    deadline = time.monotonic() + 30
    with RawClient(broker.port) as client:
        while True:
            assert time.monotonic() < deadline
            answer = client.call("fetch", 12, fetch_request(shared_topic, offset, max_bytes=8 << 20))
            (partition,) = answer.responses[0].partitions
            assert partition.error_code == 0
            data = bytes(partition.records)
            if not data:
                break
            for header in iterate_batches(data):
                assert crc_matches(data, header)
                assert header.base_offset == offset or seen == 0
                offset = header.next_offset
                seen += 1
    assert seen > 10
