"""Pages in a real browser: a topic from its creation to its messages, live and filtered; nobody is left out."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from console_world import TOKEN, Console, commit_from_the_beginning
from playwright.sync_api import expect

from penstock.console import theme

expect.set_options(timeout=60_000)  # a busy machine is slow, not wrong
SERIOUS = ("serious", "critical")
OF_COLOURS = ["color-contrast", "link-in-text-block"]  # of all rules the two that a theme can break
PATHS = (
    "",
    "/topics",
    "/topics/accessible",
    "/groups",
    "/group?name=accessible",
    "/transactions",
    "/brokers",
    "/brokers/1",
    "/doctor",
    "/pipelines",
    "/sql",
    "/security",
)


def test_the_page_opens_with_its_token(page: Any, console: Console) -> None:
    expect(page.locator("h1")).to_have_text("Overview")
    assert TOKEN not in page.url
    expect(page.get_by_text("healthy")).to_be_visible()
    expect(page.get_by_role("navigation", name="Main").get_by_role("link")).to_have_count(len(_labels()))


def _labels() -> list[str]:
    from penstock.console.pages import PAGES

    return [page.label for page in PAGES if page.label]


def test_create_a_topic_produce_and_see_it_live(page: Any, console: Console, name: str) -> None:
    page.get_by_role("link", name="Topics").click()
    page.get_by_role("button", name="New topic").click()
    page.get_by_role("dialog").get_by_label("Name").fill(name)
    page.get_by_role("dialog").get_by_label("Partitions").fill("2")
    page.get_by_role("button", name="Create").click()
    expect(page.locator("h1")).to_have_text(name)
    expect(page.get_by_text("No messages here")).to_be_visible()

    page.get_by_role("button", name="Follow live").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    page.get_by_role("button", name="Produce", exact=True).click()
    page.get_by_role("dialog").get_by_label("Value", exact=True).fill('{"who": "anna", "amount": 5}')
    page.get_by_role("dialog").get_by_role("button", name="Produce").click()
    expect(page.locator(".pk-messages tbody tr")).to_have_count(1)
    page.locator(".pk-messages tbody tr").first.click()
    expect(page.get_by_role("dialog").locator("pre")).to_contain_text('"who": "anna"')
    page.get_by_role("dialog").get_by_role("button", name="Close").click()

    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_text("paused")).to_be_visible()


def test_filter_with_words_and_expressions(page: Any, console: Console, name: str) -> None:
    with console.client() as friend:
        friend.post(f"{console.local}/topics", json={"name": name, "partitions": 1})
        for number in range(30):
            friend.post(f"{console.local}/topics/{name}/messages", json={"key": f"k{number}", "value": {"n": number}})
    page.goto(f"{console.address}/c/local/topics/{name}")
    rows = page.locator(".pk-messages tbody tr")
    expect(rows).to_have_count(30)
    page.get_by_label("Expression").fill("value.n >= 27")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(rows).to_have_count(3)
    page.get_by_label("Expression").fill("value.n >")
    page.get_by_label("Expression").press("Enter")
    expect(page.get_by_text(re.compile("filter, position"))).to_be_visible()
    page.get_by_label("Expression").fill("")
    page.get_by_label("Key holds").fill("k29")
    page.get_by_label("Key holds").press("Enter")
    expect(rows).to_have_count(1)


def test_delete_takes_the_name_typed(page: Any, console: Console, name: str) -> None:
    with console.client() as friend:
        friend.post(f"{console.local}/topics", json={"name": name})
    page.goto(f"{console.address}/c/local/topics/{name}")
    page.get_by_role("button", name="Manage").click()
    page.get_by_text("Delete…").click()
    button = page.get_by_role("dialog").get_by_role("button", name="Delete")
    expect(button).to_be_disabled()
    page.get_by_role("dialog").get_by_role("textbox").fill(name)
    button.click()
    expect(page.locator("h1")).to_have_text("Topics")
    with console.client() as friend:
        assert friend.get(f"{console.local}/topics/{name}").status_code == 404


def test_a_key_opens_the_search_that_jumps(page: Any, console: Console, name: str) -> None:
    with console.client() as friend:
        friend.post(f"{console.local}/topics", json={"name": name})
        while not friend.get(f"{console.local}/search", params={"text": name}).json():
            pass  # the console looks at its cluster by itself
    page.keyboard.press("Control+k")
    page.get_by_label("Search for").fill(name)
    page.keyboard.press("Enter")  # at once: what counts is the box, not the list that is not yet there
    expect(page.locator("h1")).to_have_text(name)
    page.keyboard.press("Control+k")
    page.get_by_label("Search for").fill("brok")
    page.get_by_role("dialog").get_by_text("Brokers").click()
    expect(page.locator("h1")).to_have_text("Brokers")
    expect(page.get_by_role("dialog")).to_have_count(0)
    # One that is clicked in the moment in which the list of more letters replaces it leads there all the same.
    page.keyboard.press("Control+k")
    topics = page.get_by_role("dialog").locator("a").filter(has_text="Topics")
    topics.wait_for()
    page.get_by_label("Search for").press_sequentially("top")
    topics.click()
    expect(page.locator("h1")).to_have_text("Topics")


def test_hostile_contents_run_nowhere(page: Any, console: Console, name: str) -> None:
    evil = "<img src=x onerror=window.hit=1><script>window.hit=1</script>${window.hit=1}{{window.hit=1}}`"
    with console.client() as friend:
        friend.post(f"{console.local}/topics", json={"name": name, "partitions": 1})
        message = {"key": evil, "value": {"x": evil}, "headers": [[evil, evil]]}
        friend.post(f"{console.local}/topics/{name}/messages", json=message)
        friend.post(f"{console.local}/topics/{name}/messages", json={"value": evil})
    page.goto(f"{console.address}/c/local/topics/{name}?partition=0&offset=0")
    expect(page.get_by_role("dialog").locator("pre").first).to_contain_text("onerror")
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    expect(page.locator(".pk-messages tbody tr")).to_have_count(2)
    page.locator(".pk-messages tbody tr").first.click()
    expect(page.get_by_role("dialog").locator("pre").first).to_contain_text("onerror")
    assert page.evaluate("window.hit") is None


SHADES = "[...document.querySelectorAll('.pk-chart text')].map((one) => getComputedStyle(one).fill)"


def _rgb(scheme: str, name: str) -> str:
    colour = (theme.DARK if scheme == "dark" else theme.LIGHT)[name]
    return f"rgb({int(colour[1:3], 16)}, {int(colour[3:5], 16)}, {int(colour[5:7], 16)})"


@pytest.mark.parametrize("paths", [PATHS[:6], PATHS[6:]], ids=["first half", "second half"])
def test_nobody_is_left_out(page: Any, console: Console, paths: tuple[str, ...]) -> None:
    """axe finds nothing serious in both themes, on a screen and on a phone; nothing is wider than the screen.

    Theme and size change on the open page: what is drawn already has to follow. Pages follow each other in one open
    console, as for a reader.
    """
    with console.client() as friend:
        friend.post(f"{console.local}/topics", json={"name": "accessible", "partitions": 1})
        friend.post(f"{console.local}/topics/accessible/messages", json={"key": "k", "value": {"a": 1}})
    commit_from_the_beginning(console, "accessible", "accessible")
    findings = {}
    page.evaluate(Axe().axe_script)
    for number, path in enumerate(paths):
        page.evaluate("(address) => penstockConsole.go(address)", f"/c/local{path}")
        page.locator(f'[data-visit="{number + 2}"] h1').wait_for()
        expect(page.locator(".pk-waiting")).to_have_count(0)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            expect(page.locator("body")).to_have_class(re.compile(f"body--{scheme}"))
            # Found and looked at in one step: the next figures draw the chart anew, and what is gone has no colour.
            shades = page.evaluate(SHADES)
            assert set(shades[:2]) <= {_rgb(scheme, "ink-faint")}
            for width in (1280, 390):
                page.set_viewport_size({"width": width, "height": 844})
                rules = {"runOnly": OF_COLOURS} if scheme == "dark" else {}
                result = page.evaluate("(options) => axe.run(options)", {"resultTypes": ["violations"], **rules})
                found = [v for v in result["violations"] if v["impact"] in SERIOUS]
                if found:
                    findings[path, scheme, width] = [
                        (v["id"], [n["html"][:160] for n in v["nodes"][:3]]) for v in found
                    ]
                # Charts follow a new width a moment later.
                page.wait_for_function("width => document.documentElement.scrollWidth <= width", arg=width)
    assert findings == {}, "\n".join(f"{where}: {json.dumps(what)}" for where, what in findings.items())
