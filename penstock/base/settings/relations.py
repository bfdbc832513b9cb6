"""Rules between settings: each names the settings that contradict each other and what would be right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.base.settings.listeners import Listener, inter_broker_name, parse_listeners, protocol_map
from penstock.base.settings.model import Problem

__all__ = ["broken_relations"]


def broken_relations(values: Mapping[str, Any], given: set[str]) -> list[Problem]:
    """What is wrong although each value by itself is right."""
    return [
        *_not_above(values, "group.min.session.timeout.ms", "group.max.session.timeout.ms"),
        *_not_above(values, "replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
        *_not_above(values, "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
        *_not_above(values, "group.consumer.min.session.timeout.ms", "group.consumer.max.session.timeout.ms"),
        *_not_above(values, "group.consumer.min.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"),
        *_ids(values, given),
        *_listeners(values, given),
    ]


def _not_above(values: Mapping[str, Any], low: str, high: str) -> list[Problem]:
    if values[low] <= values[high]:
        return []
    message = f"Invalid value {values[low]} for configuration {low}: it must not be above {high} ({values[high]})"
    return [Problem(low, values[low], message)]


def _ids(values: Mapping[str, Any], given: set[str]) -> list[Problem]:
    problems = []
    node_id, broker_id = values["node.id"], values["broker.id"]
    if {"node.id", "broker.id"} <= given and node_id != broker_id:
        message = f"Invalid value {broker_id} for configuration broker.id: node.id says {node_id}; give one of them"
        problems.append(Problem("broker.id", broker_id, message))
    highest = values["reserved.broker.max.id"]
    for name, value in (("broker.id", broker_id), ("node.id", node_id)):
        if name in given and value > highest and values["zookeeper.connect"] and values["broker.id.generation.enable"]:
            message = (
                f"Invalid value {value} for configuration {name}: it must not be above reserved.broker.max.id"
                f" ({highest}), because higher ids are given out (broker.id.generation.enable)"
            )
            problems.append(Problem(name, value, message))
    return problems


def _listeners(values: Mapping[str, Any], given: set[str]) -> list[Problem]:
    problems: list[Problem] = []

    def attempt(name: str, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except ValueError as error:
            shown = values[name] if isinstance(values[name], str) else ",".join(values[name])
            problems.append(Problem(name, shown, f"Invalid value {shown} for configuration {name}: {error}"))
            return None

    mapping_name = "listener.security.protocol.map"
    protocols = attempt(mapping_name, lambda: protocol_map(values[mapping_name]))
    if protocols is None:
        return problems
    listeners = attempt("listeners", lambda: parse_listeners(values["listeners"], protocols))
    advertised_texts = values["advertised.listeners"] or ()
    advertised = attempt("advertised.listeners", lambda: parse_listeners(advertised_texts, protocols, False))
    if listeners is None or advertised is None:
        return problems
    names = {listener.name for listener in listeners}
    if not names:
        problems.append(Problem("listeners", "", "Invalid value  for configuration listeners: name at least one"))
    for listener in advertised:
        if listener.name not in names:
            message = f"{listener.name} is not among listeners ({', '.join(sorted(names))})"
            text = ",".join(advertised_texts)
            problems.append(
                Problem(
                    "advertised.listeners",
                    text,
                    f"Invalid value {text} for configuration advertised.listeners: {message}",
                )
            )
    inter_broker = values["inter.broker.listener.name"]
    if inter_broker and inter_broker.upper() not in names:
        message = (
            f"Invalid value {inter_broker} for configuration inter.broker.listener.name:"
            f" it must be one of the listeners ({', '.join(sorted(names))})"
        )
        problems.append(Problem("inter.broker.listener.name", inter_broker, message))
    return problems + _inter_broker(values, given, listeners) + _control_plane(values, listeners)


def _inter_broker(values: Mapping[str, Any], given: set[str], listeners: list[Listener]) -> list[Problem]:
    name, protocol = values["inter.broker.listener.name"], values["security.inter.broker.protocol"]
    if name and "security.inter.broker.protocol" in given:
        message = (
            f"Invalid value {protocol} for configuration security.inter.broker.protocol:"
            " inter.broker.listener.name says the same; give one of them"
        )
        return [Problem("security.inter.broker.protocol", protocol, message)]
    if name or not listeners or inter_broker_name(listeners, protocol) in {listener.name for listener in listeners}:
        return []
    message = (
        f"Invalid value {protocol} for configuration security.inter.broker.protocol: no listener speaks it; set"
        f" inter.broker.listener.name to one of {', '.join(listener.name for listener in listeners)}"
    )
    return [Problem("security.inter.broker.protocol", protocol, message)]


def _control_plane(values: Mapping[str, Any], listeners: list[Listener]) -> list[Problem]:
    control = values["control.plane.listener.name"]
    if not control:
        return []
    names = {listener.name for listener in listeners}
    inter_broker = values["inter.broker.listener.name"] or inter_broker_name(
        listeners, values["security.inter.broker.protocol"]
    )
    if control.upper() in names and control.upper() != inter_broker.upper():
        return []
    message = (
        f"Invalid value {control} for configuration control.plane.listener.name: it must be one of the listeners"
        f" ({', '.join(sorted(names))}), and not the one that brokers use for everything else"
    )
    return [Problem("control.plane.listener.name", control, message)]
