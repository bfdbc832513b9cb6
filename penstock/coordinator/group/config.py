"""The settings of the group coordinator, and how consumer groups override some of them (resource type GROUP)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["MIGRATION_POLICIES", "ConsumerGroupConfig", "GroupConfig"]

MIGRATION_POLICIES = ("disabled", "upgrade", "downgrade", "bidirectional")


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Broker-level settings, in Kafka's names without their dots."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    new_member_join_timeout_ms: int = 300_000
    max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 10_080 * 60_000
    offsets_retention_check_interval_ms: int = 600_000
    consumer_session_timeout_ms: int = 45_000
    consumer_min_session_timeout_ms: int = 45_000
    consumer_max_session_timeout_ms: int = 60_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_min_heartbeat_interval_ms: int = 5_000
    consumer_max_heartbeat_interval_ms: int = 15_000
    consumer_max_size: int = 2**31 - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    consumer_migration_policy: str = "bidirectional"
    consumer_regex_refresh_interval_ms: int = 600_000
    consumer_assignment_interval_ms: int = 0
    protocols: tuple[str, ...] = ("classic", "consumer")

    @classmethod
    def from_settings(cls, settings: Any) -> GroupConfig:
        """Read the broker's settings table."""

        def value(name: str, default: Any) -> Any:
            try:
                found = settings[name]
            except KeyError:
                return default
            return default if found is None else found

        return cls(
            min_session_timeout_ms=int(value("group.min.session.timeout.ms", 6_000)),
            max_session_timeout_ms=int(value("group.max.session.timeout.ms", 1_800_000)),
            initial_rebalance_delay_ms=int(value("group.initial.rebalance.delay.ms", 3_000)),
            max_size=int(value("group.max.size", 2**31 - 1)),
            offset_metadata_max_bytes=int(value("offset.metadata.max.bytes", 4_096)),
            offsets_retention_ms=int(value("offsets.retention.minutes", 10_080)) * 60_000,
            offsets_retention_check_interval_ms=int(value("offsets.retention.check.interval.ms", 600_000)),
            consumer_session_timeout_ms=int(value("group.consumer.session.timeout.ms", 45_000)),
            consumer_min_session_timeout_ms=int(value("group.consumer.min.session.timeout.ms", 45_000)),
            consumer_max_session_timeout_ms=int(value("group.consumer.max.session.timeout.ms", 60_000)),
            consumer_heartbeat_interval_ms=int(value("group.consumer.heartbeat.interval.ms", 5_000)),
            consumer_min_heartbeat_interval_ms=int(value("group.consumer.min.heartbeat.interval.ms", 5_000)),
            consumer_max_heartbeat_interval_ms=int(value("group.consumer.max.heartbeat.interval.ms", 15_000)),
            consumer_max_size=int(value("group.consumer.max.size", 2**31 - 1)),
            consumer_assignors=_assignor_names(value("group.consumer.assignors", "uniform,range")),
            consumer_migration_policy=str(value("group.consumer.migration.policy", "bidirectional")).lower(),
            consumer_regex_refresh_interval_ms=int(value("group.consumer.regex.refresh.interval.ms", 600_000)),
            consumer_assignment_interval_ms=_if_explicit(settings, "group.consumer.assignment.interval.ms"),
        )

    def for_group(self, overrides: Mapping[str, str] | None) -> ConsumerGroupConfig:
        """The settings of one consumer group; what is out of the broker's bounds is brought back into them."""
        own = overrides or {}
        session_ms = int(own.get("consumer.session.timeout.ms", self.consumer_session_timeout_ms))
        interval_ms = int(own.get("consumer.heartbeat.interval.ms", self.consumer_heartbeat_interval_ms))
        return ConsumerGroupConfig(
            _clamp(session_ms, self.consumer_min_session_timeout_ms, self.consumer_max_session_timeout_ms),
            _clamp(interval_ms, self.consumer_min_heartbeat_interval_ms, self.consumer_max_heartbeat_interval_ms),
            int(own.get("consumer.assignment.interval.ms", self.consumer_assignment_interval_ms)),
        )


@dataclass(frozen=True, slots=True)
class ConsumerGroupConfig:
    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


def _if_explicit(settings: Any, name: str) -> int:
    """Kafka waits 1 s between two assignments of a group; here they are cheap, and a member that has to wait for the
    next one loses a whole heartbeat interval: we wait only when told to."""
    explicit = getattr(settings, "explicit", None)
    return int(settings[name]) if explicit is not None and explicit(name) else 0


def _clamp(value: int, low: int, high: int) -> int:
    return max(low, min(high, value))


def _assignor_names(value: Any) -> tuple[str, ...]:
    """Names of built-in assignors; Kafka also accepts their Java class names."""
    names = value.split(",") if isinstance(value, str) else list(value)
    known = {
        "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
        "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
    }
    return tuple(known.get(name.strip(), name.strip()) for name in names if name.strip())
