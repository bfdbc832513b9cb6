"""Record batches ↔ Arrow columns at memory speed: `decode` for readers, `encode` for writers.

No record becomes a Python object here. Per batch there is some Python (checksum, codec, header), per record
only kernels. Brokers never import this module: numba takes half a second to load.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.protocol import codecs
from penstock.protocol import columnar_decode as reading
from penstock.protocol import columnar_encode as writing
from penstock.protocol.codecs import Codec, CodecError
from penstock.protocol.columnar_flat import FlatHeaders, flat, nothing, sealed
from penstock.protocol.crc import crc32c

HEADER_TYPE: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
TIMESTAMP_TYPE: Final = pa.timestamp("us", tz="UTC")

# The columns of Spark's own Kafka source without the topic, which the caller knows.
SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", TIMESTAMP_TYPE),
        pa.field("timestampType", pa.int32()),
        pa.field("headers", HEADER_TYPE),
    ]
)

MAX_OFFSET: Final = 2**63 - 1
DEFAULT_MAX_BATCH_BYTES: Final = 900_000  # below the default max.message.bytes of 1,048,588, with some room
MAX_CHUNK_BYTES: Final = 2**31 - 1  # Arrow's binary columns have 32-bit offsets

_FRONT: Final = struct.Struct(">qiibI")
_CHECKED: Final = struct.Struct(">hiqqqhii")
_CRC_FIELD_BYTES: Final = 21
_MAX_SEQUENCE: Final = 2**31

PROBLEMS: Final = {
    reading.BAD_MAGIC: "a batch of an unknown magic (only version 2 is read)",
    reading.BAD_SIZE: "a batch with an impossible size",
    reading.BAD_RECORD: "a record that does not fit its batch",
    reading.BAD_COUNT: "bytes after the last record of a batch",
}


class CorruptRecords(Exception):
    """The bytes are no record batches, or their checksum differs."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """`columns` has SCHEMA (without `headers` if not asked for); `next_offset` is where the next fetch goes on."""

    columns: pa.RecordBatch
    next_offset: int
    bytes_used: int


@dataclass(slots=True)
class ProducerStamp:
    """What a producer writes into its batches; `sequences` holds the next sequence per partition and is advanced."""

    producer_id: int = -1
    producer_epoch: int = -1
    transactional: bool = False
    sequences: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """One finished batch for one partition."""

    partition: int
    data: memoryview
    record_count: int


def decode(
    data: bytes | bytearray | memoryview,
    *,
    partition: int = 0,
    from_offset: int = 0,
    end_offset: int = MAX_OFFSET,
    aborted: Iterable[tuple[int, int]] = (),
    with_headers: bool = True,
    check_crc: bool = True,
) -> Decoded:
    """Columns of the records with from_offset ≤ offset < end_offset, in log order.

    `aborted` lists (producer id, first offset) as a read_committed fetch answers it; control batches are never shown.
    A cut-off last batch is ignored. When nothing complete is there, next_offset is from_offset.
    """
    buffer = as_array(data)
    table, bytes_used = scan(buffer)
    next_offset = max(from_offset, int(table[-1, reading.LAST_OFFSET]) + 1) if len(table) else from_offset
    rows = visible_batches(data, buffer, table, from_offset, end_offset, aborted, check_crc)
    plain, spans = plain_records(data, buffer, rows)
    return Decoded(
        _columns(plain, spans, rows, partition, from_offset, end_offset, with_headers), next_offset, bytes_used
    )


def decode_pieces(
    data: bytes | bytearray | memoryview,
    *,
    max_records: int,
    partition: int = 0,
    from_offset: int = 0,
    end_offset: int = MAX_OFFSET,
    aborted: Iterable[tuple[int, int]] = (),
    with_headers: bool = True,
) -> Iterator[pa.RecordBatch]:
    """As `decode`, in pieces of whole batches with about `max_records` records: a compressed fetch may hold very many.

    What came in one fetch is one unit for `aborted`, so it cannot be cut before.
    """
    buffer = as_array(data)
    table, _ = scan(buffer)
    rows = visible_batches(data, buffer, table, from_offset, end_offset, aborted, True)
    counts = rows[:, reading.COUNT]
    piece_of_batch = (np.cumsum(counts) - counts) // max_records
    for piece in np.unique(piece_of_batch):
        chosen = rows[piece_of_batch == piece]
        plain, spans = plain_records(data, buffer, chosen)
        yield _columns(plain, spans, chosen, partition, from_offset, end_offset, with_headers)


def visible_batches(
    data: bytes | bytearray | memoryview,
    buffer: Any,
    table: Any,
    from_offset: int,
    end_offset: int,
    aborted: Iterable[tuple[int, int]],
    check_crc: bool,
) -> Any:
    """The rows of `table` whose records may be shown."""
    if check_crc:
        _check_crcs(data, table)
    listed = sorted(aborted, key=lambda entry: entry[1])
    chosen = np.zeros(len(table), dtype=np.uint8)
    reading.choose_batches(
        buffer,
        table,
        from_offset,
        end_offset,
        np.array([entry[0] for entry in listed], dtype=np.int64),
        np.array([entry[1] for entry in listed], dtype=np.int64),
        chosen,
    )
    return table[chosen.astype(np.bool_)]


def next_offset(data: bytes | bytearray | memoryview, from_offset: int) -> int:
    """The offset behind the last complete batch, or `from_offset` when there is none; cheap."""
    table, _ = scan(as_array(data))
    return max(from_offset, int(table[-1, reading.LAST_OFFSET]) + 1) if len(table) else from_offset


def as_array(data: bytes | bytearray | memoryview) -> Any:
    return sealed(np.frombuffer(data, dtype=np.uint8))


def scan(buffer: Any) -> tuple[Any, int]:
    room = max(16, len(buffer) // 4096)
    while True:
        table = np.empty((room, reading.TABLE_COLUMNS), dtype=np.int64)
        status, found, used = reading.scan_batches(buffer, table)
        if status == reading.OK:
            return table[:found], int(used)
        if status != reading.NO_ROOM:
            raise CorruptRecords(f"{PROBLEMS[status]} at byte {used}")
        room *= 8


def _check_crcs(data: bytes | bytearray | memoryview, table: Any) -> None:
    view = memoryview(data)
    for position, size in table[:, : reading.SIZE + 1].tolist():
        stored = int.from_bytes(view[position + 17 : position + _CRC_FIELD_BYTES], "big")
        if crc32c(view[position + _CRC_FIELD_BYTES : position + size]) != stored:
            raise CorruptRecords(f"the checksum of the batch at byte {position} differs")


def plain_records(data: bytes | bytearray | memoryview, buffer: Any, rows: Any) -> tuple[Any, Any]:
    """(bytes, spans of each batch's records in them). Uncompressed batches alone are read where they are."""
    spans = np.empty((len(rows), 2), dtype=np.int64)
    codec_ids = rows[:, reading.ATTRIBUTES] & 7
    if not codec_ids.any():
        spans[:, 0] = rows[:, reading.POSITION] + reading.HEADER_BYTES
        spans[:, 1] = rows[:, reading.POSITION] + rows[:, reading.SIZE]
        return buffer, spans
    view = memoryview(data)
    parts: list[bytes | memoryview] = []
    total = 0
    for index, (position, size) in enumerate(rows[:, : reading.SIZE + 1].tolist()):
        payload = view[position + reading.HEADER_BYTES : position + size]
        part: bytes | memoryview = payload
        if codec_ids[index]:
            try:
                part = codecs.decompress(Codec(int(codec_ids[index])), payload)
            except (CodecError, ValueError) as error:
                raise CorruptRecords(f"the batch at byte {position}: {error}") from error
        parts.append(part)
        spans[index] = total, total + len(part)
        total += len(part)
    if total > MAX_CHUNK_BYTES:
        raise CorruptRecords(f"{total} bytes in one fetch exceed what an Arrow column holds; ask for fewer bytes")
    return as_array(parts[0] if len(parts) == 1 else b"".join(parts)), spans


def _columns(
    plain: Any, spans: Any, rows: Any, partition: int, from_offset: int, end_offset: int, with_headers: bool
) -> pa.RecordBatch:
    room = int(rows[:, reading.COUNT].clip(min=0).sum())
    size = int((spans[:, 1] - spans[:, 0]).sum())
    if room > size:  # a record takes at least seven bytes: a count that lies must not make us allocate for it
        raise CorruptRecords(PROBLEMS[reading.BAD_RECORD])
    # A header takes at least two bytes, so this is room for all; untouched pages cost nothing.
    header_room = size // 2 if with_headers else 0
    header_bytes = size if with_headers else 0
    offsets, timestamps = np.empty(room, np.int64), np.empty(room, np.int64)
    timestamp_types = np.empty(room, np.int32)
    keys, values = _BinaryRoom(room, size), _BinaryRoom(room, size)
    header_lists = np.zeros(room + 1 if with_headers else 1, np.int32)
    header_keys, header_values = _BinaryRoom(header_room, header_bytes), _BinaryRoom(header_room, header_bytes)
    totals = np.zeros(6, np.int64)
    status, broken = reading.decode_records(
        plain, spans, rows, from_offset, end_offset, with_headers, offsets, timestamps, timestamp_types,
        keys.ends, keys.valid, keys.data, values.ends, values.valid, values.data,
        header_lists, header_keys.ends, header_keys.data, header_values.ends, header_values.valid, header_values.data,
        totals,
    )  # fmt: skip
    if status != reading.OK:
        raise CorruptRecords(f"{PROBLEMS[status]}, base offset {rows[broken, reading.BASE_OFFSET]}")
    count, null_keys, null_values, header_count, null_header_values = (int(total) for total in totals[:5])
    arrays = [
        keys.array(pa.binary(), count, null_keys),
        values.array(pa.binary(), count, null_values),
        pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(np.full(count, partition, np.int32))]),
        pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(offsets)]),
        pa.Array.from_buffers(TIMESTAMP_TYPE, count, [None, pa.py_buffer(timestamps)]),
        pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(timestamp_types)]),
    ]
    if not with_headers:
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(list(SCHEMA)[:-1]))
    pairs = pa.StructArray.from_arrays(
        [
            header_keys.array(pa.string(), header_count, 0),
            header_values.array(pa.binary(), header_count, null_header_values),
        ],
        fields=list(HEADER_TYPE.value_type),
    )
    lists = header_lists[: count + 1]
    # As in Spark's own source, a record without headers has null instead of an empty list.
    has_headers = np.diff(lists) > 0
    validity = None if has_headers.all() else pa.py_buffer(np.packbits(has_headers, bitorder="little"))
    arrays.append(pa.Array.from_buffers(HEADER_TYPE, count, [validity, pa.py_buffer(lists)], children=[pairs]))
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


class _BinaryRoom:
    """Buffers of a nullable binary column with room for `count` entries of together `size` bytes."""

    def __init__(self, count: int, size: int) -> None:
        self.ends = np.empty(count + 1, np.int32)
        self.ends[0] = 0
        self.valid = np.empty(count, np.uint8)
        self.data = np.empty(size, np.uint8)

    def array(self, arrow_type: Any, count: int, null_count: int) -> Any:
        validity = pa.py_buffer(np.packbits(self.valid[:count], bitorder="little")) if null_count else None
        used = int(self.ends[count])
        # A small column must not keep a large buffer alive while it waits in a queue.
        data = self.data[:used] if used * 2 > len(self.data) else self.data[:used].copy()
        return pa.Array.from_buffers(
            arrow_type, count, [validity, pa.py_buffer(self.ends[: count + 1]), pa.py_buffer(data)], null_count
        )


def choose_partitions(keys: Any, partition_count: int, asked: Any = None, first_keyless: int = 0) -> Any:
    """The partition of every row, as the Java client chooses it: murmur2 of the key; an asked one is honoured.

    Rows without key go in even runs over all partitions from `first_keyless` on. `keys` is an Arrow binary or string
    array; `asked` an Arrow integer array whose nulls (or negative entries) mean "choose".
    """
    count = len(keys)
    if asked is None:
        chosen = np.full(count, -1, dtype=np.int64)
    else:
        chosen = asked.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        if count and chosen.max() >= partition_count:
            raise ValueError(f"partition {chosen.max()} does not exist: the topic has {partition_count}")
    column = flat(keys)
    writing.assign_partitions(
        column.offsets, column.data, column.valid, partition_count, first_keyless % partition_count, chosen
    )
    return chosen


def encode(
    values: Any,
    *,
    partitions: Any,
    keys: Any = None,
    headers: Any = None,
    timestamps_ms: Any = None,
    codec: Codec = Codec.NONE,
    codec_level: int | None = None,
    stamp: ProducerStamp | None = None,
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES,
) -> list[EncodedBatch]:
    """Finished batches, by partition, rows of one partition in their order.

    `values`, `keys`, `headers` are Arrow arrays; `partitions` (as `choose_partitions` gives it) and `timestamps_ms`
    are numpy integers. Batches end before `max_batch_bytes` (before compression); a larger record stands alone.
    """
    count = len(values)
    if count == 0:
        return []
    if int(partitions.min()) < 0:
        raise ValueError(f"partition {int(partitions.min())} does not exist")
    stamp = stamp if stamp is not None else ProducerStamp()
    key, value = flat(keys) if keys is not None else nothing(count), flat(values)
    header = FlatHeaders.of(headers)
    if timestamps_ms is None:
        timestamps_ms = np.full(count, int(time.time() * 1000), dtype=np.int64)
    partition_count = int(partitions.max()) + 1
    order = np.empty(count, dtype=np.int64)
    writing.group_by_partition(partitions, partition_count, order)
    records_bytes = key.size + value.size + header.size + count * writing.RECORD_OVERHEAD_BYTES
    batch_room = min(count, partition_count + 2 * (records_bytes // max_batch_bytes) + 2)
    out = np.empty(records_bytes + batch_room * reading.HEADER_BYTES, dtype=np.uint8)
    batches = np.empty((batch_room, writing.OUT_COLUMNS), dtype=np.int64)
    made = writing.encode_records(
        order, partitions, timestamps_ms, key.offsets, key.data, key.valid, value.offsets, value.data, value.valid,
        header.present, header.lists, header.list_valid, header.keys.offsets, header.keys.data,
        header.values.offsets, header.values.data, header.values.valid, max_batch_bytes, out, batches,
    )  # fmt: skip
    view = memoryview(out.data)
    return [_seal(view, row, codec, codec_level, stamp) for row in batches[:made].tolist()]


def _seal(out: memoryview, row: list[int], codec: Codec, level: int | None, stamp: ProducerStamp) -> EncodedBatch:
    partition, start, end, count, base_timestamp, max_timestamp = row
    attributes = int(codec) | (reading.TRANSACTIONAL_BIT if stamp.transactional else 0)
    sequence = -1
    if stamp.producer_id >= 0:
        sequence = stamp.sequences.get(partition, 0)
        stamp.sequences[partition] = (sequence + count) % _MAX_SEQUENCE
    batch: memoryview
    if codec is Codec.NONE:
        batch = out[start:end]
    else:
        payload = codecs.compress(codec, out[start + reading.HEADER_BYTES : end], level)
        batch = memoryview(bytearray(reading.HEADER_BYTES + len(payload)))
        batch[reading.HEADER_BYTES :] = payload
    _CHECKED.pack_into(
        batch, _CRC_FIELD_BYTES, attributes, count - 1, base_timestamp, max_timestamp,
        stamp.producer_id, stamp.producer_epoch, sequence, count,
    )  # fmt: skip
    _FRONT.pack_into(batch, 0, 0, len(batch) - 12, -1, 2, crc32c(batch[_CRC_FIELD_BYTES:]))
    return EncodedBatch(partition, batch, count)


def warm_up() -> None:
    """Compile every kernel, or load it from disk: some ten seconds once on a machine, nothing afterwards."""
    values = pa.array([b"value"])
    headers = pa.array([[{"key": "k", "value": b"v"}]], HEADER_TYPE)
    batches = encode(values, keys=values, headers=headers, partitions=choose_partitions(values, 1))
    decode(bytes(batches[0].data))
