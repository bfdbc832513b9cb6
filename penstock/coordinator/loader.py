"""Loading a shard: replay of its partition in slices, so that a million records never stall the event loop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from penstock.coordinator.shard_log import NO_PRODUCER, Producer, Record, ShardLog
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

__all__ = ["keyed_records", "load_partition"]

logger = logging.getLogger(__name__)

LOOP_SHARE_SECONDS = 0.01
RECORDS_BETWEEN_LOOKS = 256


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
    while offset < end_offset and still_wanted():
        data = await log.read(partition, offset, slice_bytes)
        if not data:
            break  # compaction took the records of the last offsets
        next_offset = offset
        for header in iterate_batches(data):
            if header.next_offset <= offset:
                continue
            next_offset = header.next_offset
            loaded += await _replay_batch(machine, data, header)
        if next_offset == offset:
            raise InvalidBatch(f"partition {partition} gives no whole batch at offset {offset}")
        offset = next_offset
        await asyncio.sleep(0)
    return loaded


async def _replay_batch(machine: StateMachine, data: bytes, header: BatchHeader) -> int:
    producer = Producer(header.producer_id, header.producer_epoch) if header.is_transactional else NO_PRODUCER
    if header.is_control:
        marker = read_marker(data, header)
        if marker is not None:
            machine.replay_marker(producer, marker.control_type == CONTROL_COMMIT, header.base_offset)
        return 0
    payload = read_payload(data, header)
    replay = machine.replay
    now = time.perf_counter
    share_ends = now() + LOOP_SHARE_SECONDS
    loaded = 0
    for offset, record in keyed_records(payload, header.record_count, header.base_offset):
        replay(record, offset, producer)
        loaded += 1
        if loaded % RECORDS_BETWEEN_LOOKS == 0 and now() > share_ends:
            await asyncio.sleep(0)
            share_ends = now() + LOOP_SHARE_SECONDS
    return loaded


def keyed_records(payload: bytes, count: int, base_offset: int) -> Iterator[tuple[int, Record]]:
    """The records of a plain payload that have a key: what compacted topics hold. Headers and times are skipped.

    Numbers of one and two bytes are taken inline: they are nearly all there are, and a million calls are seconds.
    """
    position = 0
    new_record = tuple.__new__  # a third of the cost of calling the named tuple's class
    try:
        for _ in range(count):
            length = payload[position]
            position += 1
            if length > 0x7F:
                length, position = decode_varint(payload, position - 1)
            else:
                length >>= 1
            end = position + length
            position += 2  # attributes, and the first byte of the time delta
            if payload[position - 1] > 0x7F:
                _, position = decode_varint(payload, position - 1)
            delta = payload[position]
            position += 1
            if delta > 0x7F:
                delta, position = decode_varint(payload, position - 1)
            else:
                delta >>= 1
            key_length = payload[position]
            position += 1
            if key_length > 0x7F:
                key_length, position = decode_varint(payload, position - 1)
            elif key_length & 1:
                position = end  # no key: nothing that a coordinator wrote
                continue
            else:
                key_length >>= 1
            key_end = position + key_length
            key = payload[position:key_end]
            value_length = payload[key_end]
            position = key_end + 1
            if value_length > 0x7F:
                value_length, position = decode_varint(payload, key_end)
            elif value_length & 1:
                yield base_offset + delta, new_record(Record, (key, None))
                position = end
                continue
            else:
                value_length >>= 1
            if position + value_length > end or end > len(payload):
                raise InvalidRecords("a value reaches beyond its record")
            yield base_offset + delta, new_record(Record, (key, payload[position : position + value_length]))
            position = end
    except IndexError:
        raise InvalidRecords("a record is cut") from None
