"""Requests of many megabytes: they arrive in pieces, what cannot be taken is not kept, nobody else waits for them."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from raw_client import RawClient, batch, ensure_topic, fetch_request, produce_request, request_frame

import penstock
from penstock.broker.network.large_frames import FrameMemory
from penstock.broker.network.receiving import FIRST_BUFFER_BYTES, LARGEST_USUAL_BYTES
from penstock.broker.produce.codec import MOST_PARTITIONS
from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode as E
from penstock.testing.loop_watch import LoopWatch

MIB = 1024 * 1024
LARGE = 24 * MIB
A_MOMENT = (
    0.1  # of the loop's own work, on a slow machine too; clearing the memory of a large frame at once takes longer
)


@pytest.fixture(scope="module")
def broker() -> Iterator[Any]:
    with penstock.Broker(num_partitions=1) as running:
        ensure_topic(running.port, "usual")
        yield running


@pytest.fixture(scope="module")
def large_broker() -> Iterator[Any]:
    with penstock.Broker(num_partitions=1, settings={"message.max.bytes": str(2 * LARGE)}) as running:
        ensure_topic(running.port, "large")
        yield running


def until(holds: Callable[[], bool], what: str) -> None:
    ends = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < ends, what
        time.sleep(0.005)


def connections(broker: Any) -> list[Any]:
    return [one for listener in broker._broker.listeners for one in listener.connections]


def error_of(answer: Any) -> int:
    return int(answer.responses[0].partition_responses[0].error_code)


@pytest.mark.parametrize("version", [7, 9], ids=["plain", "flexible"])
@pytest.mark.parametrize(
    ("records", "error"),
    [
        (batch(b"x" * LARGE), E.MESSAGE_TOO_LARGE),
        (bytes(61) + b"x" * LARGE, E.CORRUPT_MESSAGE),
        (bytes(8) + struct.pack(">ii", LARGE - 12, 0) + b"\x01" + b"x" * LARGE, E.INVALID_RECORD),
    ],
    ids=["too large", "zeros", "an old format"],
)
def test_what_its_head_condemns_is_answered_in_the_end_but_not_kept(
    broker: Any, version: int, records: bytes, error: E
) -> None:
    data = request_frame("produce", version, produce_request("usual", records))
    with RawClient(broker.port) as client, RawClient(broker.port) as other:
        assert error_of(other.call("produce", 9, produce_request("usual", batch(b"before")))) == 0
        with LoopWatch(broker) as watch:
            client.send(data[: LARGE // 2])
            (large,) = [one for one in connections(broker) if type(one.buffer) is FrameMemory]
            until(lambda: bool(large.end == LARGE // 2), "half of it has come")
            assert set(large.buffer[2 * MIB : 3 * MIB]) == {0}  # nothing of it was written there
            client.send(data[LARGE // 2 :] + request_frame("produce", 9, produce_request("usual", batch(b"behind"))))
            assert error_of(client.read_response("produce", version)[1]) == error
        assert error_of(client.read_response("produce", 9)[1]) == 0
        assert watch.longest_seconds < A_MOMENT
        assert len(large.buffer) <= LARGEST_USUAL_BYTES


def test_a_large_batch_comes_through_whole(large_broker: Any) -> None:
    sent = batch(bytes(range(256)) * (LARGE // 256))
    with RawClient(large_broker.port) as client:
        for _ in range(2):
            answer = client.call("produce", 9, produce_request("large", sent))
            assert error_of(answer) == 0
        request = fetch_request("large", 1, max_bytes=2 * LARGE)
        read = bytes(client.call("fetch", 12, request).responses[0].partitions[0].records)
        assert read[61:] == sent[61:]
        (connection,) = connections(large_broker)
        assert len(connection.buffer) == FIRST_BUFFER_BYTES


def test_memory_of_a_large_frame_is_given_back_in_pieces_unless_it_is_lent(large_broker: Any) -> None:
    loop = large_broker._loop
    memory, lent = FrameMemory(LARGE), FrameMemory(LARGE)
    view = memoryview(lent)[:10]
    with LoopWatch(large_broker):
        loop.call_soon_threadsafe(memory.give_back, loop)
        loop.call_soon_threadsafe(lent.give_back, loop)
        until(lambda: memory.closed, "it is gone")
    assert not lent.closed and len(lent) == LARGE
    view.release()


def test_a_produce_that_names_very_many_partitions_is_refused(broker: Any) -> None:
    api = messages.api("produce").load_all_versions()
    rows = [api.PartitionProduceData(index=index, records=b"") for index in range(MOST_PARTITIONS + 1)]
    for version, topics in (
        (7, [api.TopicProduceData(name="usual", partition_data=rows)]),
        (9, [api.TopicProduceData(name="usual", partition_data=rows)]),
        (7, [api.TopicProduceData(name="usual", partition_data=[])] * len(rows)),
        (9, [api.TopicProduceData(name="usual", partition_data=[])] * len(rows)),
    ):
        request = api.Request(acks=1, timeout_ms=1000, topic_data=topics)
        with RawClient(broker.port) as client:
            client.send(request_frame("produce", version, request))
            assert client.is_closed()
