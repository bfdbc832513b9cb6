"""Which messages somebody wants: the question, the test of a single record, and what a kernel may look for before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.console.policy import Fields
from penstock.operate.filter_hints import hints
from penstock.operate.filters import compile_fields_filter
from penstock.protocol.records import Record

if TYPE_CHECKING:
    from penstock.protocol.columnar_match import Conditions

Accepts = Callable[[str, int, Record], bool]


@dataclass(frozen=True)
class Wanted:
    """Which messages: where from, of which partitions, which of them."""

    start: str = "newest"
    """newest, oldest, an offset, or a time such as 2h or 2026-11-01T12:00."""
    partitions: tuple[int, ...] = ()
    limit: int = 50
    key: str = ""
    value: str = ""
    header: str = ""
    """Texts that the key, the value, or a header (`name=text` or a text) must hold."""
    expression: str = ""
    """A filter as of `penstock consume --filter`."""
    exact: bool = False
    """The texts are the whole key, value or header instead of a part of it."""

    @property
    def filters(self) -> bool:
        return bool(self.key or self.value or self.header or self.expression)

    @property
    def header_parts(self) -> tuple[str | None, str]:
        """(name, text); without a name, any header."""
        name, equals, text = self.header.partition("=")
        return (name, text) if equals else (None, name)


def predicate(wanted: Wanted) -> Accepts:
    """Whether a record is wanted. Raises for an expression that is none, with its position."""
    tests: list[Accepts] = []
    if wanted.key:
        key = wanted.key.encode()
        tests.append(lambda _t, _p, record: _fits(record.key, key, wanted.exact))
    if wanted.value:
        value = wanted.value.encode()
        tests.append(lambda _t, _p, record: _fits(record.value, value, wanted.exact))
    if wanted.header:
        name, text = wanted.header_parts
        tests.append(lambda _t, _p, record: _has_header(record, name, text.encode(), wanted.exact))
    if wanted.expression:
        tests.append(compile_fields_filter(wanted.expression))
    return lambda topic, partition, record: all(test(topic, partition, record) for test in tests)


def _fits(data: bytes | None, text: bytes, exact: bool) -> bool:
    return data is not None and (data == text if exact else text in data)


def _has_header(record: Record, name: str | None, text: bytes, exact: bool) -> bool:
    return any((name is None or name == known) and _fits(value, text, exact) for known, value in record.headers)


def conditions(wanted: Wanted, masks: Fields) -> Conditions:
    """What the kernel looks for. A part of which something is masked is left to the test of the masked record: neither
    may its hidden content be found, nor would a search for what stands there instead find anything."""
    from penstock.protocol import columnar_match as match

    hows = {"holds": match.HOLDS, "is": match.IS, "starts": match.STARTS, "json": match.HOLDS_OR_ESCAPES}
    found: dict[str, match.Condition] = {}
    header_name: str | None = None
    how = match.IS if wanted.exact else match.HOLDS
    for part, text in (("key", wanted.key), ("value", wanted.value)):
        if text:
            found[part] = match.Condition(how, text.encode())
    if wanted.header:
        header_name, text = wanted.header_parts
        found["header"] = match.Condition(how, text.encode())
    for hint in hints(wanted.expression) if wanted.expression else ():
        if hint.part not in found:
            found[hint.part] = match.Condition(hows[hint.how], hint.text.encode())
            if hint.part == "header":
                header_name = hint.header
    for field in (mask for mask in masks if isinstance(mask, str)):  # what is masked in letters is tested after masking
        found.pop({"headers": "header"}.get(field.partition(".")[0], field.partition(".")[0]), None)
    return match.Conditions(
        **found, header_name=header_name.encode() if header_name is not None and "header" in found else None
    )
