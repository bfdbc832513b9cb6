"""The resources that have configs, as requests name them: a type number and a name. Shared by the config APIs."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING

from penstock.base.settings import BROKER_SETTINGS, Setting, SettingsError, Source
from penstock.base.settings.describe import ConfigRow, Synonym
from penstock.broker.api.access import allowed
from penstock.cluster.topic_names import name_problem
from penstock.cluster.znodes import sanitize
from penstock.protocol.errors import ErrorCode
from penstock.security.acl_model import CLUSTER_NAME

if TYPE_CHECKING:
    from penstock.broker.api.spec import RequestContext
    from penstock.broker.broker import Broker
    from penstock.cluster.image import ConfigKey

GROUP_CONFIG_SOURCE = 8
BROKER_LOGGER_SOURCE = 6
STRING_TYPE = 2
LEVELS = {"FATAL": 50, "ERROR": 40, "WARN": 30, "INFO": 20, "DEBUG": 10, "TRACE": 5}
ROOT_LOGGER = "root"
_BROKER_ID = re.compile(r"-?[0-9]{1,10}")


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


_AUTHORIZATION_FAILED = {
    "TOPIC": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    "GROUP": ErrorCode.GROUP_AUTHORIZATION_FAILED,
    "CLUSTER": ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}


def access_problem(
    broker: Broker, ctx: RequestContext, operation: str, kind: int, resource_name: str
) -> ErrorCode | None:
    """The error for a sender who may not; topics and groups have their own rights, all else is the cluster's."""
    guarded, name = "CLUSTER", CLUSTER_NAME
    if kind in (ResourceType.TOPIC, ResourceType.GROUP):
        guarded, name = ResourceType(kind).name, resource_name
    if allowed(broker, ctx, operation, guarded, name):
        return None
    return _AUTHORIZATION_FAILED[guarded]


class BadResource(Exception):
    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def config_key(broker: Broker, kind: ResourceType, name: str) -> ConfigKey:
    """Under which key the image and the store keep this resource's overrides, if there is such a topic. Raises
    BadResource."""
    if kind is ResourceType.TOPIC:
        problem = name_problem(name)
        if problem is not None:
            raise BadResource(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        return "topic", name
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        if name == "" and kind is ResourceType.BROKER:
            return "broker", ""
        if _BROKER_ID.fullmatch(name) is None:
            shown = name if len(name) <= 40 else f"{name[:40]}…"
            raise BadResource(ErrorCode.INVALID_REQUEST, f"A broker's name is its id, a number, not '{shown}'.")
        if int(name) != broker.node_id:
            raise BadResource(ErrorCode.INVALID_REQUEST, f"Ask broker {name} itself: this is broker {broker.node_id}.")
        return "broker", name
    if kind is ResourceType.GROUP:
        if not name:
            raise BadResource(ErrorCode.INVALID_REQUEST, "There are no defaults for all groups: name a group.")
        return "group", sanitize(name)  # it becomes part of a path
    raise BadResource(ErrorCode.INVALID_REQUEST, "Client metrics have no configs here.")


def group_settings() -> dict[str, Setting]:
    """What can be set for one group: the broker's `group.<name>` settings that have a meaning per group."""
    names = (
        "session.timeout.ms",
        "heartbeat.interval.ms",
        "assignment.interval.ms",
        "record.lock.duration.ms",
        "delivery.count.limit",
        "partition.max.record.locks",
        "num.standby.replicas",
        "initial.rebalance.delay.ms",
    )
    found = {}
    for family in ("consumer", "share", "streams"):
        for name in names:
            setting = BROKER_SETTINGS.get(f"group.{family}.{name}")
            if setting is not None:
                found[f"{family}.{name}"] = setting
    return found


def describe_group(broker: Broker, overrides: Mapping[str, str], names: Iterable[str] | None) -> list[ConfigRow]:
    wanted = None if names is None else set(names)
    rows = []
    for name, setting in group_settings().items():
        if wanted is not None and name not in wanted:
            continue
        default = setting.render(broker.settings[setting.name])
        explicit = broker.settings.explicit(setting.name)
        source = Source.STATIC_BROKER_CONFIG if explicit else Source.DEFAULT_CONFIG
        synonyms = [Synonym(setting.name, default, source)]
        value = overrides.get(name, default)
        if name in overrides:
            synonyms.insert(0, Synonym(name, value, GROUP_CONFIG_SOURCE))  # type: ignore[arg-type]
        shown = synonyms[0].source
        rows.append(ConfigRow(name, value, shown, False, False, synonyms, setting.type, setting.doc))
    return rows


def group_problem(overrides: Mapping[str, str]) -> str | None:
    known = group_settings()
    for name, value in overrides.items():
        if name not in known:
            return f"Unknown group config name: {name}"
        try:
            known[name].parse(value)
        except SettingsError as error:
            return error.problems[0].message.replace(known[name].name, name)
    return None


def loggers() -> dict[str, logging.Logger]:
    """The loggers of this process that are ours, `root` for all of them together."""
    found = {ROOT_LOGGER: logging.getLogger("penstock")}
    for name in sorted(logging.Logger.manager.loggerDict):
        if name.startswith("penstock."):
            found[name] = logging.getLogger(name)
    return found


def describe_loggers(names: Iterable[str] | None) -> list[ConfigRow]:
    wanted = None if names is None else set(names)
    rows = []
    for name, logger in loggers().items():
        if wanted is not None and name not in wanted:
            continue
        effective = logger.getEffectiveLevel()
        level = next(text for text, number in LEVELS.items() if effective >= number or number == 5)
        rows.append(
            ConfigRow(name, level, BROKER_LOGGER_SOURCE, False, False, [], STRING_TYPE, "")  # type: ignore[arg-type]
        )
    return rows
