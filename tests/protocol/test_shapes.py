"""What a type checker is told about messages is what they are: stubs, schemas and the classes that handlers meet."""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.protocol import messages

ROOT = Path(__file__).resolve().parents[2]
SHAPES = ROOT / "penstock" / "protocol" / "shapes"
APIS = sorted(path.stem for path in SHAPES.glob("*.pyi") if path.stem not in ("__init__", "base"))


def test_the_committed_stubs_are_what_the_schemas_render() -> None:
    folder = str(ROOT / "scripts")
    if folder not in sys.path:
        sys.path.append(folder)
    script: Any = importlib.import_module("render_shapes")
    assert script.stale() == [], "run `make docs`"


def _fields(node: ast.ClassDef) -> set[str]:
    return {
        item.target.id for item in node.body if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }


@pytest.mark.parametrize("name", APIS)
def test_a_stub_has_the_structs_and_fields_that_a_handler_meets(name: str) -> None:
    api: Any = messages.api(name).load_all_versions()
    (outer,) = (node for node in ast.parse((SHAPES / f"{name}.pyi").read_text()).body if isinstance(node, ast.ClassDef))
    for stub in (node for node in outer.body if isinstance(node, ast.ClassDef)):
        if stub.name.startswith("Request") and stub.name != "Request":  # both directions have a struct of this name
            met = api.request_struct(stub.name.removeprefix("Request"))
        else:
            met = getattr(api, stub.name)
        assert _fields(stub) == set(met.FIELDS), f"{name}.{stub.name}"
