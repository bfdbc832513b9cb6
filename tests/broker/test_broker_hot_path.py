"""What the hot path may not do: look at records, leave garbage for the collector, acknowledge what is not written."""

from __future__ import annotations

import errno
import gc
import sys
import threading
from collections import Counter
from typing import Any

import pytest
from raw_client import RawClient, batch, ensure_topic, fetch_request, produce_request, request_frame

import penstock
from penstock.protocol.errors import ErrorCode


def on_loop(broker: penstock.Broker, work: Any) -> Any:
    """Run `work` in the broker's own thread."""
    done = threading.Event()
    result: list[Any] = []

    def run() -> None:
        result.append(work())
        done.set()

    broker._loop.call_soon_threadsafe(run)
    assert done.wait(20)
    return result[0]


def calls_during(broker: penstock.Broker, work: Any) -> Counter[str]:
    """Functions that the broker's thread calls while `work` runs in this one; the least of a few tries."""
    counts = [_calls_once(broker, work) for _ in range(5)]  # timers of the broker may fall into one
    return min(counts, key=lambda count: sum(count.values()))


def _calls_once(broker: penstock.Broker, work: Any) -> Counter[str]:
    seen: Counter[str] = Counter()

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            seen[frame.f_code.co_qualname] += 1

    on_loop(broker, lambda: sys.setprofile(note))
    try:
        work()
    finally:
        on_loop(broker, lambda: sys.setprofile(None))
    return seen


def test_the_work_for_a_batch_does_not_depend_on_its_records(broker: penstock.Broker, topic: str) -> None:
    ensure_topic(broker.port, topic)
    one, thousand = batch(b"v" * 1000), batch(*[b"v"] * 1000)
    with RawClient(broker.port) as client:

        def produce(records: bytes) -> Counter[str]:
            return calls_during(broker, lambda: client.call("produce", 9, produce_request(topic, records)))

        def fetch(offset: int) -> Counter[str]:
            return calls_during(broker, lambda: client.call("fetch", 12, fetch_request(topic, offset, max_bytes=100)))

        produce(one)
        few, many = produce(one), produce(thousand)
        assert few["ReplicaManager.append_lent"] == many["ReplicaManager.append_lent"] == 1
        # Large and small requests may take one more read of the socket, but nothing that grows with the records.
        assert sum(many.values()) <= sum(few.values()) + 10
        assert sum(fetch(7).values()) <= sum(fetch(0).values()) + 10


def test_requests_leave_nothing_for_the_garbage_collector(broker: penstock.Broker, topic: str) -> None:
    ensure_topic(broker.port, topic)

    def talk() -> None:
        with RawClient(broker.port) as client:
            for acks in (0, 1, -1):
                client.send(request_frame("produce", 9, produce_request(topic, batch(b"v"), acks=acks)))
                if acks:
                    client.read_response("produce", 9)
            client.call("fetch", 12, fetch_request(topic, 0))
            client.call("fetch", 12, fetch_request(topic, 10_000_000))

    talk()
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for _ in range(5):
            talk()
        on_loop(broker, lambda: None)
        gc.collect()
        left = [type(thing).__name__ for thing in gc.garbage if type(thing).__module__.startswith("penstock.broker")]
        assert left == []
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.mark.parametrize("acks", [1, -1])
def test_a_full_disk_fails_the_produces_and_nothing_else_and_heals(
    penstock_broker_factory: Any, monkeypatch: pytest.MonkeyPatch, acks: int
) -> None:
    from penstock.log import staging

    broker = penstock_broker_factory()
    ensure_topic(broker.port, "t")
    ensure_topic(broker.port, "other")

    def produce(client: RawClient, topic: str, value: bytes) -> Any:
        answer = client.call("produce", 9, produce_request(topic, batch(value), acks=acks))
        return answer.responses[0].partition_responses[0]

    with RawClient(broker.port) as client:
        assert produce(client, "t", b"before").base_offset == 0
        assert produce(client, "t", b"before").base_offset == 1

        def no_space(*_: Any) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(staging, "write_all", no_space)
            # Several in one wake-up, of the usual shape and not: none may be acknowledged.
            client.send(
                b"".join(
                    request_frame("produce", 9, produce_request("t", batch(b"lost"), acks=acks), n) for n in range(5)
                )
            )
            for number in range(5):
                correlation_id, answer = client.read_response("produce", 9)
                assert correlation_id == number
                (partition,) = answer.responses[0].partition_responses
                assert (partition.error_code, partition.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
            fetched = client.call("fetch", 12, fetch_request("t", 0)).responses[0].partitions[0]
            assert (fetched.high_watermark, bytes(fetched.records).count(b"before")) == (2, 2)
        assert produce(client, "t", b"after").base_offset == 2
        fetched = client.call("fetch", 12, fetch_request("t", 0)).responses[0].partitions[0]
        assert b"after" in bytes(fetched.records)
        assert b"lost" not in bytes(fetched.records)
