"""Security in the browser: a user, a limit and a rule are made and taken away; without an authorizer that is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from console_world import TOKEN, Console, start_console, stop
from playwright.sync_api import expect

import penstock

expect.set_options(timeout=60_000)
WITH_ACLS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


def test_users_and_limits_without_an_authorizer(page: Any, console: Console, name: str) -> None:
    page.get_by_role("link", name="Security").click()
    expect(page.get_by_text("ACLs are not available")).to_be_visible()
    expect(page.get_by_text("no authorizer")).to_be_visible()

    page.get_by_role("tab", name="Users").click()
    page.get_by_role("button", name="New user").click()
    page.get_by_role("dialog").get_by_label("Name").fill(name)
    page.get_by_role("dialog").get_by_label("Password").fill("a secret")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    row = page.locator("tbody tr").filter(has_text=name)
    expect(row).to_contain_text("SCRAM-SHA-512")
    row.click()
    page.get_by_role("dialog").get_by_label("to confirm").fill(name)
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(row).to_have_count(0)
    assert "a secret" not in (console.state_dir / "audit.jsonl").read_text()

    page.get_by_role("tab", name="Quotas").click()
    page.get_by_role("button", name="New limit").click()
    page.get_by_role("dialog").get_by_label("Whose").fill(f"client:{name}")
    page.get_by_role("dialog").get_by_label("Limit").fill("1000000")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(page.locator("tbody tr").filter(has_text=name)).to_contain_text("bytes per second")


def test_rules_of_a_cluster_that_has_some(browser: Any, tmp_path: Path) -> None:
    with penstock.Broker(tmp_path / "broker", settings=WITH_ACLS) as broker:
        (tmp_path / "console").mkdir()
        process, address = start_console(tmp_path / "console", "-b", broker.bootstrap)
        context = browser.new_context()
        try:
            page = context.new_page()
            page.set_default_timeout(60_000)
            page.goto(f"{address}/?token={TOKEN}")
            page.goto(f"{address}/c/local/security")
            page.get_by_role("button", name="New rule").click()
            dialog = page.get_by_role("dialog")
            dialog.get_by_label("Who").fill("anna")
            dialog.get_by_label("With what").fill("nothing")
            dialog.get_by_role("button", name="Create").click()
            expect(page.get_by_text("is no resource")).to_be_visible()
            dialog.get_by_label("With what").fill("topic:orders*")
            dialog.get_by_role("button", name="Create").click()
            rule = page.locator("tbody tr").filter(has_text="topic:orders*")
            expect(rule).to_contain_text("User:anna")
            rule.click()
            page.get_by_role("dialog").get_by_label("to confirm").fill("User:anna")
            page.get_by_role("dialog").get_by_role("button", name="Delete").click()
            expect(page.get_by_text("No rules")).to_be_visible()
        finally:
            context.close()
            stop(process)
