"""Loading a shard: replay of its partition in slices, so that a million records never stall the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from penstock.coordinator.shard_log import NO_PRODUCER, Producer, ShardLog
from penstock.protocol.batch import (
    CONTROL_COMMIT,
    BatchHeader,
    InvalidBatch,
    iterate_batches,
    read_marker,
    read_payload,
)
from penstock.protocol.records import InvalidRecords, decode_varint

if TYPE_CHECKING:
    from penstock.coordinator.shards import StateMachine

__all__ = ["Row", "load_partition", "read_rows"]

LOOP_SHARE_SECONDS = 0.01
ROWS_BETWEEN_LOOKS = 512

Row = tuple[int, bytes, bytes | None]
"""(offset delta, key, value) of one record."""


async def load_partition(
    log: ShardLog,
    partition: int,
    machine: StateMachine,
    *,
    slice_bytes: int,
    still_wanted: Callable[[], bool],
) -> int:
    """Replay the partition from its start to its end as of now; the number of records replayed."""
    offset = log.start_offset(partition)
    end_offset = log.end_offset(partition)
    loaded = 0
    now = asyncio.get_running_loop().time
    while offset < end_offset and still_wanted():
        data = await log.read(partition, offset, slice_bytes)
        if not data:
            break  # compaction took the records of the last offsets
        next_offset = offset
        share_ends = now() + LOOP_SHARE_SECONDS
        for header in iterate_batches(data):
            if header.next_offset <= offset:
                continue
            next_offset = header.next_offset
            for count in _replay_batch(machine, data, header):
                loaded += count
                if now() > share_ends:
                    await asyncio.sleep(0)
                    share_ends = now() + LOOP_SHARE_SECONDS
        if next_offset == offset:
            raise InvalidBatch(f"partition {partition} gives no whole batch at offset {offset}")
        offset = next_offset
    return loaded


def _replay_batch(machine: StateMachine, data: bytes, header: BatchHeader) -> Iterator[int]:
    """Replays as it is asked on, a few records at a time; gives how many."""
    producer = Producer(header.producer_id, header.producer_epoch) if header.is_transactional else NO_PRODUCER
    if header.is_control:
        marker = read_marker(data, header)
        if marker is not None:
            machine.replay_marker(producer, marker.control_type == CONTROL_COMMIT, header.base_offset)
        yield 0
        return
    payload = read_payload(data, header)
    position, left = 0, header.record_count
    while left > 0:
        count = min(left, ROWS_BETWEEN_LOOKS)
        rows, position = read_rows(payload, position, count)
        machine.replay_rows(rows, header.base_offset, producer)
        left -= count
        yield len(rows)


def read_rows(payload: bytes, position: int, count: int) -> tuple[list[Row], int]:
    """The next `count` records of a plain payload, and where they end. Headers and times are skipped; a record without
    a key is left out: no coordinator wrote it.

    Numbers of one byte, and most of two, are taken inline: they are nearly all there are, and a million calls are
    seconds.
    """
    rows: list[Row] = []
    add = rows.append
    try:
        for _ in range(count):
            length = payload[position]
            position += 1
            if length > 0x7F:
                second = payload[position]
                if second > 0x7F:
                    length, position = decode_varint(payload, position - 1)
                else:
                    length = ((length & 0x7F) | second << 7) >> 1
                    position += 1
            else:
                length >>= 1
            end = position + length
            if payload[position + 1] > 0x7F:  # behind the attributes: the time delta
                position = decode_varint(payload, position + 1)[1]
            else:
                position += 2
            delta = payload[position]
            position += 1
            if delta > 0x7F:
                second = payload[position]
                if second > 0x7F:
                    delta, position = decode_varint(payload, position - 1)
                else:
                    delta = ((delta & 0x7F) | second << 7) >> 1
                    position += 1
            else:
                delta >>= 1
            key_length = payload[position]
            position += 1
            if key_length > 0x7F:
                key_length, position = decode_varint(payload, position - 1)
            elif key_length & 1:
                position = end
                continue
            else:
                key_length >>= 1
            key_end = position + key_length
            value_length = payload[key_end]
            value_start = key_end + 1
            if value_length > 0x7F:
                value_length, value_start = decode_varint(payload, key_end)
            elif value_length & 1:
                add((delta, payload[position:key_end], None))
                position = end
                continue
            else:
                value_length >>= 1
            value_end = value_start + value_length
            if value_end > end:
                raise InvalidRecords("a value reaches beyond its record")
            add((delta, payload[position:key_end], payload[value_start:value_end]))
            position = end
    except IndexError:
        raise InvalidRecords("a record is cut") from None
    if position > len(payload):
        raise InvalidRecords("a record is cut")
    return rows, position
