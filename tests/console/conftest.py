"""A real broker, the console as a process of its own, and a headless Chromium that looks at it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from console_world import CHROMIUM, QUIET, TOKEN, Console, start_console, stop

import penstock
from penstock.testing.ports import free_port


@pytest.fixture(scope="session")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    settings = {"group.initial.rebalance.delay.ms": "0", "num.partitions": "2"}
    with penstock.Broker(tmp_path_factory.mktemp("broker"), settings=settings) as broker:
        folder = tmp_path_factory.mktemp("console")
        process, address = start_console(folder, "-b", broker.bootstrap)
        try:
            yield Console(address, broker, folder, process)
        finally:
            stop(process)


@pytest.fixture(scope="session")
def connect(console: Console, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A console that also answers as Kafka Connect does, at this address."""
    port = free_port()
    folder = tmp_path_factory.mktemp("connect")
    process, _ = start_console(folder, "-b", console.broker.bootstrap, "--connect-port", str(port))
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        stop(process)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no chromium here")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield made
        made.close()


@pytest.fixture(scope="session")
def visitor(browser: Any) -> Iterator[Any]:
    """One who keeps what the browser has loaded; else every test would load and compile all scripts anew."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, timezone_id="Europe/Vienna")
    yield context
    context.close()


@pytest.fixture
def page(visitor: Any, console: Console) -> Iterator[Any]:
    """A page of somebody who is logged in. Whatever it asks for outside of the console, or complains about, fails."""
    page = visitor.new_page()
    page.set_default_timeout(60_000)
    strangers: list[str] = []
    complaints: list[str] = []
    host = urlsplit(console.address).netloc

    def on_request(request: Any) -> None:
        split = urlsplit(request.url)
        if split.scheme not in ("data", "blob") and split.netloc != host:
            strangers.append(request.url)

    def on_complaint(text: str) -> None:
        # NiceGUI's chart says so when its page is left in the moment before it is drawn; nothing comes of it.
        if "reading 'dispose'" not in text:
            complaints.append(text)

    page.on("request", on_request)
    page.on("pageerror", lambda error: on_complaint(str(error)))
    page.on("console", lambda message: on_complaint(message.text) if message.type == "error" else None)
    page.goto(f"{console.address}/?token={TOKEN}")
    page.locator("h1").wait_for()
    yield page
    if not page.is_closed() and page.url.startswith(console.address):
        page.evaluate("localStorage.clear()")
    for open_page in visitor.pages:
        open_page.close()
    visitor.clear_cookies()
    assert strangers == []
    assert complaints == []


@pytest.fixture
def name() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"
