"""Smaller stories of settings: OAuth rules and key sets, tokens' lifetimes, refusals, encrypted keys, trust stores."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12

import penstock
from penstock.base.clock import SystemClock
from penstock.base.settings import Settings
from penstock.client.connection import Connection
from penstock.client.errors import AuthenticationFailed
from penstock.client.security import Security
from penstock.security.key_set import KeySet
from penstock.security.oauth import OAuthRules, TokenRefused, TokenValidator
from penstock.security.principal import Principal
from penstock.security.tls_material import TlsMaterial, TlsSettingsError
from penstock.security.token_keeper import TokenKeeper
from penstock.security.tokens import TokenRules
from penstock.store.embedded import EmbeddedDatabase, EmbeddedStore
from tests.security.pki import Pki

ANNA = Principal("User", "anna")
KEY = ec.generate_private_key(ec.SECP256R1())


def write_keys(file: Path, **keys: ec.EllipticCurvePrivateKey) -> str:
    rows = []
    for key_id, key in keys.items():
        body = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key()))
        rows.append({**body, "kid": key_id, "alg": "ES256"})
    file.write_text(json.dumps({"keys": rows}))
    return file.as_uri()


def signed(key: ec.EllipticCurvePrivateKey = KEY, key_id: str = "one", **claims: Any) -> str:
    body = {"sub": "anna", "exp": int(time.time()) + 60, **claims}
    return jwt.encode(body, key, "ES256", headers={"kid": key_id})


def validated(address: str, token: str, **rules: Any) -> str:
    keys = KeySet(address, 3600, 0.1, 10)
    validator = TokenValidator(keys, OAuthRules(**{"algorithms": ("ES256",), **rules}))
    return str(asyncio.run(validator.validate(token)).principal)


def test_an_end_beyond_all_time_is_none(tmp_path: Path) -> None:
    address = write_keys(tmp_path / "keys.json", one=KEY)
    with pytest.raises(TokenRefused):
        validated(address, signed(exp=float("inf")))
    assert validated(address, signed(exp=1e30)) == "User:anna"


def test_only_listed_algorithms_sign(tmp_path: Path) -> None:
    address = write_keys(tmp_path / "keys.json", one=KEY)
    assert validated(address, signed()) == "User:anna"
    with pytest.raises(TokenRefused, match="not allowed"):
        validated(address, signed(), algorithms=("RS256",))


def test_clocks_may_differ_a_little(tmp_path: Path) -> None:
    address = write_keys(tmp_path / "keys.json", one=KEY)
    late = signed(exp=int(time.time()) - 20)
    assert validated(address, late, clock_skew_s=30) == "User:anna"
    with pytest.raises(TokenRefused, match="Expired"):
        validated(address, late, clock_skew_s=5)


def test_another_claim_may_carry_the_name(tmp_path: Path) -> None:
    address = write_keys(tmp_path / "keys.json", one=KEY)
    assert validated(address, signed(login="bo"), name_claim="login") == "User:bo"
    with pytest.raises(TokenRefused):
        validated(address, signed(), name_claim="login")


class Watch:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_keys_are_read_again(tmp_path: Path) -> None:
    async def story() -> None:
        watch = Watch()
        other = ec.generate_private_key(ec.SECP256R1())
        keys = KeySet(write_keys(tmp_path / "keys.json", one=KEY), 100, 0.1, 10, watch)
        assert await keys.find("one") is not None
        write_keys(tmp_path / "keys.json", two=other)
        watch.now = 101
        assert await keys.find("two") is not None and await keys.find("one") is None

    asyncio.run(story())


def test_keys_are_not_asked_for_too_often(tmp_path: Path) -> None:
    async def story() -> None:
        watch = Watch()
        keys = KeySet((tmp_path / "missing.json").as_uri(), 1e9, 2, 5, watch)
        assert await keys.find("one") is None
        write_keys(tmp_path / "missing.json", one=KEY)
        for moment, found in ((1.0, False), (3.9, False), (4.1, True)):  # 2 s, doubled after one failure
            watch.now = moment
            assert (await keys.find("one") is not None) is found, moment

    asyncio.run(story())


@pytest.mark.parametrize(
    "content",
    ['{"keys": []}', "[]", "{", '{"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "one"}]}', '{"keys": [5]}', "null"],
)
def test_a_key_set_without_public_keys_signs_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / "keys.json").write_text(content)
    with pytest.raises(TokenRefused, match="not known"):
        validated((tmp_path / "keys.json").as_uri(), signed())


def test_a_token_lives_no_longer_than_the_broker_allows() -> None:
    rules = TokenRules(max_lifetime_ms=1000, expiry_ms=300)
    token = rules.new("t", ANNA, ANNA, (), 50_000, 0)
    assert (token.max_ms, token.expires_ms) == (1000, 300)
    assert rules.renewed(token, ANNA, 900, 200).expires_ms == 1000
    assert rules.renewed(token, ANNA, -1, 200).expires_ms == 500


def test_tokens_end_by_themselves(tmp_path: Path) -> None:
    async def story() -> None:
        gone: list[str] = []
        settings = Settings.load(
            None,
            {
                "delegation.token.secret.key": "x",
                "delegation.token.expiry.time.ms": "50",
                "delegation.token.expiry.check.interval.ms": "20",
            },
        )
        store = EmbeddedStore(EmbeddedDatabase(tmp_path / "store.db"))
        await store.start()
        keeper = TokenKeeper(store, settings, SystemClock(), gone.append)
        await keeper.start()
        token = await keeper.create(ANNA, ANNA, (), -1)
        assert keeper.owner(token.token_id) is not None
        async with asyncio.timeout(20):
            while not gone:
                await asyncio.sleep(0.01)
        assert gone == [token.token_id] and keeper.credential("SCRAM-SHA-256", token.token_id) is None
        assert await store.children("/delegation_token/tokens") == []
        await keeper.stop()
        await store.close()

    asyncio.run(story())


def test_a_refusal_takes_its_time() -> None:
    async def story(port: int) -> float:
        begun = time.monotonic()
        with pytest.raises(AuthenticationFailed):
            security = Security("SASL_PLAINTEXT", "PLAIN", "anna", "wrong")
            await Connection.open("127.0.0.1", port, security=security)
        return time.monotonic() - begun

    jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required user_anna=a;"
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.jaas.config": jaas,
        "connection.failed.authentication.delay.ms": "400",
    }
    with penstock.Broker(settings=settings) as broker:
        assert asyncio.run(story(broker.port)) >= 0.4


def material(pki: Pki, **settings: str) -> TlsMaterial:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    all_settings = {"listeners": "SSL://127.0.0.1:0", **pki.server_settings(), **given}
    return TlsMaterial(Settings.load(None, {k: v for k, v in all_settings.items() if v}), "SSL")


def test_brokers_check_each_others_host_names_unless_told_not_to(pki: Pki) -> None:
    assert material(pki).client_context().check_hostname
    settings = Settings.load(
        None,
        {
            "listeners": "SSL://:1",
            **pki.server_settings(),
            "listener.name.ssl.ssl.endpoint.identification.algorithm": "",
        },
    )
    assert not TlsMaterial(settings, "SSL").client_context().check_hostname


def test_an_encrypted_key_needs_its_password(pki: Pki, tmp_path: Path) -> None:
    issued = pki.authority.issue("localhost", ["localhost"])
    key: Any = serialization.load_pem_private_key(issued.key, None)
    encrypted = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"key secret"),
    )
    file = tmp_path / "encrypted.pem"
    file.write_bytes(issued.certificate + encrypted)
    material(pki, ssl_keystore_location=str(file), ssl_key_password="key secret").server_context()
    with pytest.raises(TlsSettingsError, match="cannot be loaded") as refused:
        material(pki, ssl_keystore_location=str(file), ssl_key_password="a wrong one").server_context()
    assert "a wrong one" not in str(refused.value)


def test_trusted_certificates_come_as_text_or_as_a_store(pki: Pki, tmp_path: Path) -> None:
    def trusted(made: TlsMaterial) -> list[Any]:
        return made.server_context().get_ca_certs()

    certificate = x509.load_pem_x509_certificate(pki.authority.certificate)
    store = tmp_path / "trust.p12"
    store.write_bytes(
        pkcs12.serialize_key_and_certificates(
            None, None, None, [certificate], serialization.BestAvailableEncryption(b"trust secret")
        )
    )
    in_store: Callable[..., TlsMaterial] = lambda password: material(  # noqa: E731 - a story's shorthand
        pki, ssl_truststore_type="PKCS12", ssl_truststore_location=str(store), ssl_truststore_password=password
    )
    as_text = material(pki, ssl_truststore_location="", ssl_truststore_certificates=pki.authority.certificate.decode())
    assert len(trusted(as_text)) == len(trusted(in_store("trust secret"))) == 1
    with pytest.raises(TlsSettingsError, match="trusted certificates"):
        trusted(in_store("wrong"))
    assert isinstance(as_text.client_context(), ssl.SSLContext)
