"""`consume --decode`: Protobuf values by a .proto file or a descriptor set, Avro values by a schema file."""

from __future__ import annotations

import base64
import io
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]

PROTO = 'syntax = "proto3";\npackage shop;\nmessage Order { string who = 1; int32 amount = 2; }\n'
ORDER = b"\x0a\x04anna\x10\x05"  # who: "anna", amount: 5


def _produce(run: Run, topic: str, value: bytes) -> None:
    row = {"value": base64.b64encode(value).decode(), "value_encoding": "base64"}
    run(f"produce {topic} --format json", stdin=json.dumps(row) + "\n")


def test_protobuf_values_are_decoded_by_a_proto_file(run: Run, topic: str, tmp_path: Path) -> None:
    if shutil.which("protoc") is None:
        pytest.skip("no protoc here")
    (tmp_path / "order.proto").write_text(PROTO)
    _produce(run, topic, ORDER)
    _produce(run, topic, b"\xff\xff")
    good, bad = run(f"consume {topic} -B -e --decode protobuf --schema order.proto").stdout.splitlines()
    assert json.loads(good) == {"who": "anna", "amount": 5}
    assert "reason" in json.loads(bad)
    subprocess.run(
        ["protoc", "--descriptor_set_out=order.desc", "--include_imports", "order.proto"], cwd=tmp_path, check=True
    )
    assert run(f"consume {topic} -B -n 1 --decode protobuf --schema order.desc").stdout.strip() == good
    (tmp_path / "order.proto").write_text(PROTO.replace("int32", "int33"))
    wrong = run(f"consume {topic} -B -e --decode protobuf --schema order.proto", check=False)
    assert wrong.returncode == 2
    assert "int33" in wrong.stderr


def test_a_proto_file_without_protoc_says_what_to_install(
    run: Run, topic: str, environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "order.proto").write_text(PROTO)
    (tmp_path / "only").mkdir()
    for command in ("penstock", "bash"):
        found = shutil.which(command, path=environment["PATH"])
        assert found is not None
        (tmp_path / "only" / command).symlink_to(found)
    environment["PATH"] = str(tmp_path / "only")
    done = run(f"consume {topic} -B -e --decode protobuf --schema order.proto", check=False)
    if "grpc_tools" in done.stderr or done.returncode == 0:
        pytest.skip("grpcio-tools brings a protoc here")
    assert done.returncode == 1
    assert "protobuf-compiler" in done.stderr


def test_avro_values_are_decoded_by_a_schema_file(run: Run, topic: str, tmp_path: Path) -> None:
    fastavro = pytest.importorskip("fastavro")
    schema = {"type": "record", "name": "Order", "fields": [{"name": "amount", "type": "int"}]}
    (tmp_path / "order.avsc").write_text(json.dumps(schema))
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(schema), {"amount": 5})
    _produce(run, topic, data.getvalue())
    shown = run(f"consume {topic} -B -e --decode avro --schema order.avsc").stdout
    assert json.loads(shown) == {"amount": 5}
