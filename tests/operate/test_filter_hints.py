"""What a filter needs a record to hold: hints never leave out a record that the filter accepts."""

from __future__ import annotations

import json
import random

import pytest

from penstock.operate.filter_hints import Hint, hints
from penstock.operate.filters import compile_fields_filter
from penstock.protocol.records import Record


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('"error" in value', [Hint("value", "holds", "error")]),
        ('key == "k" and value.n > 3', [Hint("key", "is", "k")]),
        ('"k" == key and ("x" in value and value.startswith("y"))',
         [Hint("key", "is", "k"), Hint("value", "holds", "x"), Hint("value", "starts", "y")]),
        ('headers.source == "web"', [Hint("header", "is", "web", "source")]),
        ('headers["a-b"] == "c"', [Hint("header", "is", "c", "a-b")]),
        ('value.user["name"] == "ann"', [Hint("value", "json", '"ann"')]),
        ('"a" in value or "b" in value', []),
        ('not "a" in value', []),
        ('"a" not in value', []),
        ('key != "a"', []),
        ('value.lower() == "a"', []),
        ('value.name == "a\\"b"', []),
        ('key == "\\ufffd"', []),
        ('value.n == 3', []),
        ('key.startswith(value)', []),
        ('"a" in value.tags', []),
        ('(key if partition == 0 else value) == "a"', []),
    ],
)  # fmt: skip
def test_hints_of_an_expression(expression: str, expected: list[Hint]) -> None:
    assert hints(expression) == expected


def test_no_record_that_a_filter_accepts_contradicts_its_hints() -> None:
    dice = random.Random(4)
    texts = ["a", "ab", "é", "b\\", "", "a b"]
    terms = [
        "{text} in value", "key == {text}", "value.startswith({text})", "value.name == {text}",
        "headers.h == {text}", "value.list[0] == {text}", "key.lower() == {text}",
    ]  # fmt: skip
    accepted = 0
    for _ in range(3_000):
        chosen = [dice.choice(terms).format(text=json.dumps(dice.choice(texts))) for _ in range(dice.choice([1, 1, 2]))]
        expression = dice.choice([" and ", " or "]).join(chosen)
        document = {"name": dice.choice(texts), "list": [dice.choice(texts)]}
        value = json.dumps(document, ensure_ascii=dice.random() < 0.5) if dice.random() < 0.7 else dice.choice(texts)
        record = Record(0, 0, dice.choice(texts).encode(), value.encode(), (("h", dice.choice(texts).encode()),))
        if not compile_fields_filter(expression)("t", 0, record):
            continue
        accepted += 1
        for hint in hints(expression):
            data = {"key": record.key, "value": record.value, "header": record.headers[0][1]}[hint.part]
            text = hint.text.encode()
            assert data is not None
            assert {
                "is": data == text,
                "holds": text in data,
                "starts": data.startswith(text),
                "json": text in data or b"\\" in data,
            }[hint.how], (expression, record)
    assert accepted > 300
