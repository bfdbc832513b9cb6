"""Bad days in the browser: the broker goes away under an open page and comes back; a topic is deleted under a tail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
from console_world import TOKEN, Console, start_console, stop
from playwright.sync_api import expect

from penstock.testing.broker_process import BrokerProcess

expect.set_options(timeout=60_000)


def test_a_broker_that_goes_away_is_told_and_comes_back_by_itself(browser: Any, tmp_path: Path, name: str) -> None:
    with BrokerProcess(tmp_path / "broker") as broker:
        (tmp_path / "console").mkdir()
        process, address = start_console(tmp_path / "console", "-b", broker.bootstrap)
        context = browser.new_context()
        try:
            local = f"{address}/api/v1/clusters/local"
            friend = httpx.Client(headers={"authorization": f"Bearer {TOKEN}"}, timeout=60)
            friend.post(f"{local}/topics", json={"name": name, "partitions": 1})
            page = context.new_page()
            page.set_default_timeout(60_000)
            page.goto(f"{address}/?token={TOKEN}")
            page.goto(f"{address}/c/local/topics/{name}")
            page.get_by_role("button", name="Follow live").click()
            expect(page.get_by_role("button", name="Pause")).to_be_visible()
            expect(page.get_by_text("following: new messages")).to_be_visible()  # it knows where it stands

            broker.kill()
            banner = page.get_by_text("local does not answer")
            expect(banner).to_be_visible()
            expect(page.locator("h1")).to_have_text(name)

            broker.start()
            expect(banner).to_be_hidden()
            friend.post(f"{local}/topics/{name}/messages", json={"value": "after the night"})
            expect(page.locator(".pk-messages tbody tr")).to_have_count(1)
            friend.close()
        finally:
            context.close()
            stop(process)


def test_a_topic_that_is_deleted_under_a_tail_is_told(page: Any, console: Console, name: str) -> None:
    with console.client() as friend:
        friend.post(f"{console.local}/topics", json={"name": name, "partitions": 1})
        page.goto(f"{console.address}/c/local/topics/{name}")
        page.get_by_role("button", name="Follow live").click()
        expect(page.get_by_role("button", name="Pause")).to_be_visible()
        friend.delete(f"{console.local}/topics/{name}")
    expect(page.get_by_role("button", name="Follow live")).to_be_visible()
    expect(page.get_by_text("cannot be read any more")).to_be_visible()
    expect(page.get_by_text(f"there is no topic '{name}' any more")).to_be_visible()
