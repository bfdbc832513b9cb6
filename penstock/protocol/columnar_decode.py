"""Kernels that read: record batch bytes → flat columns. Every position is checked before it is read.

A kernel returns a negative position or a status instead of raising, because exceptions cost a kernel its speed;
`columnar.py` turns them into `CorruptRecords`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.protocol.columnar_jit import copy_bytes, inlined, kernel

# Columns of the table that `scan_batches` fills, one row per batch.
POSITION, SIZE, BASE_OFFSET, LAST_OFFSET, ATTRIBUTES, BASE_TIMESTAMP, MAX_TIMESTAMP, PRODUCER_ID, COUNT = range(9)
TABLE_COLUMNS = 9

HEADER_BYTES = 61
OK, BAD_MAGIC, BAD_SIZE, BAD_RECORD, BAD_COUNT, NO_ROOM = range(6)

TRANSACTIONAL_BIT = 16
CONTROL_BIT = 32
APPEND_TIME_BIT = 8


@inlined
def read_int(buffer: Any, position: int, size: int) -> Any:
    """A signed big-endian integer of `size` bytes."""
    value = np.int64(0)
    for index in range(size):
        value = (value << 8) | np.int64(buffer[position + index])
    shift = 64 - 8 * size
    return (value << shift) >> shift


@inlined
def read_varint(buffer: Any, position: int, end: int) -> tuple[Any, int]:
    """A zig-zag varint as (value, next position); the position is -1 when the bytes end or the number is too long."""
    raw = np.uint64(0)
    shift = np.uint64(0)
    while position < end and shift < 70:
        byte = buffer[position]
        position += 1
        raw |= np.uint64(byte & 0x7F) << shift
        if byte < 128:
            return np.int64(raw >> np.uint64(1)) ^ -np.int64(raw & np.uint64(1)), position
        shift += np.uint64(7)
    return np.int64(0), -1


@kernel
def scan_batches(buffer: Any, table: Any) -> tuple[int, int, int]:
    """Walk the batch headers: (status, batches found, bytes used). A cut-off last batch is left for the next fetch."""
    position = 0
    found = 0
    total = len(buffer)
    while total - position >= HEADER_BYTES:
        length = read_int(buffer, position + 8, 4)
        if length < HEADER_BYTES - 12:
            return BAD_SIZE, found, position
        if buffer[position + 16] != 2:
            return BAD_MAGIC, found, position
        size = length + 12
        if position + size > total:
            break
        if found == len(table):
            return NO_ROOM, found, position
        row = table[found]
        base_offset = read_int(buffer, position, 8)
        row[POSITION] = position
        row[SIZE] = size
        row[BASE_OFFSET] = base_offset
        row[LAST_OFFSET] = base_offset + read_int(buffer, position + 23, 4)
        row[ATTRIBUTES] = read_int(buffer, position + 21, 2)
        row[BASE_TIMESTAMP] = read_int(buffer, position + 27, 8)
        row[MAX_TIMESTAMP] = read_int(buffer, position + 35, 8)
        row[PRODUCER_ID] = read_int(buffer, position + 43, 8)
        row[COUNT] = read_int(buffer, position + 57, 4)
        found += 1
        position += size
    return OK, found, position


@kernel
def choose_batches(
    buffer: Any, table: Any, from_offset: int, end_offset: int, aborted_ids: Any, aborted_starts: Any, chosen: Any
) -> int:
    """Mark the batches whose records a reader may see; returns how many.

    Left out: control batches, batches outside the asked offsets, and data of the aborted transactions, which are listed
    by producer id and first offset in the order of the first offsets. A transaction stays aborted until its ABORT
    marker has passed.
    """
    ended = np.zeros(len(aborted_ids), dtype=np.uint8)
    started = 0
    count = 0
    for index in range(len(table)):
        row = table[index]
        chosen[index] = 0
        attributes = row[ATTRIBUTES]
        while started < len(aborted_ids) and aborted_starts[started] <= row[LAST_OFFSET]:
            started += 1
        if attributes & CONTROL_BIT:
            is_abort = row[SIZE] > HEADER_BYTES + 10 and _control_type(buffer, row[POSITION], row[SIZE]) == 0
            if is_abort:
                for other in range(started):
                    if aborted_ids[other] == row[PRODUCER_ID]:
                        ended[other] = 1
            continue
        if row[LAST_OFFSET] < from_offset or row[BASE_OFFSET] >= end_offset or row[COUNT] == 0:
            continue
        if attributes & TRANSACTIONAL_BIT:
            is_aborted = False
            for other in range(started):
                if aborted_ids[other] == row[PRODUCER_ID] and ended[other] == 0:
                    is_aborted = True
                    break
            if is_aborted:
                continue
        chosen[index] = 1
        count += 1
    return count


@inlined
def _control_type(buffer: Any, position: int, size: int) -> int:
    """0 ABORT, 1 COMMIT, -1 anything else: the second int16 of the key of the only record."""
    end = position + size
    at = position + HEADER_BYTES
    _, at = read_varint(buffer, at, end)
    if at < 0 or at >= end:
        return -1
    _, at = read_varint(buffer, at + 1, end)
    if at < 0:
        return -1
    _, at = read_varint(buffer, at, end)
    if at < 0:
        return -1
    key_size, at = read_varint(buffer, at, end)
    if at < 0 or key_size < 4 or at + 4 > end:
        return -1
    return read_int(buffer, at + 2, 2)


@kernel
def decode_records(
    buffer: Any,  # uint8: plain record bytes of all batches
    spans: Any,  # int64 [batch, 2]: start and end of a batch's records in `buffer`
    rows: Any,  # int64 [batch, TABLE_COLUMNS]: the header of that batch
    from_offset: int,
    end_offset: int,
    with_headers: bool,
    offsets: Any,  # the columns to fill, each with room for every record
    timestamps_us: Any,
    timestamp_types: Any,
    key_ends: Any,
    key_valid: Any,
    key_data: Any,
    value_ends: Any,
    value_valid: Any,
    value_data: Any,
    header_list_ends: Any,
    header_key_ends: Any,
    header_key_data: Any,
    header_value_ends: Any,
    header_value_valid: Any,
    header_value_data: Any,
    totals: Any,  # int64[6] out: rows, null keys, null values, headers, null header values, -
) -> tuple[int, int]:
    """Fill the columns; returns (status, index of the batch that is broken)."""
    row_count = 0
    null_keys = 0
    null_values = 0
    header_count = 0
    null_header_values = 0
    key_at = 0
    value_at = 0
    header_key_at = 0
    header_value_at = 0
    for batch in range(len(spans)):
        position = spans[batch, 0]
        batch_end = spans[batch, 1]
        base_offset = rows[batch, BASE_OFFSET]
        base_timestamp = rows[batch, BASE_TIMESTAMP]
        is_append_time = (rows[batch, ATTRIBUTES] & APPEND_TIME_BIT) != 0
        for _ in range(rows[batch, COUNT]):
            size, position = read_varint(buffer, position, batch_end)
            if position < 0 or size < 6 or position + size > batch_end:
                return BAD_RECORD, batch
            end = position + size
            timestamp_delta, position = read_varint(buffer, position + 1, end)
            if position < 0:
                return BAD_RECORD, batch
            offset_delta, position = read_varint(buffer, position, end)
            if position < 0:
                return BAD_RECORD, batch
            key_size, position = read_varint(buffer, position, end)
            if position < 0 or key_size < -1 or position + key_size > end:
                return BAD_RECORD, batch
            key_start = position
            if key_size > 0:
                position += key_size
            value_size, position = read_varint(buffer, position, end)
            if position < 0 or value_size < -1 or position + value_size > end:
                return BAD_RECORD, batch
            value_start = position
            if value_size > 0:
                position += value_size
            headers, position = read_varint(buffer, position, end)
            if position < 0 or headers < 0 or headers > end - position:
                return BAD_RECORD, batch

            offset = base_offset + offset_delta
            is_wanted = from_offset <= offset < end_offset
            keep_headers = is_wanted and with_headers
            for _header in range(headers):
                size_of_key, position = read_varint(buffer, position, end)
                if position < 0 or size_of_key < 0 or position + size_of_key > end:
                    return BAD_RECORD, batch
                start_of_key = position
                position += size_of_key
                size_of_value, position = read_varint(buffer, position, end)
                if position < 0 or size_of_value < -1 or position + size_of_value > end:
                    return BAD_RECORD, batch
                if keep_headers:
                    copy_bytes(header_key_data, header_key_at, buffer, start_of_key, size_of_key)
                    header_key_at += size_of_key
                    if size_of_value >= 0:
                        copy_bytes(header_value_data, header_value_at, buffer, position, size_of_value)
                        header_value_at += size_of_value
                        header_value_valid[header_count] = 1
                    else:
                        header_value_valid[header_count] = 0
                        null_header_values += 1
                    header_count += 1
                    header_key_ends[header_count] = header_key_at
                    header_value_ends[header_count] = header_value_at
                if size_of_value > 0:
                    position += size_of_value
            if position != end:
                return BAD_RECORD, batch
            if not is_wanted:
                continue

            if key_size >= 0:
                copy_bytes(key_data, key_at, buffer, key_start, key_size)
                key_at += key_size
                key_valid[row_count] = 1
            else:
                key_valid[row_count] = 0
                null_keys += 1
            if value_size >= 0:
                copy_bytes(value_data, value_at, buffer, value_start, value_size)
                value_at += value_size
                value_valid[row_count] = 1
            else:
                value_valid[row_count] = 0
                null_values += 1
            offsets[row_count] = offset
            if is_append_time:
                timestamps_us[row_count] = rows[batch, MAX_TIMESTAMP] * 1000
                timestamp_types[row_count] = 1
            else:
                timestamps_us[row_count] = (base_timestamp + timestamp_delta) * 1000
                timestamp_types[row_count] = 0
            row_count += 1
            key_ends[row_count] = key_at
            value_ends[row_count] = value_at
            if with_headers:
                header_list_ends[row_count] = header_count
        if position != batch_end:
            return BAD_COUNT, batch
    totals[0] = row_count
    totals[1] = null_keys
    totals[2] = null_values
    totals[3] = header_count
    totals[4] = null_header_values
    return OK, 0
