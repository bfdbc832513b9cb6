"""Kernels that write: flat columns → records of finished batches, and the Java client's partitioner.

The kernel leaves room for the 61-byte header in front of each batch; `columnar.py` fills it in, compresses and seals.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.protocol.columnar_decode import HEADER_BYTES
from penstock.protocol.columnar_jit import copy_bytes, inlined, kernel

# Columns of the table that `encode_records` fills, one row per batch.
OUT_PARTITION, OUT_START, OUT_END, OUT_COUNT, OUT_BASE_TIMESTAMP, OUT_MAX_TIMESTAMP = range(6)
OUT_COLUMNS = 6

# The most that the numbers of one record take: size 5, attributes 1, time 10, offset 5, key 5, value 5, header count 5.
RECORD_OVERHEAD_BYTES = 36
HEADER_OVERHEAD_BYTES = 10


@inlined
def murmur2(data: Any, start: int, size: int) -> Any:
    """Austin Appleby's MurmurHash2 with the seed that Kafka's Java client uses."""
    multiplier = np.uint32(0x5BD1E995)
    hashed = np.uint32(0x9747B28C) ^ np.uint32(size)
    at = start
    for _ in range(size // 4):
        word = (
            np.uint32(data[at])
            | (np.uint32(data[at + 1]) << np.uint32(8))
            | (np.uint32(data[at + 2]) << np.uint32(16))
            | (np.uint32(data[at + 3]) << np.uint32(24))
        )
        word = np.uint32(word * multiplier)
        word ^= word >> np.uint32(24)
        word = np.uint32(word * multiplier)
        hashed = np.uint32(hashed * multiplier) ^ word
        at += 4
    rest = size & 3
    if rest == 3:
        hashed ^= np.uint32(data[at + 2]) << np.uint32(16)
    if rest >= 2:
        hashed ^= np.uint32(data[at + 1]) << np.uint32(8)
    if rest >= 1:
        hashed ^= np.uint32(data[at])
        hashed = np.uint32(hashed * multiplier)
    hashed ^= hashed >> np.uint32(13)
    hashed = np.uint32(hashed * multiplier)
    hashed ^= hashed >> np.uint32(15)
    return hashed


@kernel
def assign_partitions(
    key_offsets: Any, key_data: Any, key_valid: Any, partition_count: int, first: int, chosen: Any
) -> None:
    """Keyed rows by hash; keyless rows in even runs over all partitions, beginning with `first`.

    A negative entry of `chosen` asks for a choice; any other was made by the user and stays.
    """
    keyless = 0
    for row in range(len(chosen)):
        if chosen[row] < 0 and key_valid[row] == 0:
            keyless += 1
    run = max(1, (keyless + partition_count - 1) // partition_count)
    seen = 0
    for row in range(len(chosen)):
        if chosen[row] >= 0:
            continue
        if key_valid[row] == 0:
            chosen[row] = (first + seen // run) % partition_count
            seen += 1
        else:
            start = key_offsets[row]
            hashed = np.int64(murmur2(key_data, start, key_offsets[row + 1] - start)) & 0x7FFFFFFF
            chosen[row] = hashed % partition_count


@kernel
def group_by_partition(chosen: Any, partition_count: int, order: Any) -> None:
    """Row numbers sorted by partition; rows of one partition keep their order."""
    starts = np.zeros(partition_count + 1, dtype=np.int64)
    for row in range(len(chosen)):
        starts[chosen[row] + 1] += 1
    for partition in range(partition_count):
        starts[partition + 1] += starts[partition]
    for row in range(len(chosen)):
        partition = chosen[row]
        order[starts[partition]] = row
        starts[partition] += 1


@inlined
def _zigzag(value: int) -> Any:
    return (np.uint64(value) << np.uint64(1)) ^ np.uint64(np.int64(value) >> 63)


@inlined
def _varint_size(value: int) -> int:
    raw = _zigzag(value)
    size = 1
    while raw >= np.uint64(128):
        raw >>= np.uint64(7)
        size += 1
    return size


@inlined
def _write_varint(out: Any, position: int, value: int) -> int:
    raw = _zigzag(value)
    while raw >= np.uint64(128):
        out[position] = np.uint8(raw & np.uint64(0x7F)) | np.uint8(128)
        raw >>= np.uint64(7)
        position += 1
    out[position] = np.uint8(raw)
    return position + 1


@inlined
def _copy(source: Any, start: int, size: int, target: Any, at: int) -> int:
    copy_bytes(target, at, source, start, size)
    return at + size


@kernel
def encode_records(
    order: Any,
    chosen: Any,
    timestamps_ms: Any,
    key_offsets: Any,
    key_data: Any,
    key_valid: Any,
    value_offsets: Any,
    value_data: Any,
    value_valid: Any,
    has_headers: bool,
    header_list_offsets: Any,
    header_list_valid: Any,
    header_key_offsets: Any,
    header_key_data: Any,
    header_value_offsets: Any,
    header_value_data: Any,
    header_value_valid: Any,
    max_batch_bytes: int,
    out: Any,
    batches: Any,
) -> int:
    """Write all rows in `order`; returns the number of batches, whose places are in `batches`."""
    position = 0
    count = -1
    partition = -1
    base_timestamp = 0
    start = 0
    in_batch = 0
    for index in range(len(order)):
        row = order[index]
        key_size = key_offsets[row + 1] - key_offsets[row] if key_valid[row] else -1
        value_size = value_offsets[row + 1] - value_offsets[row] if value_valid[row] else -1
        fixed = 1 + _varint_size(key_size) + max(key_size, 0) + _varint_size(value_size) + max(value_size, 0)
        first_header = 0
        header_count = 0
        if has_headers and header_list_valid[row]:
            first_header = header_list_offsets[row]
            header_count = header_list_offsets[row + 1] - first_header
            for header in range(first_header, first_header + header_count):
                size_of_key = header_key_offsets[header + 1] - header_key_offsets[header]
                fixed += _varint_size(size_of_key) + size_of_key
                if header_value_valid[header]:
                    size_of_value = header_value_offsets[header + 1] - header_value_offsets[header]
                    fixed += _varint_size(size_of_value) + size_of_value
                else:
                    fixed += 1
        fixed += _varint_size(header_count)

        timestamp = timestamps_ms[row]
        is_new = chosen[row] != partition
        if not is_new:
            body = fixed + _varint_size(timestamp - base_timestamp) + _varint_size(in_batch)
            is_new = position + _varint_size(body) + body - start > max_batch_bytes
        if is_new:
            if count >= 0:
                batches[count, OUT_END] = position
                batches[count, OUT_COUNT] = in_batch
            count += 1
            partition = chosen[row]
            start = position
            base_timestamp = timestamp
            in_batch = 0
            batches[count, OUT_PARTITION] = partition
            batches[count, OUT_START] = start
            batches[count, OUT_BASE_TIMESTAMP] = base_timestamp
            batches[count, OUT_MAX_TIMESTAMP] = timestamp
            position += HEADER_BYTES
        body = fixed + _varint_size(timestamp - base_timestamp) + _varint_size(in_batch)
        if timestamp > batches[count, OUT_MAX_TIMESTAMP]:
            batches[count, OUT_MAX_TIMESTAMP] = timestamp

        position = _write_varint(out, position, body)
        out[position] = 0
        position = _write_varint(out, position + 1, timestamp - base_timestamp)
        position = _write_varint(out, position, in_batch)
        position = _write_varint(out, position, key_size)
        if key_size > 0:
            position = _copy(key_data, key_offsets[row], key_size, out, position)
        position = _write_varint(out, position, value_size)
        if value_size > 0:
            position = _copy(value_data, value_offsets[row], value_size, out, position)
        position = _write_varint(out, position, header_count)
        for header in range(first_header, first_header + header_count):
            size_of_key = header_key_offsets[header + 1] - header_key_offsets[header]
            position = _write_varint(out, position, size_of_key)
            position = _copy(header_key_data, header_key_offsets[header], size_of_key, out, position)
            if header_value_valid[header]:
                size_of_value = header_value_offsets[header + 1] - header_value_offsets[header]
                position = _write_varint(out, position, size_of_value)
                position = _copy(header_value_data, header_value_offsets[header], size_of_value, out, position)
            else:
                position = _write_varint(out, position, -1)
        in_batch += 1
    if count >= 0:
        batches[count, OUT_END] = position
        batches[count, OUT_COUNT] = in_batch
    return count + 1
