"""Consumers at the end of one partition, as a Java client does it: a fetch session each, one long poll in flight.

They read only what they need of an answer (how far it brought them), so that the client is not the bottleneck.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from dataclasses import dataclass, field

from bench import load
from penstock.protocol import messages
from penstock.protocol.batch import BatchHeader

VERSION = 12
ROOM_FOR_SESSIONS = {"max.incremental.fetch.session.cache.slots": "100000"}  # of either broker
NO_WAIT_ENDS_MS = 30_000
_TO_SESSION_ID = 4 + 1 + 4 + 2  # correlation id, tags, throttle time, error
_SESSION = struct.Struct(">i")
_EPOCH_AND_SESSION = struct.Struct(">ii")


@dataclass
class Seen:
    """What a run of deliveries was like."""

    deliveries: int = 0
    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)

    def percentile_ms(self, share: float) -> float:
        ordered = sorted(self.latencies)
        return ordered[min(int(len(ordered) * share), len(ordered) - 1)] * 1e3


class TailConsumer:
    """One connection with one session of one partition."""

    def __init__(self, port: int, topic: str, offset: int, max_bytes: int = 1 << 20) -> None:
        self.socket = load.connect(port)
        self.topic = topic
        self.offset = offset
        self._max_bytes = max_bytes
        self._session_id = 0
        self._epoch = 0
        self._received = bytearray()
        self._head = b""
        self._middle = b""
        self._tail = b""
        self._open_session()

    def _open_session(self) -> None:
        """A full fetch that brings nothing, then long polls by session."""
        self.socket.sendall(self._request(0, 0, 0))
        answer = load.read_frame(self.socket)
        (self._session_id,) = _SESSION.unpack_from(answer, _TO_SESSION_ID)
        if not self._session_id:
            raise RuntimeError("the broker gave no session; set max.incremental.fetch.session.cache.slots")
        self._epoch = 1
        whole = self._request(self._session_id, 0x11111111, NO_WAIT_ENDS_MS, 0x2222222222222222)
        epoch_at = whole.rindex(b"\x11" * 4)
        offset_at = whole.rindex(b"\x22" * 8)
        self._head, self._middle = whole[:epoch_at], whole[epoch_at + 4 : offset_at]
        self._tail = whole[offset_at + 8 :]

    def _request(self, session_id: int, epoch: int, max_wait_ms: int, offset: int | None = None) -> bytes:
        api = messages.api("fetch").load_all_versions()
        at = self.offset if offset is None else offset
        wanted = api.FetchPartition(partition=0, fetch_offset=at, partition_max_bytes=self._max_bytes)
        request = api.Request(
            max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=50 << 20, session_id=session_id, session_epoch=epoch,
            topics=[api.FetchTopic(topic=self.topic, partitions=[wanted])],
        )  # fmt: skip
        return load.frame(load.FETCH, VERSION, messages.encode_request(load.FETCH, VERSION, request))

    def ask(self) -> None:
        self.socket.send(
            self._head + self._epoch.to_bytes(4, "big") + self._middle + self.offset.to_bytes(8, "big") + self._tail
        )
        self._epoch += 1

    def take(self, chunk: bytes | memoryview) -> int:
        """How many records the bytes completed."""
        received = self._received
        received += chunk
        if len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
            return 0
        before = self.offset
        # The topic is named, then one partition: behind its fixed fields come the record bytes.
        at = 4 + _TO_SESSION_ID + 4 + 1
        at += 1 + len(self.topic) + 1 + 4 + 2 + 24 + 1 + 4
        if at >= len(received):
            raise RuntimeError(f"an answer without records at offset {before}: {bytes(received).hex()}")
        while received[at] >= 0x80:
            at += 1
        at += 1
        while at + 61 <= len(received):
            header = BatchHeader.parse(received, at)
            self.offset = header.next_offset
            at += header.size
        self._received = bytearray()
        if self.offset == before:
            raise RuntimeError("an answer without records")
        return self.offset - before

    def close(self) -> None:
        self.socket.close()


class Fan:
    """Many of them, and one producer that sends a record with its time inside every `1/rate` seconds."""

    def __init__(self, port: int, topic: str, consumers: int) -> None:
        self._batch = load.one_batch(1, 100)
        self._request = load.produce_frame(topic, 0, self._batch)
        self._answer_bytes = load.check_produce(port, self._request)
        end = latest_offset(port, topic)
        self._producer = load.connect(port)
        self._consumers = {
            consumer.socket.fileno(): consumer
            for consumer in (TailConsumer(port, topic, end) for _ in range(consumers))
        }
        self._poller = select.epoll()
        self._poller.register(self._producer.fileno(), select.EPOLLIN)
        for descriptor, consumer in self._consumers.items():
            self._poller.register(descriptor, select.EPOLLIN)
            consumer.ask()
        self._sent_at: dict[int, float] = {}
        self._next_offset = end

    def run(self, rate: float, seconds: float) -> Seen:
        seen = Seen()
        buffer = bytearray(1 << 16)
        view = memoryview(buffer)
        began = time.perf_counter()
        sent, total = 0, int(rate * seconds)
        consumers, producer_fd = self._consumers, self._producer.fileno()
        expected = total * len(consumers)
        while seen.deliveries < expected:
            now = time.perf_counter()
            due = began + sent / rate
            if sent < total and now >= due:
                self._sent_at[self._next_offset] = now
                self._next_offset += 1
                sent += 1
                self._producer.send(self._request)
            timeout = max(began + sent / rate - time.perf_counter(), 0) if sent < total else 5.0
            events = self._poller.poll(timeout)
            if not events and sent == total:
                raise RuntimeError(f"{expected - seen.deliveries} deliveries are missing")
            for descriptor, _ in events:
                if descriptor == producer_fd:
                    self._producer.recv(1 << 16)
                    continue
                consumer = consumers[descriptor]
                count = consumer.socket.recv_into(buffer)
                if not count:
                    raise ConnectionError("the broker closed the connection")
                at = time.perf_counter()
                records = consumer.take(view[:count])
                if records:
                    consumer.ask()
                    seen.deliveries += records
                    for offset in range(consumer.offset - records, consumer.offset):
                        seen.latencies.append(at - self._sent_at[offset])
        seen.seconds = time.perf_counter() - began
        self._sent_at.clear()
        return seen

    def close(self) -> None:
        self._poller.close()
        self._producer.close()
        for consumer in self._consumers.values():
            consumer.close()


def latest_offset(port: int, topic: str) -> int:
    api = messages.api("list_offsets").load_all_versions()
    wanted = api.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=-1)
    request = api.Request(replica_id=-1, topics=[api.ListOffsetsTopic(name=topic, partitions=[wanted])])
    answer = load.call(port, "list_offsets", 5, request)
    return int(answer.topics[0].partitions[0].offset)  # type: ignore[attr-defined]


def session_fetches(port: int, topic: str, records: int, in_flight: int, seconds: float) -> load.Result:
    """Fetches of 1 KB of one session, record after record, `in_flight` of them on the way."""
    consumer = TailConsumer(port, topic, 0, max_bytes=1024)
    connection: socket.socket = consumer.socket
    consumer.ask()
    answer_bytes = len(load.read_frame(connection)) + 4
    began = time.perf_counter()
    received = answered = 0
    ready = in_flight
    buffer = bytearray(1 << 20)
    while True:
        for _ in range(ready):
            consumer.offset = (consumer.offset + 1) % records
            consumer.ask()
        received += connection.recv_into(buffer)
        ready = received // answer_bytes - answered
        answered += ready
        if time.perf_counter() - began > seconds:
            break
    consumer.close()
    return load.Result(answered, time.perf_counter() - began)
