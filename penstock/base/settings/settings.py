"""`Settings`: the values of one broker, from its file, from the command line and from dynamic changes.

settings = Settings.load(path, {"log.dirs": "data"})
settings["log.segment.bytes"]      # 1073741824, typed, what is in effect now
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from penstock.base.settings.listeners import Listener, inter_broker_name, parse_listeners, protocol_map
from penstock.base.settings.log_config import LogConfig, build_log_config
from penstock.base.settings.model import Problem, Scope, Setting, SettingsError, Source
from penstock.base.settings.per_listener import LISTENER_PREFIX, listener_problems
from penstock.base.settings.properties import parse_properties
from penstock.base.settings.relations import broken_relations
from penstock.base.settings.table import BROKER_SETTINGS, EMBEDDED_DEFAULTS

__all__ = ["Settings", "given_texts"]

LOG_CONFIGS_KEPT = 1000


class Settings:
    """Reading is a dictionary lookup; `apply_dynamic` is the only thing that changes values after loading."""

    def __init__(self, static: Mapping[str, str]) -> None:
        self.static = dict(static)  # texts as given
        self.warnings: list[str] = []
        self._dynamic: dict[str, str] = {}
        self._dynamic_default: dict[str, str] = {}
        self.embedded = not self.static.get("zookeeper.connect", "").strip()
        self._values: dict[str, Any] = {}
        self._log_configs: dict[frozenset[tuple[str, str]], LogConfig] = {}
        problems = self._evaluate()
        if problems:
            raise SettingsError(problems)

    @classmethod
    def load(cls, path: str | os.PathLike[str] | None = None, overrides: Mapping[str, str] | None = None) -> Settings:
        """From a properties file and overrides; raises `SettingsError` with every problem that was found."""
        return cls.from_texts(given_texts(path, overrides))

    @classmethod
    def from_texts(cls, given: Mapping[str, str]) -> Settings:
        """As `load`, of texts that were read before; names that the table does not know are told."""
        settings = cls(given)
        settings.warnings = [
            _unknown(name) for name in given if name not in BROKER_SETTINGS and not _is_free_form(name)
        ]
        for warning in settings.warnings:
            _warn(warning)
        return settings

    # --- values ---

    def __getitem__(self, name: str) -> Any:
        """The typed value in effect; a name that the table does not know is a mistake of the caller."""
        return self._values[name]

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def explicit(self, name: str) -> bool:
        """Whether somebody has set it, in the file, on the command line or dynamically."""
        return name in self.static or name in self._dynamic or name in self._dynamic_default

    def default(self, name: str) -> Any:
        """The default in this mode (the embedded store has a few of its own)."""
        if self.embedded and name in EMBEDDED_DEFAULTS:
            return EMBEDDED_DEFAULTS[name]
        return BROKER_SETTINGS[name].default

    def layers(self) -> tuple[tuple[Source, Mapping[str, str]], ...]:
        """What was given, strongest first."""
        return (
            (Source.DYNAMIC_BROKER, self._dynamic),
            (Source.DYNAMIC_DEFAULT_BROKER, self._dynamic_default),
            (Source.STATIC_BROKER_CONFIG, self.static),
        )

    def listener_value(self, listener: str, name: str) -> Any:
        """A setting as one listener sees it: `listener.name.<listener>.<name>` wins over the plain name."""
        prefixed = f"{LISTENER_PREFIX}{listener.lower()}.{name}"
        for _, given in self.layers():
            if prefixed in given:
                setting = BROKER_SETTINGS.get(name)
                return setting.parse(given[prefixed]) if setting else given[prefixed]
        return self._values.get(name)

    def explicit_for_listener(self, listener: str, name: str) -> bool:
        """Whether `listener.name.<listener>.<name>` itself is given."""
        prefixed = f"{LISTENER_PREFIX}{listener.lower()}.{name}"
        return any(prefixed in given for _, given in self.layers())

    def mechanism_value(self, listener: str, mechanism: str, name: str) -> Any:
        """A setting as one mechanism of a listener sees it: `listener.name.<listener>.<mechanism>.<name>` wins."""
        prefixed = f"{mechanism.lower()}.{name}"
        if self.explicit_for_listener(listener, prefixed):
            text = self.listener_value(listener, prefixed)
            return BROKER_SETTINGS[name].parse(text)
        return self.listener_value(listener, name)

    def log_config(self, topic_overrides: Mapping[str, str] | None = None) -> LogConfig:
        """A topic's settings: its own where it has any, this broker's else."""
        overrides = topic_overrides or {}
        key = frozenset(overrides.items())  # thousands of partitions have the same few
        config = self._log_configs.get(key)
        if config is None:
            config = build_log_config(self._values, self._is_set, overrides)
            if len(self._log_configs) >= LOG_CONFIGS_KEPT:
                self._log_configs.clear()
            self._log_configs[key] = config
        return config

    def _is_set(self, name: str) -> bool:
        return self._values.get(name) is not None and self.explicit(name)

    # --- what several settings say together ---

    @property
    def node_id(self) -> int:
        """This broker's id, -1 when one is to be chosen."""
        return int(self._values["node.id"] if self.explicit("node.id") else self._values["broker.id"])

    @property
    def log_dirs(self) -> tuple[str, ...]:
        return tuple(self._values["log.dirs"] or self._values["log.dir"])

    @property
    def listeners(self) -> list[Listener]:
        return parse_listeners(self._values["listeners"], self._protocols())

    @property
    def advertised_listeners(self) -> list[Listener] | None:
        """None: nobody said, so a client is told the address that it came by."""
        entries = self._values["advertised.listeners"]
        return parse_listeners(entries, self._protocols(), distinct_ports=False) if entries else None

    @property
    def inter_broker_listener(self) -> str:
        """The name of the listener that brokers use among themselves."""
        name = self._values["inter.broker.listener.name"]
        if name:
            return str(name).upper()
        return inter_broker_name(self.listeners, self._values["security.inter.broker.protocol"])

    @property
    def control_plane_listener(self) -> str | None:
        """The name of the listener for the controller's messages, where it has one of its own."""
        name = self._values["control.plane.listener.name"]
        return str(name).upper() if name else None

    def candidate(self, cluster_default: Mapping[str, str] | None, own: Mapping[str, str] | None) -> Settings:
        """These settings as they would be with other dynamic ones."""
        other = Settings(self.static)
        other.apply_dynamic(
            self._dynamic_default if cluster_default is None else cluster_default,
            self._dynamic if own is None else own,
        )
        return other

    def _protocols(self) -> dict[str, str]:
        return protocol_map(self._values["listener.security.protocol.map"])

    # --- dynamic changes ---

    def apply_dynamic(self, cluster_default: Mapping[str, str], own: Mapping[str, str]) -> set[str]:
        """Take the dynamic settings as they are now (all of them) and return the names whose value changed.

        A value that cannot be used is left out with a warning: another release may have written it.
        """
        before = dict(self._values)
        self._dynamic_default = self._usable(cluster_default, (Scope.CLUSTER_WIDE,))
        self._dynamic = self._usable(own, (Scope.CLUSTER_WIDE, Scope.PER_BROKER))
        self._log_configs.clear()
        for problem in self._evaluate():  # then everything stays as it was
            _warn(f"dynamic settings contradict each other and are not used: {problem}")
        return {name for name, value in self._values.items() if before.get(name) != value}

    def _usable(self, given: Mapping[str, str], scopes: tuple[Scope, ...]) -> dict[str, str]:
        usable = {}
        for name, text in given.items():
            setting = BROKER_SETTINGS.get(name)
            if setting is None:
                usable[name] = text
                continue
            try:
                setting.parse(text)
            except SettingsError as error:
                _warn(f"a dynamic setting is left out: {error}")
                continue
            if setting.scope in scopes:
                usable[name] = text
        return usable

    def _evaluate(self) -> list[Problem]:
        problems: list[Problem] = []
        values: dict[str, Any] = {}
        layers = [given for _, given in self.layers()]
        for name, setting in BROKER_SETTINGS.items():
            text = next((given[name] for given in layers if name in given), None)
            try:
                values[name] = self.default(name) if text is None else _parse_given(setting, text)
            except SettingsError as error:
                problems += error.problems
        if not problems:
            problems = broken_relations(values, set().union(*layers))
        if not problems:
            listeners = parse_listeners(values["listeners"], protocol_map(values["listener.security.protocol.map"]))
            problems = listener_problems(self.static, listeners)
        if not problems:
            self._values = values
        return problems


def given_texts(
    path: str | os.PathLike[str] | None = None, overrides: Mapping[str, str] | None = None
) -> dict[str, str]:
    """What a properties file and overrides say, as texts, unchecked."""
    given: dict[str, str] = {}
    if path is not None:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib would cost a third of the import time
            given.update(parse_properties(_decoded(file.read())))
    given.update(overrides or {})
    return given


def _decoded(data: bytes) -> str:
    """People write UTF-8 today; what is not is in the encoding that Java gives properties files."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _warn(message: str) -> None:
    import logging  # kept out of the import time, which every command pays

    logging.getLogger("penstock.settings").warning(message)


def _parse_given(setting: Setting, text: str) -> Any:
    # An empty text means "not set" where there is no default that it could stand for.
    if setting.default is None and not text.strip():
        return None
    return setting.parse(text)


def _is_free_form(name: str) -> bool:
    """Names that are made of other names: per listener, and parameters for providers."""
    return name.startswith((LISTENER_PREFIX, "config.providers."))


def _unknown(name: str) -> str:
    import difflib  # only who has mistyped a name pays for it

    near = difflib.get_close_matches(name, BROKER_SETTINGS, n=1, cutoff=0.75)
    return f"unknown setting {name}" + (f"; did you mean {near[0]}?" if near else "; it has no effect")
