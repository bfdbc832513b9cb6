"""Messages in Avro, Protobuf and numbers: the format is chosen once, read by everybody, and used to produce."""

from __future__ import annotations

import base64
import json
import shutil
import struct
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import pytest
from console_world import Console
from playwright.sync_api import expect

expect.set_options(timeout=60_000)
AVRO = json.dumps(
    {"type": "record", "name": "Order", "fields": [{"name": "who", "type": "string"}, {"name": "n", "type": "int"}]}
)
PROTO = 'syntax = "proto3";\nmessage Order { string who = 1; int32 n = 2; }\n'
ORDER = {"who": "anna", "n": 7}


def _put(console: Console, name: str, part: str, **body: Any) -> Any:
    with console.client() as friend:
        return friend.put(f"{console.local}/topics/{name}/formats/{part}", json=body)


def _first(console: Console, name: str, **question: Any) -> Any:
    with console.client() as friend:
        return friend.get(f"{console.local}/topics/{name}/messages", params=question).json()[0]


@pytest.fixture
def topic(console: Console, name: str) -> str:
    with console.client() as friend:
        friend.post(f"{console.local}/topics", json={"name": name, "partitions": 1}).raise_for_status()
    return name


@pytest.mark.parametrize(("kind", "schema"), [("avro", AVRO), ("protobuf", PROTO)])
def test_what_is_produced_in_a_format_is_read_in_it(console: Console, topic: str, kind: str, schema: str) -> None:
    if kind == "protobuf" and shutil.which("protoc") is None:
        pytest.skip("no protoc here")
    assert _put(console, topic, "value", kind=kind, schema=schema).json()["value"]["schema"] == schema
    assert _put(console, topic, "key", kind="long").status_code == 200
    where = f"{console.local}/topics/{topic}/messages"
    with console.client() as friend:
        wrong = friend.post(where, json={"value": {"who": 5}, "encode": True})
        assert wrong.status_code == 400 and kind in wrong.json()["error"]
        made = {"key": "300", "value": ORDER, "encode": True}
        assert friend.post(where, json=made).status_code == 201
        raw = friend.get(f"{where}/0/0/value").content
        assert raw != json.dumps(ORDER).encode() and b"anna" in raw
        for row in (friend.get(f"{where}/0/0").json(), _first(console, topic), _first(console, topic, value="anna")):
            assert json.loads(row["value"]["text"]) == ORDER and row["value"]["decoded"]
            assert row["key"]["text"] == "300"
        friend.post(where, json={"value": "no such bytes"})
        plain = friend.get(f"{where}/0/1").json()["value"]
        assert plain["text"] == "no such bytes" and plain["problem"]
    assert _put(console, topic, "value", kind="").json().keys() == {"key"}
    assert "decoded" not in _first(console, topic, start="oldest")["value"]


def test_what_is_no_format_is_refused(console: Console, topic: str) -> None:
    for body, words in (
        ({"kind": "xml"}, "is no format"),
        ({"kind": "avro"}, "needs a schema"),
        ({"kind": "avro", "schema": "{"}, "is no avro schema"),
        ({"kind": "avro", "registry": "file:///etc"}, "no address of a registry"),
    ):
        answer = _put(console, topic, "value", **body)
        assert answer.status_code == 400 and words in answer.json()["error"], answer.text
    assert _put(console, "nobody-knows", "value", kind="int").status_code == 404


class _Registry(BaseHTTPRequestHandler):
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"schema": AVRO}).encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def registry() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_registry_knows_the_schema_of_each_message(console: Console, topic: str, registry: str) -> None:
    assert _put(console, topic, "value", kind="avro", registry=registry).status_code == 200
    data = b"\0" + struct.pack(">i", 42) + b"\x08anna\x0e"
    with console.client() as friend:
        message = {"value": base64.b64encode(data).decode(), "value_encoding": "base64"}
        friend.post(f"{console.local}/topics/{topic}/messages", json=message).raise_for_status()
    assert json.loads(_first(console, topic)["value"]["text"]) == ORDER
    assert _Registry.asked == ["/schemas/ids/42"]


def test_chosen_on_the_page_and_remembered(page: Any, console: Console, topic: str) -> None:
    with console.client() as friend:
        message = {"value": base64.b64encode(b"\x08anna\x0e").decode(), "value_encoding": "base64"}
        friend.post(f"{console.local}/topics/{topic}/messages", json=message).raise_for_status()
    page.goto(f"{console.address}/c/local/topics/{topic}")
    rows = page.locator(".pk-messages tbody tr")
    expect(rows).to_have_count(1)
    page.get_by_role("button", name="Format").click()
    page.get_by_role("dialog").get_by_label("Value format").click()
    page.get_by_role("option", name="Avro").click()
    page.get_by_label("Value schema", exact=True).fill(AVRO)
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(rows.first).to_contain_text('"who": "anna"')
    page.goto(f"{console.address}/c/local/topics/{topic}?partition=0&offset=0")
    expect(page.get_by_role("dialog").locator("pre")).to_contain_text('"n": 7')
