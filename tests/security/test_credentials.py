"""The small pure parts: SCRAM against a library, JAAS entries, names out of certificates."""

from __future__ import annotations

import asyncio
import contextlib
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scramp import ScramClient

from penstock.client.jaas import parse_jaas
from penstock.security.certificate_names import MappingRules
from penstock.security.mechanisms import ScramExchange
from penstock.security.scram import ScramCredential, ScramFailed, ScramServer, make_credential


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("name", ["anna", "a,b=c", "süd"])
def test_scram_agrees_with_another_implementation(mechanism: str, name: str) -> None:
    credential = make_credential(mechanism, "pass=word,")
    assert ScramCredential.parse(str(credential)) == credential
    client = ScramClient([mechanism], name, "pass=word,")
    server = ScramServer(mechanism)
    client.set_server_first(server.first(client.get_client_first().encode(), lambda *_: credential).decode())
    client.set_server_final(server.final(client.get_client_final().encode()).decode())
    assert (server.username, server.is_token) == (name, False)


def test_scram_refuses_a_wrong_password() -> None:
    credential = make_credential("SCRAM-SHA-256", "right")
    client = ScramClient(["SCRAM-SHA-256"], "anna", "wrong")
    server = ScramServer("SCRAM-SHA-256")
    client.set_server_first(server.first(client.get_client_first().encode(), lambda *_: credential).decode())
    with pytest.raises(ScramFailed, match="proof is wrong"):
        server.final(client.get_client_final().encode())


@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
@settings(max_examples=200, deadline=None)
def test_scram_survives_any_bytes(data: bytes) -> None:
    credential = ScramCredential(b"salt", b"x" * 32, b"y" * 32, 4096)
    with contextlib.suppress(ScramFailed):
        ScramServer("SCRAM-SHA-256").first(data, lambda *_: credential)
    with contextlib.suppress(ScramFailed):
        ScramServer("SCRAM-SHA-256").final(data)


def test_a_jaas_entry_is_read_as_java_reads_it() -> None:
    entry = parse_jaas(
        'org.apache.kafka.common.security.plain.PlainLoginModule required // a comment\n username="ad min"'
        ' password=\'s;"e\' user_bo=plain user_c-d="with \\"quotes\\"" ;'
    )
    assert entry.module_name == "PlainLoginModule"
    assert entry.options == {"username": "ad min", "password": 's;"e', "user_bo": "plain", "user_c-d": 'with "quotes"'}
    assert "s;" not in repr(entry)


@pytest.mark.parametrize(
    "text",
    ["", "Module required", "Module sometimes a=b;", 'M required a="b;', "M required a=b c;", "M required a=b; x",
     "M required a=b a=c;", "M required =b;"],
)  # fmt: skip
def test_half_a_jaas_entry_is_refused_without_its_secrets(text: str) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        parse_jaas(text.replace("b", "SECRET"))
    assert "SECRET" not in str(refused.value)


@given(st.text(max_size=100))
@settings(max_examples=200, deadline=None)
def test_jaas_survives_any_text(text: str) -> None:
    try:
        parse_jaas(text)
    except ValueError:
        return


@pytest.mark.parametrize(
    ("rules", "name", "expected"),
    [
        ("DEFAULT", "CN=Duke,O=x", "CN=Duke,O=x"),
        ("RULE:^CN=(.*?),OU=(.*?)$/$1@$2/", "CN=Duke,OU=Java", "Duke@Java"),
        ("RULE:^CN=(.*?),.*$/$1/L, DEFAULT", "CN=Duke,O=x", "duke"),
        ("RULE:^UID=(.*?)$/$1/, RULE:^CN=(.*?)$/$1/U", "CN=Duke", "DUKE"),
        ("RULE:^nothing$/x/", "CN=Duke", None),
    ],
)
def test_rules_give_certificates_their_names(rules: str, name: str, expected: str | None) -> None:
    assert MappingRules(rules).name(name) == expected


def test_the_number_of_rounds_does_not_tell_who_exists() -> None:
    from penstock.operate.users import DEFAULT_ITERATIONS
    from penstock.security.scram import MIN_ITERATIONS, made_up_credential

    drawn = {made_up_credential("SCRAM-SHA-256", f"user-{n}", b"key").iterations for n in range(50)}
    assert drawn == {MIN_ITERATIONS, DEFAULT_ITERATIONS}


def test_a_login_goes_away_with_its_connection() -> None:
    """Keys of users do not lie about until the garbage collector comes by: it is rarely called in a broker."""
    credential = make_credential("SCRAM-SHA-256", "right", iterations=4096)
    client = ScramClient(["SCRAM-SHA-256"], "anna", "right")
    exchange = ScramExchange("SCRAM-SHA-256", lambda *_: credential, lambda *_: None, lambda _: None)
    gone = weakref.ref(exchange)

    async def story(exchange: ScramExchange) -> None:
        client.set_server_first((await exchange.step(client.get_client_first().encode())).reply.decode())
        assert (await exchange.step(client.get_client_final().encode())).outcome is not None

    asyncio.run(story(exchange))
    del exchange
    assert gone() is None
