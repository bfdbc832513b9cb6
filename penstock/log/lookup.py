"""Finding offsets by time, and aborted transactions by offset. Reads indexes first, then as few batches as possible."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.log.results import AbortedTransaction, TimestampOffset
from penstock.log.segment import Segment
from penstock.protocol.batch import BatchHeader, read_payload
from penstock.protocol.records import InvalidRecords, decode_varint

if TYPE_CHECKING:
    from penstock.log.log import Log


def offset_for_timestamp(log: Log, timestamp: int) -> TimestampOffset | None:
    """First record at or behind the log start whose time is at least `timestamp`."""
    first = max(bisect_right(log.segment_bases, log.log_start_offset) - 1, 0)
    for segment in log.segments[first:]:
        if segment.largest_timestamp() >= timestamp:
            found = _first_at(segment, timestamp, log.log_start_offset)
            if found is not None:
                return found
    return None


def _first_at(segment: Segment, timestamp: int, start_offset: int) -> TimestampOffset | None:
    offset = max(segment.time_index.lookup(timestamp), start_offset)
    for header in segment.headers(segment.offset_index.lookup(offset)):
        if header.max_timestamp < timestamp or header.last_offset < start_offset:
            continue
        found = _first_record(segment, header, timestamp, start_offset)
        if found is not None:
            return found
    return None


def _first_record(segment: Segment, header: BatchHeader, timestamp: int, start: int) -> TimestampOffset | None:
    data = segment.read_at(header.position, header.size)
    batch = header._replace(position=0)
    append_time = header.max_timestamp if header.is_log_append_time else None
    # One at a time: a batch of few bytes may hold millions.
    for at, offset in record_times(read_payload(data, batch), header, append_time):
        if at >= timestamp and offset >= start:
            return TimestampOffset(at, offset, header.leader_epoch)
    return None


def record_times(payload: bytes, header: BatchHeader, append_time: int | None) -> Iterator[tuple[int, int]]:
    """(time, offset) of each record, without reading more of it."""
    position = 0
    for _ in range(header.record_count):
        length, position = decode_varint(payload, position)
        end = position + length
        if length < 0 or end > len(payload):
            raise InvalidRecords(f"a record of {length} bytes does not fit into its batch")
        delta, position = decode_varint(payload, position + 1)
        offset_delta, _ = decode_varint(payload, position)
        yield header.base_timestamp + delta if append_time is None else append_time, header.base_offset + offset_delta
        position = end


def max_timestamp_offset(log: Log) -> TimestampOffset | None:
    """The first record with the highest time of the whole log; None if the log holds none."""
    best: Segment | None = None
    for segment in log.segments:
        largest = segment.largest_timestamp()
        if segment.size and largest >= 0 and (best is None or largest > best.largest_timestamp()):
            best = segment
    if best is None:
        return None
    place = best.place(best.max_timestamp_offset)
    if place is None:
        return None
    header = next(best.headers(place[0]))
    found = _first_record(best, header, best.max_timestamp, 0)
    return found or TimestampOffset(best.max_timestamp, header.last_offset, header.leader_epoch)


def aborted_transactions(log: Log, start_offset: int, upper_bound_offset: int) -> list[AbortedTransaction]:
    """Aborted transactions that touch [start, upper bound), each once, in order of their end."""
    found: list[AbortedTransaction] = []
    first = max(bisect_right(log.segment_bases, start_offset) - 1, 0)
    for segment in log.segments[first:]:
        if not segment.txn_index.exists:
            continue
        for entry in segment.txn_index.ending_from(start_offset):
            if entry.first_offset < upper_bound_offset:
                found.append(AbortedTransaction(entry.producer_id, entry.first_offset))
            if entry.last_stable_offset >= upper_bound_offset:
                return found
    return found
