"""Pipelines in the browser: seen at work in their graph, dead letters redriven, the spec changed by two at once."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import yaml
from axe_playwright_python.sync_playwright import Axe
from confluent_kafka import Producer
from console_world import Console, commit_from_the_beginning
from playwright.sync_api import expect

from penstock.client.sync import SyncClient
from penstock.console.data import pipeline_graph
from penstock.pipelines.control import events

expect.set_options(timeout=60_000)
SERIOUS = ("serious", "critical")


def _spec(name: str) -> str:
    return f"""\
name: {name}
sources:
  orders: {{topic: {name}.orders, format: {{type: json, schema: "id STRING, amount DOUBLE"}}}}
  payments: {{topic: {name}.payments, format: {{type: json, schema: "id STRING, paid DOUBLE"}}}}
views:
  clean: SELECT id, amount AS payments FROM orders WHERE amount > 0
  joined: SELECT clean.id, paid FROM clean JOIN payments ON clean.id = payments.id
sinks:
  out: {{from: joined, topic: {name}.out, key: id}}
"""


def _set_up(console: Console, name: str) -> None:
    """Applied, and a driver that says that it works."""
    with console.client() as friend:
        for topic in ("orders", "payments", "out"):
            friend.post(f"{console.local}/topics", json={"name": f"{name}.{topic}", "partitions": 1})
        answer = friend.post(f"{console.local}/pipelines", json={"text": _spec(name), "expected": 0})
        assert answer.status_code == 201, answer.text
    with SyncClient(console.broker.bootstrap) as client:
        events.ensure(client)
    writer = events.PlainWriter({"bootstrap.servers": console.broker.bootstrap})
    writer.write(name, events.STATE, state="running")
    watermark = datetime.now(UTC).isoformat()
    writer.write(
        name, events.PROGRESS, query="out", batch=7, rows=40, rows_per_second=21.5, lag=1234, batch_ms=380,
        state_rows=5, state_bytes=4096, watermark=watermark, topics={f"{name}.orders": 17.5, f"{name}.payments": 4.0},
    )  # fmt: skip
    writer.close()


REASON = "no JSON: <b onclick='window.hit=1'>: Expecting property name enclosed in double quotes: line 1 column 15"


def _dead_letter(console: Console, name: str) -> None:
    told = {"reason": REASON, "pipeline": name, "source": "orders"}
    told |= {"topic": f"{name}.orders", "partition": "0", "offset": "3"}
    producer = Producer({"bootstrap.servers": console.broker.bootstrap})
    headers = [(f"penstock.dlq.{key}", value.encode()) for key, value in told.items()]
    producer.produce(f"{name}.dlq", b"{broken", b"k", headers=headers)
    assert producer.flush(30) == 0


def test_a_pipeline_is_seen_at_work_and_its_letters_go_back(page: Any, console: Console, name: str) -> None:
    _set_up(console, name)
    _dead_letter(console, name)
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Pipelines").click()
    page.get_by_label("Search pipelines").fill(name)
    row = page.locator("tbody tr").first
    expect(row).to_contain_text("running")
    expect(row).to_contain_text("1,234 records")
    page.get_by_role("link", name=name).click()

    expect(page.locator("h1")).to_have_text(name)
    graph = page.get_by_role("group", name="Graph")
    expect(graph.locator(".pk-node.pk-ok")).to_have_count(5)
    expect(graph.get_by_text("18 rows/s")).to_be_visible()
    _labels_stand_free(page)
    expect(graph.locator("path.pk-flows")).to_have_count(4)
    expect(graph.get_by_role("link").filter(has_text=f"{name}.out")).to_be_visible()
    _nobody_is_left_out(page)

    page.get_by_role("tab", name="Dead letters").click()
    expect(page.get_by_text(f"1 letter in {name}.dlq")).to_be_visible()
    row = page.locator(".pk-letters tbody tr").first
    expect(row).to_contain_text(REASON)
    assert row.bounding_box()["height"] < 120, "a reason is read across, not down"
    expect(page.locator(".pk-tile").filter(has_text="Dead letters")).to_contain_text("1")
    row.click()
    letter = page.get_by_role("dialog")
    expect(letter).to_contain_text(f"{name}.orders-0 at 3")
    letter.get_by_role("button", name="Close").click()
    expect(letter).to_have_count(0)
    page.get_by_role("button", name="Redrive").click()
    expect(page.get_by_role("dialog")).to_contain_text(f"1 record will be written back to {name}.orders")
    page.get_by_role("dialog").get_by_role("button", name="Redrive").click()
    expect(page.get_by_text("1 record redriven")).to_be_visible()
    with console.client() as friend:
        [back] = friend.get(f"{console.local}/topics/{name}.orders/messages").json()
        assert back["value"]["text"] == "{broken" and back["headers"] == []
    assert page.evaluate("window.hit") is None


def test_a_pipeline_is_as_far_behind_as_its_group(page: Any, console: Console, name: str) -> None:
    """Spark counts what it has planned to read; of a pipeline that keeps up that is 0 between all batches."""
    _set_up(console, name)
    producer = Producer({"bootstrap.servers": console.broker.bootstrap})
    for number in range(4321):
        producer.produce(f"{name}.orders", str(number))
    assert producer.flush(30) == 0
    commit_from_the_beginning(console, f"penstock.{name}", f"{name}.orders")
    page.goto(f"{console.address}/c/local/group?name=penstock.{name}")
    lag = page.locator(".pk-tile").filter(has_text="Lag")
    expect(lag).to_contain_text("4,321")
    page.goto(f"{console.address}/c/local/pipelines/{name}")
    expect(lag).to_contain_text("4,321")
    expect(page.locator(".pk-tile").filter(has_text="Reads")).to_contain_text("in 1 query")


def test_a_spec_is_checked_as_it_is_typed_and_the_second_editor_is_told(page: Any, console: Console, name: str) -> None:
    _set_up(console, name)
    page.goto(f"{console.address}/c/local/pipelines/{name}?tab=spec")
    editor = page.get_by_label("Pipeline in YAML")
    expect(editor).not_to_have_value("")
    typed = editor.input_value()
    assert yaml.safe_load(typed)["name"] == name
    editor.fill(typed.replace("from: joined", "from: joinde"))
    expect(page.get_by_role("status").filter(has_text="did you mean 'joined'?")).to_be_visible()
    editor.fill(typed.replace("amount > 0", "amount > 1"))
    expect(page.get_by_role("status").filter(has_text=f"{name} is a pipeline")).to_be_visible()

    with console.client() as friend:
        other = {"text": _spec(name).replace("amount > 0", "amount > 2"), "expected": 1}
        assert friend.post(f"{console.local}/pipelines", json=other).json()["generation"] == 2
    page.get_by_role("button", name="Apply").click()
    told = page.get_by_role("status").filter(has_text="was changed by")
    expect(told).to_contain_text("(console)")
    expect(told).to_contain_text("generation 2")

    page.get_by_role("button", name="Manage").click()
    page.get_by_text("Delete…").click()
    page.get_by_role("dialog").get_by_role("textbox").fill(name)
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.locator("h1")).to_have_text("Pipelines")
    with console.client() as friend:
        assert friend.get(f"{console.local}/pipelines/{name}").status_code == 404


def test_rest_stops_restarts_and_resets_a_pipeline(console: Console, name: str) -> None:
    _set_up(console, name)
    with console.client() as friend:
        here = f"{console.local}/pipelines/{name}"
        assert friend.post(f"{here}/state", json={"desired": "stopped"}).json()["desired"] == "stopped"
        assert friend.post(f"{here}/state", json={"desired": "running"}).json()["generation"] == 3
        assert friend.post(f"{here}/reset", json={}).json()["generation"] == 4
        assert friend.get(here).json()["changed_by"].endswith("(console)")
        file = _spec(name).replace("type: json,", "type: protobuf, descriptor_file: /etc/hostname, message: M,")
        refused = friend.post(f"{console.local}/pipelines", json={"text": file, "expected": 4})
        assert refused.status_code == 400
        secret = _spec(name) + "settings: {kafka: {sasl.password: hunter2-hunter2}}\n"
        assert friend.post(f"{console.local}/pipelines", json={"text": secret, "expected": 4}).status_code == 400
        assert friend.delete(here).status_code == 204


def test_the_graph_is_drawn_from_the_spec() -> None:
    made = pipeline_graph.graph("p", yaml.safe_load(_spec("p")))
    edges = [(edge["from"], edge["to"]) for edge in made["edges"]]
    # `payments` is also a column of clean: a name is a table only after FROM and JOIN
    assert edges == [("orders", "clean"), ("clean", "joined"), ("payments", "joined"), ("joined", "sink out")]
    columns = pipeline_graph.layers(made)
    assert columns[0] == [("orders", ""), ("payments", "")]
    assert columns[1] == [("clean", ""), ("payments", "joined")]  # the edge from payments passes under clean
    assert columns[2:] == [[("joined", "")], [("sink out", "")]]


def test_a_branch_and_a_function_have_their_edges() -> None:
    spec = {
        "sources": {"a": {"options": {"topic": "a"}}, "b": {"connector": "generator"}},
        "views": {
            "split": {"operator": "branch", "from": ["a"], "options": {"cases": {"good": "x > 0"}}},
            "f": {"python": "code:both"},
            "c": {"sql": "SELECT * FROM a x, b WHERE x.id = b.id -- FROM nothing"},
        },
        "sinks": {"one": {"from": "good"}, "two": {"from": "f"}, "lost": {"from": "nowhere"}},
        "modules": {"code": "def both(good, b):\n    return good"},
    }
    edges = {(edge["from"], edge["to"]) for edge in pipeline_graph.graph("p", spec)["edges"]}
    assert edges == {
        ("a", "split"), ("split", "f"), ("b", "f"), ("a", "c"), ("b", "c"), ("split", "sink one"), ("f", "sink two"),
    }  # fmt: skip


def _labels_stand_free(page: Any) -> None:
    """What flows along an arrow is written between the boxes, on a desk and on a phone."""
    wide = page.viewport_size
    for width in (wide["width"], 390):
        page.set_viewport_size({"width": width, "height": wide["height"]})
        page.reload()
        expect(page.locator(".pk-flow-rate").filter(has_text="18")).to_be_visible()
        labels = [box for one in page.locator(".pk-flow-rate").all() if (box := one.bounding_box())]
        boxes = [one.bounding_box() for one in page.locator(".pk-node").all()]
        others = [(label, other) for label in labels for other in [*boxes, *labels] if other is not label]
        assert [pair for pair in others if _touch(*pair)] == []
        field = page.locator(".pk-flow").evaluate("flow => [flow.scrollWidth, flow.clientWidth]")
        assert field[0] <= field[1], "a graph of a few steps needs no scrolling"
    page.set_viewport_size(wide)
    page.reload()
    expect(page.locator(".pk-flow-rate").filter(has_text="18")).to_be_visible()


def _touch(one: dict[str, float], other: dict[str, float]) -> bool:
    return all(
        one[start] <= other[start] + other[size] and other[start] <= one[start] + one[size]
        for start, size in (("x", "width"), ("y", "height"))
    )


def _nobody_is_left_out(page: Any) -> None:
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        expect(page.locator(f"body.body--{scheme}")).to_be_visible()
        # Colours that are still on their way from one theme to the other would be measured.
        page.wait_for_function("document.getAnimations().every((moving) => !(moving instanceof CSSTransition))")
        found = [v for v in Axe().run(page).response["violations"] if v["impact"] in SERIOUS]
        assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
        assert found == [], json.dumps([(v["id"], [n["html"][:160] for n in v["nodes"][:3]]) for v in found], indent=1)
