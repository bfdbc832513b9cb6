"""A whole search as a file: what the filter accepts and nothing else, line by line, as `consume --json` prints it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from console_world import Console
from playwright.sync_api import expect

expect.set_options(timeout=60_000)


def test_what_a_search_finds_becomes_a_file(page: Any, console: Console, name: str, tmp_path: Path) -> None:
    with console.client() as friend:
        friend.post(f"{console.local}/topics", json={"name": name, "partitions": 2})
        for number in range(12):
            message = {"key": f"k{number}", "value": {"n": number}, "partition": number % 2, "headers": [["h", "x"]]}
            friend.post(f"{console.local}/topics/{name}/messages", json=message)
        wrong = friend.get(f"{console.local}/topics/{name}/messages.jsonl", params={"expression": "value.n >"})
        assert wrong.status_code == 400 and "position" in wrong.json()["error"]
        whole = friend.get(f"{console.local}/topics/{name}/messages.jsonl", params={"limit": 1})
        assert len(whole.text.splitlines()) == 12
    page.goto(f"{console.address}/c/local/topics/{name}")
    page.get_by_label("Expression").fill("value.n >= 9")
    with page.expect_download() as downloading:
        page.get_by_role("button", name="Download").click()
    assert downloading.value.suggested_filename == f"{name}.jsonl"
    downloading.value.save_as(tmp_path / "found.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "found.jsonl").read_text().splitlines()]
    assert sorted(json.loads(row["value"])["n"] for row in rows) == [9, 10, 11]
    assert rows[0]["topic"] == name and rows[0]["headers"] == [["h", "x"]]
    page.get_by_label("Expression").fill("value.n >")
    page.get_by_role("button", name="Download").click()
    expect(page.get_by_text("filter, position")).to_be_visible()
