"""SQL in the console: one SELECT over topics and nothing else; Spark is asked in a process of its own."""

from __future__ import annotations

from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from console_world import Console
from playwright.sync_api import expect

from penstock.pipelines.adhoc_guard import insist_on_select, topics_of
from penstock.pipelines.spec import SpecError

expect.set_options(timeout=200_000)  # Spark starts with the first question, on a machine that may be busy


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "DROP TABLE x",
        "SELECT * FROM topic('t'); SELECT 2",
        "INSERT INTO x SELECT * FROM topic('t')",
        "WITH a AS (SELECT * FROM topic('t')) INSERT INTO x SELECT * FROM a",
        "SELECT reflect('java.lang.System', 'getenv') FROM topic('t')",
        "SELECT `reflect`('java.lang.System', 'getenv') FROM topic('t')",
        "SELECT java_method('java.lang.System', 'getenv') FROM topic('t')",
        "SELECT r'\\', try_reflect('a', 'b'), '' FROM topic('t')",
        "SELECT /* ' */ reflect('a', 'b') /* ' */ FROM topic('t')",
        "SELECT TRANSFORM(a) USING 'cat /etc/passwd' FROM topic('t')",
        "SELECT * FROM topic('t', registry => 'http://elsewhere')",
        "SELECT * FROM topic('t', descriptor_file => '/etc/passwd')",
        "SELECT 'open FROM topic('t')",
        "",
    ],
)
def test_what_is_no_select_over_topics_is_refused(text: str) -> None:
    with pytest.raises(SpecError):
        insist_on_select(text)


def test_a_select_is_taken() -> None:
    text = "WITH a AS (SELECT * FROM topic('t', since => '1 hour')) SELECT 'drop;' FROM a JOIN topic('u') USING (x);"
    insist_on_select(text)
    assert topics_of(text) == ["t", "u"]


def test_spark_answers_and_reads_no_files(console: Console, name: str) -> None:
    """One story, since Spark starts once: SQL, a file that is no table, a dry run."""
    with console.client() as friend:
        friend.timeout = 400
        friend.post(f"{console.local}/topics", json={"name": name, "partitions": 1})
        for number in range(3):
            friend.post(f"{console.local}/topics/{name}/messages", json={"value": {"n": number}})
        text = f"SELECT sum(n) AS total FROM topic('{name}')"
        answer = friend.post(f"{console.local}/sql", json={"text": text, "seconds": 300})
        assert answer.json() == {"columns": [{"name": "total", "type": "bigint"}], "rows": [[3]], "more": False}

        for file in ("text.`/etc/hostname`", "csv.`/etc/hostname`", "binaryFile.`/etc/hostname`"):
            text = f"SELECT count(*) FROM topic('{name}') CROSS JOIN {file}"
            refused = friend.post(f"{console.local}/sql", json={"text": text, "seconds": 300})
            assert refused.status_code == 400, file
        limited = {"text": f"SELECT n FROM topic('{name}')", "limit": 2, "seconds": 300}
        assert friend.post(f"{console.local}/sql", json=limited).json()["more"]

        spec = (
            f"name: {name}\nsources:\n  s: {{topic: {name}, format: {{type: json, schema: n INT}}}}\n"
            f"views:\n  big: SELECT n * 10 AS n FROM s WHERE n > 0\nsinks:\n  out: {{from: big, topic: {name}.out}}\n"
        )
        tried = friend.post(f"{console.local}/pipelines/dry-run", json={"text": spec}).json()
        assert tried == {"sinks": {"out": [{"n": 10}, {"n": 20}]}, "given": {"s": 3}}
        assert friend.get(f"{console.local}/topics/{name}.out").status_code == 404
        assert friend.post(f"{console.local}/sql/cancel", json={"name": "nothing"}).status_code == 404


def test_a_query_is_asked_cancelled_and_saved_in_the_browser(page: Any, console: Console, name: str) -> None:
    with console.client() as friend:
        friend.post(f"{console.local}/topics", json={"name": name, "partitions": 2})
        for number in range(4):
            message = {"value": {"n": number}, "partition": number % 2}
            friend.post(f"{console.local}/topics/{name}/messages", json=message)
    page.goto(f"{console.address}/c/local/sql?topic={name}")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("status").filter(has_text="2 rows in")).to_be_visible()
    expect(page.get_by_role("img", name="records by _partition")).to_be_visible()
    found = [v for v in Axe().run(page).response["violations"] if v["impact"] in ("serious", "critical")]
    assert found == []
    page.get_by_label("Query", exact=True).fill("SELECT * FROM topic('nobody-knows')")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("status").filter(has_text="there is no topic 'nobody-knows'")).to_be_visible()

    page.get_by_label("Query", exact=True).fill(f"SELECT n FROM topic('{name}')")
    page.get_by_role("button", name="Save").click()
    page.get_by_role("dialog").get_by_label("Name").fill(f"all of {name}")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(page.get_by_role("button", name=f"all of {name}", exact=True)).to_be_visible()
    page.get_by_role("button", name=f"Delete the query all of {name}").click()
    expect(page.get_by_role("button", name=f"all of {name}", exact=True)).to_have_count(0)
