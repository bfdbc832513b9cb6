"""From page to page over the open connection: no reload, a working history, the focus; rights as of a full load."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from confluent_kafka import Consumer, TopicPartition
from console_world import TOKEN, Console, in_a_loop, start_console, stop
from playwright.sync_api import expect

from penstock.console.access.logins import IDLE_SECONDS, SESSION_SECONDS, Logins
from penstock.console.access.users import User, add_user
from penstock.console.pages import PAGES
from penstock.console.router import find
from penstock.testing.console_visitor import Visitor

expect.set_options(timeout=60_000)


@pytest.mark.parametrize(
    ("address", "path", "arguments"),
    [
        ("/kafka/c/local", "", {}),
        ("/kafka/c/local/", "", {}),
        ("/kafka/c/local/topics/a%2Fb%25?tab=x&name=other", "/topics/{name}", {"name": "a/b%", "tab": "x"}),
        ("/kafka/c/local/group?name=%3Cimg%3E%26%2F", "/group", {"name": "<img>&/"}),
        ("/kafka/c/local/topics/a/b", None, {}),
        ("/kafka/c/local/nowhere", None, {}),
        ("/kafka/c/local/topics//", "/topics", {}),
        ("/kafka/elsewhere", None, {}),
    ],
)
def test_an_address_leads_to_its_page(address: str, path: str | None, arguments: dict[str, str]) -> None:
    place = find(address, "/kafka", PAGES)
    assert (place.page.path if place.page else None) == path and place.arguments == arguments
    assert find("/kafka/c/far%20away%2F/topics", "/kafka", PAGES).cluster == "far away/"


def test_an_open_page_keeps_a_login_in_use_and_no_longer_than_it_may() -> None:
    now = [1e6]
    logins = Logins("token", clock=lambda: now[0])
    login, forgotten = logins.open(User("x", "viewer")), logins.open(User("y", "viewer"))
    for _ in range(5):
        now[0] += IDLE_SECONDS * 0.9
        assert logins.still(login)
        logins.end_if_due(login)
    assert not logins.still(forgotten) and forgotten.over
    now[0] = login.ends - 1
    logins.end_if_due(login)
    assert not login.over
    now[0] = login.ends
    logins.end_if_due(login)
    assert login.over and SESSION_SECONDS > IDLE_SECONDS


# --- what the server does when a browser says where it went


@pytest.fixture(scope="module")
def two_clusters(console: Console, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Two profiles of one broker, with users, under a base path."""
    folder = tmp_path_factory.mktemp("two")
    lines = [f'["{name}"]\n"bootstrap.servers" = "{console.broker.bootstrap}"\n' for name in ("near", "far away/%")]
    (folder / "profiles.toml").write_text("".join(lines))
    for user, role in (("vera", "viewer"), ("ada", "admin")):
        add_user(folder / "users", user, role, f"{user}-long-password")
    process, address = start_console(
        folder, "-p", "near", "-p", "far away/%", "--users", str(folder / "users"), "--base-path", "/kafka"
    )
    yield address
    stop(process)


def test_every_visit_is_checked_as_a_full_load_is(two_clusters: str) -> None:
    async def visit() -> None:
        form = {"name": "vera", "password": "vera-long-password"}
        came = await asyncio.to_thread(httpx.post, f"{two_clusters}/login", data=form)
        cookie = came.headers["set-cookie"].partition(";")[0]
        async with Visitor(two_clusters, {"cookie": cookie}, "/c/near/topics") as visitor:
            await visitor.until(lambda: visitor.heading == "Topics")
            for path, words in (
                ("/kafka/c/near/security", "this takes the role admin"),
                ("/kafka/c/near/doctor", "this takes the role editor"),
                ("/kafka/c/far%20away%2F%25/group?name=x%2F%3Cb%3E", "there is no group 'x/<b>'"),
                ("/kafka/c/elsewhere/topics", "there is no cluster 'elsewhere'"),
                ("/kafka/c/near/nowhere", "there is no page at this address"),
                ("//evil.example/c/near", "there is no page at this address"),
            ):
                await visitor.go(path)
                await visitor.until(lambda words=words: visitor.shows(words))
                assert visitor.heading
            await visitor.go("/kafka/c/far%20away%2F%25")
            await visitor.until(lambda: visitor.heading == "Overview" and visitor.shows("far away/% ·"))
            assert visitor.shows("/kafka/c/far%20away%2F%25/groups")  # the frame has followed
            assert "location.reload()" not in visitor.scripts
            headers = {"cookie": cookie, "origin": two_clusters.removesuffix("/kafka")}
            left = await asyncio.to_thread(httpx.post, f"{two_clusters}/logout", headers=headers)
            assert left.status_code == 303
            where = "/c/far%20away%2F%25/group?name=x%2Fy"
            asked = await asyncio.to_thread(httpx.get, two_clusters + where)
            assert asked.headers["location"] == f"/kafka/login?next={quote(where)}"
            form["next"] = where
            came = await asyncio.to_thread(httpx.post, f"{two_clusters}/login", data=form)
            assert came.headers["location"] == f"/kafka{where}"
            await visitor.go("/kafka/c/near/topics")
            await visitor.until(lambda: "location.reload()" in visitor.scripts)
            assert visitor.heading == "Overview"

    in_a_loop(visit())


def test_a_page_that_is_left_early_is_not_built_into_the_next(console: Console) -> None:
    async def visit() -> None:
        async with Visitor(console.address, {"authorization": f"Bearer {TOKEN}"}, "/c/local/doctor") as visitor:
            await visitor.until(lambda: visitor.heading == "Doctor")
            for path in ("/security", "/brokers", "/doctor", "/", "/groups"):
                await visitor.go(f"/c/local{path}")
            await visitor.until(lambda: visitor.heading == "Groups" and visitor.shows("Search groups"))
            before = visitor.updates
            await visitor.until(lambda: visitor.updates > before)  # the page's own timer
            assert visitor.heading == "Groups"

    in_a_loop(visit())


# --- in the browser


def _mark(page: Any) -> None:
    page.evaluate("window.marker = 1")


def _is_marked(page: Any) -> bool:
    return bool(page.evaluate("window.marker === 1"))


def _expect_focus(page: Any, heading: str) -> None:
    expect(page.locator("h1:focus")).to_have_text(heading)


def test_no_link_loads_the_page_anew(page: Any, console: Console, name: str) -> None:
    with console.client() as friend:
        friend.post(f"{console.local}/topics", json={"name": name, "partitions": 1})
        while not friend.get(f"{console.local}/search", params={"text": name}).json():
            pass  # the console looks at its cluster by itself
    _mark(page)
    navigation = page.get_by_role("navigation", name="Main")
    for label in [one.label for one in PAGES if one.label][::-1]:
        navigation.get_by_role("link", name=label).click()
        expect(page.locator("h1")).to_have_text(label)
        expect(page).to_have_title(f"{label} · Penstock")
        expect(navigation.locator("[aria-current=page]")).to_contain_text(label)
        _expect_focus(page, label)
    navigation.get_by_role("link", name="Topics").click()
    page.get_by_label("Search topics").fill(name)
    page.get_by_role("link", name=name).click()
    expect(page.locator("h1")).to_have_text(name)
    expect(page).to_have_url(f"{console.address}/c/local/topics/{name}")
    expect(navigation.locator("[aria-current=page]")).to_contain_text("Topics")
    page.keyboard.press("Control+k")
    page.get_by_label("Search for").fill("brok")
    page.keyboard.press("Enter")
    _expect_focus(page, "Brokers")
    page.locator(".pk-brand").click()
    _expect_focus(page, "Overview")
    for heading in ("Brokers", name, "Topics"):
        page.go_back()
        expect(page.locator("h1")).to_have_text(heading)
    page.go_forward()
    expect(page.locator("h1")).to_have_text(name)
    expect(page).to_have_title(f"{name} · Penstock")
    page.locator(".pk-skip").focus()
    page.keyboard.press("Enter")  # a jump within the page is not a visit
    expect(page.locator("#pk-main")).to_be_focused()
    expect(page.locator("[data-visit]")).to_have_count(1)
    assert _is_marked(page)
    page.reload()
    expect(page.locator("h1")).to_have_text(name)
    assert not _is_marked(page)


def _found(friend: httpx.Client, console: Console, text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = friend.get(f"{console.local}/search", params={"text": text}).json()
    return found


def test_names_that_look_like_something_else_are_names(page: Any, console: Console, name: str) -> None:
    evil = f"{name}/%2F?a=b&c#<img src=x onerror=window.hit=1>\"'"
    with console.client() as friend:
        friend.post(f"{console.local}/topics", json={"name": name, "partitions": 1})
        consumer = Consumer({"bootstrap.servers": console.broker.bootstrap, "group.id": evil})
        consumer.commit(offsets=[TopicPartition(name, 0, 0)], asynchronous=False)
        consumer.close()
        while not any(found["kind"] == "group" for found in _found(friend, console, name)):
            pass
    _mark(page)
    page.get_by_role("link", name="Groups").click()
    page.get_by_label("Search groups").fill(name)
    page.locator("td a").filter(has_text=name).click()
    expect(page.locator("h1")).to_have_text(evil)
    assert _is_marked(page)
    page.reload()
    expect(page.locator("h1")).to_have_text(evil)
    assert page.evaluate("window.hit") is None


def test_an_address_without_a_page_says_so(page: Any, console: Console) -> None:
    with console.client() as friend:
        assert friend.get(f"{console.address}/c/local/nowhere").status_code == 404
        assert friend.get(f"{console.address}/c/elsewhere/topics").status_code == 404
        assert friend.get(f"{console.address}/c/local/topics").status_code == 200
    _mark(page)
    for address, words in (
        ("/c/local/nowhere/at/all", "there is no page at this address"),
        ("/c/elsewhere/topics", "there is no cluster 'elsewhere'"),
        ("/c/local/topics/not-there", "there is no topic 'not-there'"),
    ):
        page.evaluate("(address) => penstockConsole.go(address)", address)
        expect(page.get_by_role("alert")).to_contain_text(words)
        expect(page.locator("h1")).to_have_count(1)
    assert _is_marked(page)
    page.get_by_role("link", name="Topics").click()
    expect(page.get_by_label("Search topics")).to_be_visible()


def _log_in(page: Any, address: str, user: str) -> None:
    page.goto(f"{address}/login")
    page.get_by_label("Name").fill(user)
    page.get_by_label("Password").fill(f"{user}-long-password")
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("h1")).to_have_text("Overview")


def test_clusters_rights_and_the_end_of_a_login_under_a_base_path(browser: Any, two_clusters: str) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(60_000)
    try:
        _log_in(page, two_clusters, "vera")
        _mark(page)
        page.get_by_label("Cluster").click()
        page.get_by_role("option", name="far away/%").click()
        expect(page.get_by_text("far away/% ·")).to_be_visible()
        page.get_by_role("link", name="Groups").click()
        expect(page.locator("h1")).to_have_text("Groups")
        expect(page).to_have_url(f"{two_clusters}/c/far%20away%2F%25/groups")
        page.go_back()
        page.go_back()
        expect(page.get_by_text("near ·")).to_be_visible()
        expect(page.get_by_role("link", name="Groups")).to_have_attribute("href", "/kafka/c/near/groups")
        page.evaluate("penstockConsole.go('/kafka/c/near/security')")
        expect(page.get_by_role("alert")).to_contain_text("this takes the role admin")
        assert _is_marked(page)
        page.goto(f"{two_clusters}/c/far%20away%2F%25/groups")
        expect(page.locator("h1")).to_have_text("Groups")
        _mark(page)
        origin = two_clusters.removesuffix("/kafka")
        cookies = {cookie["name"]: cookie["value"] for cookie in context.cookies()}
        left = httpx.post(f"{two_clusters}/logout", cookies=cookies, headers={"origin": origin}, timeout=60)
        assert left.status_code == 303
        page.get_by_role("link", name="Topics").click()
        expect(page).to_have_url(f"{two_clusters}/login?next={quote('/c/far%20away%2F%25/topics')}")
        assert not _is_marked(page)
    finally:
        context.close()


def test_what_a_page_left_behind_had_under_way_ends(page: Any, console: Console, name: str) -> None:
    """A page that asks for long is left for another, and a tail stops: the next page is not changed by either."""
    with console.client() as friend:
        friend.post(f"{console.local}/topics", json={"name": name, "partitions": 1})
    page.goto(f"{console.address}/c/local/topics/{name}")
    page.get_by_role("button", name="Follow live").click()
    expect(page.get_by_text("following: new messages")).to_be_visible()
    page.evaluate(
        "for (const path of ['/doctor', '/security', '/brokers', '/groups']) penstockConsole.go('/c/local' + path)"
    )
    expect(page.locator("h1")).to_have_text("Groups")
    expect(page.get_by_label("Search groups")).to_be_visible()
    expect(page.locator(".pk-page")).to_have_count(1)
    expect(page.get_by_text("following: new messages")).to_have_count(0)


def test_the_token_of_the_address_opens_a_deep_link(browser: Any, console: Console) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(60_000)
    page.goto(f"{console.address}/c/local/brokers?token={TOKEN}")
    expect(page.locator("h1")).to_have_text("Brokers")
    expect(page).to_have_url(f"{console.address}/c/local/brokers")
    context.close()
