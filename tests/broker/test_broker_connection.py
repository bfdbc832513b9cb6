"""Answers come in the order of the requests, whatever they wait for; large answers go by sendfile; limits hold."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import socket
import struct
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from raw_client import RawClient, batch, ensure_topic, fetch_request, frame, metadata, produce_request, request_frame

import penstock
from penstock.broker.network.outbox import BLOCKED, COLD, DRAINED, SMALL_REGION_BYTES, FileRegion, Outbox
from penstock.protocol import messages


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.01)


def test_a_hundred_pipelined_produces_are_answered_in_order(broker: penstock.Broker, topic: str) -> None:
    ensure_topic(broker.port, topic)
    with RawClient(broker.port) as client:
        client.send(
            b"".join(
                request_frame("produce", 9, produce_request(topic, batch(b"%d" % n), acks=(1, -1)[n % 2]), n)
                for n in range(100)
            )
        )
        for number in range(100):
            correlation_id, answer = client.read_response("produce", 9)
            assert correlation_id == number
            assert answer.responses[0].partition_responses[0].base_offset == number


def test_requests_behind_a_long_poll_wait_for_it_and_keep_their_order(broker: penstock.Broker, topic: str) -> None:
    ensure_topic(broker.port, topic)
    with RawClient(broker.port) as client, RawClient(broker.port) as other:
        client.send(request_frame("fetch", 12, fetch_request(topic, 0, max_wait_ms=60_000), 1))
        client.send(request_frame("metadata", 9, messages.api("metadata").Request(topics=[]), 2))
        client.send(request_frame("produce", 9, produce_request(topic, batch(b"second")), 3))
        wait_for(lambda: len(broker._broker.dispatcher.long_polls) == 1)
        other.call("produce", 9, produce_request(topic, batch(b"first")))
        correlation_id, fetched = client.read_response("fetch", 12)
        assert correlation_id == 1
        assert b"first" in bytes(fetched.responses[0].partitions[0].records)
        assert client.read_response("metadata", 9)[0] == 2
        correlation_id, produced = client.read_response("produce", 9)
        assert (correlation_id, produced.responses[0].partition_responses[0].base_offset) == (3, 1)
    assert not broker._broker.dispatcher.long_polls


def test_a_long_poll_ends_empty_when_its_time_is_up(broker: penstock.Broker, topic: str) -> None:
    ensure_topic(broker.port, topic)
    with RawClient(broker.port) as client:
        answer = client.call("fetch", 12, fetch_request(topic, 0, max_wait_ms=50))
        (partition,) = answer.responses[0].partitions
        assert (partition.error_code, partition.high_watermark, bytes(partition.records)) == (0, 0, b"")


def test_a_long_poll_waits_for_min_bytes(broker: penstock.Broker, topic: str) -> None:
    ensure_topic(broker.port, topic)
    with RawClient(broker.port) as client, RawClient(broker.port) as other:
        client.send(request_frame("fetch", 12, fetch_request(topic, 0, max_wait_ms=60_000, min_bytes=150)))
        wait_for(lambda: len(broker._broker.dispatcher.long_polls) == 1)
        other.call("produce", 9, produce_request(topic, batch(b"a" * 10)))
        assert len(broker._broker.dispatcher.long_polls) == 1
        other.call("produce", 9, produce_request(topic, batch(b"b" * 100)))
        _, answer = client.read_response("fetch", 12)
        assert b"b" * 100 in bytes(answer.responses[0].partitions[0].records)


def test_a_client_that_leaves_during_its_long_poll_is_forgotten(broker: penstock.Broker, topic: str) -> None:
    ensure_topic(broker.port, topic)
    with RawClient(broker.port) as client:
        client.send(request_frame("fetch", 12, fetch_request(topic, 0, max_wait_ms=60_000)))
        wait_for(lambda: len(broker._broker.dispatcher.long_polls) == 1)
    wait_for(lambda: not broker._broker.dispatcher.long_polls)
    assert broker._broker.replicas.parking.parked == 0


def test_an_error_of_one_partition_ends_the_wait(broker: penstock.Broker, topic: str) -> None:
    ensure_topic(broker.port, topic)
    with RawClient(broker.port) as client:
        answer = client.call("fetch", 12, fetch_request(topic, 5, max_wait_ms=60_000))
        assert answer.responses[0].partitions[0].error_code == 1  # OFFSET_OUT_OF_RANGE


def test_large_fetches_go_by_sendfile_small_ones_do_not(broker: penstock.Broker, topic: str) -> None:
    ensure_topic(broker.port, topic)
    counter = broker._broker.stats.sendfile_bytes
    with RawClient(broker.port) as client:
        for _ in range(4):
            client.call("produce", 9, produce_request(topic, batch(b"x" * 500_000)))
        before = counter.value
        answer = client.call("fetch", 12, fetch_request(topic, 0, max_bytes=8 << 20))
        records = bytes(answer.responses[0].partitions[0].records)
        assert records.count(b"x" * 500_000) == 4
        wait_for(lambda: counter.value - before >= len(records) - SMALL_REGION_BYTES)
        before = counter.value
        client.call("produce", 9, produce_request(topic, batch(b"small")))
        client.call("fetch", 12, fetch_request(topic, 4, max_bytes=8 << 20))
        assert counter.value == before


def test_limits_of_bytes_bind_from_the_second_partition_on(penstock_broker_factory: Any) -> None:
    broker = penstock_broker_factory(num_partitions=3)
    ensure_topic(broker.port, "limits")
    with RawClient(broker.port) as client:
        for index in range(3):
            client.call("produce", 9, produce_request("limits", batch(b"x" * 1000), partition=index))
        request = fetch_request("limits", 0, max_bytes=1200)
        api = messages.api("fetch")
        request.topics[0].partitions = [
            api.FetchPartition(partition=i, fetch_offset=0, partition_max_bytes=10) for i in range(3)
        ]
        answer = client.call("fetch", 12, request)
        sizes = [len(p.records) for p in answer.responses[0].partitions]
        assert sizes[0] > 1000
        assert sizes[1:] == [0, 0]


def test_a_fetch_inside_a_batch_returns_the_whole_batch(broker: penstock.Broker, topic: str) -> None:
    ensure_topic(broker.port, topic)
    with RawClient(broker.port) as client:
        client.call("produce", 9, produce_request(topic, batch(b"one", b"two", b"three")))
        answer = client.call("fetch", 12, fetch_request(topic, 2))
        assert b"one" in bytes(answer.responses[0].partitions[0].records)


@pytest.mark.parametrize("version", range(4, 19))
def test_every_fetch_version_reads_the_same(broker: penstock.Broker, version: int) -> None:
    topic_id = ensure_topic(broker.port, "versions")
    with RawClient(broker.port) as client:
        client.call("produce", 9, produce_request("versions", batch(b"hello")))
        answer = client.call("fetch", version, fetch_request("versions", 0, topic_id=topic_id))
        (partition,) = answer.responses[0].partitions
        assert partition.error_code == 0
        assert b"hello" in bytes(partition.records)


@pytest.mark.parametrize("version", range(3, 14))
def test_every_produce_version_writes(broker: penstock.Broker, version: int) -> None:
    topic_id = ensure_topic(broker.port, "versions")
    with RawClient(broker.port) as client:
        offsets = [
            client.call("produce", version, produce_request("versions", batch(b"v"), topic_id=topic_id))
            .responses[0]
            .partition_responses[0]
            .base_offset
            for _ in range(3)
        ]
        assert offsets == [offsets[0], offsets[0] + 1, offsets[0] + 2]


@pytest.mark.parametrize("version", range(14))
def test_every_metadata_version_tells_the_address_the_client_came_by(broker: penstock.Broker, version: int) -> None:
    ensure_topic(broker.port, "versions")
    with RawClient(broker.port) as client:
        api = messages.api("metadata").load_all_versions()
        wanted = api.request_struct("MetadataRequestTopic")(name="versions")
        answer = client.call("metadata", version, api.Request(topics=[wanted]))
        assert [(b.host, b.port) for b in answer.brokers] == [("127.0.0.1", broker.port)]
        (topic,) = answer.topics
        assert (topic.error_code, topic.partitions[0].leader_id) == (0, answer.brokers[0].node_id)


def test_advertised_listeners_are_told_instead(penstock_broker_factory: Any) -> None:
    broker = penstock_broker_factory(settings={"advertised.listeners": "PLAINTEXT://broker.example:1234"})
    with RawClient(broker.port) as client:
        answer = client.call("metadata", 9, messages.api("metadata").Request(topics=[]))
        assert [(b.host, b.port) for b in answer.brokers] == [("broker.example", 1234)]


def test_connections_above_the_limit_per_address_are_closed(penstock_broker_factory: Any) -> None:
    broker = penstock_broker_factory(settings={"max.connections.per.ip": "2"})
    first, second = RawClient(broker.port), RawClient(broker.port)
    with first, second:
        for client in (first, second):
            metadata(client, "x", create=False)
        with RawClient(broker.port) as third:
            assert third.is_closed()
    wait_for(lambda: not broker._broker.listeners[0].connections)
    with RawClient(broker.port) as again:
        metadata(again, "x", create=False)


def test_connections_above_the_total_wait_until_one_closes(penstock_broker_factory: Any) -> None:
    broker = penstock_broker_factory(settings={"max.connections": "1"})
    with RawClient(broker.port) as first, RawClient(broker.port) as second:
        metadata(first, "x", create=False)
        second.send(request_frame("metadata", 9, messages.api("metadata").Request(topics=[])))
        first.socket.close()
        assert second.read_response("metadata", 9)[0] == 7


def test_idle_connections_are_closed_busy_ones_are_not(penstock_broker_factory: Any) -> None:
    broker = penstock_broker_factory(settings={"connections.max.idle.ms": "500"})
    ensure_topic(broker.port, "t")
    with RawClient(broker.port) as idle, RawClient(broker.port) as polling:
        polling.send(request_frame("fetch", 12, fetch_request("t", 0, max_wait_ms=4000)))
        metadata(idle, "t")
        assert idle.is_closed()
        assert polling.read_response("fetch", 12)[0] == 7


def test_requests_above_the_size_limit_are_refused(penstock_broker_factory: Any) -> None:
    broker = penstock_broker_factory(settings={"socket.request.max.bytes": "1000"})
    ensure_topic(broker.port, "t")
    with RawClient(broker.port) as client:
        client.send(request_frame("produce", 9, produce_request("t", batch(b"x" * 2000))))
        assert client.is_closed()


def test_memory_of_requests_is_bounded_and_all_of_them_get_through(penstock_broker_factory: Any) -> None:
    broker = penstock_broker_factory(settings={"queued.max.request.bytes": "300000"})
    ensure_topic(broker.port, "t")
    request = request_frame("produce", 9, produce_request("t", batch(b"x" * 200_000)))
    clients = [RawClient(broker.port) for _ in range(8)]
    try:
        for client in clients:
            client.socket.setblocking(False)
        left = dict.fromkeys(clients, request)
        deadline = time.monotonic() + 30
        while any(left.values()):
            assert time.monotonic() < deadline
            for client, data in left.items():
                try:
                    left[client] = data[client.socket.send(data[:10_000]) :] if data else b""
                except BlockingIOError:
                    continue
        for client in clients:
            client.socket.setblocking(True)
            client.socket.settimeout(20)
            assert client.read_response("produce", 9)[1].responses[0].partition_responses[0].error_code == 0
    finally:
        for client in clients:
            client.socket.close()


class TestOutbox:
    @pytest.fixture
    def pair(self) -> Any:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        yield ours, theirs
        ours.close()
        theirs.close()

    @pytest.fixture
    def file(self, tmp_path: Path) -> Any:
        path = tmp_path / "data"
        path.write_bytes(os.urandom(3_000_000))
        descriptor = os.open(path, os.O_RDONLY)
        yield descriptor, path.read_bytes()
        os.close(descriptor)

    def test_buffers_and_regions_arrive_in_order_however_slowly_they_are_read(self, pair: Any, file: Any) -> None:
        ours, theirs = pair
        descriptor, content = file
        outbox = Outbox(ours)
        outbox.parts += [
            b"head",
            FileRegion(descriptor, 100, 50),
            b"middle",
            FileRegion(descriptor, 1000, 2_500_000),
            bytearray(b"x" * 700_000),
            FileRegion(descriptor, 0, 10),
        ]
        expected = b"head" + content[100:150] + b"middle" + content[1000:2_501_000] + b"x" * 700_000 + content[:10]
        received = bytearray()
        while len(received) < len(expected):
            status = outbox.flush()
            if status == COLD:
                assert outbox.cold_region is not None
                outbox.cold_region.warm()
            else:
                received += theirs.recv(50_000)
                assert status == BLOCKED or not outbox.parts
        assert bytes(received) == expected
        assert outbox.flush() == DRAINED
        # A rest that is small when the client reads on again is read and joined with what follows.
        assert 2_500_000 - SMALL_REGION_BYTES <= outbox.sendfile_bytes <= 2_500_000

    def test_a_region_keeps_its_file_though_it_is_deleted(self, pair: Any) -> None:
        from penstock.log.files import LogFile

        ours, theirs = pair
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "segment"
            path.write_bytes(b"kept" * 50_000)
            log_file: Any = LogFile(path)
            outbox = Outbox(ours)
            outbox.parts.append(FileRegion(log_file.fd, 0, 200_000, log_file))
            path.unlink()
            del log_file
            received = bytearray()
            while len(received) < 200_000:
                outbox.flush()
                received += theirs.recv(100_000)
            assert received == b"kept" * 50_000

    def test_a_file_that_became_shorter_is_an_error_not_a_hang(self, pair: Any, tmp_path: Path) -> None:
        from penstock.broker.network.outbox import FileGone

        path = tmp_path / "cut"
        path.write_bytes(b"x" * 100_000)
        with path.open("r+b") as opened:
            outbox = Outbox(pair[0])
            outbox.parts.append(FileRegion(opened.fileno(), 50_000, 50_000))
            opened.truncate(50_000)
            with pytest.raises(FileGone):
                for _ in range(3):
                    if outbox.flush() == COLD and outbox.cold_region is not None:
                        outbox.cold_region.warm()


def test_the_first_four_bytes_may_come_one_at_a_time_between_others(broker: penstock.Broker) -> None:
    request = request_frame("metadata", 9, messages.api("metadata").Request(topics=[]))
    with RawClient(broker.port) as client:
        client.send(request + request[:2])
        assert client.read_response("metadata", 9)[0] == 7
        client.send(request[2:5])
        client.send(request[5:] + request)
        assert [client.read_response("metadata", 9)[0] for _ in range(2)] == [7, 7]
        assert struct.unpack_from(">i", request)[0] == len(request) - 4


def test_clients_wait_while_the_broker_does_not_know_its_cluster(broker: penstock.Broker, topic: str) -> None:
    """In a cluster the listener opens before the first image: an answer without brokers would be a lie."""
    ensure_topic(broker.port, topic)
    inner = broker._broker
    inner.loop.call_soon_threadsafe(inner.dispatcher.hold_clients)
    wait_for(lambda: inner.dispatcher.held is not None)
    try:
        with RawClient(broker.port) as client, RawClient(broker.port) as gone:
            client.send(request_frame("api_versions", 3, messages.api("api_versions").Request(), 1))
            client.send(request_frame("metadata", 9, messages.api("metadata").Request(topics=[]), 2))
            client.send(request_frame("produce", 9, produce_request(topic, batch(b"early")), 3))
            gone.send(request_frame("metadata", 9, messages.api("metadata").Request(topics=[]), 4))
            wait_for(lambda: len(inner.dispatcher.held or ()) == 2)
            assert client.read_response("api_versions", 3)[0] == 1
            gone.__exit__()
            inner.loop.call_soon_threadsafe(inner.dispatcher.release_clients)
            correlation_id, known = client.read_response("metadata", 9)
            assert correlation_id == 2
            assert len(known.brokers) == 1
            assert client.read_response("produce", 9)[0] == 3
            assert client.call("metadata", 9, messages.api("metadata").Request(topics=[])).brokers
    finally:
        inner.loop.call_soon_threadsafe(inner.dispatcher.release_clients)


def test_without_descriptors_it_says_so_once_and_goes_on_when_they_are_back(caplog: pytest.LogCaptureFixture) -> None:
    with penstock.Broker() as broker, socket.socket() as waiting:
        (listener,) = broker._broker.listeners

        async def accept() -> None:
            listener._accept()

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with caplog.at_level(logging.INFO, "penstock.broker.network.listener"):
            resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
            try:
                waiting.connect(("127.0.0.1", broker.port))
                for _ in range(3):
                    asyncio.run_coroutine_threadsafe(accept(), listener.loop).result(20)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            waiting.settimeout(20)
            waiting.sendall(frame(18, 0, b""))
            assert waiting.recv(4)
        told = [record.getMessage() for record in caplog.records]
        assert len([line for line in told if "cannot accept" in line]) == 1
        assert len([line for line in told if "accepts again" in line]) == 1
