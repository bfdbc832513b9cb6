"""What every record must hold that a filter expression accepts: a quick look for it spares evaluating the others."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

PARTS = ("key", "value")
LARGEST_JSON_CODE = 32  # below it, and for these two, JSON text has to be written with a backslash
_ESCAPED = '"\\'


@dataclass(frozen=True, slots=True)
class Hint:
    """`part` is key, value or header; `how` holds, is, starts or json (a text inside JSON, unless that has escapes)."""

    part: str
    how: str
    text: str
    header: str | None = None


def hints(expression: str) -> list[Hint]:
    """Of an expression that `compile_filter` takes; each of them must hold, none is said that need not."""
    return [hint for term in _terms(ast.parse(expression, mode="eval").body) for hint in _hint(term)]


def _terms(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        for value in node.values:
            yield from _terms(value)
    else:
        yield node


def _hint(term: ast.expr) -> Iterator[Hint]:
    if isinstance(term, ast.Compare) and len(term.ops) == 1:
        yield from _compared(term.left, term.ops[0], term.comparators[0])
    elif isinstance(term, ast.Call) and isinstance(term.func, ast.Attribute) and term.func.attr == "startswith":
        part = _part(term.func.value)
        text = _literal(term.args[0]) if len(term.args) == 1 else None
        if part is not None and text is not None:
            yield Hint(part, "starts", text)


def _compared(left: ast.expr, operator: ast.cmpop, right: ast.expr) -> Iterator[Hint]:
    if isinstance(operator, ast.In):
        text, part = _literal(left), _part(right)
        if text is not None and part is not None:
            yield Hint(part, "holds", text)
    elif isinstance(operator, ast.Eq):
        field, text = (left, _literal(right)) if _literal(left) is None else (right, _literal(left))
        if text is None:
            return
        part, names = _part(field), _path(field)
        if part is not None:
            yield Hint(part, "is", text)
        elif names is not None and names[0] == "headers" and len(names) == 2 and isinstance(names[1], str):
            yield Hint("header", "is", text, names[1])
        elif names is not None and names[0] in PARTS and not _needs_escapes(text):
            yield Hint(str(names[0]), "json", f'"{text}"')


def _part(node: ast.expr) -> str | None:
    return node.id if isinstance(node, ast.Name) and node.id in PARTS else None


def _path(node: ast.expr) -> list[str | int] | None:
    """`value.a["b"][0]` as its names."""
    names: list[str | int] = []
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            if not isinstance(node.slice.value, str | int):
                return None
            names.append(node.slice.value)
            node = node.value
        else:
            return None
    return [node.id, *reversed(names)]


def _literal(node: ast.expr) -> str | None:
    """A text that can only stand in a record as its own bytes."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        text = node.value
        return None if "\ufffd" in text or any(0xD800 <= ord(letter) < 0xE000 for letter in text) else text
    return None


def _needs_escapes(text: str) -> bool:
    return any(ord(letter) < LARGEST_JSON_CODE or letter in _ESCAPED for letter in text)
