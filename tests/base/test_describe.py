"""What DescribeConfigs shows: where a value comes from, what else would give it, and never a password."""

from __future__ import annotations

from penstock.base.settings import Settings, Source
from penstock.base.settings.describe import (
    ConfigRow,
    Synonym,
    broker_problems,
    describe_broker,
    describe_default_broker,
    describe_topic,
)


def _row(rows: list[ConfigRow], name: str) -> ConfigRow:
    (row,) = [row for row in rows if row.name == name]
    return row


def test_a_default_is_shown_as_such() -> None:
    row = _row(describe_broker(Settings.load()), "log.segment.bytes")
    assert (row.value, row.source, row.read_only, row.type_code) == ("1073741824", Source.DEFAULT_CONFIG, False, 3)
    assert row.synonyms == [Synonym("log.segment.bytes", "1073741824", Source.DEFAULT_CONFIG)]


def test_every_layer_that_gives_a_value_is_listed_strongest_first() -> None:
    settings = Settings.load(None, {"message.max.bytes": "1000"})
    settings.apply_dynamic({"message.max.bytes": "2000"}, {"message.max.bytes": "3000"})
    row = _row(describe_broker(settings), "message.max.bytes")
    assert (row.value, row.source) == ("3000", Source.DYNAMIC_BROKER)
    assert [(s.value, s.source) for s in row.synonyms] == [
        ("3000", Source.DYNAMIC_BROKER),
        ("2000", Source.DYNAMIC_DEFAULT_BROKER),
        ("1000", Source.STATIC_BROKER_CONFIG),
        ("1048588", Source.DEFAULT_CONFIG),
    ]


def test_a_topic_shows_its_own_value_and_the_brokers_behind_it() -> None:
    settings = Settings.load(None, {"log.retention.hours": "1"})
    own = _row(describe_topic(settings, {"retention.ms": "5"}), "retention.ms")
    assert (own.value, own.source) == ("5", Source.DYNAMIC_TOPIC)
    assert own.synonyms == [
        Synonym("retention.ms", "5", Source.DYNAMIC_TOPIC),
        Synonym("log.retention.hours", "1", Source.STATIC_BROKER_CONFIG),
    ]
    inherited = _row(describe_topic(settings, {}), "retention.ms")
    assert (inherited.value, inherited.source) == ("3600000", Source.STATIC_BROKER_CONFIG)


def test_a_topic_has_kafkas_thirty_three_settings() -> None:
    assert len(describe_topic(Settings.load(), {})) == 33


def test_passwords_are_never_shown() -> None:
    settings = Settings.load(None, {"ssl.key.password": "geheim", "sasl.jaas.config": "geheim"})
    rows = describe_broker(settings)
    assert _row(rows, "ssl.key.password").is_sensitive
    assert "geheim" not in repr(rows)
    assert "geheim" not in repr(describe_default_broker({"ssl.key.password": "geheim"}))


def test_only_what_was_asked_for_is_shown() -> None:
    names = ["num.partitions", "no.such"]
    assert [row.name for row in describe_broker(Settings.load(), names)] == ["num.partitions"]
    assert [row.name for row in describe_topic(Settings.load(), {}, ["preallocate"])] == ["preallocate"]
    assert [row.name for row in describe_default_broker({"max.connections": "1"})] == ["max.connections"]


def test_what_may_not_change_while_running_is_refused_with_kafkas_words() -> None:
    def messages(changes: dict[str, str | None], whole_cluster: bool) -> list[str]:
        return [problem.message for problem in broker_problems(changes, whole_cluster)]

    assert messages({"num.partitions": "3"}, False) == ["Cannot update these configs dynamically: [num.partitions]"]
    assert messages({"ssl.client.auth": "required"}, True) == [
        "Cannot update these configs at default cluster level, broker id must be specified: [ssl.client.auth]"
    ]
    assert messages({"ssl.client.auth": "required"}, False) == []
    assert messages({"listeners": "PLAINTEXT://:1"}, False) == ["Cannot update these configs dynamically: [listeners]"]
    assert "no effect" in messages({"ssl.provider": "BC"}, False)[0]
    assert "only per-listener" in messages({"ssl.keystore.location": "x"}, False)[0]
    assert messages({"max.connections": "-3"}, True) == [
        "Invalid value -3 for configuration max.connections: Value must be at least 0"
    ]
    assert messages({"made.up": "1", "max.connections": None}, True) == []
