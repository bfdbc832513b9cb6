"""A connection against brokers that are old, slow, rude or gone."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from scripted_broker import ScriptedBroker

from penstock.client.connection import Connection
from penstock.client.errors import BrokerUnreachable, ConnectionLost, RequestTimedOut, UnsupportedApi
from penstock.protocol import messages


def run(story: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), 60))


async def list_groups(broker: ScriptedBroker, key: int, version: int, request: Any) -> bytes:
    api = messages.api("list_groups")
    groups = [api.ListedGroup(group_id=state) for state in request.states_filter]
    return bytes(messages.encode_response(key, version, api.Response(groups=groups)))


def ask(connection: Connection, name: str, **options: Any) -> Awaitable[Any]:
    return connection.request("list_groups", messages.api("list_groups").Request(states_filter=[name]), **options)


def test_a_broker_of_today_is_asked_once_for_its_versions() -> None:
    async def story() -> None:
        async with ScriptedBroker(list_groups) as broker:
            connection = await Connection.open("127.0.0.1", broker.port)
            assert broker.seen == [(18, 4)]
            assert connection.version_for("list_groups") == 4
            assert connection.version_for("list_groups", highest=2) == 2
            connection.close()

    run(story)


@pytest.mark.parametrize(("newest", "asked"), [(0, [(18, 4), (18, 0)]), (2, [(18, 4), (18, 2)])])
def test_an_older_broker_names_its_version_and_is_asked_again(newest: int, asked: list[tuple[int, int]]) -> None:
    async def story() -> None:
        async with ScriptedBroker(list_groups, api_versions=(0, newest)) as broker:
            connection = await Connection.open("127.0.0.1", broker.port)
            assert broker.seen == asked
            assert (await ask(connection, "a")).groups[0].group_id == "a"
            connection.close()

    run(story)


def test_many_requests_are_in_flight_and_each_caller_gets_its_own_answer() -> None:
    async def story() -> None:
        async with ScriptedBroker(list_groups) as broker:
            connection = await Connection.open("127.0.0.1", broker.port)
            answers = await asyncio.gather(*(ask(connection, f"g{n}" * 50) for n in range(2000)))
            assert [answer.groups[0].group_id for answer in answers] == [f"g{n}" * 50 for n in range(2000)]
            connection.close()

    run(story)


def test_answers_larger_than_the_buffer_are_read_whole_between_small_ones() -> None:
    async def story() -> None:
        async with ScriptedBroker(list_groups) as broker:
            connection = await Connection.open("127.0.0.1", broker.port)
            names = ["s", "L" * 300_000, "s", "M" * 65_500, "s"]
            answers = await asyncio.gather(*(ask(connection, name) for name in names))
            assert [answer.groups[0].group_id for answer in answers] == names
            connection.close()

    run(story)


def test_a_cancelled_caller_does_not_disturb_the_others() -> None:
    async def story() -> None:
        gate = asyncio.Event()

        async def gated(broker: ScriptedBroker, key: int, version: int, request: Any) -> bytes:
            await gate.wait()
            return await list_groups(broker, key, version, request)

        async with ScriptedBroker(gated) as broker:
            connection = await Connection.open("127.0.0.1", broker.port)
            first = asyncio.ensure_future(ask(connection, "first"))
            second = asyncio.ensure_future(ask(connection, "second"))
            await asyncio.sleep(0)
            first.cancel()
            gate.set()
            assert (await second).groups[0].group_id == "second"
            connection.close()

    run(story)


def test_when_the_broker_hangs_up_everybody_who_waits_is_told() -> None:
    async def story() -> None:
        async def rude(broker: ScriptedBroker, key: int, version: int, request: Any) -> None:
            broker.hang_up()

        async with ScriptedBroker(rude) as broker:
            connection = await Connection.open("127.0.0.1", broker.port)
            outcomes = await asyncio.gather(*(ask(connection, "x") for _ in range(3)), return_exceptions=True)
            assert all(isinstance(outcome, ConnectionLost) for outcome in outcomes)
            assert f"127.0.0.1:{broker.port}" in str(outcomes[0])
            assert connection.closed
            with pytest.raises(ConnectionLost):
                await ask(connection, "y")

    run(story)


def test_a_silent_broker_costs_the_connection_not_the_caller() -> None:
    async def story() -> None:
        async def silent(broker: ScriptedBroker, key: int, version: int, request: Any) -> None:
            return None

        async with ScriptedBroker(silent) as broker:
            connection = await Connection.open("127.0.0.1", broker.port)
            with pytest.raises(RequestTimedOut, match="list_groups"):
                await ask(connection, "x", timeout_s=0.05)
            assert connection.closed

    run(story)


@pytest.mark.parametrize("garbage", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\xff\xff\xff\xff", b"\0\0\0\1x", b""])
def test_a_port_that_does_not_speak_kafka_is_named(garbage: bytes) -> None:
    async def story() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(4)
            writer.write(garbage)
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            with pytest.raises(ConnectionLost, match=f"127.0.0.1:{port}"):
                await Connection.open("127.0.0.1", port)

    run(story)


def test_nobody_there_and_nobody_answering_are_told_apart() -> None:
    async def story() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
            with pytest.raises(BrokerUnreachable, match=f"nothing listens at 127.0.0.1:{port}"):
                await Connection.open("127.0.0.1", port)
            taken.listen()
            with pytest.raises(BrokerUnreachable, match="said nothing for"):
                await Connection.open("127.0.0.1", port, connect_timeout_s=0.05)

    run(story)


def test_an_api_that_the_broker_lacks_is_named() -> None:
    async def story() -> None:
        async with ScriptedBroker(list_groups) as broker:
            connection = await Connection.open("127.0.0.1", broker.port)
            with pytest.raises(UnsupportedApi, match="create_topics"):
                connection.version_for("create_topics")
            connection.close()

    run(story)
