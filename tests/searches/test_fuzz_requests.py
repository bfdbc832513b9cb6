"""Every request, made wrong at random, over a real connection: an answer or a closed connection, and nothing else.

No exception, no long stall of the loop (in processor time), no memory that stays. `PENSTOCK_FUZZ_SECONDS` gives it more
time than the suite does, `PENSTOCK_FUZZ_SEED` repeats a run.
"""

from __future__ import annotations

import os
import random
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.protocol import kio_schema, messages
from penstock.testing.hostile_batches import dense_payload, sealed
from penstock.testing.loop_watch import LoopWatch
from penstock.testing.mutation import mutated
from penstock.testing.peers import process_resident_bytes
from penstock.testing.request_shapes import World, shapes
from tests.searches.test_every_request import Wire, advertised, exceptions, prepared

SECONDS = float(os.environ.get("PENSTOCK_FUZZ_SECONDS", "12"))
SEED = int(os.environ.get("PENSTOCK_FUZZ_SEED", "38"))
STALL_SECONDS = 0.3
"""Three times what is promised: a first use imports its handler, and the search itself runs beside the loop."""
GROWTH_BYTES = 200 * 1024 * 1024
# A flipped bit makes ten thousand partitions of three, which is what was asked for.
_COSTLY = frozenset({"create_topics", "create_partitions"})


@pytest.fixture(scope="module")
def broker() -> Iterator[Any]:
    import penstock

    settings = {
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.num.partitions": "2",
        "auto.create.topics.enable": "false",
    }
    with penstock.Broker(settings=settings) as started:
        yield started


@pytest.fixture(scope="module")
def frames(broker: Any) -> list[tuple[str, bytes]]:
    """Sound requests of every API in its first and last version, and a few batches that are heavy."""
    wire = Wire(broker.port)
    world = prepared(wire)
    found = [
        (name, framed(kio_schema.api_key(name), version, request))
        for name, (low, high) in advertised(wire).items()
        if name not in _COSTLY and kio_schema.api_key(name) < 10_000
        for version in {max(low, messages.api(name).min_version), high}
        for _, request in shapes(name, version, world)
    ]
    found += [("produce", frame) for frame in heavy_produces(world)]
    for _, frame in found:
        exchange(broker.port, [frame])  # sound ones first: what they import is no stall of the search
    wire.close()
    return found


def framed(key: int, version: int, request: Any) -> bytes:
    flexible = messages.is_flexible(key, version)
    header = struct.pack(">hhih", key, version, 7, 4) + b"fuzz" + (b"\0" if flexible else b"")
    return header + bytes(messages.encode_request(key, version, request))


def heavy_produces(world: World) -> Iterator[bytes]:
    api = messages.api("produce").load_all_versions()
    for count in (10, 3000):
        data = api.PartitionProduceData(index=0, records=sealed(dense_payload(count), count))
        topics = [api.TopicProduceData(name=world.topic, partition_data=[data])]
        yield framed(0, 9, api.Request(acks=1, timeout_ms=1000, topic_data=topics))


def exchange(port: int, bodies: list[bytes]) -> None:
    """Send and take what comes; a request that waits for ever is left behind."""
    with socket.create_connection(("127.0.0.1", port), timeout=0.2) as sock:
        try:
            for body in bodies:
                sock.sendall(struct.pack(">i", len(body)) + body)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(1 << 16):
                pass
        except OSError:
            return


def test_no_request_made_wrong_does_harm(broker: Any, frames: list[tuple[str, bytes]]) -> None:
    rng = random.Random(SEED)
    before = exceptions(broker)
    memory = process_resident_bytes(os.getpid())
    ends = time.monotonic() + SECONDS
    sent = 0
    while time.monotonic() < ends:
        name, body = rng.choice(frames)
        wounded = [body[:10] + mutated(body[10:], rng) if rng.random() < 0.9 else mutated(body, rng) for _ in range(3)]
        with LoopWatch(broker) as watch:
            exchange(broker.port, wounded)
        sent += len(wounded)
        ran_into = {key: count for key, count in exceptions(broker).items() if count > before.get(key, 0)}
        shown = f"seed {SEED}, {name}: {[one.hex() for one in wounded]}"
        assert not ran_into, f"{ran_into} by {shown}"
        assert watch.longest_seconds < STALL_SECONDS, f"{watch.longest_seconds:.3f} s by {shown[:5000]}"
    assert sent > 30
    assert process_resident_bytes(os.getpid()) - memory < GROWTH_BYTES
    with socket.create_connection(("127.0.0.1", broker.port), timeout=60) as sock:
        body = framed(
            18, 3, messages.api("api_versions").Request(client_software_name="x", client_software_version="1")
        )
        sock.sendall(struct.pack(">i", len(body)) + body)
        assert sock.recv(4)


def test_every_decoder_says_malformed_and_nothing_else(frames: list[tuple[str, bytes]]) -> None:
    rng = random.Random(SEED)
    ends = time.monotonic() + SECONDS / 4
    while time.monotonic() < ends:
        _, frame = rng.choice(frames)
        key, version = struct.unpack_from(">hh", frame)
        try:
            messages.decode_request(key, version, mutated(frame[14:], rng))
        except messages.MalformedMessage:
            continue
