"""`produce --encode` and `consume --decode`, key and value apart; delimiters; format modifiers; patterns of topics."""

from __future__ import annotations

import base64
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from google.protobuf import descriptor_pb2

from penstock.operate.encoding import encoder
from penstock.operate.errors import UserError
from penstock.operate.record_format import compile_format

from .conftest import Run

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "who", "type": "string"}, {"name": "amount", "type": ["null", "int"], "default": None}],
}
JSON_SCHEMA = {"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]}


def test_avro_goes_in_and_out_with_a_key_of_its_own_kind(call: Run, topic: str, tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(AVRO))
    lines = '7\t{"who": "anna", "amount": 5}\n8\t{"who": "ben"}\n'
    call(rf"produce {topic} -K '\t' --encode avro --schema order.avsc --encode-key long", stdin=lines)
    assert call(rf"consume {topic} -B -e -f '%K %k{{hex}}\n'").stdout.splitlines() == [
        "8 0000000000000007",
        "8 0000000000000008",
    ]
    options = "-B -e --decode avro --schema order.avsc --decode-key long"
    rows = [json.loads(line) for line in call(f"consume {topic} {options} --json").stdout.splitlines()]
    assert [(row["key"], row["value"]) for row in rows] == [
        (7, {"who": "anna", "amount": 5}),
        (8, {"who": "ben", "amount": None}),
    ]
    # Filters and formats see what was decoded.
    assert call(rf"consume {topic} {options} --filter 'value.amount > 4' -f '%k %v\n'").stdout == (
        '7 {"who": "anna", "amount": 5}\n'
    )
    wrong = call(f"produce {topic} --encode avro --schema order.avsc", stdin='{"whom": "anna"}\n', check=False)
    assert wrong.returncode == 2 and "record 1, value does not fit avro" in wrong.stderr


def test_protobuf_and_json_schema_are_encoded_and_checked(tmp_path: Path) -> None:
    (tmp_path / "order.json").write_text(json.dumps(JSON_SCHEMA))
    checked = encoder("json-schema", str(tmp_path / "order.json"), None, "orders")
    assert checked(b'{"amount": 5}', "record 1") == b'{"amount": 5}'
    with pytest.raises(UserError, match="record 2 does not fit json-schema: 'x' is not of type"):
        checked(b'{"amount": "x"}', "record 2")
    (tmp_path / "order.desc").write_bytes(_descriptor_set())
    encode = encoder("protobuf", str(tmp_path / "order.desc"), None, "orders")
    assert encode(b'{"who": "anna", "amount": 5}', "record 1") == b"\x0a\x04anna\x10\x05"
    with pytest.raises(UserError, match="record 2 does not fit protobuf"):
        encode(b'{"whom": "anna"}', "record 2")


def _descriptor_set() -> bytes:
    """What protoc makes of `package shop; message Order { string who = 1; int32 amount = 2; }`."""
    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="order.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    field = descriptor_pb2.FieldDescriptorProto
    message.field.add(name="who", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    message.field.add(name="amount", number=2, type=field.TYPE_INT32, label=field.LABEL_OPTIONAL)
    return files.SerializeToString()


class Registry(http.server.BaseHTTPRequestHandler):
    """As much of a schema registry as a serializer asks: register a schema for a subject, get its id."""

    asked: ClassVar[list[tuple[str, dict[str, str]]]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        Registry.asked.append((self.path, body))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"id": 258}')

    def log_message(self, format: str, *arguments: object) -> None:
        """A test's output is no access log."""


@pytest.fixture
def registry() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_with_a_registry_the_schema_is_registered_and_its_id_written(registry: str, tmp_path: Path) -> None:
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(AVRO))
    encoded = encoder("avro", str(file), registry, "or/ders")(b'{"who": "anna"}', "record 1")
    assert encoded[:5] == b"\0\0\0\x01\x02"
    assert Registry.asked[-1] == (
        "/subjects/or%2Fders-value/versions",
        {"schema": file.read_text(), "schemaType": "AVRO"},
    )
    with pytest.raises(UserError, match="no schema registry answers"):
        encoder("avro", str(file), "http://127.0.0.1:1", "orders")


def test_records_end_with_any_delimiter_in_both_directions(call: Run, topic: str, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"a\nb<>c<>last")
    call(f"produce {topic} in -D '<>'")
    assert call(rf"consume {topic} -B -e -D '\0'").stdout == "a\nb\0c\0last\0"
    assert call(f"consume {topic} -B -n 1 -K = -D ';'").stdout == "=a\nb;"


class Message:
    def key(self) -> bytes:
        return b"\xff\x00"

    def value(self) -> bytes:
        return b'{"a": 1}'

    def headers(self) -> list[tuple[str, bytes]]:
        return [("h", b"x")]

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_700_000_000_001


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("%k{hex}", b"ff00"),
        ("%k{base64}", base64.b64encode(b"\xff\x00")),
        ("%v{json} %s", b'{"a":1} {"a": 1}'),
        ("%h{json}", b'[["h", "x"]]'),
        ("%T{iso}", b"2023-11-14T22:13:20.001Z"),
        ("%v%{x}", b'{"a": 1}{x}'),
    ],
)
def test_a_modifier_says_how_a_field_is_written(text: str, printed: bytes) -> None:
    assert compile_format(text)(Message()) == printed


@pytest.mark.parametrize("text", ["%k{hexx}", "%k{hex", "%p{hex}", "%{x} %", "%k{}"])
def test_a_modifier_that_means_nothing_is_refused_with_its_position(text: str) -> None:
    with pytest.raises(UserError, match="format string, position"):
        compile_format(text)


def test_topics_are_named_by_patterns(call: Run, topic: str) -> None:
    for name in ("a", "b"):
        call(f"produce {topic}-{name}", stdin=f"{name}\n")
    assert set(call(f"consume '^{topic}-[ab]$' -B -e").stdout.split()) == {"a", "b"}
    assert set(call(f"consume '^{topic}-' {topic} -B -e -g {topic}-g").stdout.split()) == {"a", "b"}
    listed = [json.loads(line)["name"] for line in call(f"topic list '^{topic}-' --json").stdout.splitlines()]
    assert listed == [f"{topic}-a", f"{topic}-b"]
    nothing = call(f"consume '^{topic}-z' -e", check=False)
    assert nothing.returncode == 4 and "there is no topic that matches" in nothing.stderr
    broken = call("topic list '^('", check=False)
    assert broken.returncode == 2 and "is no regular expression" in broken.stderr
