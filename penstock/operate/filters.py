"""Filter expressions of `consume --filter`: a small, safe part of Python over the fields of a record.

value.amount > 100 and key.startswith("eu-")        value is parsed as JSON when a field of it is asked for
"error" in value   headers.source == "web"   partition in (0, 3)   timestamp >= 1762000000000   value is None
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from typing import Any

from penstock.operate.errors import UserError, usage_error
from penstock.protocol.records import Record

NAMES = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
METHODS = ("startswith", "endswith", "lower", "upper", "strip", "get")
_ALLOWED = (
    ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.BinOp, ast.Add, ast.Sub, ast.Mult,
    ast.Div, ast.Mod, ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn, ast.Is,
    ast.IsNot, ast.Constant, ast.Name, ast.Load, ast.Attribute, ast.Subscript, ast.Tuple, ast.List, ast.Call, ast.IfExp,
)  # fmt: skip

LONGEST = 2_000
HINT = 'for example: value.amount > 100 and key.startswith("eu-")'


class _Missing:
    """A field that a record does not have: compares as false with everything."""

    def __getattr__(self, name: str) -> _Missing:
        return self

    def __getitem__(self, name: Any) -> _Missing:
        return self

    def __call__(self, *arguments: Any) -> _Missing:
        return self

    def __bool__(self) -> bool:
        return False

    def __contains__(self, item: Any) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return False

    def __ne__(self, other: object) -> bool:
        return True

    def _less(self, other: Any) -> bool:
        return False

    __lt__ = __le__ = __gt__ = __ge__ = _less
    __hash__ = None  # type: ignore[assignment]


MISSING = _Missing()


class Document(str):
    """A text whose JSON fields can be asked for: `value.user.name`."""

    _parsed: Any = ...

    def field(self, name: Any) -> Any:
        if self._parsed is ...:
            try:
                self._parsed = json.loads(self)
            except (ValueError, RecursionError):
                self._parsed = None
        return lookup(self._parsed, name)


def lookup(value: Any, name: Any) -> Any:
    if isinstance(value, Document):
        return value.field(name)
    if isinstance(value, dict):
        return value.get(name, MISSING)
    if isinstance(value, list) and isinstance(name, int):
        return value[name] if -len(value) <= name < len(value) else MISSING
    return MISSING


def _times(left: Any, right: Any) -> Any:
    return _number(left) * _number(right)


def _modulo(left: Any, right: Any) -> Any:
    return _number(left) % _number(right)


def _number(value: Any) -> int | float:
    if not isinstance(value, int | float):
        raise TypeError("no number")
    return value


class _Rewrite(ast.NodeTransformer):
    """Field access becomes a safe look-up: `value.a` → lookup(value, "a"); methods of text stay methods."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return self._call(self.visit(node.value), ast.Constant(node.attr), node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        return self._call(self.visit(node.value), self.visit(node.slice), node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Attribute):
            function: ast.expr = ast.Attribute(self.visit(node.func.value), node.func.attr, ast.Load())
        else:
            function = node.func
        call = ast.Call(function, [self.visit(argument) for argument in node.args], [])
        return ast.copy_location(call, node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """`*` and `%` of texts could make texts of any size: they are for numbers."""
        left, right = self.visit(node.left), self.visit(node.right)
        if isinstance(node.op, ast.Mult | ast.Mod):
            name = "__times" if isinstance(node.op, ast.Mult) else "__modulo"
            return ast.copy_location(ast.Call(ast.Name(name, ast.Load()), [left, right], []), node)
        return ast.copy_location(ast.BinOp(left, node.op, right), node)

    @staticmethod
    def _call(value: ast.AST, name: ast.AST, node: ast.AST) -> ast.AST:
        call = ast.Call(ast.Name("__lookup", ast.Load()), [value, name], [])  # type: ignore[list-item]
        return ast.copy_location(call, node)


def compile_filter(text: str) -> Callable[[Any], bool]:
    """A predicate over messages of confluent-kafka; errors name the position."""
    accepts = _compiled(text)
    return lambda message: accepts(_fields(message))


def compile_fields_filter(text: str) -> Callable[[str, int, Record], bool]:
    """A predicate over (topic, partition, record) of our own client."""
    accepts = _compiled(text)

    def over_records(topic: str, partition: int, record: Record) -> bool:
        headers = {name: _text(value) for name, value in record.headers}
        fields = {"topic": topic, "partition": partition, "offset": record.offset, "timestamp": record.timestamp}
        return accepts({**fields, "key": _text(record.key), "value": _text(record.value), "headers": headers})

    return over_records


def _compiled(text: str) -> Callable[[dict[str, Any]], bool]:
    if len(text) > LONGEST:
        raise _refused(LONGEST, f"it is longer than {LONGEST} characters")
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        position = getattr(error, "offset", None) or 1
        raise usage_error(f"filter, position {position}: {getattr(error, 'msg', None) or error}", HINT) from None
    for node in ast.walk(tree):
        _check(node)
    try:
        code = compile(ast.fix_missing_locations(_Rewrite().visit(tree)), "<filter>", "eval")
    except RecursionError:
        raise _refused(1, "it is nested too deeply") from None
    scope = {"__builtins__": {}, "__lookup": lookup, "__times": _times, "__modulo": _modulo}
    scope |= {"len": len, "int": int, "float": float, "str": str}

    def accepts(fields: dict[str, Any]) -> bool:
        try:
            return bool(eval(code, scope, fields))
        except (TypeError, ValueError, ZeroDivisionError, AttributeError):
            return False  # a record of another shape does not match; it does not stop the reading

    return accepts


def _check(node: ast.AST) -> None:
    position = getattr(node, "col_offset", 0) + 1
    if not isinstance(node, _ALLOWED):
        raise _refused(position, f"{type(node).__name__} is not allowed")
    if isinstance(node, ast.Name) and node.id not in (*NAMES, "len", "int", "float", "str"):
        raise _refused(position, f"{node.id!r} is no field", f"there is {', '.join(NAMES)}")
    if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
        raise _refused(position, f"{node.attr!r} is no field")
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if node.keywords or name not in (*METHODS, "len", "int", "float", "str"):
            raise _refused(position, f"{name}() is not allowed", f"there is len, int, float, str, {', '.join(METHODS)}")


def _refused(position: int, what: str, hint: str = HINT) -> UserError:
    return usage_error(f"filter, position {position}: {what}", hint)


def _text(data: bytes | None) -> Document | None:
    return None if data is None else Document(data.decode("utf-8", "replace"))


def _fields(message: Any) -> dict[str, Any]:
    headers = {name: _text(value) for name, value in message.headers() or ()}
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": message.timestamp()[1],
        "key": _text(message.key()),
        "value": _text(message.value()),
        "headers": headers,
    }
