"""Kafka Connect's REST over pipelines: what a script for Connect does, it does here."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from console_world import TOKEN

CLASS = "penstock.Pipeline"
SPEC = """\
sources:
  s: {topic: connect.in, format: {type: json, schema: n INT}}
sinks:
  out: {from: s, topic: connect.out}
"""


@pytest.fixture
def script(connect: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=connect, auth=("anybody", TOKEN), timeout=120) as made:
        yield made


def test_a_connector_from_its_creation_to_its_end(script: httpx.Client, name: str) -> None:
    config = {"connector.class": CLASS, "pipeline": SPEC}
    made = script.post("/connectors", json={"name": name, "config": config})
    assert made.status_code == 201, made.text
    assert made.json()["name"] == name and made.json()["tasks"] == [] and made.json()["type"] == "source"
    again = script.post("/connectors", json={"name": name, "config": config})
    assert (again.status_code, again.json()) == (
        409,
        {"error_code": 409, "message": f"Connector {name} already exists"},
    )

    assert name in script.get("/connectors").json()
    assert script.get("/connectors", params={"expand": "status"}).json()[name]["status"]["name"] == name
    assert script.get(f"/connectors/{name}/config").json()["connector.class"] == CLASS
    assert script.get(f"/connectors/{name}/topics").json() == {name: {"topics": ["connect.in", "connect.out"]}}
    assert script.get(f"/connectors/{name}/tasks").json() == []

    assert script.put(f"/connectors/{name}/pause").status_code == 202
    assert script.get(f"/connectors/{name}/status").json()["connector"]["state"] == "PAUSED"
    assert script.put(f"/connectors/{name}/resume").status_code == 202
    assert script.get(f"/connectors/{name}/status").json()["connector"]["state"] == "UNASSIGNED"  # no runner is up
    assert script.post(f"/connectors/{name}/restart").status_code == 204
    changed = {"connector.class": CLASS, "name": name, "pipeline": SPEC.replace("connect.out", "connect.other")}
    assert script.put(f"/connectors/{name}/config", json=changed).status_code == 200

    assert script.delete(f"/connectors/{name}").status_code == 204
    gone = script.get(f"/connectors/{name}")
    assert (gone.status_code, gone.json()) == (404, {"error_code": 404, "message": f"Connector {name} not found"})


def test_a_foreign_class_is_refused_in_connects_form(script: httpx.Client, name: str) -> None:
    foreign = "org.apache.kafka.connect.file.FileStreamSinkConnector"
    answer = script.post("/connectors", json={"name": name, "config": {"connector.class": foreign, "topics": "t"}})
    assert answer.status_code == 400
    assert set(answer.json()) == {"error_code", "message"} and foreign in answer.json()["message"]
    wrong = script.post(
        "/connectors", json={"name": name, "config": {"connector.class": CLASS, "pipeline": "sinks: {}"}}
    )
    assert wrong.status_code == 400 and "sources" in wrong.json()["message"]
    assert script.get(f"/connectors/{name}").status_code == 404


def test_plugins_and_validate(script: httpx.Client) -> None:
    assert [plugin["class"] for plugin in script.get("/connector-plugins").json()] == [CLASS]
    config = {"connector.class": CLASS, "name": "x", "pipeline": SPEC}
    right = script.put(f"/connector-plugins/{CLASS}/config/validate", json=config).json()
    assert right["error_count"] == 0 and {one["value"]["name"] for one in right["configs"]} >= {"name", "pipeline"}
    wrong = script.put(
        f"/connector-plugins/{CLASS}/config/validate", json={**config, "pipeline": SPEC.replace("from: s", "from: t")}
    ).json()
    assert wrong["error_count"] == 1
    assert script.put("/connector-plugins/Other/config/validate", json={}).status_code == 400


def test_nobody_gets_in_without_the_token(connect: str) -> None:
    answer = httpx.get(f"{connect}/connectors", timeout=60)
    assert answer.status_code == 401 and answer.json()["error_code"] == 401
    assert httpx.get(f"{connect}/connectors", auth=("a", "wrong"), timeout=60).status_code == 401
    bearer = {"authorization": f"Bearer {TOKEN}"}
    assert httpx.get(f"{connect}/connectors", headers=bearer, timeout=60).status_code == 200
    foreign = {**bearer, "origin": "http://elsewhere.example"}
    assert httpx.get(f"{connect}/connectors", headers=foreign, timeout=60).status_code == 403
