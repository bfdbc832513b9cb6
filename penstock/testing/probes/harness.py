"""What a probe stands on: raw connections, requests by name, and answers without what may rightly differ."""

from __future__ import annotations

import contextlib
import importlib
import socket
import struct
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from penstock.protocol import messages
from penstock.protocol.messages import Struct

CLOSED = "connection closed"

# What two brokers may rightly answer differently: identities, addresses, clocks and wording.
VOLATILE = {
    "topic_id", "node_id", "broker_id", "host", "port", "rack", "cluster_id", "controller_id", "error_message",
    "message",
    "leader_id", "leader", "replica_nodes", "isr_nodes", "offline_replicas", "replicas", "isr", "log_append_time_ms",
    "producer_id", "session_id", "brokers", "coordinators", "log_dir", "batch_index_error_message", "node_endpoints",
    "timestamp_ms", "last_timestamp", "size", "total_bytes", "usable_bytes", "member_id", "coordinator_id",
    "global_error_message", "endpoints", "eligible_leader_replicas", "last_known_elr", "is_cordoned",
}  # fmt: skip

Probe = Callable[["Session"], Any]
_PROBES: dict[str, Probe] = {}


def probe(name: str) -> Callable[[Probe], Probe]:
    def register(function: Probe) -> Probe:
        if name in _PROBES:
            raise ValueError(f"two probes are named {name!r}")
        _PROBES[name] = function
        return function

    return register


def run(port: int, only: str = "") -> dict[str, Any]:
    """All probes against the broker on this loopback port."""
    for module in ("topics", "records", "reading", "configs", "groups", "frames", "quotas"):
        importlib.import_module(f"penstock.testing.probes.{module}")
    answers = {}
    for name, function in _PROBES.items():
        if only and only not in name:
            continue
        session = Session(port, name)
        try:
            answers[name] = function(session)
        except ConnectionError:
            answers[name] = CLOSED
        except TimeoutError:
            answers[name] = "no answer"
        finally:
            session.close()
    return answers


class Session:
    """One probe's conversation with one broker; topics are made anew so that probes do not see each other."""

    def __init__(self, port: int, name: str) -> None:
        self.port = port
        self._name = "".join(char if char.isalnum() else "-" for char in name)
        self._socket: socket.socket | None = None
        self._topics = 0
        self._run = uuid.uuid4().hex[:6]

    def connection(self) -> socket.socket:
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self.port), timeout=4)
        return self._socket

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def send_raw(self, data: bytes) -> None:
        self.connection().sendall(data)

    def read_raw(self) -> bytes:
        size = struct.unpack(">i", self._exactly(4))[0]
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            try:
                part = self.connection().recv(size - len(data))
            except ConnectionResetError:
                part = b""
            if not part:
                raise ConnectionError(CLOSED)
            data += part
        return data

    def send(self, api_name: str, version: int, request: Any) -> None:
        key = messages.api(api_name).key
        body = messages.encode_request(key, version, request)
        flexible = messages.is_flexible(key, version)
        header = struct.pack(">hhih", key, version, 7, 5) + b"probe" + (b"\0" if flexible else b"")
        self.send_raw(struct.pack(">i", len(header) + len(body)) + header + body)

    def call(self, api_name: str, version: int, request: Any) -> Any:
        """The decoded answer."""
        self.send(api_name, version, request)
        answer = self.read_raw()
        key = messages.api(api_name).key
        start = 5 if messages.is_flexible(key, version) and key != 18 else 4
        return messages.decode_response(key, version, answer, start)

    def ask(self, api_name: str, version: int, request: Any, keep: tuple[str, ...] = ()) -> Any:
        """The answer as plain data, without what may rightly differ between two brokers."""
        return plain(self.call(api_name, version, request), keep)

    def topic(self, partitions: int = 1, **configs: str) -> str:
        """A fresh topic whose partitions have leaders."""
        self._topics += 1
        name = f"p-{self._name[:60]}-{self._topics}-{self._run}"
        api = messages.api("create_topics")
        config = api.request_struct("CreatableTopicConfig")
        wanted = api.request_struct("CreatableTopic")(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[config(name=key.replace("_", "."), value=value) for key, value in configs.items()],
        )
        answer = self.call("create_topics", 5, api.Request(topics=[wanted], timeout_ms=10_000))
        if answer.topics[0].error_code:
            raise AssertionError(f"cannot create a topic: {answer}")
        self.wait_for_leaders(name, partitions)
        self._wait_until_served(name, partitions)
        return name

    def _wait_until_served(self, name: str, partitions: int) -> None:
        """Metadata may name a leader that has not opened its log yet."""
        api = messages.api("list_offsets")
        rows = [api.request_struct("ListOffsetsPartition")(partition_index=n, timestamp=-1) for n in range(partitions)]
        wanted = api.request_struct("ListOffsetsTopic")(name=name, partitions=rows)
        request = api.Request(replica_id=-1, topics=[wanted])
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            answer = self.call("list_offsets", 7, request)
            if not any(p.error_code for p in answer.topics[0].partitions):
                return
            time.sleep(0.02)
        raise AssertionError(f"{name} is not served after 10 s")

    def wait_for_leaders(self, name: str, partitions: int) -> Any:
        metadata = messages.api("metadata")
        request = metadata.Request(topics=[metadata.MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            topic = self.call("metadata", 12, request).topics[0]
            if len(topic.partitions) == partitions and all(p.leader_id >= 0 for p in topic.partitions):
                return topic
            time.sleep(0.05)
        raise AssertionError(f"{name} has no leaders after 10 s")

    def topic_id(self, name: str) -> uuid.UUID:
        metadata = messages.api("metadata")
        request = metadata.Request(topics=[metadata.MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        return self.call("metadata", 12, request).topics[0].topic_id

    @contextlib.contextmanager
    def silence(self, seconds: float = 0.5) -> Iterator[None]:
        """Within: a read that brings nothing for so long raises TimeoutError."""
        self.connection().settimeout(seconds)
        yield
        self.connection().settimeout(4)


def plain(value: Any, keep: tuple[str, ...] = ()) -> Any:
    if isinstance(value, Struct):
        return {
            name: plain(getattr(value, name), keep)
            for name in sorted(value.FIELDS)
            if name in value.__dict__ and (name not in VOLATILE or name in keep)
        }
    if isinstance(value, list):
        return [plain(item, keep) for item in value]
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    if isinstance(value, uuid.UUID):
        return str(value)
    return value
