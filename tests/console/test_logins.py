"""Other ways in: the brokers' SCRAM users and OpenID Connect; each asks brokers so that ACLs hold for them."""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from console_world import start_console, stop
from oidc_provider import CLIENT, SECRET, Provider
from playwright.sync_api import expect

import penstock
from penstock.console.access import access_file
from penstock.console.access.access_file import role_for
from penstock.console.cluster import ConsoleSession
from penstock.operate import acls, users
from penstock.operate.errors import UserError
from penstock.operate.topics import create_topics
from penstock.security.acl_model import AclBinding, Permission

ADMIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "admin",
    "sasl.password": "admin's own",
}
PASSWORDS = {"anna": "annas own", "bob": "bobs own", "leaver": "leavers own", "looker": "lookers own"}
RIGHTS = (("anna", "topic:orders*", "read"), ("anna", "topic:orders*", "write"), ("looker", "topic:public*", "read"))


@dataclass
class World:
    address: str
    provider: Provider
    admin: ConsoleSession
    folder: Path

    @property
    def local(self) -> str:
        return f"{self.address}/api/v1/clusters/local"

    def log_in(self, name: str) -> httpx.Client:
        client = httpx.Client(headers={"x-penstock-console": "1"}, timeout=60)
        answer = client.post(f"{self.address}/login", data={"name": name, "password": PASSWORDS[name]})
        assert answer.status_code == 303, answer.text
        return client

    def by_oidc(self, next_page: str = "/") -> tuple[httpx.Client, httpx.Response]:
        client = httpx.Client(headers={"x-penstock-console": "1"}, timeout=60)
        there = client.get(f"{self.address}/login/oidc", params={"next": next_page})
        assert there.status_code == 303, there.text
        back = httpx.get(there.headers["location"], timeout=60).headers["location"]
        return client, client.get(back)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("logins")
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            'org.apache.kafka.common.security.plain.PlainLoginModule required user_admin="admin\'s own";'
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
        "connection.failed.authentication.delay.ms": "0",
    }
    provider = Provider()
    with penstock.Broker(tmp_path_factory.mktemp("broker"), settings=settings) as broker:
        admin = ConsoleSession({"bootstrap.servers": broker.bootstrap, **ADMIN})
        for name, password in PASSWORDS.items():
            users.set_password(admin, name, password, "SCRAM-SHA-512", 4096)
        create_topics(admin, ["orders.new", "public.things", "secret.things"], 1, 1, None)
        for name, resource, operation in RIGHTS:
            named = acls.parse_resource(resource)
            what = acls.parse_operation(operation, named.kind)
            binding = AclBinding(named.kind, named.name, named.pattern, f"User:{name}", "*", what, Permission.ALLOW)
            acls.create(admin, [binding])
        (folder / "secret").write_text(SECRET + "\n")
        (folder / "access.toml").write_text(
            f"""
[scram]
roles = {{editor = ["anna"], viewer = ["*"]}}
[oidc]
issuer = "{provider.issuer}"
client_id = "{CLIENT}"
client_secret_file = "secret"
title = "the company's login"
roles = {{admin = ["kafka-*"], viewer = ["staff"]}}
[[principal]]
roles = ["viewer", "editor"]
properties = {{"sasl.mechanism" = "SCRAM-SHA-512", "sasl.username" = "looker", "sasl.password" = "lookers own"}}
"""
        )
        arguments = [f"{name}={value}" for name, value in ADMIN.items()]
        more = [word for pair in arguments for word in ("-X", pair)]
        process, address = start_console(folder, "-b", broker.bootstrap, *more, "--access", str(folder / "access.toml"))
        yield World(address, provider, admin, folder)
        stop(process)
        admin.close()
    provider.close()


def _names(world: World, client: httpx.Client) -> set[str]:
    rows = client.get(f"{world.local}/topics", params={"internal": True, "size": 500}).json()["rows"]
    return {row["name"] for row in rows}


def test_a_user_of_the_brokers_logs_in_and_may_what_acls_allow(world: World) -> None:
    with closing(world.log_in("anna")) as anna:
        assert anna.get(f"{world.address}/api/v1/me").json() == {"name": "anna", "role": "editor"}
        assert _names(world, anna) == {"orders.new"}
        made = anna.post(f"{world.local}/topics/orders.new/messages", json={"value": "hers"})
        assert made.status_code == 201, made.text
        assert "hers" in anna.get(f"{world.local}/topics/orders.new/messages").text
        assert anna.get(f"{world.local}/topics/secret.things/messages").status_code == 404
        assert anna.get(f"{world.local}/search", params={"text": "things"}).json() == []
        overview = anna.get(f"{world.local}/overview").json()
        assert overview["topics"] == 1 and "secret" not in json.dumps(overview)
        refused = anna.post(f"{world.local}/topics", json={"name": "orders.of-nobody"})
        assert refused.status_code == 409 and "AUTHORIZATION" in refused.text  # an editor, but the brokers say no
        assert anna.get(f"{world.local}/doctor").status_code == 403
    with closing(world.log_in("bob")) as bob:
        assert bob.get(f"{world.address}/api/v1/me").json()["role"] == "viewer"
        assert _names(world, bob) == set()


def test_wrong_passwords_and_unknown_names_stay_out(world: World) -> None:
    for name, password in (("bob", "wrong"), ("nobody", "x"), ("bob", ""), ("", "x")):
        elsewhere = httpx.HTTPTransport(local_address="127.0.0.9")  # who guesses waits, not the other stories
        with httpx.Client(transport=elsewhere, timeout=60) as stranger:
            answer = stranger.post(f"{world.address}/login", data={"name": name, "password": password})
        assert answer.status_code in (401, 429) and "set-cookie" not in answer.headers


def test_a_user_whom_the_brokers_no_longer_know_is_out(world: World) -> None:
    with closing(world.log_in("leaver")) as leaver:
        assert leaver.get(f"{world.address}/api/v1/me").status_code == 200
        users.delete_user(world.admin, "leaver", ["SCRAM-SHA-512"])
        while leaver.get(f"{world.address}/api/v1/me").status_code == 200:
            time.sleep(0.5)
        assert leaver.get(f"{world.address}/api/v1/me").status_code == 401


def test_passwords_are_in_no_file_of_the_console(world: World) -> None:
    world.log_in("anna").close()
    world.by_oidc()[0].close()
    kept = b"".join(path.read_bytes() for path in world.folder.rglob("*") if path.is_file() and path.suffix != ".toml")
    assert b"annas own" not in kept and b"lookers own" not in kept
    assert b'"by": "scram"' in kept and b'"by": "oidc"' in kept


def test_single_sign_on_gives_the_role_of_the_claims_and_asks_brokers_as_that_role(world: World) -> None:
    client, answer = world.by_oidc("/c/local/topics")
    assert answer.status_code == 200 and 'url=/c/local/topics"' in answer.text, answer.text
    assert client.get(f"{world.address}/api/v1/me").json() == {"name": "olga", "role": "viewer"}
    assert _names(world, client) == {"public.things"}  # what the principal of viewers may see
    assert client.get(f"{world.local}/topics/secret.things").status_code == 404
    world.provider.who["groups"] = ["staff", "kafka-admins"]
    admin, _ = world.by_oidc()
    world.provider.who["groups"] = ["staff"]
    assert admin.get(f"{world.address}/api/v1/me").json()["role"] == "admin"
    assert "secret.things" in _names(world, admin)  # no principal for admins: the console's own
    for evil in ("https://evil.example/", "//evil.example", "/\\evil.example", "/\t/evil.example"):
        _, answer = world.by_oidc(evil)
        assert 'url=/"' in answer.text, evil


def _later(claims: dict[str, Any]) -> None:
    claims["exp"] = int(time.time()) - 3600


def _without_signature(claims: dict[str, Any]) -> str:
    parts = [{"alg": "none", "kid": "1"}, claims]
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts) + "."


def _with_the_public_key_as_secret(provider: Provider) -> Callable[[dict[str, Any]], str]:
    from cryptography.hazmat.primitives import serialization

    pem = provider.key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )

    def sign(claims: dict[str, Any]) -> str:
        parts = [{"alg": "HS256", "kid": "1"}, claims]
        body = b".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts)
        mac = base64.urlsafe_b64encode(hmac.digest(pem, body, "sha256")).rstrip(b"=")
        return (body + b"." + mac).decode()

    return sign


@pytest.mark.parametrize(
    "bend",
    [
        lambda claims: claims.update(nonce="of another login"),
        lambda claims: claims.pop("nonce"),
        lambda claims: claims.update(aud="somebody else"),
        lambda claims: claims.update(aud=[CLIENT, "somebody else"]),
        lambda claims: claims.update(iss="http://localhost:1"),
        lambda claims: claims.pop("exp"),
        lambda claims: claims.update(groups=["guests"]),
        lambda claims: claims.update(groups={"admin": 1}),
        lambda claims: claims.pop("preferred_username"),
        _later,
    ],
)
def test_a_token_that_says_something_else_does_not_count(world: World, bend: Any) -> None:
    world.provider.bend = bend
    try:
        client, answer = world.by_oidc()
    finally:
        world.provider.bend = lambda claims: None
    assert answer.status_code == 401 and "penstock_console=" not in answer.headers["set-cookie"]
    assert client.get(f"{world.address}/api/v1/me").status_code == 401


@pytest.mark.parametrize("forgery", ["none", "public key as secret", "other key"])
def test_a_token_that_the_provider_did_not_sign_does_not_count(world: World, forgery: str) -> None:
    provider = world.provider
    provider.sign = {
        "none": _without_signature,
        "public key as secret": _with_the_public_key_as_secret(provider),
        "other key": lambda claims: provider.signed(claims, provider.other_key),
    }[forgery]
    try:
        _, answer = world.by_oidc()
    finally:
        provider.sign = provider.signed
    assert answer.status_code == 401


def test_a_login_ends_in_the_browser_that_began_it_and_only_once(world: World) -> None:
    victim, attacker = httpx.Client(timeout=60), httpx.Client(timeout=60)
    begun = attacker.get(f"{world.address}/login/oidc")
    back = httpx.get(begun.headers["location"], timeout=60).headers["location"]
    assert victim.get(back).status_code == 401  # the attacker's code, in the victim's browser
    victim.cookies.set("penstock_console_oidc", "e30.x", path="/login/oidc")
    assert victim.get(back).status_code == 401
    first = attacker.get(back)
    assert first.status_code == 200
    cookie = begun.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Lax" in cookie and "Path=/login/oidc" in cookie
    again = httpx.get(back, headers={"cookie": cookie.partition(";")[0]}, timeout=60)
    assert again.status_code == 401  # its code is used up


def test_single_sign_on_in_the_browser(world: World, browser: Any) -> None:
    context = browser.new_context()
    try:
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.goto(f"{world.address}/c/local/topics")
        page.get_by_role("link", name="Log in with the company's login").click()
        expect(page.locator("h1")).to_have_text("Topics", timeout=60_000)
        expect(page.get_by_role("link", name="public.things")).to_be_visible(timeout=60_000)
    finally:
        context.close()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[scram]\nmechanisms = ['PLAIN']", "mechanisms"),
        ("[scrum]", "scrum"),
        ("[oidc]\nissuer = 'http://id.example'\nclient_id = 'x'\nroles = {}", "https"),
        ("[oidc]\nissuer = 'https://i'\nclient_id = 'x'\nroles = {}\nalgorithms = ['HS256']", "algorithms"),
        ("[oidc]\nissuer = 'https://i'\nclient_id = 'x'\nroles = {root = ['a']}", "roles"),
        ("[[principal]]\nroles = ['viewer']", "profile or properties"),
        ("[[principal]]\nroles = ['viewer']\nproperties = {'client.id' = 'x'}", "credentials"),
        ("[[principal]]\nroles = ['viewer']\nproperties = {'sasl.usrname' = 'x'}", "sasl.username"),
        ("[[principal]]\nroles = ['viewer']\nprofile = 'nobody'", "nobody"),
        ("not toml", "cannot be read"),
    ],
)
def test_a_wrong_access_file_is_told_at_the_start(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "access.toml"
    file.write_text(text)
    with pytest.raises(UserError) as told:
        access_file.load(file)
    assert complaint in f"{told.value.message} {told.value.hint}"


def test_the_highest_role_counts() -> None:
    patterns: access_file.Patterns = {"viewer": ["*"], "admin": ["ops-*"]}
    assert role_for(patterns, ["ops-1"]) == "admin" and role_for(patterns, ["x"]) == "viewer"
    assert role_for({"editor": ["e"]}, ["x"]) is None and role_for({"editor": ["*"]}, []) is None
