"""Every API in every version that is advertised, in every shape its schema has: each gets an answer that decodes.

Over a real connection and through the hot handlers. A well-formed request may be refused, with an error code; it never
runs into an exception, whatever it asks for.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.protocol import kio_schema, messages
from penstock.protocol.errors import ErrorCode as E
from penstock.testing.raw_transactions import until
from penstock.testing.request_shapes import World, shapes

API_VERSIONS = 18
UNSERVED = {("produce", 0), ("produce", 1), ("produce", 2)}
"""Advertised because librdkafka looks for them, by Kafka, too; nobody sends them, and they are refused."""
# Without SASL on the listener these end the connection, as with Kafka: the two sides disagree on what it is.
_ENDS_THE_CONNECTION = frozenset({"sasl_handshake", "sasl_authenticate"})


@pytest.fixture(scope="module")
def broker() -> Iterator[Any]:
    import penstock

    settings = {
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.num.partitions": "2",
        "transaction.two.phase.commit.enable": "true",
        "auto.create.topics.enable": "false",
    }
    with penstock.Broker(settings=settings) as started:
        yield started


class Wire:
    """One connection, opened again when it was closed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None

    def ask(self, name: str, version: int, request: Any) -> Any:
        """The decoded answer; None if the connection was closed instead."""
        key = kio_schema.api_key(name)
        flexible = messages.is_flexible(key, version)
        header = struct.pack(">hhih", key, version, 7, 6) + b"shapes" + (b"\0" if flexible else b"")
        body = header + bytes(messages.encode_request(key, version, request))
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), timeout=30)
        self._socket.sendall(struct.pack(">i", len(body)) + body)
        try:
            (size,) = struct.unpack(">i", self._read(4))
            answer = self._read(size)
        except ConnectionError:
            self.close()
            return None
        start = 5 if flexible and key != API_VERSIONS else 4
        return messages.decode_response(key, version, answer[start:])

    def _read(self, size: int) -> bytes:
        assert self._socket is not None
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise ConnectionError("closed")
            data += part
        return data

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


@pytest.fixture(scope="module")
def wire(broker: Any) -> Iterator[Wire]:
    connected = Wire(broker.port)
    yield connected
    connected.close()


@pytest.fixture(scope="module")
def world(wire: Wire) -> World:
    return prepared(wire)


def prepared(wire: Wire) -> World:
    """A topic, and coordinators that are there: requests shall get past the door."""
    api = messages.api("create_topics")
    topic = api.CreatableTopic(name="shapes", num_partitions=2, replication_factor=1)
    answer = wire.ask("create_topics", 7, api.Request(topics=[topic], timeout_ms=30_000))
    find, describe = messages.api("find_coordinator"), messages.api("describe_transactions")
    for kind in (0, 1):
        request = find.Request(key_type=kind, coordinator_keys=["x"])
        until(lambda request=request: not wire.ask("find_coordinator", 4, request).coordinators[0].error_code, "it")
    asked = describe.Request(transactional_ids=["x"])
    unknown = E.TRANSACTIONAL_ID_NOT_FOUND
    until(
        lambda: wire.ask("describe_transactions", 0, asked).transaction_states[0].error_code == unknown, "a coordinator"
    )
    fetch = messages.api("offset_fetch")
    group = fetch.Request(groups=[fetch.OffsetFetchRequestGroup(group_id="x", topics=None)])
    until(lambda: not wire.ask("offset_fetch", 8, group).groups[0].error_code, "a coordinator")
    return World("shapes", answer.topics[0].topic_id)


def advertised(wire: Wire) -> dict[str, tuple[int, int]]:
    answer = wire.ask(
        "api_versions", 3, messages.api("api_versions").Request(client_software_name="x", client_software_version="1")
    )
    return {kio_schema.api_name(one.api_key): (one.min_version, one.max_version) for one in answer.api_keys}


def exceptions(broker: Any) -> dict[tuple[str, str], float]:
    """Bugs that requests ran into, by API and outcome."""
    return {
        (sample.labels["api"], sample.labels["outcome"]): sample.value
        for family in broker._broker.metrics.collect()
        for sample in family.samples
        if sample.name == "penstock_request_exceptions_total"
    }


def malformed(broker: Any) -> float:
    """Frames that were no request, by the broker's own count."""
    return sum(
        sample.value
        for family in broker._broker.metrics.collect()
        for sample in family.samples
        if sample.name == "penstock_requests_malformed_total"
    )


def test_every_advertised_version_of_every_api_answers_every_shape(broker: Any, wire: Wire, world: World) -> None:
    silent: list[str] = []
    asked = 0
    unserved: set[tuple[str, int]] = set()
    for name, (lowest, highest) in advertised(wire).items():
        known = kio_schema.versions(name)
        assert known[1] >= highest, f"{name} v{highest} is advertised and has no schema"
        for version in range(lowest, highest + 1):
            if version < known[0]:
                unserved.add((name, version))
                continue
            for shape, request in shapes(name, version, world):
                if wire.ask(name, version, request) is None and name not in _ENDS_THE_CONNECTION:
                    silent.append(f"{name} v{version} {shape}")
                asked += 1
    assert silent == []
    assert exceptions(broker) == {}
    assert unserved == UNSERVED, "what is advertised and not in this table"
    assert asked > 500
    assert malformed(broker) == 0, "none of these was"
