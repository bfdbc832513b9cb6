"""Marks that turn the reading direction, in whatever others write: shown as what they are, so that no line lies."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from confluent_kafka import Producer
from console_world import Console, commit_from_the_beginning
from playwright.sync_api import expect

expect.set_options(timeout=60_000)
MARKS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c"
WRITTEN = MARKS.encode("unicode_escape").decode()


def _insist_on_no_marks(page: Any) -> None:
    shown = page.evaluate("document.body.innerText")
    assert [hex(ord(mark)) for mark in MARKS if mark in shown] == []


def test_messages_do_not_turn_the_page_around(page: Any, console: Console, name: str) -> None:
    producer = Producer({"bootstrap.servers": console.broker.bootstrap})
    producer.produce(name, f"value {MARKS}", f"key {MARKS}", headers=[(f"name {MARKS}", f"header {MARKS}".encode())])
    producer.produce(name, f'{{"field": "json {MARKS}"}}', f"second {MARKS}")
    assert producer.flush(30) == 0
    page.goto(f"{console.address}/c/local/topics/{name}")
    for words in ("value", "key", "second"):
        expect(page.get_by_text(f"{words} {WRITTEN}")).to_be_visible()
    _insist_on_no_marks(page)
    for row, words in (("value", ("key", "value", "name", "header")), ("second", ("second", "json"))):
        page.get_by_text(f"{row} {WRITTEN}").click()
        one = page.get_by_role("dialog")
        for word in words:
            expect(one).to_contain_text(f"{word} {WRITTEN}")
        _insist_on_no_marks(page)
        one.get_by_role("button", name="Close").click()
        expect(one).to_have_count(0)


def test_names_do_not_turn_the_page_around(page: Any, console: Console, name: str) -> None:
    producer = Producer({"bootstrap.servers": console.broker.bootstrap})
    producer.produce(name, "one", partition=0)
    assert producer.flush(30) == 0
    group = f"{name} {MARKS}"
    commit_from_the_beginning(console, group, name)
    page.goto(f"{console.address}/c/local/group?name={quote(group)}")
    expect(page.get_by_text(f"{name} {WRITTEN}").first).to_be_visible()
    _insist_on_no_marks(page)
