"""Settings: Kafka's file format and names, all mistakes at once, the precedence of synonyms, dynamic changes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.settings import BROKER_SETTINGS, TOPIC_SETTINGS, Effect, Settings, SettingsError, topic_problems
from penstock.base.settings.properties import parse_properties

CLUSTER = {"zookeeper.connect": "127.0.0.1:2181"}


def test_a_broker_without_a_file_has_kafkas_defaults() -> None:
    settings = Settings.load(None, CLUSTER)
    assert settings["log.segment.bytes"] == 1_073_741_824
    assert settings["offsets.topic.replication.factor"] == 3
    assert settings["transaction.two.phase.commit.enable"] is False
    assert settings["zookeeper.session.timeout.ms"] == 18_000
    assert settings["group.consumer.assignors"] == ("uniform", "range")
    assert not settings.explicit("log.segment.bytes")


def test_one_node_with_the_embedded_store_asks_for_no_second_replica() -> None:
    settings = Settings.load()
    assert settings["offsets.topic.replication.factor"] == 1
    assert settings["transaction.state.log.replication.factor"] == 1
    assert settings["transaction.state.log.min.isr"] == 1
    assert settings["transaction.two.phase.commit.enable"] is True
    assert Settings.load(None, {"offsets.topic.replication.factor": "2"})["offsets.topic.replication.factor"] == 2


def test_every_default_passes_its_own_check() -> None:
    for setting in (*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values()):
        if setting.default is not None:
            assert setting.parse(setting.render(setting.default)) == setting.default, setting.name


def test_every_setting_explains_itself_in_one_sentence() -> None:
    for setting in (*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values()):
        assert setting.doc.endswith(".") and len(setting.doc) < 120, setting.name


def test_a_file_in_kafkas_format_is_read(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "# a comment\n! another\n\n"
        "broker.id=7\n"
        "  num.partitions : 3\n"
        "log.retention.hours 48\n"
        "listeners=PLAINTEXT://127.0.0.1:0,\\\n    INTERNAL://127.0.0.1:0\n"
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT\n"
        "broker.rack=k\\u00f6ln\\ 1\n"
        "log.dirs=/data/a , /data/b\n",
        encoding="utf-8",
    )
    settings = Settings.load(file, {"num.partitions": "5"})
    assert settings.node_id == 7
    assert settings["num.partitions"] == 5  # the command line wins
    assert settings.log_config().retention_ms == 48 * 3_600_000
    assert [(listener.name, listener.port) for listener in settings.listeners] == [("PLAINTEXT", 0), ("INTERNAL", 0)]
    assert settings["broker.rack"] == "köln 1"
    assert settings.log_dirs == ("/data/a", "/data/b")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b=c", {"a": "b=c"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a\\ b : c ", {"a b": "c "}),
        ("a", {"a": ""}),
        ("a=1\na=2", {"a": "2"}),
        ("a=x\\\\\nb=y", {"a": "x\\", "b": "y"}),
        ("a=x\\\n   # not a comment", {"a": "x# not a comment"}),
        ("a=\\t\\n\\q", {"a": "\t\nq"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=end\\", {"a": "end"}),
    ],
)
def test_the_corners_of_the_format(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


@given(st.text())
def test_no_text_breaks_the_parser(text: str) -> None:
    parse_properties(text)


def test_all_mistakes_are_reported_together_with_name_value_and_what_is_allowed() -> None:
    wrong = {
        "num.partitions": "0",
        "log.retention.ms": "soon",
        "compression.type": "brotli",
        "log.preallocate": "maybe",
    }
    with pytest.raises(SettingsError) as raised:
        Settings.load(None, wrong)
    assert {problem.name for problem in raised.value.problems} == set(wrong)
    text = str(raised.value)
    assert "Invalid value 0 for configuration num.partitions: Value must be at least 1" in text
    assert "Invalid value soon for configuration log.retention.ms: Not a number of type LONG" in text
    assert "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer" in text
    assert "Expected value to be either true or false" in text


def test_a_file_in_javas_own_encoding_is_read_too(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_bytes("broker.rack=köln".encode("latin-1"))
    assert Settings.load(file)["broker.rack"] == "köln"


def test_dynamic_settings_that_contradict_each_other_change_nothing(caplog: pytest.LogCaptureFixture) -> None:
    settings = Settings.load()
    changed = settings.apply_dynamic(
        {"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "5"}, {}
    )
    assert changed == set()
    assert "contradict" in caplog.text


def test_a_wrong_password_is_not_shown() -> None:
    setting = BROKER_SETTINGS["ssl.key.password"]
    with pytest.raises(SettingsError) as raised:
        setting.refuse("secret", "for the test")
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"listeners": "FOO://x:1"}, "listeners"),
        ({"listeners": "127.0.0.1:9092"}, "listeners"),
        ({"listeners": "PLAINTEXT://a:1,PLAINTEXT://b:2"}, "listeners"),
        ({"listeners": "PLAINTEXT://a:1,SSL://b:1"}, "listeners"),
        ({"advertised.listeners": "SSL://a:1"}, "advertised.listeners"),
        ({"inter.broker.listener.name": "INSIDE"}, "inter.broker.listener.name"),
        ({"listener.security.protocol.map": "A:WHAT"}, "listener.security.protocol.map"),
        ({"log.retention.ms": "0"}, "log.retention.ms"),
        ({"group.min.session.timeout.ms": "10", "group.max.session.timeout.ms": "5"}, "group.min.session.timeout.ms"),
        ({"replica.fetch.wait.max.ms": "60000"}, "replica.fetch.wait.max.ms"),
        ({"broker.id": "1", "node.id": "2"}, "broker.id"),
        ({"broker.id": "5000", "zookeeper.connect": "zk:2181"}, "broker.id"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(wrong: dict[str, str], name: str) -> None:
    with pytest.raises(SettingsError) as raised:
        Settings.load(None, wrong)
    assert [problem.name for problem in raised.value.problems] == [name]


def test_an_unknown_name_warns_and_shows_the_nearest_one() -> None:
    settings = Settings.load(None, {"log.dris": "x", "listener.name.plaintext.max.connections": "5"})
    assert settings.warnings == ["unknown setting log.dris; did you mean log.dirs?"]


def test_names_of_kafkas_quorum_are_known_but_mean_nothing_here() -> None:
    settings = Settings.load(None, {"process.roles": "broker,controller", "controller.quorum.voters": "1@h:1"})
    assert settings.warnings == []
    assert BROKER_SETTINGS["process.roles"].effect == Effect.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("given_settings", "retention_ms"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.ms": "-1"}, -1),
    ],
)
def test_the_finer_unit_of_retention_wins(given_settings: dict[str, str], retention_ms: int) -> None:
    assert Settings.load(None, given_settings).log_config().retention_ms == retention_ms


def test_roll_and_flush_times_have_synonyms_too() -> None:
    config = Settings.load(
        None, {"log.roll.hours": "1", "log.roll.jitter.hours": "2", "log.flush.scheduler.interval.ms": "9"}
    ).log_config()
    assert (config.segment_ms, config.segment_jitter_ms, config.flush_ms) == (3_600_000, 7_200_000, 9)


def test_a_topics_own_values_win_over_the_brokers() -> None:
    settings = Settings.load(None, {"log.segment.bytes": "2000000", "log.cleanup.policy": "compact"})
    plain = settings.log_config()
    own = settings.log_config({"segment.bytes": "3000000", "cleanup.policy": "compact,delete"})
    assert (plain.segment_bytes, plain.cleanup_compact, plain.cleanup_delete) == (2_000_000, True, False)
    assert (own.segment_bytes, own.cleanup_compact, own.cleanup_delete) == (3_000_000, True, True)
    # Kafka 4.3 takes an empty policy: data is then neither deleted nor compacted.
    neither = settings.log_config({"cleanup.policy": ""})
    assert (neither.cleanup_compact, neither.cleanup_delete) == (False, False)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("retention.ms", "-5", "Invalid value -5 for configuration retention.ms: Value must be at least -1"),
        ("retention.ms", "", "Invalid value  for configuration retention.ms: Not a number of type LONG"),
        ("segment.bytes", "99999999999", "Not a number of type INT"),
        ("cleanup.policy", "burn", "String must be one of: compact, delete"),
        ("min.cleanable.dirty.ratio", "2", "Value must be no more than 1"),
        ("compression.gzip.level", "20", "Value must be between 1 and 9 or equal to -1"),
        ("leader.replication.throttled.replicas", "x", "'*' or a list"),
        ("nope", "1", "Unknown topic config name: nope"),
        ("message.timestamp.difference.max.ms", "1", "Unknown topic config name"),  # of Kafka 3
    ],
)
def test_a_topic_setting_that_cannot_be_is_refused_with_kafkas_words(name: str, value: str, message: str) -> None:
    (problem,) = topic_problems({name: value})
    assert problem.name == name
    assert message in problem.message


def test_compaction_lags_must_not_cross() -> None:
    (problem,) = topic_problems({"min.compaction.lag.ms": "20", "max.compaction.lag.ms": "10"})
    assert problem.name == "min.compaction.lag.ms"
    assert topic_problems({"follower.replication.throttled.replicas": "0:1,1:2", "retention.ms": "-1"}) == []


def test_dynamic_changes_take_effect_and_fall_back_when_removed() -> None:
    settings = Settings.load(None, {"message.max.bytes": "1000"})
    changed = settings.apply_dynamic(
        {"message.max.bytes": "2000", "max.connections": "9"}, {"message.max.bytes": "3000"}
    )
    assert changed == {"message.max.bytes", "max.connections"}
    assert (settings["message.max.bytes"], settings["max.connections"]) == (3000, 9)
    assert settings.apply_dynamic({"message.max.bytes": "2000"}, {}) == {"message.max.bytes", "max.connections"}
    assert settings["message.max.bytes"] == 2000
    settings.apply_dynamic({}, {})
    assert settings["message.max.bytes"] == 1000


def test_a_dynamic_value_that_cannot_be_used_or_changed_is_left_out() -> None:
    settings = Settings.load()
    assert settings.apply_dynamic({"message.max.bytes": "lots", "num.partitions": "8"}, {}) == set()
    assert settings["num.partitions"] == 1


def test_a_listener_may_have_settings_of_its_own() -> None:
    listeners = {
        "listeners": "PLAINTEXT://:1,INTERNAL://:2",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:SSL",
    }
    own = {"ssl.client.auth": "none", "listener.name.internal.ssl.client.auth": "required", "max.connections": "7"}
    settings = Settings.load(None, listeners | own)
    assert settings.listener_value("INTERNAL", "ssl.client.auth") == "required"
    assert settings.listener_value("PLAINTEXT", "ssl.client.auth") == "none"
    assert settings.listener_value("INTERNAL", "max.connections") == 7


@pytest.mark.parametrize(
    ("given_settings", "complaint"),
    [
        ({"listener.name.sasl_ssl.plain.sasl.jaas.config": "x"}, "no listener has this name"),
        ({"listener.name.plaintext.ssl.client.auth": "required"}, "this listener has no TLS"),
        ({"listener.name.plaintext.plain.sasl.jaas.config": "x"}, "this listener has no SASL"),
        ({"listener.name.plaintext.ssl.cleint.auth": "none"}, "no setting has this name"),
        ({"listener.name.plaintext.ssl.client.auth": "maybe"}, "required, requested, none"),
        ({"listener.name.plaintext.ssl.provider": "BouncyCastle"}, "would have no effect"),
        ({"sasl.kerberos.service.name": "kafka"}, "would have no effect"),
        ({"security.inter.broker.protocol": "SSL", "inter.broker.listener.name": "PLAINTEXT"}, "give one of them"),
        ({"security.inter.broker.protocol": "SSL", "listeners": "A://:1,B://:2",
          "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT"}, "no listener speaks it"),
        ({"control.plane.listener.name": "CONTROL"}, "must be one of the listeners"),
        ({"control.plane.listener.name": "PLAINTEXT"}, "must be one of the listeners"),
    ],
)  # fmt: skip
def test_security_that_would_not_be_there_is_refused(given_settings: dict[str, str], complaint: str) -> None:
    with pytest.raises(SettingsError, match=complaint):
        Settings.load(None, given_settings)


def test_a_refused_setting_may_repeat_its_default() -> None:
    assert Settings.load(None, {"ssl.protocol": "TLSv1.3"})["ssl.protocol"] == "TLSv1.3"


def test_loading_the_table_loads_nothing_heavy() -> None:
    code = (
        "import sys; before = set(sys.modules); import penstock.base.settings;"
        "print(sorted({'pydantic', 'kio', 'dataclasses', 'logging', 'asyncio'} & (set(sys.modules) - before)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
