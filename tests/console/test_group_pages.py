"""Groups in the browser: seen in the list, drawn with their members, reset with a preview and the name typed."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer
from console_world import Console
from playwright.sync_api import expect

from penstock.console.lag_ages import LagAges
from penstock.console.pages.group_journal import causes_in_words

expect.set_options(timeout=60_000)


def _topic_with_messages(console: Console, name: str, count: int) -> None:
    with console.client() as friend:
        friend.post(f"{console.local}/topics", json={"name": name, "partitions": 2})
        for number in range(count):
            message = {"value": f"m{number}", "partition": number % 2}
            friend.post(f"{console.local}/topics/{name}/messages", json=message)


def _consumer(console: Console, group: str, topic: str) -> Consumer:
    """One that has read and committed everything."""
    where = {"bootstrap.servers": console.broker.bootstrap, "group.id": group, "client.id": "reader"}
    consumer = Consumer({**where, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe([topic])
    seen = 0
    while seen < 6:
        seen += len(consumer.consume(6, 10))
    consumer.commit(asynchronous=False)
    return consumer


def test_a_group_is_seen_at_work_and_reset_when_it_rests(page: Any, console: Console, name: str) -> None:
    _topic_with_messages(console, name, 6)
    group = f'{name} <b onclick="window.hit=1">&'
    consumer = _consumer(console, group, name)
    page.get_by_role("link", name="Groups").click()
    page.get_by_label("Search groups").fill(name)
    page.get_by_role("link", name=group).click()
    expect(page.locator("h1")).to_have_text(group)
    expect(page.get_by_role("navigation", name="Main").get_by_role("link", name="Groups")).to_have_attribute(
        "aria-current", "page"
    )
    expect(page.get_by_text("Stable")).to_be_visible()

    page.get_by_role("tab", name="Members").click()
    expect(page.locator(".pk-members li")).to_have_count(1)
    expect(page.locator(".pk-members .pk-square")).to_have_text(["0", "1"])
    page.get_by_role("tab", name="Rebalances").click()
    expect(page.locator(".pk-timeline li").first).to_contain_text("reader joined")

    page.get_by_role("button", name="Reset offsets").click()
    expect(page.get_by_role("note")).to_contain_text("1 consumer of the group at work")
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    consumer.close()
    expect(page.get_by_text("Empty", exact=True)).to_be_visible()

    page.get_by_role("tab", name="Lag").click()
    page.get_by_role("button", name="Reset offsets").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog.get_by_text("6 records would be read again")).to_be_visible()
    button = dialog.get_by_role("button", name="Reset offsets")
    expect(button).to_be_disabled()
    dialog.get_by_label("to confirm").fill(group)
    button.click()
    expect(page.locator(".pk-tile").first).to_contain_text("6")
    assert page.evaluate("window.hit") is None


def test_a_group_that_is_not_there_is_told(page: Any, console: Console) -> None:
    page.goto(f"{console.address}/c/local/group?name=nobody-knows")
    expect(page.get_by_role("alert")).to_contain_text("there is no group 'nobody-knows'")
    page.goto(f"{console.address}/c/local/group")
    expect(page.get_by_role("alert")).to_contain_text("there is no group")


def test_an_offset_is_as_old_as_the_look_that_first_saw_it() -> None:
    asked: list[int] = []

    def ask(_topic: str, _partition: int, offset: int) -> float:
        asked.append(offset)
        return 100.0

    key, ages = ("t", 0), LagAges(ask)
    ages.note(10_000, {key: 100}, [key])
    ages.note(20_000, {key: 200}, [key])
    assert ages.seconds(key, 150, 25_000) == 10.0  # written about half way between the looks
    assert ages.seconds(key, 200, 25_000) == 0.0
    assert ages.seconds(key, 40, 25_000) == 100.0 and ages.seconds(key, 40, 26_000) == 101.0
    assert asked == [40]  # a group that stands still is asked for once
    ages.note(30_000, {key: 5}, [key])  # made anew
    assert ages.seconds(key, 5, 31_000) == 0.0


def test_many_looks_are_remembered_in_few_points() -> None:
    key, ages = ("t", 0), LagAges(lambda *_: None)
    for look in range(5_000):
        ages.note(look * 1000, {key: look * 10}, [key])
    assert len(ages._points[key]) <= 121
    assert ages.seconds(key, 49_000, 4_999_000) == 99.0
    assert abs((ages.seconds(key, 10_000, 4_999_000) or 0) - 3_999) < 60


def test_a_rebalance_is_told_in_words() -> None:
    causes = [{"kind": "joined", "member": "shop-1-6f0c2a54-aaaa-4bbb-8ccc-0123456789ab", "detail": ""}]
    assert causes_in_words({"causes": causes}) == ["shop-1 joined"]
    assert causes_in_words({"causes": causes * 3}) == ["shop-1 joined (3 times)"]
    many = [{"kind": "left", "member": f"m{number}", "detail": ""} for number in range(6)]
    assert causes_in_words({"causes": many, "causes_left_out": 2})[-1] == "and 4 more"
