"""Pipelines as connectors: names, configs, states and tasks in Connect's words.

A connector's config holds `connector.class` (penstock.Pipeline) and `pipeline`, the spec in YAML; each query is a task.
"""

from __future__ import annotations

from typing import Any

import yaml

from penstock.console.data import pipelines
from penstock.console.data.pipeline_graph import graph
from penstock.console.data.viewer import Viewer
from penstock.operate.errors import UserError

CLASS = "penstock.Pipeline"
KNOWN_KEYS = ("connector.class", "name", "pipeline", "tasks.max")
STATES = {"running": "RUNNING", "stopped": "PAUSED", "stopping": "PAUSED", "failed": "FAILED", "lost": "FAILED"}
WORKER = "penstock"


class ConnectError(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


def names(viewer: Viewer) -> list[str]:
    return pipelines.names(viewer)


def found(viewer: Viewer, name: str) -> dict[str, Any]:
    if name not in names(viewer):
        raise ConnectError(404, f"Connector {name} not found")
    return pipelines.pipeline(viewer, name)


def config(one: dict[str, Any]) -> dict[str, str]:
    return {"connector.class": CLASS, "name": one["name"], "pipeline": one["text"]}


def kind(one: dict[str, Any]) -> str:
    """Connect knows two: what ends outside of topics is a sink."""
    outside = [
        node for node in graph(one["name"], one["spec"])["nodes"] if node["kind"] == "sink" and not node["topic"]
    ]
    return "sink" if outside else "source"


def _tasks(one: dict[str, Any]) -> list[dict[str, Any]]:
    """One for each query; a pipeline that has not run yet has none."""
    return [query for query in one["queries"] if "query" in query]


def info(one: dict[str, Any]) -> dict[str, Any]:
    tasks = [{"connector": one["name"], "task": number} for number in range(len(_tasks(one)))]
    return {"name": one["name"], "config": config(one), "tasks": tasks, "type": kind(one)}


def task_configs(one: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"id": {"connector": one["name"], "task": number}, "config": {"query": task["query"]}}
        for number, task in enumerate(_tasks(one))
    ]


def status(one: dict[str, Any]) -> dict[str, Any]:
    state = STATES.get(one["state"], "UNASSIGNED")
    shown: dict[str, Any] = {"state": state, "worker_id": WORKER}
    if one["error"]:
        shown["trace"] = one["error"]
    tasks = [{"id": number, **shown} for number in range(len(_tasks(one)))]
    return {"name": one["name"], "connector": shown, "tasks": tasks, "type": kind(one)}


def topics(one: dict[str, Any]) -> list[str]:
    named = [node["topic"] for node in graph(one["name"], one["spec"])["nodes"] if node["topic"]]
    return sorted(set(named))


def spec_text(name: str, given: dict[str, str]) -> str:
    """The spec of a config, with the connector's name in it."""
    own_class = given.get("connector.class")
    if not own_class:
        raise ConnectError(400, f"Connector config {{name={name}}} contains no connector type")
    if own_class != CLASS:
        told = "Failed to find any class that implements Connector and which name matches"
        raise ConnectError(400, f"{told} {own_class}, available connectors are: PluginDesc{{class '{CLASS}'}}")
    if given.get("name", name) != name:
        told = f"Connector name configuration ({given['name']}) doesn't match connector name in the URL ({name})"
        raise ConnectError(400, told)
    unknown = sorted(set(given) - set(KNOWN_KEYS))
    if unknown:
        raise ConnectError(400, f"{unknown[0]} means nothing to a pipeline; known are {', '.join(KNOWN_KEYS)}")
    try:
        data = yaml.safe_load(given.get("pipeline") or "")
    except yaml.YAMLError as error:
        raise ConnectError(400, f"pipeline: this is no YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(data, dict):
        raise ConnectError(400, "pipeline is missing: the spec in YAML, with sources and sinks")
    if data.setdefault("name", name) != name:
        raise ConnectError(400, f"pipeline: its name is {data['name']}, the connector's is {name}")
    return pipelines.as_yaml({"name": name, **data})


def put(viewer: Viewer, name: str, given: dict[str, str], *, new: bool) -> tuple[dict[str, Any], bool]:
    """(the connector, whether it was not there before); `new` insists on that."""
    exists = name in names(viewer)
    if exists and new:
        raise ConnectError(409, f"Connector {name} already exists")
    text = spec_text(name, given)
    expected = pipelines.pipeline(viewer, name)["generation"] if exists else 0
    pipelines.apply(viewer, text, expected)
    return info(pipelines.pipeline(viewer, name)), not exists


def validate(viewer: Viewer, given: dict[str, str]) -> dict[str, Any]:
    """Each key with what is wrong with it, as Connect answers; a wrong config is no error of the request."""
    errors: dict[str, list[str]] = {key: [] for key in ("connector.class", "name", "pipeline")}
    if not given.get("name"):
        errors["name"].append('Missing required configuration "name" which has no default value.')
    try:
        pipelines.check(viewer, spec_text(given.get("name") or "unnamed", given))
    except ConnectError as error:
        errors["pipeline"].append(error.message)
    except UserError as error:
        errors["pipeline"].append(error.message)
    documents = {
        "connector.class": "The kind of connector: a pipeline.",
        "name": "Globally unique name to use for this connector.",
        "pipeline": "The pipeline in YAML: sources, views, sinks.",
    }
    configs = [
        {
            "definition": _definition(key, number, documents[key]),
            "value": {
                "name": key,
                "value": given.get(key),
                "recommended_values": [CLASS] if key == "connector.class" else [],
                "errors": found_errors,
                "visible": True,
            },
        }
        for number, (key, found_errors) in enumerate(errors.items(), 1)
    ]
    count = sum(bool(found_errors) for found_errors in errors.values())
    return {"name": CLASS, "error_count": count, "groups": ["Common"], "configs": configs}


def _definition(key: str, order: int, document: str) -> dict[str, Any]:
    return {
        "name": key,
        "type": "STRING",
        "required": True,
        "default_value": None,
        "importance": "HIGH",
        "documentation": document,
        "group": "Common",
        "width": "LONG",
        "display_name": key,
        "dependents": [],
        "order": order,
    }
