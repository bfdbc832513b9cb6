"""Settings as DescribeConfigs shows them, and the check of dynamic changes to brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from penstock.base.settings.log_config import broker_default
from penstock.base.settings.model import PASSWORD, Effect, Problem, Scope, Setting, SettingsError, Source
from penstock.base.settings.per_listener import LISTENER_PREFIX, setting_behind
from penstock.base.settings.settings import Settings
from penstock.base.settings.table import BROKER_SETTINGS, TOPIC_SETTINGS

__all__ = ["ConfigRow", "Synonym", "broker_problems", "describe_broker", "describe_topic"]

# Broker settings that say the same thing in other units: what is set first in a row wins.
_BROKER_SYNONYMS = {
    "log.roll.ms": ("log.roll.hours",),
    "log.roll.jitter.ms": ("log.roll.jitter.hours",),
    "log.retention.ms": ("log.retention.minutes", "log.retention.hours"),
    "log.flush.interval.ms": ("log.flush.scheduler.interval.ms",),
}
_PER_LISTENER_ONLY = frozenset(
    name
    for name in BROKER_SETTINGS
    if name.startswith(("ssl.keystore.", "ssl.truststore.")) or name == "ssl.key.password"
)


class Synonym(NamedTuple):
    name: str
    value: str | None
    source: Source


class ConfigRow(NamedTuple):
    """One line of a DescribeConfigs answer; sensitive values are never shown."""

    name: str
    value: str | None
    source: Source
    read_only: bool
    is_sensitive: bool
    synonyms: list[Synonym]
    type_code: int
    doc: str


def describe_broker(settings: Settings, names: Iterable[str] | None = None) -> list[ConfigRow]:
    """All settings of this broker that mean something here, or those asked for."""
    wanted = None if names is None else set(names)
    rows = []
    for name, setting in BROKER_SETTINGS.items():
        if setting.effect == Effect.NOT_APPLICABLE or (wanted is not None and name not in wanted):
            continue
        synonyms = _broker_synonyms(settings, name, setting.sensitive)
        source = synonyms[0].source if synonyms else Source.DEFAULT_CONFIG
        value = None if setting.sensitive else setting.render(settings[name])
        rows.append(_row(setting, value, source, setting.scope == Scope.READ_ONLY, synonyms))
    return rows


def describe_default_broker(given: Mapping[str, str], names: Iterable[str] | None = None) -> list[ConfigRow]:
    """The dynamic settings of the whole cluster (the broker resource without a name): only what was set."""
    wanted = None if names is None else set(names)
    rows = []
    for name, text in given.items():
        if wanted is not None and name not in wanted:
            continue
        # What nobody knows may be a secret.
        setting = BROKER_SETTINGS.get(name) or Setting(name, PASSWORD, None, None, Scope.CLUSTER_WIDE, "")
        value = None if setting.sensitive else text
        synonyms = [Synonym(name, value, Source.DYNAMIC_DEFAULT_BROKER)]
        rows.append(_row(setting, value, Source.DYNAMIC_DEFAULT_BROKER, False, synonyms))
    return rows


def describe_topic(
    settings: Settings, overrides: Mapping[str, str], names: Iterable[str] | None = None
) -> list[ConfigRow]:
    """All settings of a topic, or those asked for."""
    wanted = None if names is None else set(names)
    rows = []
    for name, setting in TOPIC_SETTINGS.items():
        if setting.effect == Effect.NOT_APPLICABLE or (wanted is not None and name not in wanted):
            continue
        main = setting.synonyms[0][0] if setting.synonyms else None
        synonyms = _broker_synonyms(settings, main, setting.sensitive) if main else []
        if name in overrides:
            value: str | None = overrides[name]
            synonyms.insert(0, Synonym(name, value, Source.DYNAMIC_TOPIC))
        else:
            value = setting.render(broker_default(settings._values, settings._is_set, name))
        source = synonyms[0].source if synonyms else Source.DEFAULT_CONFIG
        rows.append(_row(setting, value, source, False, synonyms))
    return rows


def _row(setting: Setting, value: str | None, source: Source, read_only: bool, synonyms: list[Synonym]) -> ConfigRow:
    return ConfigRow(setting.name, value, source, read_only, setting.sensitive, synonyms, setting.type, setting.doc)


def _broker_synonyms(settings: Settings, name: str, sensitive: bool) -> list[Synonym]:
    """Every place that gives the value, the one in effect first."""
    found = []
    layers = settings.layers()
    for synonym in (name, *_BROKER_SYNONYMS.get(name, ())):
        for source, given in layers:
            if synonym in given:
                found.append(Synonym(synonym, None if sensitive else given[synonym], source))
    default = settings.default(name)
    if default is not None:
        shown = None if sensitive else BROKER_SETTINGS[name].render(default)
        found.append(Synonym(name, shown, Source.DEFAULT_CONFIG))
    return found


def broker_problems(changes: Mapping[str, str | None], whole_cluster: bool) -> list[Problem]:
    """Everything that is wrong with dynamic changes to one broker or to all (INVALID_REQUEST); None deletes.

    Names that nobody knows are taken, as Kafka takes them: they may belong to a plug-in.
    """
    problems: list[Problem] = []
    known = {name: BROKER_SETTINGS[name] for name in changes if name in BROKER_SETTINGS}
    fixed = [name for name, setting in known.items() if setting.scope == Scope.READ_ONLY]
    listener_only = [name for name in known if name in _PER_LISTENER_ONLY]
    own_only = [name for name, s in known.items() if s.scope == Scope.PER_BROKER and name not in _PER_LISTENER_ONLY]
    own_only += [name for name in changes if name.startswith(LISTENER_PREFIX)]
    if fixed:
        problems.append(_several(fixed, changes, "Cannot update these configs dynamically"))
    if listener_only:
        what = "These security configs can be dynamically updated only per-listener using the listener prefix"
        problems.append(_several(listener_only, changes, what))
    if whole_cluster and own_only:
        what = "Cannot update these configs at default cluster level, broker id must be specified"
        problems.append(_several(own_only, changes, what))
    for name, text in changes.items():
        setting = known.get(name) or setting_behind(name)
        if setting is None or text is None:
            continue
        try:
            setting.parse(text)
        except SettingsError as error:
            problems += error.problems
    return problems


def _several(names: list[str], changes: Mapping[str, Any], what: str) -> Problem:
    return Problem(names[0], changes[names[0]], f"{what}: [{', '.join(names)}]")
