"""Visitors who mean harm: guesses side by side, bodies without end, records that break readers, rights now gone."""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from console_world import Console, start_console, stop

from penstock.console.access.guard import LARGEST_FORM
from penstock.console.access.logins import FREE_TRIES
from penstock.console.access.users import add_user
from penstock.console.policy import MASK, masked
from penstock.protocol.records import Record

ROLES = {"vera": "viewer", "ed": "editor", "ada": "admin", "victor": "viewer"}


@dataclass
class World:
    address: str
    users: Path
    state_dir: Path

    @property
    def local(self) -> str:
        return f"{self.address}/api/v1/clusters/local"

    def log_in(self, name: str) -> httpx.Client:
        client = httpx.Client(headers={"x-penstock-console": "1"}, timeout=60)
        answer = client.post(f"{self.address}/login", data={"name": name, "password": f"{name}-long-password"})
        assert answer.status_code == 303, answer.text
        return client


@pytest.fixture(scope="module")
def world(console: Console, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("visitors")
    users = folder / "users"
    for name, role in ROLES.items():
        add_user(users, name, role, f"{name}-long-password")
    (folder / "policy.toml").write_text(
        '[[mask]]\ntopics = ["deep*"]\nfields = ["value.card.number"]\nexcept_roles = ["editor", "admin"]\n'
    )
    process, address = start_console(
        folder, "-b", console.broker.bootstrap, "--users", str(users), "--policy", str(folder / "policy.toml")
    )
    yield World(address, users, folder)
    stop(process)


def test_a_changed_user_loses_open_logins(world: World) -> None:
    taken_out, demoted, renewed = world.log_in("ed"), world.log_in("ada"), world.log_in("victor")
    unchanged = world.log_in("vera")
    before = world.users.read_text()
    try:
        add_user(world.users, "ada", "viewer", "ada-long-password")
        add_user(world.users, "victor", "viewer", "another long password")
        rest = [line for line in world.users.read_text().splitlines(True) if not line.startswith("ed:")]
        world.users.write_text("".join(rest))
        for client in (taken_out, demoted, renewed):
            assert client.get(f"{world.address}/api/v1/me").status_code == 401
            assert client.post(f"{world.local}/topics", json={"name": "by-nobody"}).status_code == 401
        assert unchanged.get(f"{world.address}/api/v1/me").json() == {"name": "vera", "role": "viewer"}
        assert world.log_in("ada").get(f"{world.address}/api/v1/me").json()["role"] == "viewer"
    finally:
        world.users.write_text(before)


def test_secrets_that_are_set_stay_out_of_the_audit_log(world: World) -> None:
    admin, editor = world.log_in("ada"), world.log_in("ed")
    (broker,) = admin.get(f"{world.local}/brokers").json()
    changes = {
        "ssl.key.password": "hush-1",
        "listener.name.plaintext.plain.sasl.jaas.config": "PlainLoginModule required user_anna=hush-2;",
        "some.plug-in.setting": "hush-3",
        "log.retention.ms": "86400000",
    }
    for name, value in changes.items():
        admin.patch(f"{world.local}/brokers/{broker['id']}/configs", json={"changes": {name: value}})
    seen = editor.get(f"{world.local}/overview").text + (world.state_dir / "audit.jsonl").read_text()
    assert "hush" not in seen
    assert all(name in seen for name in changes) and "86400000" in seen


def test_guesses_side_by_side_are_not_free(world: World) -> None:
    def guess(number: int) -> int:
        form = {"name": "nobody", "password": f"guess {number}"}
        elsewhere = httpx.HTTPTransport(local_address="127.0.0.9")  # who guesses waits, not the other stories
        with httpx.Client(transport=elsewhere, timeout=60) as client:
            return client.post(f"{world.address}/login", data=form).status_code

    with ThreadPoolExecutor(12) as crowd:
        answers = Counter(crowd.map(guess, range(12)))
    assert answers[401] <= FREE_TRIES + 3 and answers[429] == 12 - answers[401]


@pytest.mark.parametrize(
    ("header", "status"), [("Transfer-Encoding: chunked", 411), (f"Content-Length: {LARGEST_FORM + 1}", 413)]
)
def test_a_body_without_end_is_refused_before_it_is_read(world: World, header: str, status: int) -> None:
    host = urlsplit(world.address).netloc
    with socket.create_connection(tuple(host.split(":")), timeout=30) as raw:
        raw.sendall(f"POST /login HTTP/1.1\r\nHost: {host}\r\n{header}\r\n\r\n".encode())
        assert raw.recv(100).startswith(f"HTTP/1.1 {status} ".encode())


def test_one_record_does_not_take_its_topic_from_view(console: Console, world: World, name: str) -> None:
    topic = f"deep-{name}"
    with console.client() as friend:
        assert friend.post(f"{console.local}/topics", json={"name": topic, "partitions": 1}).status_code == 201
        for value in ("[" * 1900, "[" * 100_000, '{"card":' * 50_000, "fine"):
            assert friend.post(f"{console.local}/topics/{topic}/messages", json={"value": value}).status_code == 201
        asked = [(friend, console.local)]
        asked.append((world.log_in("vera"), world.local))
        for client, local in asked:
            for query in ("", "?expression=value.card%20%3D%3D%201"):
                answer = client.get(f"{local}/topics/{topic}/messages{query}")
                assert answer.status_code == 200, answer.text
            assert len(client.get(f"{local}/topics/{topic}/messages").json()) == 4
            assert client.get(f"{local}/topics/{topic}/messages/0/1").status_code == 200


@pytest.mark.parametrize(
    "value",
    [
        {"card": {"number": "4711"}},
        {"card": "4711"},
        {"card": '{"number": "4711"}'},
        {"card.number": "4711"},
        {"card": ["4711", {"number": "4711"}]},
        [{"card": {"number": {"digits": "4711"}}}],
        "4711",
    ],
)
def test_whatever_stands_where_a_field_is_masked_is_hidden(value: object) -> None:
    record = Record(0, 0, None, json.dumps(value).encode(), (("Authorization", b"4711"), ("other", b"o")))
    hidden = masked(record, ("value.card.number", "headers.authorization"))
    assert hidden.value is not None and b"4711" not in hidden.value and MASK.encode() in hidden.value
    assert hidden.headers == (("Authorization", MASK.encode()), ("other", b"o"))
