"""Pipelines as connectors: names, configs, states and tasks in Connect's words.

A connector's config holds `connector.class` (penstock.Pipeline) and `pipeline`, the spec in YAML; each query is a task.
"""

from __future__ import annotations

import importlib.metadata
from typing import Any, Literal

import yaml

from penstock.console.data import pipelines
from penstock.console.data.pipeline_graph import graph
from penstock.console.data.viewer import Viewer
from penstock.operate.errors import ExitCode, UserError

CLASS = "penstock.Pipeline"
CLASS_NAMES = (CLASS, CLASS.rpartition(".")[2])
KNOWN_KEYS = ("connector.class", "name", "pipeline", "tasks.max")
STATES = {"running": "RUNNING", "stopped": "PAUSED", "stopping": "PAUSED", "failed": "FAILED", "lost": "FAILED"}
WORKER = "penstock"


class ConnectError(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


def names(viewer: Viewer) -> list[str]:
    return pipelines.names(viewer)


def version() -> str:
    return importlib.metadata.version("penstock")


def found(viewer: Viewer, name: str, otherwise: str | None = None) -> dict[str, Any]:
    """Connect has other words for what is not there at nearly every route."""
    if name not in names(viewer):
        raise ConnectError(404, otherwise or f"Connector {name} not found")
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
        {
            "id": {"connector": one["name"], "task": number},
            "config": {"connector.class": CLASS, "name": one["name"], "query": task["query"]},
        }
        for number, task in enumerate(_tasks(one))
    ]


def status(one: dict[str, Any], state: str | None = None) -> dict[str, Any]:
    """`state`: what has just been asked of it."""
    shown: dict[str, Any] = {
        "state": state or STATES.get(one["state"], "UNASSIGNED"),
        "worker_id": WORKER,
        "version": version(),
    }
    if one["error"]:
        shown["trace"] = one["error"]
    tasks = [{"id": number, **shown} for number in range(len(_tasks(one)))]
    return {"name": one["name"], "connector": shown, "tasks": tasks, "type": kind(one)}


def restart(viewer: Viewer, one: dict[str, Any], *, only_failed: bool) -> bool:
    """Whether it is started anew: what is paused stays so."""
    if one["desired"] != "running" or (only_failed and STATES.get(one["state"]) != "FAILED"):
        return False
    pipelines.change(viewer, one["name"], "running")
    return True


def topics(one: dict[str, Any]) -> list[str]:
    named = [node["topic"] for node in graph(one["name"], one["spec"])["nodes"] if node["topic"]]
    return sorted(set(named))


def insist_on_class(given: dict[str, str]) -> None:
    own_class = given.get("connector.class")
    if not own_class:
        shown = ", ".join(f"{key}={value}" for key, value in given.items())
        raise ConnectError(400, f"Connector config {{{shown}}} contains no connector type")
    if own_class not in CLASS_NAMES:
        told = "Failed to find any class that implements Connector and which name matches"
        raise ConnectError(400, f"{told} {own_class}, available connectors are: PluginDesc{{class '{CLASS}'}}")


def _invalid(error: str) -> ConnectError:
    return ConnectError(
        400,
        f"Connector configuration is invalid and contains the following 1 error(s):\n{error}\n"
        "You can also find the above list of errors at the endpoint"
        " `/connector-plugins/{connectorType}/config/validate`",
    )


def _spec_text(name: str, given: dict[str, str]) -> str:
    """The spec of a config, with the connector's name in it; ValueError tells what is wrong with it."""
    unknown = sorted(set(given) - set(KNOWN_KEYS))
    if unknown:
        raise ValueError(f"{unknown[0]} means nothing to a pipeline; known are {', '.join(KNOWN_KEYS)}")
    try:
        data = yaml.safe_load(given.get("pipeline") or "")
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"pipeline: this is no YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(data, dict):
        raise ValueError("pipeline is missing: the spec in YAML, with sources and sinks")
    if data.setdefault("name", name) != name:
        raise ValueError(f"pipeline: its name is {data['name']}, the connector's is {name}")
    return pipelines.as_yaml({"name": name, **data})


def put(
    viewer: Viewer,
    name: str,
    given: dict[str, str],
    *,
    new: bool,
    desired: Literal["running", "stopped"] | None = None,
) -> tuple[dict[str, Any], bool]:
    """(the connector, whether it was not there before); `new` insists on that."""
    if given.get("name", name) != name:
        told = f"Connector name configuration ({given['name']}) doesn't match connector name in the URL ({name})"
        raise ConnectError(400, told)
    insist_on_class({**given, "name": name})
    if not name.strip():
        raise _invalid("Invalid value  for configuration name: String may not be empty")
    known = pipelines.pipeline(viewer, name) if name in names(viewer) else None
    if known is not None and new:
        raise ConnectError(409, f"Connector {name} already exists")
    # A new config of what is paused leaves it so.
    desired = desired or (known["desired"] if known is not None else "running")
    try:
        pipelines.apply(viewer, _spec_text(name, given), known["generation"] if known is not None else 0, desired)
    except ValueError as error:
        raise _invalid(str(error)) from None
    except UserError as error:
        if error.code != ExitCode.USAGE:
            raise
        raise _invalid(error.message) from None
    return info(pipelines.pipeline(viewer, name)), known is None


def validate(viewer: Viewer, given: dict[str, str]) -> dict[str, Any]:
    """Each key with what is wrong with it, as Connect answers; a wrong config is no error of the request."""
    errors: dict[str, list[str]] = {key: [] for key in _DOCUMENTS}
    if "name" not in given:
        errors["name"].append('Missing required configuration "name" which has no default value.')
    elif not given["name"].strip():
        errors["name"].append("Invalid value  for configuration name: String may not be empty")
    try:
        pipelines.check(viewer, _spec_text(given.get("name", "").strip() or "unnamed", given))
    except ValueError as error:
        errors["pipeline"].append(str(error))
    except UserError as error:
        if error.code != ExitCode.USAGE:
            raise
        errors["pipeline"].append(error.message)
    configs = [
        {
            "definition": definition,
            "value": {
                "name": key,
                "value": given.get(key),
                "recommended_values": [],
                "errors": errors[key],
                "visible": True,
            },
        }
        for key, definition in zip(errors, definitions(), strict=True)
    ]
    count = sum(bool(found_errors) for found_errors in errors.values())
    return {"name": CLASS, "error_count": count, "groups": ["Common"], "configs": configs}


_DOCUMENTS = {
    "name": "Globally unique name to use for this connector.",
    "connector.class": "The kind of connector: a pipeline.",
    "pipeline": "The pipeline in YAML: sources, views, sinks.",
}


def definitions() -> list[dict[str, Any]]:
    return [
        {
            "name": key,
            "type": "STRING",
            "required": True,
            "default_value": None,
            "importance": "HIGH",
            "documentation": document,
            "group": "Common",
            "order_in_group": number,
            "width": "LONG",
            "display_name": key,
            "dependents": [],
        }
        for number, (key, document) in enumerate(_DOCUMENTS.items(), 1)
    ]
