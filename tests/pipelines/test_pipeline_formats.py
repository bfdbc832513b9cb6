"""Formats without Spark: what decodes, what does not and why, and the registry's wire format."""

from __future__ import annotations

import base64
import http.server
import json
import struct
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.pipelines.formats import CsvFormat, JsonFormat, StringFormat, avro, protobuf
from penstock.pipelines.formats.arrow import _decoded
from penstock.pipelines.formats.avro_types import avro_schema, spark_columns
from penstock.pipelines.formats.base import CORRUPT
from penstock.pipelines.formats.registry import Registry, RegistryError, RegistryOptions, UnknownSchema, head
from penstock.pipelines.spec import SpecError

READING = {
    "type": "record",
    "name": "Reading",
    "fields": [
        {"name": "sensor", "type": "string"},
        {"name": "celsius", "type": ["null", "double"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
AT = datetime(2026, 1, 1, tzinfo=UTC)


def reading_descriptor() -> bytes:
    """What protoc makes of: message Reading { string sensor = 1; optional double celsius = 2; Timestamp at = 3; }"""
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto(name="reading.proto", package="example", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    message = file.message_type.add(name="Reading")
    field = descriptor_pb2.FieldDescriptorProto
    message.field.add(name="sensor", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    message.oneof_decl.add(name="_celsius")
    message.field.add(
        name="celsius",
        number=2,
        type=field.TYPE_DOUBLE,
        label=field.LABEL_OPTIONAL,
        oneof_index=0,
        proto3_optional=True,
    )
    message.field.add(
        name="at", number=3, type=field.TYPE_MESSAGE, label=field.LABEL_OPTIONAL, type_name=".google.protobuf.Timestamp"
    )
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


class _Registry(http.server.BaseHTTPRequestHandler):
    """Knows one Avro schema under id 7."""

    def do_GET(self) -> None:
        if self.path == "/schemas/ids/7":
            self._answer(200, {"schema": json.dumps(READING)})
        elif self.path == "/subjects/readings-value/versions/latest":
            self._answer(200, {"schema": json.dumps(READING), "id": 7, "version": 1})
        elif self.path == "/schemas/ids/500":
            self._answer(500, {"message": "the store is away"})
        else:
            self._answer(404, {"error_code": 40403, "message": "Schema not found"})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(200, {"id": 8})

    def _answer(self, code: int, content: Any) -> None:
        body = json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        return


@pytest.fixture
def registry() -> Iterator[RegistryOptions]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield RegistryOptions(url=f"http://127.0.0.1:{server.server_port}/")
    server.shutdown()
    server.server_close()


def test_avro_values_come_back_as_they_were_written() -> None:
    written = avro.write_value(READING, {"sensor": "s", "celsius": 21.5, "at": AT})
    assert avro._Reader(json.dumps(READING), None)(written) == {"sensor": "s", "celsius": 21.5, "at": AT}


@pytest.mark.parametrize("value", [b"", b"\x02", b"\xff" * 20, b"\x02s\x00\x00\x00trailing"])
def test_a_broken_avro_value_is_told_with_reason_and_stack(value: bytes) -> None:
    row = _decoded(avro._Reader(json.dumps(READING), None), value)
    assert set(row) == {CORRUPT}
    reason, stack = avro.AvroFormat(schema=READING).explain(value, row[CORRUPT])
    assert reason and "Traceback" in stack


def test_avro_in_the_wire_format_is_read_with_the_schema_it_names(registry: RegistryOptions) -> None:
    newer = {**READING, "fields": [*READING["fields"], {"name": "room", "type": "string", "default": "attic"}]}
    reader = avro._Reader(json.dumps(newer), registry)
    value = head(7) + avro.write_value(READING, {"sensor": "s", "celsius": None, "at": AT})
    assert reader(value) == {"sensor": "s", "celsius": None, "at": AT, "room": "attic"}
    assert CORRUPT in _decoded(reader, b"\x01no magic")
    assert "Schema not found" in _decoded(reader, struct.pack(">bI", 0, 9))[CORRUPT]


def test_a_registry_that_is_away_stops_the_pipeline_and_blames_no_record(registry: RegistryOptions) -> None:
    with pytest.raises(RegistryError):
        _decoded(avro._Reader(json.dumps(READING), registry), struct.pack(">bI", 0, 500))
    with pytest.raises(RegistryError):
        Registry(RegistryOptions(url="http://127.0.0.1:1")).by_id(1)
    with pytest.raises(UnknownSchema):
        Registry(registry).latest("nobody-knows")
    assert Registry(registry).register("new-value", json.dumps(READING), "AVRO") == 8


def test_avro_schemas_become_columns_and_back() -> None:
    columns = spark_columns(READING)
    assert columns.simpleString() == "struct<sensor:string,celsius:double,at:timestamp>"
    assert spark_columns(avro_schema(columns, "readings")) == columns
    with pytest.raises(SpecError, match=r"Reading\.what: a union of string, int has no type"):
        spark_columns({**READING, "fields": [{"name": "what", "type": ["string", "int"]}]})
    with pytest.raises(SpecError, match="contains itself"):
        spark_columns({"type": "record", "name": "T", "fields": [{"name": "next", "type": ["null", "T"]}]})


def test_protobuf_messages_with_and_without_frame() -> None:
    descriptor = reading_descriptor()
    row = {"sensor": "s", "celsius": 21.5, "at": AT}
    plain = protobuf._Writer(descriptor, None, None)(row)
    assert protobuf._Reader(descriptor, "example.Reading", False)(plain) == row
    framed = protobuf._Writer(descriptor, None, 7)(row)
    assert framed.startswith(b"\x00\x00\x00\x00\x07\x00")
    assert protobuf._Reader(descriptor, None, True)(framed) == row
    nothing = protobuf._Writer(descriptor, None, None)({"sensor": "s", "celsius": None, "at": None})
    assert protobuf._Reader(descriptor, None, False)(nothing) == {"sensor": "s", "celsius": None, "at": None}


@pytest.mark.parametrize("value", [b"\xff", b"\x0a\x7fshort", b"\x00\x00\x00"])
def test_a_broken_protobuf_value_is_told(value: bytes) -> None:
    framed = value.startswith(b"\x00")
    row = _decoded(protobuf._Reader(reading_descriptor(), None, framed), value)
    form = protobuf.ProtobufFormat(descriptor=base64.b64encode(reading_descriptor()).decode())
    assert form.explain(value, row[CORRUPT])[0]


def test_protobuf_needs_a_message_that_exists() -> None:
    with pytest.raises(SpecError, match=r"has no message 'example\.Nothing'; it has example\.Reading"):
        protobuf._Reader(reading_descriptor(), "example.Nothing", False)(b"")
    with pytest.raises(ValueError, match="has no field 'colour'"):
        protobuf._Writer(reading_descriptor(), None, None)({"colour": "red"})


def test_reasons_of_text_formats() -> None:
    json_format = JsonFormat()
    assert json_format.explain(b"{oops", "")[0].startswith("JSONDecodeError: Expecting property name")
    assert json_format.explain(b"[1]", "")[0] == "the value is a JSON list, not an object"
    assert json_format.explain(b"\xff\xfe", "")[0].startswith("UnicodeDecodeError")
    assert "2 cells" in CsvFormat(schema="a INT").explain(b"1,2", "")[0]
    assert StringFormat().explain(b"\xff", "")[0].startswith("UnicodeDecodeError")


@pytest.mark.spark
def test_nothing_may_follow_a_json_object(spark: Any) -> None:
    from penstock.pipelines.formats.text import _is_alone

    alone = ['{"i":2}', ' {"i":{"j":[1,2]}} ', '{"s":"}{"}', "{}"]
    followed = ['{"i":2}{"i":3}', '{"i":2} x', '{"i":2},{"i":3}', '{"i":2}}', '{"i":2}]', '{"i":2}],[{"a":1}',
                '{"i":2},"w":{"i":3}', '{"i":2},5],[0']  # fmt: skip
    rows = spark.createDataFrame([(text,) for text in alone + followed], "text STRING")
    judged = {row.text: row.alone for row in rows.select("text", _is_alone(rows.text).alias("alone")).collect()}
    assert judged == {**dict.fromkeys(alone, True), **dict.fromkeys(followed, False)}
