"""The rules that each record of an opened batch must keep. One loop over bytes: nothing is kept of a record.

A few compressed bytes can hold millions of records, so their number must cost time only, and that in the process that
`inspector` keeps for it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.base.settings import LogConfig
from penstock.log.results import RecordError
from penstock.protocol.batch import BatchHeader
from penstock.protocol.errors import ErrorCode
from penstock.protocol.records import InvalidRecords, decode_varint

RECORD_ERRORS_MAX: Final = 1000
"""So many records are named in an answer; Kafka names them all, 81 MB for a million."""


class Findings(NamedTuple):
    """`fault_count` records are bad, the first of them are named."""

    max_timestamp: int
    fault_count: int = 0
    bad_time: bool = False
    errors: tuple[RecordError, ...] = ()


def examine(payload: bytes, header: BatchHeader, config: LogConfig, now_ms: int, name: str) -> Findings:
    """Walk over all records, strictly as Kafka reads them. Raises InvalidRecords where they do not fill the payload."""
    found = _Faults(header, config, now_ms, name)
    compact = config.cleanup_compact
    create_time = not config.log_append_time
    earliest, latest = found.earliest, found.latest
    stamped = header.is_log_append_time
    base_timestamp = header.base_timestamp
    max_timestamp = -1
    size = len(payload)
    position = 0
    try:
        for index in range(header.record_count):
            start = position
            length, position = _number(payload, position)
            end = position + length
            if length < 0 or end > size:
                raise InvalidRecords(f"a record of {length} bytes does not fit into its batch")
            timestamp, position = _number(payload, position + 1)
            timestamp = header.max_timestamp if stamped else base_timestamp + timestamp
            offset_delta, position = _number(payload, position)
            key_bytes, position = _number(payload, position)
            position += key_bytes if key_bytes > 0 else 0
            value_bytes, position = _number(payload, position)
            position += value_bytes if value_bytes > 0 else 0
            if payload[position] == 0:
                position += 1
            else:
                position = _behind_headers(payload, position, end)
            if position != end:
                raise InvalidRecords(f"the record at {start} says {length} bytes but holds {length + position - end}")
            if timestamp > max_timestamp:
                max_timestamp = timestamp
            if (
                offset_delta != index
                or (compact and key_bytes < 0)
                or (create_time and timestamp != -1 and not earliest <= timestamp <= latest)
                or stamped
            ):
                found.judge(index, offset_delta, timestamp, key_bytes, value_bytes)
    except IndexError:
        raise InvalidRecords("a record is cut") from None
    if position != size:
        raise InvalidRecords(f"{size - position} bytes are left over behind {header.record_count} records")
    return Findings(max_timestamp, found.count, found.bad_time, tuple(found.errors))


def _number(data: bytes, position: int) -> tuple[int, int]:
    """A variable-length number; most have one byte."""
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    return decode_varint(data, position)


def _behind_headers(data: bytes, position: int, end: int) -> int:
    count, position = _number(data, position)
    if count < 0 or count > end - position:
        raise InvalidRecords(f"invalid number of headers: {count}")
    for _ in range(count):
        name_bytes, position = _number(data, position)
        if name_bytes < 0:
            raise InvalidRecords("a header key is null")
        value_bytes, position = _number(data, position + name_bytes)
        position += max(value_bytes, 0)
        if position > end:
            raise InvalidRecords("a header reaches beyond its record")
    return position


class _Faults:
    """What is wrong with single records, in Kafka's words."""

    def __init__(self, header: BatchHeader, config: LogConfig, now_ms: int, name: str) -> None:
        self._header = header
        self._compact = config.cleanup_compact
        self._create_time = not config.log_append_time
        self._name = name
        self.earliest = now_ms - config.message_timestamp_before_max_ms
        self.latest = now_ms + config.message_timestamp_after_max_ms
        self.count = 0
        self.bad_time = False
        self.errors: list[RecordError] = []

    def judge(self, index: int, offset_delta: int, timestamp: int, key_bytes: int, value_bytes: int) -> None:
        if len(self.errors) >= RECORD_ERRORS_MAX:
            self._count_only(index, offset_delta, timestamp, key_bytes)
            return
        offset = self._header.base_offset + offset_delta
        shown = (
            f"DefaultRecord(offset={offset}, timestamp={timestamp}, key={max(key_bytes, 0)} bytes, "
            f"value={max(value_bytes, 0)} bytes)"
        )
        if offset_delta != index:
            self._add(
                index,
                f"Inner record {shown} inside the record batch does not have incremental offsets, expected offset is "
                f"{self._header.base_offset + index} in topic partition {self._name}.",
            )
        elif self._compact and key_bytes < 0:
            self._add(index, f"Compacted topic cannot accept message without key in topic partition {self._name}")
        elif self._create_time and timestamp != -1:
            if not self.earliest <= timestamp <= self.latest:
                self.bad_time = True
                self._add(
                    index,
                    f"Timestamp {timestamp} of message with offset {offset} is out of range. "
                    f"The timestamp should be within [{self.earliest}, {self.latest}]",
                )
        elif self._header.is_log_append_time:
            self.bad_time = True
            self._add(
                index,
                f"Invalid timestamp type in message {shown}. Producer should not set timestamp type to LogAppendTime.",
            )

    def _add(self, index: int, text: str) -> None:
        self.count += 1
        self.errors.append(RecordError(index, text))

    def _count_only(self, index: int, offset_delta: int, timestamp: int, key_bytes: int) -> None:
        nameless = offset_delta != index or (self._compact and key_bytes < 0)
        if not nameless and self._create_time and timestamp != -1 and self.earliest <= timestamp <= self.latest:
            return  # stamped by its sender, which only a topic of its own times minds
        self.count += 1
        self.bad_time = self.bad_time or not nameless


def refusal(found: Findings) -> tuple[ErrorCode, str]:
    """The error of a batch with bad records and the sentence that Kafka says to it."""
    if found.bad_time:
        return ErrorCode.INVALID_TIMESTAMP, "One or more records have been rejected due to invalid timestamp"
    shown = ", ".join(
        f"RecordError(batchIndex={error.batch_index}, message='{error.message}')" for error in found.errors[:3]
    )
    return ErrorCode.INVALID_RECORD, (
        f"One or more records have been rejected due to {found.fault_count} record errors in total, "
        f"and only showing the first three errors at most: [{shown}]"
    )
