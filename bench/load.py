"""A load client that is not the bottleneck: prebuilt frames, raw sockets, answers counted by their bytes.

A frame's answer has a fixed size once the topic is warm, so the client never parses: it keeps a window of frames in
flight by counting the bytes that come back.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
import time
from dataclasses import dataclass
from typing import Any

from penstock.protocol import messages
from penstock.protocol.batch import build_batch
from penstock.protocol.records import Record

PRODUCE, FETCH = 0, 1


def frame(api_key: int, version: int, body: bytes | bytearray, client_id: str = "bench", correlation: int = 1) -> bytes:
    header = struct.pack(">hhih", api_key, version, correlation, len(client_id)) + client_id.encode()
    if messages.is_flexible(api_key, version):
        header += b"\0"
    return struct.pack(">i", len(header) + len(body)) + header + bytes(body)


def one_batch(count: int, value_bytes: int) -> bytes:
    now = int(time.time() * 1000)
    payload = bytes(range(256)) * (value_bytes // 256 + 1)
    records = [Record(offset=i, timestamp=now, key=None, value=payload[:value_bytes], headers=()) for i in range(count)]
    return bytes(build_batch(records))


def produce_frame(topic: str, partition: int, batch: bytes, acks: int = 1, version: int = 9) -> bytes:
    api = messages.api("produce").load_all_versions()
    partitions = [api.PartitionProduceData(index=partition, records=batch)]
    topics = [api.TopicProduceData(name=topic, partition_data=partitions)]
    request = api.Request(acks=acks, timeout_ms=30_000, topic_data=topics)
    return frame(PRODUCE, version, messages.encode_request(PRODUCE, version, request))


def fetch_frame(topic: str, partition: int, offset: int, max_bytes: int, version: int = 12) -> bytes:
    api = messages.api("fetch").load_all_versions()
    wanted = api.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    topics = [api.FetchTopic(topic=topic, partitions=[wanted])]
    request = api.Request(max_wait_ms=500, min_bytes=1, max_bytes=max_bytes, session_epoch=-1, topics=topics)
    return frame(FETCH, version, messages.encode_request(FETCH, version, request))


def connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def read_frame(connection: socket.socket) -> bytes:
    size = int.from_bytes(_read_exactly(connection, 4), "big")
    return _read_exactly(connection, size)


def _read_exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("the broker closed the connection")
        data += part
    return bytes(data)


@dataclass
class Result:
    requests: int
    seconds: float
    cpu_seconds: float = 0.0

    @property
    def per_second(self) -> float:
        return self.requests / self.seconds


def call(port: int, api_name: str, version: int, request: object) -> object:
    """One request on a fresh connection, decoded: for setting a scene, not for load."""
    key = messages.api(api_name).key
    with connect(port) as connection:
        connection.sendall(frame(key, version, messages.encode_request(key, version, request)))
        answer = read_frame(connection)
    flexible = messages.is_flexible(key, version) and key != 18
    return messages.decode_response(key, version, answer, 5 if flexible else 4)


def create_topic(port: int, name: str, partitions: int = 1, replication: int = 1, **configs: str) -> None:
    api = messages.api("create_topics")
    wanted = api.request_struct("CreatableTopic")(name=name, num_partitions=partitions, replication_factor=replication)
    config = api.request_struct("CreatableTopicConfig")
    wanted.configs = [config(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    answer = call(port, "create_topics", 5, api.Request(topics=[wanted], timeout_ms=30_000))
    error = answer.topics[0].error_code  # type: ignore[attr-defined]
    if error not in (0, 36):
        raise RuntimeError(f"creating {name} answered error {error}")


def check_produce(port: int, request: bytes, version: int = 9) -> int:
    """Send one produce, insist on success, and return the size of the answer on the wire."""
    with connect(port) as connection:
        deadline = time.monotonic() + 30
        while True:
            connection.sendall(request)
            answer = read_frame(connection)
            response = messages.decode_response(PRODUCE, version, answer, 5 if version >= 9 else 4)
            error = response.responses[0].partition_responses[0].error_code
            if error == 0:
                return len(answer) + 4
            if time.monotonic() > deadline:
                raise RuntimeError(f"produce answered error {error}")
            time.sleep(0.1)


def pipelined(
    port: int, request: bytes, answer_bytes: int, in_flight: int, seconds: float, tls: ssl.SSLContext | None = None
) -> Result:
    """One connection that always has `in_flight` copies of `request` on the way."""
    connection = connect(port)
    if tls is not None:
        connection = tls.wrap_socket(connection)
    buffer = bytearray(1 << 20)
    window = request * in_flight
    size = len(request)
    connection.sendall(window)
    received = answered = 0
    began = time.perf_counter()
    end = began + seconds
    try:
        while True:
            count = connection.recv_into(buffer)
            if not count:
                raise ConnectionError("the broker closed the connection")
            received += count
            ready = received // answer_bytes - answered
            if ready:
                answered += ready
                if time.perf_counter() > end:
                    break
                connection.sendall(window[: ready * size])
    finally:
        connection.close()
    return Result(answered, time.perf_counter() - began)


def many_connections(port: int, request: bytes, answer_bytes: int, connections: int, seconds: float) -> Result:
    """`connections` clients with one request in flight each."""
    poller = select.epoll()
    sockets: dict[int, list[Any]] = {}
    for _ in range(connections):
        connection = connect(port)
        sockets[connection.fileno()] = [connection, 0]
        poller.register(connection.fileno(), select.EPOLLIN)
    buffer = bytearray(1 << 16)
    answered = 0
    began = time.perf_counter()
    for connection, _ in sockets.values():
        connection.sendall(request)
    end = began + seconds
    while time.perf_counter() < end:
        for descriptor, _ in poller.poll(1):
            state = sockets[descriptor]
            count = state[0].recv_into(buffer)
            if not count:
                raise ConnectionError("the broker closed the connection")
            state[1] += count
            if state[1] >= answer_bytes:
                state[1] -= answer_bytes
                answered += 1
                state[0].send(request)
    elapsed = time.perf_counter() - began
    poller.close()
    for connection, _ in sockets.values():
        connection.close()
    return Result(answered, elapsed)


def paced_connections(
    port: int, request: bytes, answer_bytes: int, connections: int, period: float, seconds: float
) -> Result:
    """`connections` clients that send one request each per `period` seconds, evenly spread over it."""
    poller = select.epoll()
    sockets = [connect(port) for _ in range(connections)]
    by_descriptor = {connection.fileno(): connection for connection in sockets}
    for descriptor in by_descriptor:
        poller.register(descriptor, select.EPOLLIN)
    sent = received = 0
    total = int(connections * seconds / period)
    began = time.perf_counter()
    try:
        while received < total * answer_bytes:
            due = min(int((time.perf_counter() - began) * connections / period) + 1, total)
            while sent < due:
                sockets[sent % connections].send(request)
                sent += 1
            ready = poller.poll(0.001 if sent < total else 5)
            if not ready and sent == total:
                raise RuntimeError(f"{total - received // answer_bytes} answers are missing")
            for descriptor, _ in ready:
                count = len(by_descriptor[descriptor].recv(1 << 16))
                if not count:
                    raise ConnectionError("the broker closed the connection")
                received += count
    finally:
        poller.close()
        for connection in sockets:
            connection.close()
    return Result(total, time.perf_counter() - began)


def drain_fetches(
    port: int, request: bytes, answer_bytes: int, in_flight: int, seconds: float, tls: ssl.SSLContext | None = None
) -> Result:
    """Fetches whose answers are thrown away, without TLS unread (MSG_TRUNC): the client costs next to nothing."""
    connection = connect(port)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    flags = int(socket.MSG_TRUNC)
    if tls is not None:
        connection, flags = tls.wrap_socket(connection), 0
    connection.sendall(request * in_flight)
    received = answered = 0
    buffer = bytearray(4 << 20)
    began = time.perf_counter()
    end = began + seconds
    try:
        while True:
            count = connection.recv_into(buffer, len(buffer), flags)
            if not count:
                raise ConnectionError("the broker closed the connection")
            received += count
            ready = received // answer_bytes - answered
            if ready:
                answered += ready
                if time.perf_counter() > end:
                    break
                connection.sendall(request * ready)
    finally:
        connection.close()
    return Result(answered, time.perf_counter() - began)
