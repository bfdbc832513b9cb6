"""Sessions with an end (KIP-368), and delegation tokens: made, used, renewed, ended."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from typing import Any

import pytest

import penstock
from penstock.client.connection import Connection
from penstock.client.errors import AuthenticationFailed, ConnectionLost
from penstock.client.sasl import authenticate
from penstock.client.security import Security
from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode
from penstock.testing import peers

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required user_anna=a user_bo=b;"


def started(**settings: str) -> penstock.Broker:
    return penstock.Broker(
        settings={
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "sasl.jaas.config": PLAIN,
            "delegation.token.secret.key": "the secret of tokens",
            "connection.failed.authentication.delay.ms": "0",
            **settings,
        }
    )


@pytest.fixture(scope="module")
def broker() -> Iterator[penstock.Broker]:
    with started() as running:
        yield running


def user(name: str = "anna", password: str = "a", mechanism: str = "PLAIN") -> Security:
    return Security("SASL_PLAINTEXT", mechanism, name, password)


async def connect(broker: penstock.Broker, security: Security | None = None) -> Connection:
    return await Connection.open("127.0.0.1", broker.port, security=security or user())


async def metadata(connection: Connection) -> Any:
    return await connection.request("metadata", messages.api("metadata").Request(topics=None))


def test_a_session_that_is_not_renewed_ends() -> None:
    async def story(broker: penstock.Broker) -> None:
        connection = await connect(broker)
        assert connection.session_expires_at is not None
        await metadata(connection)
        with pytest.raises(ConnectionLost):
            async with asyncio.timeout(20):
                while True:
                    await metadata(connection)
                    await asyncio.sleep(0.02)

    with started(**{"connections.max.reauth.ms": "300"}) as broker:
        asyncio.run(story(broker))


def test_a_session_may_be_renewed_by_the_same_user_and_mechanism_only() -> None:
    async def story(broker: penstock.Broker) -> None:
        loop = asyncio.get_running_loop()
        connection = await connect(broker)
        handshake = messages.api("sasl_handshake").Request(mechanism="PLAIN")
        early = await connection.request("sasl_handshake", handshake, version=1)
        assert early.error_code == ErrorCode.ILLEGAL_SASL_STATE  # once a second is enough
        begun = loop.time()
        while loop.time() - begun < 1.1:
            await metadata(connection)
            await asyncio.sleep(0.05)
        assert await authenticate(connection, user()) > 0
        await metadata(connection)
        for other in (user("bo", "b"), user(mechanism="SCRAM-SHA-256")):
            connection = await connect(broker)
            begun = loop.time()
            while loop.time() - begun < 1.1:
                await asyncio.sleep(0.05)
            with pytest.raises(AuthenticationFailed):
                await authenticate(connection, other)

    with started(**{"connections.max.reauth.ms": "60000"}) as broker:
        asyncio.run(story(broker))


def test_one_handshake_allows_one_guess(broker: penstock.Broker) -> None:
    """Guesses that stand in the pipe behind a wrong one are not looked at."""
    from raw_client import RawClient, request_frame

    handshake = messages.api("sasl_handshake").Request(mechanism="PLAIN")
    guesses = messages.api("sasl_authenticate")
    with RawClient(broker.port) as client:
        client.send(
            request_frame("sasl_handshake", 1, handshake)
            + request_frame("sasl_authenticate", 2, guesses.Request(auth_bytes=b"\0anna\0wrong"))
            + request_frame("sasl_authenticate", 2, guesses.Request(auth_bytes=b"\0anna\0a"))
        )
        assert client.read_response("sasl_handshake", 1)[1].error_code == 0
        assert client.read_response("sasl_authenticate", 2)[1].error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.is_closed()


def test_long_messages_of_strangers_are_not_looked_at(broker: penstock.Broker) -> None:
    """Half a megabyte of commas took 55 ms that everybody else waited."""
    from raw_client import RawClient, request_frame

    handshake = messages.api("sasl_handshake").Request(mechanism="SCRAM-SHA-256")
    long = messages.api("sasl_authenticate").Request(auth_bytes=b"n,,n=anna,r=x" + b",a=b" * 100_000)
    with RawClient(broker.port) as client:
        client.send(request_frame("sasl_handshake", 1, handshake) + request_frame("sasl_authenticate", 2, long))
        assert client.read_response("sasl_handshake", 1)[1].error_code == 0
        answer = client.read_response("sasl_authenticate", 2)[1]
        assert (answer.error_code, answer.auth_bytes) == (ErrorCode.SASL_AUTHENTICATION_FAILED, b"")
        assert "too long" in answer.error_message
        assert client.is_closed()


def test_without_a_limit_nobody_authenticates_twice(broker: penstock.Broker) -> None:
    async def story() -> None:
        connection = await connect(broker)
        assert connection.session_expires_at is None
        with pytest.raises(AuthenticationFailed):
            await authenticate(connection, user())

    asyncio.run(story())


async def create(connection: Connection, *renewers: str, **fields: Any) -> Any:
    api = messages.api("create_delegation_token")
    row = api.request_struct("CreatableRenewers")
    rows = [row(principal_type="User", principal_name=name) for name in renewers]
    return await connection.request("create_delegation_token", api.Request(renewers=rows, max_lifetime_ms=-1, **fields))


def by_token(token: Any, mechanism: str = "SCRAM-SHA-256") -> Security:
    return Security("SASL_PLAINTEXT", mechanism, token.token_id, base64.b64encode(token.hmac).decode(), token_auth=True)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_token_lets_its_holder_in_as_its_owner(broker: penstock.Broker, mechanism: str) -> None:
    async def story() -> None:
        owner = await connect(broker)
        token = await create(owner)
        assert token.error_code == 0 and token.principal_name == "anna"
        holder = await connect(broker, by_token(token, mechanism))
        assert holder.session_expires_at is not None  # not longer than the token itself
        await metadata(holder)
        again = await create(holder)
        assert again.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        listener = broker._broker.listeners[0]
        assert {str(c.principal) for c in listener.connections} == {"User:anna"}
        with pytest.raises(AuthenticationFailed):
            wrong = Security("SASL_PLAINTEXT", mechanism, token.token_id, "guess", token_auth=True)
            await connect(broker, wrong)

    asyncio.run(story())


def test_a_token_that_ends_ends_its_connections(broker: penstock.Broker) -> None:
    async def story() -> None:
        owner = await connect(broker)
        token = await create(owner)
        holder = await connect(broker, by_token(token))
        await metadata(holder)
        expire = messages.api("expire_delegation_token")
        request = expire.Request(hmac=token.hmac, expiry_time_period_ms=-1)
        assert (await owner.request("expire_delegation_token", request)).error_code == 0
        async with asyncio.timeout(10):
            while not holder.closed:
                await asyncio.sleep(0.01)
        with pytest.raises(AuthenticationFailed):
            await connect(broker, by_token(token))
        gone = await owner.request("expire_delegation_token", request)
        assert gone.error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND

    asyncio.run(story())


def test_only_owner_and_renewers_manage_and_see_a_token(broker: penstock.Broker) -> None:
    async def story() -> None:
        anna, bo = await connect(broker), await connect(broker, user("bo", "b"))
        private, shared = await create(anna), await create(anna, "bo")
        renew = messages.api("renew_delegation_token")
        for token, code in ((private, ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH), (shared, ErrorCode.NONE)):
            request = renew.Request(hmac=token.hmac, renew_period_ms=1000)
            assert (await bo.request("renew_delegation_token", request)).error_code == code
        describe = messages.api("describe_delegation_token")
        seen = await bo.request("describe_delegation_token", describe.Request(owners=None))
        assert [token.token_id for token in seen.tokens] == [shared.token_id]
        foreign = await create(bo, owner_principal_type="User", owner_principal_name="anna")
        assert foreign.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        wrong = messages.api("create_delegation_token")
        row = wrong.request_struct("CreatableRenewers")(principal_type="Group", principal_name="x")
        answer = await bo.request("create_delegation_token", wrong.Request(renewers=[row], max_lifetime_ms=-1))
        assert answer.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE

    asyncio.run(story())


def test_tokens_are_for_named_clients_of_brokers_that_have_a_key() -> None:
    async def asked(broker: penstock.Broker, security: Security | None) -> int:
        connection = await Connection.open("127.0.0.1", broker.port, security=security)
        return int((await create(connection)).error_code)

    with penstock.Broker() as broker:
        assert asyncio.run(asked(broker, None)) == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    with started(**{"delegation.token.secret.key": ""}) as broker:
        assert asyncio.run(asked(broker, user())) == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


@pytest.mark.java
def test_kafkas_delegation_tokens_tool(broker: penstock.Broker, tmp_path: Any) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config=org.apache.kafka.common.security."
        "plain.PlainLoginModule required username=anna password=a;\n"
    )
    common = ["--bootstrap-server", broker.bootstrap, "--command-config", str(properties)]
    made = peers.kafka_tool(
        "DelegationTokenCommand", *common, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bo"
    )
    assert "User:bo" in made.stdout and "TOKENID" in made.stdout, made.stderr
    shown = peers.kafka_tool("DelegationTokenCommand", *common, "--describe", "--owner-principal", "User:anna")
    assert "User:anna" in shown.stdout, shown.stderr


def test_the_command_makes_lists_renews_and_ends_tokens(
    broker: penstock.Broker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    from penstock.cli.main import run

    monkeypatch.setenv("PENSTOCK_CONFIG", str(tmp_path / "profiles.toml"))
    anna = ["-b", f"127.0.0.1:{broker.port}", "-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=PLAIN"]
    anna += ["-X", "sasl.username=anna", "-X", "sasl.password=a"]

    def said(*words: str) -> str:
        assert run(["token", *words, *anna]) == 0
        return capsys.readouterr().out

    token_id, secret = said("create", "--renewer", "bo", "--lifetime", "1d").split()
    assert base64.b64decode(secret)
    listed = said("list")
    assert token_id in listed and "anna" in listed and secret not in listed
    assert "lives until" in said("renew", token_id, "--for", "1h")
    assert "is over" in said("delete", token_id, "--yes")
    assert token_id not in said("list")
    assert run(["token", "delete", token_id, "--yes", *anna]) == 4
    assert "Traceback" not in capsys.readouterr().err
