"""The options of `format("penstock")`, named as Spark's Kafka source and sink name them; checked first of all."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.protocol.codecs import CODEC_BY_NAME, Codec

EARLIEST: Final = -2
LATEST: Final = -1


class OptionError(ValueError):
    """An option that is missing, unknown, contradictory or malformed; the message names it."""


_SUBSCRIPTIONS: Final = ("subscribe", "subscribePattern", "assign")
_SOURCE_OPTIONS: Final = (
    *_SUBSCRIPTIONS,
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    "groupIdPrefix",
    "wholeFirstBatch",
    "alsoSubscribe",
)
_SINK_OPTIONS: Final = ("topic", "includeHeaders", "deliveryGuarantee", "txnAppId", "txnVersion", "maxBatchBytes")
# Known to Spark's source or added by Spark itself; they mean nothing here and are let pass.
_WITHOUT_EFFECT: Final = (
    "path",
    "checkpointLocation",
    "queryName",
    "truncate",
    "numRows",
    "outputMode",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)

_DURATION: Final = re.compile(r"(\d+)\s*(ms|s|m|min|h)?")
_DURATION_MS: Final = {None: 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000}


@dataclass(frozen=True)
class OffsetRequest:
    """Where reading begins or ends: everywhere the same offset or time, or one per partition.

    Offsets are real ones, EARLIEST or LATEST; times are in ms.
    """

    everywhere: int | None = LATEST
    by_partition: Mapping[tuple[str, int], int] = field(default_factory=dict)
    is_time: bool = False


@dataclass(frozen=True)
class SourceOptions:
    properties: dict[str, str]  # for the client: bootstrap.servers and security
    topics: tuple[str, ...] = ()
    extra_topics: tuple[str, ...] = ()  # read too, whole, as soon as they exist and as long as they do
    pattern: str | None = None
    assigned: tuple[tuple[str, int], ...] = ()
    start: OffsetRequest = field(default_factory=OffsetRequest)
    end: OffsetRequest = field(default_factory=OffsetRequest)
    late_start_is_latest: bool = False  # no record after the starting time: begin at the end instead of failing
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 15 * 60_000
    whole_first_batch: bool = False  # what is there at first without a limit: a table to look things up in
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    fail_on_data_loss: bool = True
    include_headers: bool = False
    group_id: str | None = None
    group_id_prefix: str = "penstock"
    read_committed: bool = True

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
        given = _Given(options, _SOURCE_OPTIONS, _SINK_OPTIONS)
        chosen = [name for name in _SUBSCRIPTIONS if given.has(name)]
        if len(chosen) != 1:
            raise OptionError(
                f"give exactly one of {', '.join(_SUBSCRIPTIONS)} to say which topics to read"
                + (f"; {' and '.join(chosen)} are given" if chosen else "")
            )
        if streaming and any(
            given.has(name) for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
        ):
            raise OptionError("a stream has no end: endingOffsets and its like are for spark.read only")
        group_id = given.properties.pop("group.id", None)
        isolation = given.properties.pop("isolation.level", "read_committed")
        if isolation not in ("read_committed", "read_uncommitted"):
            raise OptionError(f"kafka.isolation.level is {isolation!r}; use read_committed or read_uncommitted")
        strategy = given.text("startingOffsetsByTimestampStrategy", "error").lower()
        if strategy not in ("error", "latest"):
            raise OptionError(f"startingOffsetsByTimestampStrategy is {strategy!r}; use error or latest")
        made = cls(
            properties=given.properties,
            topics=given.names("subscribe"),
            extra_topics=given.names("alsoSubscribe"),
            pattern=_pattern(given.text("subscribePattern", "")),
            assigned=_assignment(given.text("assign", "")),
            start=_offset_request(given, "starting", EARLIEST if not streaming else LATEST),
            end=_offset_request(given, "ending", LATEST),
            late_start_is_latest=strategy == "latest",
            max_offsets_per_trigger=given.positive("maxOffsetsPerTrigger"),
            min_offsets_per_trigger=given.positive("minOffsetsPerTrigger"),
            max_trigger_delay_ms=_duration_ms(given.text("maxTriggerDelay", "15m")),
            whole_first_batch=given.flag("wholeFirstBatch", False),
            min_partitions=given.positive("minPartitions"),
            max_records_per_partition=given.positive("maxRecordsPerPartition"),
            fail_on_data_loss=given.flag("failOnDataLoss", True),
            include_headers=given.flag("includeHeaders", False),
            group_id=group_id,
            group_id_prefix=given.text("groupIdPrefix", "penstock"),
            read_committed=isolation == "read_committed",
        )
        low, high = made.min_offsets_per_trigger, made.max_offsets_per_trigger
        if low is not None and high is not None and low > high:
            raise OptionError(f"minOffsetsPerTrigger ({low}) is above maxOffsetsPerTrigger ({high})")
        return made


@dataclass(frozen=True)
class SinkOptions:
    properties: dict[str, str]
    topic: str | None = None
    exactly_once: bool = True
    codec: Codec = Codec.NONE
    application_id: str | None = None
    application_version: int | None = None
    max_batch_bytes: int = 900_000

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool = False) -> SinkOptions:
        given = _Given(options, _SINK_OPTIONS, _SOURCE_OPTIONS)
        guarantee = given.text("deliveryGuarantee", "exactly-once").replace("_", "-").lower()
        if guarantee not in ("exactly-once", "at-least-once"):
            raise OptionError(f"deliveryGuarantee is {guarantee!r}; use exactly-once or at-least-once")
        codec_name = given.properties.pop("compression.type", "none")
        if codec_name not in CODEC_BY_NAME:
            raise OptionError(
                f"kafka.compression.type is {codec_name!r}; use one of {', '.join(sorted(CODEC_BY_NAME))}"
            )
        application, version = given.text("txnAppId", "") or None, given.number("txnVersion")
        if streaming and version is not None:
            raise OptionError("txnVersion is for a single write; a stream's batches have numbers of their own")
        if not streaming and (application is None) != (version is None):
            raise OptionError("txnAppId and txnVersion go together: they name a batch that must be written only once")
        if application is not None and not re.fullmatch(r"[\w.\-]{1,400}", application):
            raise OptionError(f"txnAppId {application!r} may hold letters, digits, '.', '_' and '-' only")
        return cls(
            properties=given.properties,
            topic=given.text("topic", "") or None,
            exactly_once=guarantee == "exactly-once",
            codec=CODEC_BY_NAME[codec_name],
            application_id=application,
            application_version=version,
            max_batch_bytes=given.positive("maxBatchBytes") or cls.max_batch_bytes,
        )


class _Given:
    """The options as they came, without regard to case; complains about unknown ones."""

    def __init__(self, options: Mapping[str, str], known: tuple[str, ...], other_side: tuple[str, ...]) -> None:
        self._values = {name.lower(): value for name, value in options.items()}
        self.properties = {
            name.removeprefix("kafka."): value for name, value in self._values.items() if name.startswith("kafka.")
        }
        # Names of the other side pass too: one set of options may serve a source and a sink.
        accepted = {name.lower(): name for name in (*known, *other_side, *_WITHOUT_EFFECT)}
        for name in self._values:
            if name in accepted or name.startswith(("kafka.", "kafkaconsumer.")):
                continue
            near = difflib.get_close_matches(name, accepted, 1)
            hint = f"; did you mean {accepted[near[0]]}?" if near else ""
            raise OptionError(f"unknown option {name!r}{hint}")
        if not self.properties.get("bootstrap.servers"):
            raise OptionError("kafka.bootstrap.servers is missing; set it to host:port of one or more brokers")

    def has(self, name: str) -> bool:
        return name.lower() in self._values

    def text(self, name: str, default: str) -> str:
        return self._values.get(name.lower(), default).strip()

    def names(self, name: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(part.strip() for part in self.text(name, "").split(",") if part.strip()))

    def number(self, name: str) -> int | None:
        text = self.text(name, "")
        if not text:
            return None
        try:
            return int(text)
        except ValueError:
            raise OptionError(f"{name} is {text!r}; it must be a whole number") from None

    def positive(self, name: str) -> int | None:
        value = self.number(name)
        if value is not None and value <= 0:
            raise OptionError(f"{name} is {value}; it must be above 0")
        return value

    def flag(self, name: str, default: bool) -> bool:
        text = self.text(name, "true" if default else "false").lower()
        if text not in ("true", "false"):
            raise OptionError(f"{name} is {text!r}; use true or false")
        return text == "true"


def _pattern(text: str) -> str | None:
    if not text:
        return None
    try:
        re.compile(text)
    except re.error as error:
        raise OptionError(f"subscribePattern {text!r} is no regular expression: {error}") from None
    return text


def _duration_ms(text: str) -> int:
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise OptionError(f"maxTriggerDelay is {text!r}; write 30s, 15m or 1h")
    return int(found.group(1)) * _DURATION_MS[found.group(2)]


def _assignment(text: str) -> tuple[tuple[str, int], ...]:
    if not text:
        return ()
    parsed = _json_object("assign", text, '{"orders":[0,1]}')
    pairs = []
    for topic, partitions in parsed.items():
        if not isinstance(partitions, list) or not all(isinstance(p, int) and p >= 0 for p in partitions):
            raise OptionError(f'assign: the partitions of {topic!r} must be a list of numbers, as {{"orders":[0,1]}}')
        pairs += [(topic, partition) for partition in partitions]
    return tuple(pairs)


def _json_object(name: str, text: str, example: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except ValueError as error:
        raise OptionError(f"{name} is no JSON ({error}); write it as {example}") from None
    if not isinstance(parsed, dict):
        raise OptionError(f"{name} must be a JSON object, as {example}")
    return parsed


def _per_partition(name: str, text: str) -> dict[tuple[str, int], int]:
    example = '{"orders":{"0":23,"1":-2}}'
    values: dict[tuple[str, int], int] = {}
    for topic, partitions in _json_object(name, text, example).items():
        if not isinstance(partitions, dict):
            raise OptionError(f"{name}: {topic!r} needs one number per partition, as {example}")
        for partition, value in partitions.items():
            if not str(partition).isdigit() or not isinstance(value, int):
                raise OptionError(f"{name}: {topic!r} has {partition!r}: {value!r}; write it as {example}")
            values[(topic, int(partition))] = value
    return values


def _offset_request(given: _Given, side: str, default: int) -> OffsetRequest:
    """Spark's order: one time for all, then times per partition, then offsets."""
    time_ms = given.number(f"{side}Timestamp")
    if time_ms is not None:
        return OffsetRequest(time_ms, is_time=True)
    by_time = given.text(f"{side}OffsetsByTimestamp", "")
    if by_time:
        return OffsetRequest(None, _per_partition(f"{side}OffsetsByTimestamp", by_time), is_time=True)
    name = f"{side}Offsets"
    text = given.text(name, "")
    if not text:
        return OffsetRequest(default)
    if text.lower() == "latest":
        return OffsetRequest(LATEST)
    if text.lower() == "earliest":
        if side == "ending":
            raise OptionError("endingOffsets cannot be earliest: nothing would be read")
        return OffsetRequest(EARLIEST)
    offsets = _per_partition(name, text)
    for (topic, partition), offset in offsets.items():
        if offset < EARLIEST or (side == "ending" and offset == EARLIEST):
            raise OptionError(f"{name}: offset {offset} of {topic}-{partition} is not possible")
    return OffsetRequest(None, offsets)
