"""Encoders of `produce --encode` and `--encode-key`: from JSON text to Avro, Protobuf, JSON with a schema, or a number.

With a registry the schema is registered for the topic, as Confluent's serializers do it; its id goes before the data.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.operate.decoding import NUMBERS, first_line, message_class, schema_trouble_told
from penstock.operate.errors import ExitCode, UserError, usage_error

Encode = Callable[[bytes, str], bytes]
"""From a text and where it stands to the bytes of a record."""

SCHEMA_TYPES = {"avro": "AVRO", "protobuf": "PROTOBUF", "json-schema": "JSON"}


def encoder(kind: str, schema: str | None, registry: str | None, topic: str, key: bool = False) -> Encode:
    option, schema_option = ("--encode-key", "--key-schema") if key else ("--encode", "--schema")
    if kind in NUMBERS:
        return _saying_where(kind, lambda text: struct.pack(NUMBERS[kind], json.loads(text)))
    if kind not in SCHEMA_TYPES:
        known = ", ".join([*SCHEMA_TYPES, *NUMBERS])
        raise usage_error(f"{option} {kind!r} is unknown", f"there is {known}")
    if schema is None:
        raise usage_error(f"{option} {kind} needs a schema", f"{schema_option} FILE")
    if not Path(schema).is_file():
        raise UserError(f"there is no file {schema}", code=ExitCode.NOT_FOUND)
    with schema_trouble_told(option, kind, schema):
        encode = {"avro": _avro, "protobuf": _protobuf, "json-schema": _json_schema}[kind](schema)
    if registry is None:
        return _saying_where(kind, encode)
    header = _wire_header(kind, Path(schema), registry, f"{topic}-{'key' if key else 'value'}")
    return _saying_where(kind, lambda text: header + encode(text))


def _saying_where(kind: str, encode: Callable[[bytes], bytes]) -> Encode:
    def checked(text: bytes, where: str) -> bytes:
        try:
            return encode(text)
        except Exception as error:  # of the libraries: a text that the schema does not allow
            hint = "it is JSON, as the schema has it"
            raise usage_error(f"{where} does not fit {kind}: {first_line(error)}", hint) from error

    return checked


def _avro(schema: str) -> Callable[[bytes], bytes]:
    import io

    import fastavro

    parsed = fastavro.parse_schema(json.loads(Path(schema).read_text()))

    def encode(text: bytes) -> bytes:
        out = io.BytesIO()
        # A field that the schema lacks, or one without default that the text lacks, is a mistake and not a null.
        fastavro.schemaless_writer(out, parsed, json.loads(text), strict_allow_default=True)
        return out.getvalue()

    return encode


def _protobuf(schema: str) -> Callable[[bytes], bytes]:
    from google.protobuf import json_format

    first_message = message_class(schema, "--encode")
    return lambda text: bytes(json_format.Parse(text, first_message()).SerializeToString())


def _json_schema(schema: str) -> Callable[[bytes], bytes]:
    import jsonschema

    parsed = json.loads(Path(schema).read_text())
    kind: Any = jsonschema.validators.validator_for(parsed)
    kind.check_schema(parsed)
    validator = kind(parsed)

    def encode(text: bytes) -> bytes:
        validator.validate(json.loads(text))
        return text

    return encode


def _wire_header(kind: str, schema: Path, registry: str, subject: str) -> bytes:
    """Confluent's format: a zero byte, the schema's id, and for Protobuf that it is the first message of the file."""
    import urllib.error
    import urllib.parse
    import urllib.request

    if schema.suffix in (".desc", ".pb"):
        raise usage_error(f"a registry takes no descriptor set like {schema}", "give the .proto file itself")
    body = json.dumps({"schema": schema.read_text(), "schemaType": SCHEMA_TYPES[kind]}).encode()
    address = f"{registry.rstrip('/')}/subjects/{urllib.parse.quote(subject, safe='')}/versions"
    kinds = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    try:
        request = urllib.request.Request(address, body, kinds)
        with urllib.request.urlopen(request, timeout=10) as answer:
            schema_id = int(json.load(answer)["id"])
    except urllib.error.HTTPError as error:
        raise UserError(
            f"the registry refuses {schema} for {subject}: {error}", "is it compatible?", ExitCode.REFUSED
        ) from error
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"no schema registry answers at {registry}: {error}", code=ExitCode.UNREACHABLE) from error
    return b"\0" + schema_id.to_bytes(4, "big") + (b"\0" if kind == "protobuf" else b"")
