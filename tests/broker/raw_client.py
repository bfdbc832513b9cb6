"""A client that sends exactly the bytes it is told to: for probing what no well-behaved client would send."""

from __future__ import annotations

import socket
import struct
import time
import uuid
from typing import Any

from penstock.protocol import messages
from penstock.protocol.batch import build_batch
from penstock.protocol.records import Record

API_VERSIONS = 18


def frame(
    api_key: int, version: int, body: bytes | bytearray, correlation_id: int = 7, client_id: str = "raw"
) -> bytes:
    header = struct.pack(">hhih", api_key, version, correlation_id, len(client_id)) + client_id.encode()
    if messages.is_flexible(api_key, version):
        header += b"\0"
    return struct.pack(">i", len(header) + len(body)) + header + bytes(body)


def request_frame(name: str, version: int, request: Any, correlation_id: int = 7) -> bytes:
    key = messages.api(name).key
    return frame(key, version, messages.encode_request(key, version, request), correlation_id)


def batch(*values: bytes, key: bytes | None = None, timestamp: int | None = None, **options: Any) -> bytes:
    now = int(time.time() * 1000) if timestamp is None else timestamp
    records = [Record(offset=i, timestamp=now, key=key, value=value, headers=()) for i, value in enumerate(values)]
    return bytes(build_batch(records, **options))


class RawClient:
    def __init__(self, port: int, timeout: float = 20.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise ConnectionError("closed")
            data += part
        return bytes(data)

    def read_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self.read(4))
        return self.read(size)

    def is_closed(self) -> bool:
        """Waits for the broker to close; False if it sends something instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def read_response(self, name: str, version: int) -> tuple[int, Any]:
        """(correlation id, answer)."""
        key = messages.api(name).key
        data = self.read_frame()
        (correlation_id,) = struct.unpack_from(">i", data)
        flexible = messages.is_flexible(key, version) and key != API_VERSIONS
        return correlation_id, messages.decode_response(key, version, data, 5 if flexible else 4)

    def call(self, name: str, version: int, request: Any, correlation_id: int = 7) -> Any:
        self.send(request_frame(name, version, request, correlation_id))
        answered, response = self.read_response(name, version)
        assert answered == correlation_id
        return response


def produce_request(
    topic: str, records: bytes | None, *, partition: int = 0, acks: int = 1, timeout_ms: int = 10_000, **fields: Any
) -> Any:
    api = messages.api("produce").load_all_versions()
    data = api.PartitionProduceData(index=partition, records=records)
    topics = [api.TopicProduceData(name=topic, partition_data=[data], **fields)]
    return api.Request(acks=acks, timeout_ms=timeout_ms, topic_data=topics)


def fetch_request(
    topic: str,
    offset: int,
    *,
    partition: int = 0,
    max_bytes: int = 1 << 20,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    session_id: int = 0,
    session_epoch: int = -1,
    isolation_level: int = 0,
    topic_id: uuid.UUID | None = None,
    **partition_fields: Any,
) -> Any:
    api = messages.api("fetch").load_all_versions()
    wanted = api.FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes, **partition_fields
    )
    fields = {} if topic_id is None else {"topic_id": topic_id}
    return api.Request(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_id=session_id,
        session_epoch=session_epoch,
        isolation_level=isolation_level,
        topics=[api.FetchTopic(topic=topic, partitions=[wanted], **fields)],
    )


def metadata(client: RawClient, topic: str, version: int = 12, create: bool = True) -> Any:
    api = messages.api("metadata").load_all_versions()
    wanted = api.request_struct("MetadataRequestTopic")(name=topic)
    return client.call("metadata", version, api.Request(topics=[wanted], allow_auto_topic_creation=create)).topics[0]


def ensure_topic(port: int, topic: str) -> uuid.UUID:
    """Create a topic on demand, as a client would, and wait until it is led. Returns its id."""
    deadline = time.monotonic() + 20
    with RawClient(port) as client:
        while True:
            found = metadata(client, topic)
            if found.error_code == 0 and all(p.error_code == 0 for p in found.partitions):
                return found.topic_id
            assert time.monotonic() < deadline, f"{topic} was not created: error {found.error_code}"
            time.sleep(0.01)
