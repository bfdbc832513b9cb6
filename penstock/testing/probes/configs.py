"""Probes of the configuration APIs."""

from __future__ import annotations

import time
from typing import Any

from penstock.protocol import messages
from penstock.testing.probes.harness import Session, probe

TOPIC, BROKER, GROUP = 2, 4, 32


def describe(session: Session, kind: int, name: str, keys: list[str] | None = None, version: int = 4) -> Any:
    api = messages.api("describe_configs")
    wanted = api.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    request = api.Request(resources=[wanted], include_synonyms=True, include_documentation=False)
    return session.call("describe_configs", version, request).results[0]


def overridden(session: Session, topic: str) -> list[tuple[str, str]]:
    """The topic's own configs, once they stand still: Kafka applies a change a moment after it answered."""
    seen: list[list[tuple[str, str]]] = []
    while len(seen) < 5 or any(one != seen[-1] for one in seen[-5:]):
        result = describe(session, TOPIC, topic)
        seen.append(sorted((c.name, c.value) for c in result.configs if c.config_source == 1))
        time.sleep(0.03)
    return seen[-1]


def shown(result: Any) -> Any:
    rows = [
        (
            c.name,
            c.value,
            c.read_only,
            c.config_source,
            c.is_sensitive,
            c.config_type,
            [(s.name, s.source) for s in c.synonyms],
        )
        for c in sorted(result.configs, key=lambda c: c.name)
    ]
    return result.error_code, rows


for _version in range(1, 5):

    @probe(f"describe configs v{_version}: one key of a topic")
    def _describe(session: Session, version: int = _version) -> Any:
        topic = session.topic(retention_ms="12345")
        return shown(describe(session, TOPIC, topic, ["retention.ms", "segment.bytes", "no.such.key"], version))


@probe("describe configs: all keys of a topic have names, values and types")
def _all(session: Session) -> Any:
    result = describe(session, TOPIC, session.topic())
    skip = {"remote.log.delete.on.disable", "remote.copy.disable", "remote.storage.enable", "local.retention.ms",
            "local.retention.bytes", "remote.log.copy.disable", "errors.deadletterqueue.group.enable"}  # fmt: skip
    return sorted((c.name, c.value, c.config_type) for c in result.configs if c.name not in skip)


@probe("describe configs: an unknown topic")
def _unknown(session: Session) -> Any:
    return describe(session, TOPIC, "never-created").error_code


@probe("describe configs: an invalid resource type")
def _type(session: Session) -> Any:
    return describe(session, 99, "x").error_code


@probe("describe configs: a broker that is not this one")
def _broker(session: Session) -> Any:
    return describe(session, BROKER, "4711").error_code, describe(session, BROKER, "abc").error_code


SET, DELETE, APPEND, SUBTRACT = range(4)
CHANGES: dict[str, list[tuple[str, int, str | None]]] = {
    "set": [("retention.ms", SET, "777")],
    "set then see": [("retention.ms", SET, "1"), ("segment.bytes", SET, "1048576")],
    "delete what is set": [("max.message.bytes", DELETE, None)],
    "delete what is not set": [("flush.ms", DELETE, None)],
    "append to a list": [("cleanup.policy", APPEND, "compact")],
    "subtract from a list": [("cleanup.policy", SUBTRACT, "delete")],
    "append to a number": [("retention.ms", APPEND, "5")],
    "an unknown key": [("no.such.key", SET, "1")],
    "a bad value": [("retention.ms", SET, "soon")],
    "null": [("retention.ms", SET, None)],
    "one key twice": [("retention.ms", SET, "1"), ("retention.ms", SET, "2")],
    "an unknown operation": [("retention.ms", 9, "1")],
    "min above max lag": [("min.compaction.lag.ms", SET, "100"), ("max.compaction.lag.ms", SET, "10")],
}
for _label, _changes in CHANGES.items():

    @probe(f"incremental alter configs: {_label}")
    def _alter(session: Session, changes: list[tuple[str, int, str | None]] = _changes) -> Any:
        topic = session.topic(max_message_bytes="5000")
        api = messages.api("incremental_alter_configs")
        rows = [
            api.AlterableConfig(name=name, config_operation=operation, value=value)
            for name, operation, value in changes
        ]
        resource = api.AlterConfigsResource(resource_type=TOPIC, resource_name=topic, configs=rows)
        answer = session.call("incremental_alter_configs", 1, api.Request(resources=[resource]))
        return [r.error_code for r in answer.responses], overridden(session, topic)


@probe("incremental alter configs: an unknown topic")
def _alter_unknown(session: Session) -> Any:
    api = messages.api("incremental_alter_configs")
    row = api.AlterableConfig(name="retention.ms", config_operation=SET, value="1")
    resource = api.AlterConfigsResource(resource_type=TOPIC, resource_name="never-created", configs=[row])
    return [
        r.error_code for r in session.call("incremental_alter_configs", 1, api.Request(resources=[resource])).responses
    ]


@probe("alter configs replaces all")
def _legacy(session: Session) -> Any:
    topic = session.topic(max_message_bytes="5000")
    api = messages.api("alter_configs")
    row = api.request_struct("AlterableConfig")(name="retention.ms", value="42")
    resource = api.request_struct("AlterConfigsResource")(resource_type=TOPIC, resource_name=topic, configs=[row])
    answer = session.call("alter_configs", 2, api.Request(resources=[resource]))
    return [r.error_code for r in answer.responses], overridden(session, topic)
