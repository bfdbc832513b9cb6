"""Clients that do not read, or do not send on what they began: each holds little, and all together a bounded amount."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from raw_client import RawClient, frame, request_frame

import penstock
from penstock.protocol import messages
from penstock.testing.loop_watch import LoopWatch
from penstock.testing.raw_transactions import until

KIB, MIB = 1024, 1024 * 1024


@pytest.fixture
def broker() -> Iterator[Any]:
    with penstock.Broker(settings={"auto.create.topics.enable": "false"}) as running:
        yield running


def on_loop(broker: Any, look: Callable[[], Any]) -> Any:
    done: Future[Any] = Future()
    broker._loop.call_soon_threadsafe(lambda: done.set_result(look()))
    return done.result(30)


def connections(broker: Any) -> list[Any]:
    return on_loop(broker, lambda: list(broker._broker.listeners[0].connections))


def answers_bytes(connection: Any) -> int:
    waiting = sum(len(part) for slot in connection.slots if slot.parts for part in slot.parts)
    return waiting + int(connection.outbox.memory_bytes)


def large_metadata_frame() -> bytes:
    """A request for 400 topics that do not exist; its answer names them all, 100 KB."""
    api = messages.api("metadata").load_all_versions()
    topic = api.request_struct("MetadataRequestTopic")
    names = [f"{index:03}-{'x' * 240}" for index in range(400)]
    return request_frame("metadata", 9, api.Request(topics=[topic(name=name) for name in names]))


def stalled_reader(port: int, requests: int) -> socket.socket:
    """Sends all it can and takes nothing."""
    reader = socket.socket()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    reader.connect(("127.0.0.1", port))
    reader.settimeout(0.5)
    with contextlib.suppress(TimeoutError):
        reader.sendall(large_metadata_frame() * requests)
    return reader


def test_no_more_answers_are_made_than_a_client_takes(broker: Any) -> None:
    with stalled_reader(broker.port, 256):
        (connection,) = connections(broker)
        until(lambda: connection.blocked, "the reader stalls")
        assert on_loop(broker, lambda: answers_bytes(connection)) < 3 * MIB


def test_unread_answers_of_all_clients_together_have_a_bound() -> None:
    # A reset that meets a full socket may be lost on its way: who is gone without a word is closed for being idle.
    settings = {"queued.max.request.bytes": str(MIB), "connections.max.idle.ms": "10000"}
    with penstock.Broker(settings={**settings, "auto.create.topics.enable": "false"}) as broker:
        readers = [stalled_reader(broker.port, 30) for _ in range(14)]
        try:
            memory = broker._broker.dispatcher.memory
            closed = broker._broker.stats.metrics.cell("connections_refused", "unread")
            until(lambda: closed.value, "some are closed", 60)
            assert on_loop(broker, lambda: memory.unread_bytes) <= MIB
            with RawClient(broker.port) as client:
                api = messages.api("metadata").load_all_versions()
                assert client.call("metadata", 9, api.Request(topics=[])).brokers
        finally:
            for reader in readers:
                reader.close()
        until(lambda: memory.unread_bytes == 0, "nothing is unread")
        until(lambda: memory.claimed_bytes == 0, "nothing is held")


def test_a_client_that_does_not_read_is_idle_too() -> None:
    with (
        penstock.Broker(settings={"connections.max.idle.ms": "500", "auto.create.topics.enable": "false"}) as broker,
        stalled_reader(broker.port, 60),
    ):
        until(lambda: not connections(broker), "it is closed")


def test_half_a_frame_gets_memory_for_what_is_here(broker: Any) -> None:
    with RawClient(broker.port) as client:
        client.send(struct.pack(">i", 4 * MIB) + bytes(20 * KIB))
        (connection,) = connections(broker)
        until(lambda: connection.end - connection.start > 16 * KIB, "the bytes are here")
        assert len(connection.view) <= 512 * KIB
        client.send(bytes(2 * MIB))
        until(lambda: connection.end - connection.start > 2 * MIB, "the bytes are here")
        assert len(connection.view) <= 3 * MIB


def test_a_flood_on_one_connection_gets_one_turn_at_a_time(broker: Any) -> None:
    flood = frame(3, 1, struct.pack(">i", 0)) * 200_000  # Metadata of no topics
    with RawClient(broker.port) as flooder, RawClient(broker.port) as other:
        other.call("api_versions", 2, messages.api("api_versions").Request())
        with LoopWatch(broker) as watch:
            sender = threading.Thread(target=_send_and_forget, args=(flooder.socket, flood))
            sender.start()
            for _ in range(40):
                other.call("api_versions", 2, messages.api("api_versions").Request())
            flooder.socket.shutdown(socket.SHUT_RDWR)
            sender.join()
        assert watch.longest_seconds < 0.5


def _send_and_forget(sock: socket.socket, data: bytes) -> None:
    reader = threading.Thread(target=_drain, args=(sock,))
    reader.start()
    with contextlib.suppress(OSError):
        sock.sendall(data)
    reader.join()


def _drain(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while sock.recv(1 << 16):
            pass
