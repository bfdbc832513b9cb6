"""Decoders of `consume --decode` and `--decode-key`: Avro and Protobuf, plain or in the Confluent wire format; numbers.

Numbers are those of Kafka's own serializers: big-endian, of a fixed width.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.operate.errors import ExitCode, UserError, usage_error

NUMBERS = {"short": ">h", "int": ">i", "long": ">q", "float": ">f", "double": ">d"}


def decoder(kind: str, schema: str | None, registry: str | None, key: bool = False) -> Callable[[bytes], Any]:
    """From bytes to plain data. What does not decode is shown as it is, with the reason."""
    option, schema_option = ("--decode-key", "--key-schema") if key else ("--decode", "--schema")
    if kind in NUMBERS:
        return _safely(lambda data: struct.unpack(NUMBERS[kind], data)[0])
    if kind == "json-schema":
        return _safely(lambda data: json.loads(data[5:] if data[:1] == b"\0" else data))
    if kind not in ("avro", "protobuf"):
        known = ", ".join(["avro", "protobuf", "json-schema", *NUMBERS])
        raise usage_error(f"{option} {kind!r} is unknown", f"there is {known}")
    if schema is None and registry is None:
        raise usage_error(
            f"{option} {kind} needs a schema", f"{schema_option} FILE, or --registry URL for the Confluent format"
        )
    if schema is not None and not Path(schema).is_file():
        raise UserError(f"there is no file {schema}", code=ExitCode.NOT_FOUND)
    with schema_trouble_told(option, kind, schema):
        decode = _avro(schema, registry) if kind == "avro" else _protobuf(schema, registry)
    return _safely(decode)


@contextmanager
def schema_trouble_told(option: str, kind: str, schema: str | None) -> Iterator[None]:
    """Around the libraries that read a schema: what is missing, or why the file is none."""
    try:
        yield
    except ImportError as error:
        raise UserError(
            f"{option} {kind} needs {error.name}", "install it with: pip install 'penstock[spark]'"
        ) from error
    except UserError:
        raise
    except Exception as error:  # the libraries raise what they like for a schema that is none
        raise usage_error(f"{schema} is no {kind} schema: {first_line(error)}") from error


def first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _safely(decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def safely(data: bytes) -> Any:
        try:
            return decode(data)
        except Exception as error:  # one bad record does not end the reading; it is shown for what it is
            return {
                "undecodable": data.decode("utf-8", "backslashreplace"),
                "reason": f"{type(error).__name__}: {error}",
            }

    return safely


def _avro(schema: str | None, registry: str | None) -> Callable[[bytes], Any]:
    import io

    import fastavro

    fixed = fastavro.parse_schema(json.loads(Path(schema).read_text())) if schema else None
    known: dict[int, Any] = {}

    def decode(data: bytes) -> Any:
        if fixed is not None and not (registry and data[:1] == b"\0"):
            return fastavro.schemaless_reader(io.BytesIO(data), fixed)
        schema_id = int.from_bytes(data[1:5], "big")
        if schema_id not in known:
            known[schema_id] = fastavro.parse_schema(json.loads(_registered(registry or "", schema_id)))
        return fastavro.schemaless_reader(io.BytesIO(data[5:]), known[schema_id])

    return decode


def _registered(registry: str, schema_id: int) -> str:
    import urllib.request

    with urllib.request.urlopen(f"{registry.rstrip('/')}/schemas/ids/{schema_id}", timeout=10) as answer:
        return str(json.load(answer)["schema"])


def _protobuf(schema: str | None, registry: str | None) -> Callable[[bytes], Any]:
    from google.protobuf import json_format

    first_message = message_class(schema, "--decode")

    def decode(data: bytes) -> Any:
        body = _without_wire_header(data) if registry else data
        return json_format.MessageToDict(first_message.FromString(body), preserving_proto_field_name=True)

    return decode


def message_class(schema: str | None, option: str) -> Any:
    """The class of the first message of a .proto file or a descriptor set."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    if schema is None or not schema.endswith((".proto", ".desc", ".pb")):
        raise usage_error(
            f"{option} protobuf needs --schema FILE.proto or FILE.desc", "values are the first message of the file"
        )
    data = _compiled(Path(schema)) if schema.endswith(".proto") else Path(schema).read_bytes()
    files = descriptor_pb2.FileDescriptorSet.FromString(data)
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    last = files.file[-1]
    prefix = f"{last.package}." if last.package else ""
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(prefix + last.message_type[0].name))


def _compiled(schema: Path) -> bytes:
    """The descriptor set of a .proto file, from protoc: the command, or the one inside grpcio-tools."""
    import importlib.util
    import shutil
    import subprocess
    import sys
    import tempfile

    if importlib.util.find_spec("grpc_tools") is not None:
        compiler = [sys.executable, "-m", "grpc_tools.protoc"]
    elif shutil.which("protoc") is not None:
        compiler = ["protoc"]
    else:
        hint = "install it (Debian: protobuf-compiler, pip: grpcio-tools), or give a descriptor set: FILE.desc"
        raise UserError(f"{schema} needs protoc, which is not here", hint)
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "schema.desc"
        options = [f"--descriptor_set_out={made}", "--include_imports", f"--proto_path={schema.parent}"]
        done = subprocess.run([*compiler, *options, str(schema)], capture_output=True, text=True)
        if done.returncode != 0:
            first = (done.stderr.strip().splitlines() or ["protoc says nothing"])[0]
            raise usage_error(f"{schema} does not compile: {first}")
        return made.read_bytes()


def _without_wire_header(data: bytes) -> bytes:
    """Confluent's format: a zero byte, the schema id, and the indexes of the message in its file."""
    if data[:1] != b"\0":
        return data
    position = 5
    count, position = _zigzag(data, position)
    for _ in range(count):
        _, position = _zigzag(data, position)
    return data[position:]


def _zigzag(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
