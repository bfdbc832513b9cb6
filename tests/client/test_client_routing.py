"""The cluster client finds the right broker, follows it, and repeats only what is safe to repeat."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from scripted_broker import ScriptedBroker

from penstock.client import records
from penstock.client.client import Client, parse_bootstrap
from penstock.client.errors import BrokerUnreachable, ConnectionLost, KafkaError
from penstock.client.retry import RetryPolicy, worth_another_try
from penstock.client.sync import SyncClient
from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode

FAST = RetryPolicy(total_timeout_s=5, first_backoff_s=0.001, max_backoff_s=0.01, missing_topic_wait_s=0.05)
PATIENT = RetryPolicy(total_timeout_s=30, first_backoff_s=0.001, max_backoff_s=0.01, missing_topic_wait_s=30)
PLAIN_BATCH = bytes(43) + (-1).to_bytes(8, "big", signed=True) + bytes(10)
IDEMPOTENT_BATCH = bytes(43) + (7).to_bytes(8, "big") + bytes(10)


def run(story: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), 60))


def produce_answer(version: int, error: int, offset: int = 5) -> bytes:
    api = messages.api("produce")
    partition = api.PartitionProduceResponse(index=0, error_code=error, base_offset=offset)
    topic = api.TopicProduceResponse(partition_responses=[partition])
    topic.name = "t"
    return bytes(messages.encode_response(0, version, api.Response(responses=[topic])))


class Producing:
    """Answers metadata, and produce with the given outcomes one after another (`None`: hang up)."""

    def __init__(self, *outcomes: int | None) -> None:
        self.outcomes = list(outcomes)
        self.produced = 0

    async def __call__(self, broker: ScriptedBroker, key: int, version: int, request: Any) -> bytes | None:
        if key == 3:
            return broker.metadata(version)
        self.produced += 1
        outcome = self.outcomes.pop(0)
        if outcome is None:
            broker.hang_up()
            return None
        return produce_answer(version, outcome)


def test_a_leader_that_moved_is_looked_up_again() -> None:
    async def story() -> None:
        script = Producing(ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)
        async with ScriptedBroker(script) as broker, Client(f"127.0.0.1:{broker.port}", retry=FAST) as client:
            assert (await records.produce(client, "t", 0, PLAIN_BATCH)).base_offset == 5
            assert [key for key, _ in broker.seen if key in (0, 3)] == [3, 0, 3, 0, 3, 0]

    run(story)


def test_a_leader_that_has_not_heard_of_a_new_topic_is_asked_again() -> None:
    """The broker that was asked for metadata may know a topic before its leader does."""

    async def story() -> None:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        script = Producing(unknown, unknown, 0)
        async with ScriptedBroker(script) as broker, Client(f"127.0.0.1:{broker.port}", retry=PATIENT) as client:
            assert (await records.produce(client, "t", 0, PLAIN_BATCH)).base_offset == 5
        script = Producing(*[unknown] * 1000)
        async with ScriptedBroker(script) as broker, Client(f"127.0.0.1:{broker.port}", retry=FAST) as client:
            with pytest.raises(KafkaError, match="produce to t-0: UNKNOWN_TOPIC_OR_PARTITION"):
                await records.produce(client, "t", 0, PLAIN_BATCH)

    run(story)


def test_a_batch_without_producer_id_is_not_sent_twice_when_the_connection_breaks() -> None:
    async def story() -> None:
        script = Producing(None, 0)
        async with ScriptedBroker(script) as broker, Client(f"127.0.0.1:{broker.port}", retry=FAST) as client:
            with pytest.raises(ConnectionLost):
                await records.produce(client, "t", 0, PLAIN_BATCH)
            assert script.produced == 1

    run(story)


def test_an_idempotent_batch_is_sent_again_and_a_duplicate_counts_as_written() -> None:
    async def story() -> None:
        script = Producing(None, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
        async with ScriptedBroker(script) as broker, Client(f"127.0.0.1:{broker.port}", retry=FAST) as client:
            assert (await records.produce(client, "t", 0, IDEMPOTENT_BATCH)).base_offset == -1
            assert script.produced == 2

    run(story)


def test_an_error_that_no_retry_helps_comes_at_once() -> None:
    async def story() -> None:
        script = Producing(ErrorCode.MESSAGE_TOO_LARGE)
        async with ScriptedBroker(script) as broker, Client(f"127.0.0.1:{broker.port}", retry=FAST) as client:
            with pytest.raises(KafkaError, match="produce to t-0: MESSAGE_TOO_LARGE") as raised:
                await records.produce(client, "t", 0, PLAIN_BATCH)
            assert not raised.value.retriable

    run(story)


def test_a_partition_without_leader_is_waited_for_and_then_named() -> None:
    async def story() -> None:
        async def leaderless(broker: ScriptedBroker, key: int, version: int, request: Any) -> bytes:
            return broker.metadata(version, leader_id=-1)

        policy = RetryPolicy(total_timeout_s=0.05, first_backoff_s=0.001, max_backoff_s=0.01)
        async with ScriptedBroker(leaderless) as broker, Client(f"127.0.0.1:{broker.port}", retry=policy) as client:
            with pytest.raises(KafkaError, match="t-0: LEADER_NOT_AVAILABLE"):
                await records.produce(client, "t", 0, PLAIN_BATCH)
            with pytest.raises(KafkaError, match="t-9: UNKNOWN_TOPIC_OR_PARTITION"):
                await records.produce(client, "t", 9, PLAIN_BATCH)

    run(story)


def test_a_broker_that_restarts_is_reached_again() -> None:
    async def story() -> None:
        script = Producing(0, 0)
        broker = ScriptedBroker(script)
        async with Client("127.0.0.1:1", retry=FAST) as client:
            async with broker:
                client.bootstrap = [("127.0.0.1", broker.port)]
                await records.produce(client, "t", 0, PLAIN_BATCH)
            async with broker:  # the same port again
                await records.produce(client, "t", 0, IDEMPOTENT_BATCH)
        assert script.produced == 2

    run(story)


def test_a_cluster_that_is_down_is_named_broker_by_broker() -> None:
    async def story() -> None:
        policy = RetryPolicy(total_timeout_s=0.02, first_backoff_s=0.001)
        async with Client("127.0.0.1:1,127.0.0.1:2", retry=policy) as client:
            with pytest.raises(BrokerUnreachable) as raised:
                await client.metadata()
            assert str(raised.value).count("127.0.0.1:") == 2 and "127.0.0.1:1;" in str(raised.value)

    run(story)


def test_an_error_travels_between_processes() -> None:
    import pickle

    error = pickle.loads(pickle.dumps(KafkaError(6, "fetch t-0", "moved")))
    assert (error.code, str(error)) == (6, "fetch t-0: NOT_LEADER_OR_FOLLOWER (moved)")


def test_only_answers_that_did_nothing_are_worth_another_try() -> None:
    api = messages.api("list_offsets")

    def answer(*codes: int) -> Any:
        parts = [api.ListOffsetsPartitionResponse(partition_index=i, error_code=c) for i, c in enumerate(codes)]
        return api.Response(topics=[api.ListOffsetsTopicResponse(name="t", partitions=parts)])

    assert worth_another_try(answer(6, 6)) == 6
    assert worth_another_try(answer(6, 0)) == 0
    assert worth_another_try(answer(0)) == 0
    assert worth_another_try(answer(29)) == 0
    groups = messages.api("list_groups")
    assert worth_another_try(groups.Response(error_code=14)) == 14
    assert worth_another_try(groups.Response(error_code=30)) == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:1", [("a", 1)]),
        ("a, b:2 ,", [("a", 9092), ("b", 2)]),
        ("[::1]:5", [("::1", 5)]),
        ("[::1]", [("::1", 9092)]),
        ("PLAINTEXT://h:7", [("h", 7)]),
    ],
)
def test_bootstrap_servers_in_all_their_forms(text: str, expected: list[tuple[str, int]]) -> None:
    assert parse_bootstrap(text) == expected


@pytest.mark.parametrize("text", ["", " , ", "a:b", "a:0", "a:70000"])
def test_bootstrap_servers_that_cannot_be(text: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        parse_bootstrap(text)


def test_the_blocking_client_survives_a_fork() -> None:
    """The child connects anew; the parent's connection goes on working afterwards."""
    import threading

    ready, stop = threading.Event(), threading.Event()
    ports: list[int] = []

    async def groups(broker: ScriptedBroker, key: int, version: int, request: Any) -> bytes:
        return bytes(messages.encode_response(key, version, messages.api("list_groups").Response()))

    async def serve() -> None:
        async with ScriptedBroker(groups) as broker:
            ports.append(broker.port)
            ready.set()
            while not stop.is_set():
                await asyncio.sleep(0.01)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert ready.wait(10)
        request = messages.api("list_groups").Request()
        with SyncClient(f"127.0.0.1:{ports[0]}") as client:
            assert client.call_any("list_groups", request).error_code == 0
            child = os.fork()
            if child == 0:
                good = client.call_any("list_groups", request).error_code == 0
                os._exit(0 if good else 1)
            _, status = os.waitpid(child, 0)
            assert status == 0
            assert client.call_any("list_groups", request).error_code == 0
    finally:
        stop.set()
        thread.join(10)
