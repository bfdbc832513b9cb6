"""A topic's settings: `LogConfig`, how broker settings give its defaults, and the check of what a user wants to set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from penstock.base.settings.model import Problem, SettingsError
from penstock.base.settings.table import TOPIC_SETTINGS

__all__ = ["LogConfig", "build_log_config", "topic_problems"]

FOREVER = 9223372036854775807


class LogConfig(NamedTuple):
    """All topic-level settings, typed; the names are Kafka's with underscores. `_replace(…)` makes a changed copy."""

    cleanup_compact: bool = False
    cleanup_delete: bool = True
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    delete_retention_ms: int = 86_400_000
    file_delete_delay_ms: int = 60_000
    flush_messages: int = FOREVER
    flush_ms: int = FOREVER
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    index_interval_bytes: int = 4096
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    local_retention_bytes: int = -2
    local_retention_ms: int = -2
    max_compaction_lag_ms: int = FOREVER
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = FOREVER
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False
    remote_storage_enable: bool = False
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    segment_bytes: int = 1_073_741_824
    segment_index_bytes: int = 10_485_760
    segment_jitter_ms: int = 0
    segment_ms: int = 604_800_000
    unclean_leader_election_enable: bool = False

    @property
    def log_append_time(self) -> bool:
        """Whether records carry the time of their append instead of their producer's."""
        return self.message_timestamp_type == "LogAppendTime"


_FIELDS = {name: name.replace(".", "_") for name in TOPIC_SETTINGS if name.replace(".", "_") in LogConfig._fields}


def broker_default(values: Mapping[str, Any], is_set: Callable[[str], bool], topic_name: str) -> Any:
    """What a topic gets that does not say: the first synonym that somebody set, else the main one's default."""
    setting = TOPIC_SETTINGS[topic_name]
    for synonym, factor in setting.synonyms:
        if is_set(synonym):
            value = values[synonym]
            return value if factor == 1 else -1 if value < 0 else value * factor
    for synonym, factor in setting.synonyms:
        value = values.get(synonym)
        if value is not None:
            return value if factor == 1 else value * factor
    return setting.default


def build_log_config(
    values: Mapping[str, Any], is_set: Callable[[str], bool], overrides: Mapping[str, str]
) -> LogConfig:
    """Raises `SettingsError` for overrides that cannot be used; names that topics do not have are not looked at."""
    fields: dict[str, Any] = {}
    for name, field in _FIELDS.items():
        if name in overrides:
            fields[field] = TOPIC_SETTINGS[name].parse(overrides[name])
        else:
            fields[field] = broker_default(values, is_set, name)
    policy = overrides.get("cleanup.policy")
    policies = broker_default(values, is_set, "cleanup.policy") if policy is None else _policies(policy)
    return LogConfig(cleanup_compact="compact" in policies, cleanup_delete="delete" in policies, **fields)


def _policies(text: str) -> tuple[str, ...]:
    return tuple(TOPIC_SETTINGS["cleanup.policy"].parse(text))


def topic_problems(overrides: Mapping[str, str | None]) -> list[Problem]:
    """Everything that is wrong with the settings that a user wants for a topic (INVALID_CONFIG)."""
    problems = []
    typed: dict[str, Any] = {}
    for name, text in overrides.items():
        setting = TOPIC_SETTINGS.get(name)
        if setting is None:
            problems.append(Problem(name, text, f"Unknown topic config name: {name}"))
        elif text is None:
            problems.append(Problem(name, text, f"Null value not supported for topic configs: {name}"))
        elif len(text) > 32767:
            problems.append(Problem(name, text, f"The value of {name} is longer than 32767 characters"))
        else:
            try:
                typed[name] = setting.parse(text)
            except SettingsError as error:
                problems += error.problems
    low, high = typed.get("min.compaction.lag.ms", 0), typed.get("max.compaction.lag.ms", FOREVER)
    if low > high:
        message = f"conflict topic config setting min.compaction.lag.ms ({low}) > max.compaction.lag.ms ({high})"
        problems.append(Problem("min.compaction.lag.ms", low, message))
    return problems
