"""Options are refused in one clear line, before anything runs."""

from __future__ import annotations

import pytest

from penstock.pipelines.spark.options import EARLIEST, LATEST, OptionError, SinkOptions, SourceOptions
from penstock.protocol.codecs import Codec

SERVER = {"kafka.bootstrap.servers": "127.0.0.1:1"}


def source(streaming: bool = True, **options: str) -> SourceOptions:
    return SourceOptions.parse({**SERVER, **options}, streaming=streaming)


def test_the_options_of_sparks_kafka_source_are_taken_as_they_are() -> None:
    parsed = SourceOptions.parse(
        {
            **SERVER,
            "subscribe": "orders, payments,orders",
            "startingOffsets": '{"orders":{"0":23,"1":-2},"payments":{"0":-1}}',
            "maxOffsetsPerTrigger": "1000",
            "minOffsetsPerTrigger": "10",
            "maxTriggerDelay": "30s",
            "failOnDataLoss": "false",
            "includeHeaders": "TRUE",
            "kafka.security.protocol": "SASL_SSL",
            "kafka.isolation.level": "read_uncommitted",
            "kafka.group.id": "mine",
            "kafkaConsumer.pollTimeoutMs": "100",
            "fetchOffset.numRetries": "3",
        },
        streaming=True,
    )
    assert parsed.topics == ("orders", "payments")
    assert parsed.start.by_partition == {("orders", 0): 23, ("orders", 1): EARLIEST, ("payments", 0): LATEST}
    assert (parsed.max_offsets_per_trigger, parsed.min_offsets_per_trigger) == (1000, 10)
    assert parsed.max_trigger_delay_ms == 30_000
    assert not parsed.fail_on_data_loss and parsed.include_headers and not parsed.read_committed
    assert parsed.group_id == "mine"
    assert parsed.properties == {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SASL_SSL"}


def test_a_stream_begins_at_the_end_and_a_table_at_the_beginning() -> None:
    assert source(subscribe="t").start.everywhere == LATEST
    assert source(streaming=False, subscribe="t").start.everywhere == EARLIEST
    assert source(subscribe="t").read_committed


def test_a_time_wins_over_offsets() -> None:
    parsed = source(subscribe="t", startingTimestamp="1700000000000", startingOffsets="earliest")
    assert parsed.start.is_time and parsed.start.everywhere == 1_700_000_000_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "exactly one of subscribe, subscribePattern, assign"),
        ({"subscribe": "a", "assign": '{"a":[0]}'}, "subscribe and assign are given"),
        ({"subscribe": "a", "maxOffsetPerTrigger": "5"}, "did you mean maxOffsetsPerTrigger"),
        ({"subscribe": "a", "maxOffsetsPerTrigger": "many"}, "whole number"),
        ({"subscribe": "a", "maxOffsetsPerTrigger": "0"}, "above 0"),
        ({"subscribe": "a", "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "is above"),
        ({"subscribe": "a", "startingOffsets": "newest"}, "no JSON"),
        ({"subscribe": "a", "startingOffsets": '{"a":{"x":1}}'}, "write it as"),
        ({"subscribe": "a", "startingOffsets": '{"a":{"0":-7}}'}, "not possible"),
        ({"subscribe": "a", "endingOffsets": "latest"}, "a stream has no end"),
        ({"subscribe": "a", "failOnDataLoss": "maybe"}, "true or false"),
        ({"subscribe": "a", "kafka.isolation.level": "serializable"}, "read_committed or read_uncommitted"),
        ({"subscribePattern": "a("}, "no regular expression"),
        ({"assign": '{"a":0}'}, "list of numbers"),
        ({"subscribe": "a", "maxTriggerDelay": "soon"}, "30s, 15m or 1h"),
    ],
)
def test_a_wrong_source_option_is_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        SourceOptions.parse({**SERVER, **options}, streaming=True)


def test_a_missing_address_is_named() -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers is missing"):
        SourceOptions.parse({"subscribe": "a"}, streaming=True)


def test_sink_options() -> None:
    parsed = SinkOptions.parse({**SERVER, "topic": "out", "kafka.compression.type": "lz4"})
    assert parsed.exactly_once and parsed.codec is Codec.LZ4 and parsed.topic == "out"
    assert not SinkOptions.parse({**SERVER, "deliveryGuarantee": "at-least-once"}).exactly_once
    with pytest.raises(OptionError, match="go together"):
        SinkOptions.parse({**SERVER, "txnAppId": "app"})
    with pytest.raises(OptionError, match="use one of"):
        SinkOptions.parse({**SERVER, "kafka.compression.type": "rar"})
    with pytest.raises(OptionError, match="exactly-once or at-least-once"):
        SinkOptions.parse({**SERVER, "deliveryGuarantee": "sometimes"})
