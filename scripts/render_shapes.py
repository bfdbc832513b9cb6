"""Renders penstock/protocol/shapes/*.pyi, the messages as a type checker sees them: part of `make docs`, or `--check`.

At run time a message class is compiled from its schema, which a type checker cannot see. These stubs say the same: one
class per API, its structs inside, every field of every version with its type. Nothing imports them at run time.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from penstock.broker.api.registry import REGISTRY
from penstock.protocol import kio_schema
from penstock.protocol.kio_schema import FieldSchema, StructSchema

FOLDER = Path(__file__).resolve().parent.parent / "penstock" / "protocol" / "shapes"
OWN_KEYS = 10_000  # ours begin there and are no Kafka messages
HEAD = "# Rendered from Kafka's message schemas by `make docs`; do not edit.\n"
PLAIN = {"float64": "float", "bool": "bool", "string": "str", "bytes": "bytes", "uuid": "UUID"}


def class_name(api_name: str) -> str:
    return "".join(word.capitalize() for word in api_name.split("_"))


class _Shape:
    """One struct with the fields of all versions: optional where any version lets it be null."""

    def __init__(self) -> None:
        self.fields: dict[str, FieldSchema] = {}
        self.nullable: set[str] = set()

    def add(self, schema: StructSchema) -> None:
        for field in schema.fields:
            self.fields.setdefault(field.name, field)
            if field.nullable:
                self.nullable.add(field.name)


def _collect(schema: StructSchema, name: str, shapes: dict[str, _Shape]) -> None:
    for field in schema.fields:
        if field.struct is not None:
            _collect(field.struct, field.struct.name, shapes)
    shapes.setdefault(name, _Shape()).add(schema)


def _shapes(api_name: str, direction: str) -> dict[str, _Shape]:
    shapes: dict[str, _Shape] = {}
    oldest, newest = kio_schema.versions(api_name)
    for version in range(oldest, newest + 1):
        _collect(kio_schema.message_schema(api_name, version, direction), direction.capitalize(), shapes)
    return shapes


def render_api(api_name: str) -> str:
    request, response = _shapes(api_name, "request"), _shapes(api_name, "response")
    # A struct that both have by one name: the plain one is the response's, as in `messages.ApiMessages`.
    renamed = {name: f"Request{name}" for name in request if name in response}
    outer = class_name(api_name)
    asked = {name: f"{outer}.{renamed.get(name, name)}" for name in request}
    told = {name: f"{outer}.{name}" for name in response}
    body = [line for name, shape in request.items() for line in _class(renamed.get(name, name), shape, asked)]
    body += [line for name, shape in response.items() for line in _class(name, shape, told)]
    text = "\n".join(body)
    imports = ["from uuid import UUID\n"] if "UUID" in text else []
    imports += [
        "from penstock.protocol.message_compiler import Struct",
        "from penstock.protocol.shapes.base import Api\n",
    ]
    return "\n".join([HEAD, *imports, f"class {outer}(Api):", text, ""])


def _class(name: str, shape: _Shape, names: dict[str, str]) -> Iterator[str]:
    types = {field.name: _type(field, field.name in shape.nullable, names) for field in shape.fields.values()}
    yield f"    class {name}(Struct):"
    if not types:
        yield "        def __init__(self) -> None: ...\n"
        return
    for field_name, type_name in types.items():
        yield f"        {field_name}: {type_name}"
    yield "        def __init__("
    yield "            self,"
    yield "            *,"
    for field_name, type_name in types.items():
        yield f"            {field_name}: {type_name} = ...,"
    yield "        ) -> None: ...\n"


def _type(field: FieldSchema, nullable: bool, names: dict[str, str]) -> str:
    name = names[field.struct.name] if field.struct is not None else PLAIN.get(field.kind, "int")
    if field.is_array:
        name = f"list[{name}]"
    return f"{name} | None" if nullable else name


BASE = f'''{HEAD}
from typing import Any, Self

class Api:
    """What the messages of every API have in common."""

    name: str
    key: int
    min_version: int
    max_version: int

    def request_struct(self, name: str) -> Any: ...
    def response_struct(self, name: str) -> Any: ...
    def load_all_versions(self) -> Self: ...
'''


def render_lookup(names: list[str]) -> str:
    lines = [HEAD, "from typing import Any, Literal, overload\n"]
    lines += [f"from penstock.protocol.shapes.{name} import {class_name(name)} as {class_name(name)}" for name in names]
    lines.append("")
    for name in names:
        lines += ["@overload", f'def api(name_or_key: Literal["{name}"]) -> {class_name(name)}: ...']
    lines += ["@overload", "def api(name_or_key: str | int) -> Any: ...", ""]
    return "\n".join(lines)


def files() -> dict[str, str]:
    names = sorted(spec.kio_name for spec in REGISTRY.specs() if spec.key < OWN_KEYS)
    return {
        "base.pyi": BASE,
        "__init__.pyi": render_lookup(names),
        **{f"{name}.pyi": render_api(name) for name in names},
    }


def stale() -> list[str]:
    wanted = files()
    there = {path.name for path in FOLDER.glob("*.pyi")}
    return sorted(
        {name for name, text in wanted.items() if name not in there or (FOLDER / name).read_text() != text}
        | (there - set(wanted))
    )


def main() -> int:
    if "--check" in sys.argv:
        for name in (found := stale()):
            print(f"penstock/protocol/shapes/{name} is stale: run `make docs`")
        return 1 if found else 0
    FOLDER.mkdir(exist_ok=True)
    wanted = files()
    for name in stale():
        if name in wanted:
            (FOLDER / name).write_text(wanted[name])
        else:
            (FOLDER / name).unlink()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
