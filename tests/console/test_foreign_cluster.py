"""The same console against Apache Kafka: every page opens, says what that cluster cannot tell, and creates nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from console_world import TOKEN, start_console, stop
from playwright.sync_api import expect

from penstock.console.pages import PAGES
from penstock.testing import peers

expect.set_options(timeout=120_000)
ARGUMENTS = {"/topics/{name}": "/topics/orders", "/group": "/group?name=readers", "/brokers/{node}": "/brokers/1"}


@pytest.fixture(scope="module")
def kafka() -> Iterator[peers.KafkaPeer]:
    try:
        with peers.apache_kafka(heap="512m") as peer:
            yield peer
    except peers.PeerUnavailable as error:
        pytest.skip(str(error))


def _some_data(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("orders", 2)])["orders"].result(60)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(5):
        producer.produce("orders", f'{{"n": {number}}}'.encode(), partition=0)
    assert producer.flush(60) == 0
    where = {"bootstrap.servers": bootstrap, "group.id": "readers", "enable.auto.commit": False}
    consumer = Consumer({**where, "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    assert len(consumer.consume(5, 90)) == 5  # a member knows its coordinator
    consumer.commit(offsets=[TopicPartition("orders", 0, 2)], asynchronous=False)
    consumer.close()


def _topics(bootstrap: str) -> set[str]:
    return set(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=60).topics)


def test_every_page_opens_against_apache_kafka(kafka: peers.KafkaPeer, browser: Any, tmp_path: Path) -> None:
    _some_data(kafka.bootstrap)
    before = _topics(kafka.bootstrap)
    process, address = start_console(tmp_path, "-b", kafka.bootstrap)
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    try:
        page = context.new_page()
        page.set_default_timeout(120_000)
        complaints: list[str] = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(f"{address}/?token={TOKEN}")
        for one in PAGES:
            path = ARGUMENTS.get(one.path, one.path)
            if "{" in path or one.path == "/transaction":
                continue  # of one pipeline or transaction; there are none
            page.goto(f"{address}/c/local{path}")
            page.locator("h1").wait_for()
            expect(page.locator(".q-loading")).to_have_count(0)
            assert page.get_by_role("alert").filter(has_text="cannot").count() == 0, path
        page.goto(f"{address}/c/local/group?name=readers")
        expect(page.locator(".pk-tile").first).to_contain_text("3")
        page.get_by_role("tab", name="Rebalances").click()
        expect(page.get_by_text("not available").first).to_be_visible()
        page.goto(f"{address}/c/local/pipelines")
        expect(page.get_by_text("No pipelines applied")).to_be_visible()
        page.goto(f"{address}/c/local/topics/orders")
        expect(page.locator(".pk-messages tbody tr")).to_have_count(5)
        assert complaints == []
    finally:
        context.close()
        stop(process)
    assert _topics(kafka.bootstrap) == before
    assert "__penstock_metrics" not in before
