"""Brokers, transactions and doctor in the browser: a partition moves, a transaction is ended, findings are read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from console_world import TOKEN, Console, start_console, stop
from playwright.sync_api import expect

from penstock.cluster import local
from penstock.console.pages.doctor import merged
from penstock.testing.ports import free_ports

expect.set_options(timeout=60_000)


@pytest.fixture
def two_brokers(tmp_path: Path) -> Iterator[str]:
    """The address of a console on a cluster of two brokers."""
    first = free_ports(3)
    cluster = local.start(tmp_path / "cluster", 2, first, first + 2, {"offsets.topic.num.partitions": "1"})
    try:
        process, address = start_console(tmp_path, "-b", cluster.bootstrap)
        try:
            yield address
        finally:
            stop(process)
    finally:
        local.stop(tmp_path / "cluster")


def test_a_partition_is_moved_as_planned(browser: Any, two_brokers: str, name: str) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.set_default_timeout(60_000)
    page.goto(f"{two_brokers}/?token={TOKEN}")
    api = f"{two_brokers}/api/v1/clusters/local"
    bearer = {"authorization": f"Bearer {TOKEN}"}
    page.request.post(f"{api}/topics", data={"name": name, "partitions": 1, "replicas": 1}, headers=bearer)
    now = page.request.get(f"{api}/topics/{name}", headers=bearer).json()["partitions"][0]["replicas"][0]

    page.get_by_role("link", name="Brokers").click()
    expect(page.locator("tbody tr").filter(has_text="controller")).to_have_count(1)
    page.get_by_role("button", name="Spread replicas").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Topics").fill("not-there")
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog.get_by_role("alert")).to_contain_text("there is no topic 'not-there'")
    dialog.get_by_label("Topics").fill(name)
    dialog.get_by_role("checkbox", name=f"Broker {now}").click()
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog.get_by_text("1 partition would change, 1 replica")).to_be_visible()
    dialog.get_by_role("button", name="Move 1 partition").click()
    expect(dialog).to_have_count(0)
    while page.request.get(f"{api}/topics/{name}", headers=bearer).json()["partitions"][0]["replicas"] == [now]:
        pass
    page.get_by_role("button", name="Elect preferred leaders").click()
    page.get_by_role("dialog").get_by_role("button", name="Elect").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    context.close()


def test_a_broker_shows_its_settings_and_changes_one(page: Any, console: Console) -> None:
    page.get_by_role("link", name="Brokers").click()
    page.get_by_role("link", name="1", exact=True).first.click()
    expect(page.locator("h1")).to_have_text("Broker 1")
    page.get_by_role("tab", name="Log folders").click()
    expect(page.get_by_text("works")).to_be_visible()
    page.get_by_role("tab", name="Settings").click()
    page.get_by_label("Search settings").fill("log.cleaner.threads")
    page.locator("tbody tr").filter(has_text="log.cleaner.threads").click()
    page.get_by_role("dialog").get_by_label("Value").fill("none")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(page.get_by_text("none").first).to_be_visible()
    page.get_by_role("dialog").get_by_label("Value").fill("2")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(page.locator("tbody tr").filter(has_text="log.cleaner.threads")).to_contain_text("broker")


def test_an_open_transaction_is_seen_and_ended(page: Any, console: Console, name: str) -> None:
    with console.client() as friend:
        friend.post(f"{console.local}/topics", json={"name": name, "partitions": 1})
    where = {"bootstrap.servers": console.broker.bootstrap, "transactional.id": f"txn {name}?"}
    producer = Producer({**where, "transaction.timeout.ms": 600_000})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(name, b"held")
    producer.flush(60)
    page.get_by_role("link", name="Transactions").click()
    expect(page.locator("tbody tr").filter(has_text=name)).to_contain_text(f"{name}-0")
    page.get_by_role("link", name=f"txn {name}?").click()
    expect(page.locator(".pk-tile").first).to_contain_text("1record")
    page.get_by_role("button", name="End it").click()
    page.get_by_role("dialog").get_by_label("to confirm").fill(f"txn {name}?")
    page.get_by_role("dialog").get_by_role("button", name="End it").click()
    expect(page.get_by_text("It is not open")).to_be_visible()
    page.get_by_role("link", name="Transactions").click()
    page.get_by_role("button", name="Look for them").click()
    expect(page.get_by_text("Nothing hangs")).to_be_visible()


def test_the_doctor_tells_what_to_do(page: Any, console: Console) -> None:
    page.get_by_role("link", name="Doctor").click()
    expect(page.get_by_text("auto.create.topics.enable is true")).to_be_visible()
    expect(page.get_by_text("set it to false in production")).to_be_visible()
    expect(page.get_by_text("every partition has a leader and all its replicas")).to_be_visible()


def test_what_brokers_share_is_found_once() -> None:
    rows = [
        {"check": "settings", "severity": "note", "finding": f"broker {node}: x is 1", "hint": "why"} for node in (1, 2)
    ]
    rows.append({"check": "lag", "severity": "warning", "finding": "group a is late", "hint": None})
    assert [row["finding"] for row in merged(rows)] == ["brokers 1, 2: x is 1", "group a is late"]
