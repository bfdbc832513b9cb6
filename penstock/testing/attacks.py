"""Attacks on a broker, and what a well-behaved client waits meanwhile: `make prove-attacks`, or `python -m …attacks`.

Each attack runs for a few seconds from a process of its own. Beside it one client writes; its p99, the peak of
the broker's memory and the time until its waits are as before are told, for Penstock and, with `--kafka`, for an Apache
Kafka under the same bytes.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from penstock.protocol import messages
from penstock.protocol.batch import build_batch
from penstock.protocol.codecs import Codec
from penstock.protocol.records import new_record
from penstock.testing.broker_process import BrokerProcess
from penstock.testing.hostile_batches import bomb, dense_payload, sealed
from penstock.testing.peers import process_resident_bytes

QUIET_FACTOR = 3
PATIENCE_MS = 25.0
Attack = Callable[[int, float], None]
"""(port, when to end by the monotonic clock)."""


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
    sock = socket.create_connection(("127.0.0.1", port), timeout=120)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def produce_frame(topic: str, batch: bytes) -> bytes:
    api = messages.api("produce").load_all_versions()
    data = api.PartitionProduceData(index=0, records=batch)
    topics = [api.TopicProduceData(name=topic, partition_data=[data])]
    return frame("produce", 9, api.Request(acks=1, timeout_ms=10_000, topic_data=topics))


def make_topics(port: int) -> None:
    api = messages.api("create_topics").load_all_versions()
    config = api.CreatableTopicConfig if hasattr(api, "CreatableTopicConfig") else api.CreateableTopicConfig
    topics = [
        api.CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=configs)
        for name, configs in (
            ("plain", []),
            ("compacted", [config(name="cleanup.policy", value="compact")]),
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


ATTACKS: dict[str, Callable[[], Attack]] = {
    "a million records in a batch, compacted topic": _dense_compacted,
    "300,000 records without keys, compacted topic": _keyless,
    "a million records of tomorrow": _late,
    "bombs of 64 MB in every codec": _bombs,
    "FindCoordinator of 300,000 keys": _coordinators,
    "ListOffsets of a million partitions": _offsets,
    "DescribeConfigs of 500 times one broker": _configs,
    "CreateTopics of 200 × 10,000, only validated": _many_topics,
    "30 readers that stall": _stalled_readers,
    "a flood on one connection": _flood,
    "200 half-sent frames of 4 MB": _half_frames,
    "a storm of connections": _storm,
}


# -- the well-behaved client


class Outcome(NamedTuple):
    name: str
    quiet_ms: float
    p99_ms: float
    longest_ms: float
    peak_bytes: int
    recovery_seconds: float

    @property
    def holds(self) -> bool:
        return self.p99_ms <= max(QUIET_FACTOR * self.quiet_ms, PATIENCE_MS)


class Client:
    """Writes a record again and again and notes how long each took, in milliseconds."""

    def __init__(self, port: int) -> None:
        self._sock = connect(port)
        self._frame = produce_frame("plain", bytes(build_batch([new_record(b"k", b"v", int(time.time() * 1000))])))

    def wait_ms(self) -> float:
        began = time.perf_counter()
        ask(self._sock, self._frame)
        return (time.perf_counter() - began) * 1000

    def waits(self, ends: float) -> list[float]:
        found = []
        while time.monotonic() < ends:
            found.append(self.wait_ms())
            time.sleep(0.002)
        return found

    def close(self) -> None:
        self._sock.close()


def p99(waits: list[float]) -> float:
    return sorted(waits)[min(len(waits) - 1, int(len(waits) * 0.99))]


def _attacker(name: str, port: int, ready: object, seconds: float) -> None:
    attack = ATTACKS[name]()
    ready.set()  # type: ignore[attr-defined]
    attack(port, time.monotonic() + seconds)


def suffer(name: str, port: int, pid: int, seconds: float) -> Outcome:
    """One attack, and the way back to calm."""
    client = Client(port)
    try:
        quiet = p99(client.waits(time.monotonic() + max(seconds / 3, 1.0)))
        spawned = multiprocessing.get_context("spawn")
        ready = spawned.Event()
        attacker = spawned.Process(target=_attacker, args=(name, port, ready, seconds), daemon=True)
        attacker.start()
        ready.wait(120)
        waits, peak = [], 0
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            waits += client.waits(min(time.monotonic() + 0.2, ends))
            peak = max(peak, process_resident_bytes(pid))
        attacker.join(120)
        began = time.monotonic()
        calm = 0
        while calm < 20 and time.monotonic() - began < 60:
            calm = calm + 1 if client.wait_ms() <= max(2 * quiet, 5.0) else 0
        return Outcome(name, quiet, p99(waits), max(waits), peak, time.monotonic() - began)
    finally:
        client.close()


@contextlib.contextmanager
def penstock_broker() -> Iterator[tuple[int, int]]:
    settings = {"auto.create.topics.enable": "false", "node.id": "1"}
    with tempfile.TemporaryDirectory() as folder, BrokerProcess(Path(folder), settings) as broker:
        yield int(broker.bootstrap.rpartition(":")[2]), broker.pid


@contextlib.contextmanager
def kafka_broker() -> Iterator[tuple[int, int]]:
    from penstock.testing.peers import apache_kafka

    with apache_kafka(settings={"auto.create.topics.enable": "false"}) as kafka:
        yield int(kafka.bootstrap.split(",")[0].rpartition(":")[2]), kafka.processes[0].pid


def table(outcomes: list[tuple[str, Outcome]]) -> str:
    rows = [
        "| attack | broker | quiet p99 ms | p99 ms | longest ms | peak MB | calm after s |",
        "|---|---|---|---|---|---|---|",
    ]
    rows += [
        f"| {one.name} | {broker} | {one.quiet_ms:.1f} | {one.p99_ms:.1f} | {one.longest_ms:.0f} "
        f"| {one.peak_bytes / 1e6:.0f} | {one.recovery_seconds:.1f} |"
        for broker, one in outcomes
    ]
    return "\n".join(rows)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=6.0, help="how long each attack lasts")
    parser.add_argument("--kafka", action="store_true", help="the same against an Apache Kafka")
    parser.add_argument("--only", default="", help="attacks whose name contains this")
    options = parser.parse_args(arguments)
    brokers = {"Penstock": penstock_broker, **({"Apache Kafka": kafka_broker} if options.kafka else {})}
    outcomes: list[tuple[str, Outcome]] = []
    for label, start in brokers.items():
        with start() as (port, pid):
            make_topics(port)
            for name in ATTACKS:
                if options.only in name:
                    outcomes.append((label, suffer(name, port, pid, options.seconds)))
                    print(f"{label}: {outcomes[-1][1]}", flush=True)
    print(f"\n{os.cpu_count()} cores\n\n{table(outcomes)}")
    return 0 if all(one.holds for label, one in outcomes if label == "Penstock") else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
