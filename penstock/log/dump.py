"""Showing log files to people: `penstock log dump PATH`. Rows are plain dictionaries, ready for JSON.

It reads what Penstock and Kafka write: segments (with their records on demand), the three indexes, producer snapshots,
checkpoints and the small property files. Nothing is changed, and a broken file gives a row that says so.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from penstock.log import offset_index, time_index, txn_index
from penstock.log.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    InvalidCheckpoint,
    read_epochs,
    read_offsets,
    read_topic_id,
)
from penstock.log.files import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_METADATA,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    offset_of,
)
from penstock.log.log_directory import META_PROPERTIES, partition_of
from penstock.log.producer_snapshot import InvalidSnapshot, decode_snapshot
from penstock.log.txn_index import InvalidTxnIndex
from penstock.protocol.batch import (
    HEADER_BYTES,
    MAGIC_POSITION,
    BatchHeader,
    InvalidBatch,
    crc_matches,
    read_marker,
    read_records,
)
from penstock.protocol.codecs import Codec, CodecError
from penstock.protocol.records import InvalidRecords, Record

Row = dict[str, Any]

_CHECKPOINTS: Final = (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS, CLEANER_OFFSETS)
_PASSING_SUFFIXES: Final = (DELETED_SUFFIX, SWAP_SUFFIX, CLEANED_SUFFIX)
_MARKER_NAMES: Final = {0: "ABORT", 1: "COMMIT"}


def dump(path: Path, *, records: bool = False) -> Iterator[Row]:
    """Rows of a file, of all files of a replica's folder, or of a whole log directory. `records` opens the batches."""
    if not path.exists():
        raise FileNotFoundError(path)
    if not path.is_dir():
        yield from _dump_file(path, records)
        return
    for entry in sorted(path.iterdir()):
        if entry.is_file():
            yield from _dump_file(entry, records)
        elif partition_of(entry.name) is not None:
            yield from dump(entry, records=records)


def _dump_file(path: Path, records: bool) -> Iterator[Row]:
    reader = _reader_of(path, records)
    if reader is None:
        return
    kind, rows = reader
    try:
        for row in rows():
            yield {"file": str(path), "kind": kind, **row}
    except (InvalidCheckpoint, InvalidSnapshot, InvalidTxnIndex, UnicodeDecodeError) as error:
        yield {"file": str(path), "kind": kind, "problem": str(error)}


def _reader_of(path: Path, records: bool) -> tuple[str, Callable[[], Iterator[Row]]] | None:
    name = path.name
    for suffix in _PASSING_SUFFIXES:
        name = name.removesuffix(suffix)
    if name in _CHECKPOINTS:
        return "checkpoint", lambda: _offsets(path)
    if name == LEADER_EPOCH_CHECKPOINT:
        return "leader-epochs", lambda: ({"epoch": e, "start_offset": s} for e, s in read_epochs(path))
    if name == PARTITION_METADATA:
        return "partition-metadata", lambda: iter([{"topic_id": str(read_topic_id(path.parent))}])
    if name == META_PROPERTIES:
        return "meta-properties", lambda: _properties(path)
    base_offset = offset_of(name)
    if base_offset is None:
        return None
    if name.endswith(LOG_SUFFIX):
        return "batch", lambda: dump_segment(path, records=records)
    if name.endswith(INDEX_SUFFIX):
        return "offset-index", lambda: dump_offset_index(path, base_offset)
    if name.endswith(TIME_INDEX_SUFFIX):
        return "time-index", lambda: dump_time_index(path, base_offset)
    if name.endswith(TXN_INDEX_SUFFIX):
        return "txn-index", lambda: (entry._asdict() for entry in txn_index.read_txn_index(path))
    if name.endswith(SNAPSHOT_SUFFIX):
        return "snapshot", lambda: dump_snapshot(path)
    return None


# -- segments


def walk_segment(path: Path) -> Iterator[tuple[BatchHeader, bytes]]:
    """(header with its position in the file, bytes) of every batch; InvalidBatch where the file stops making sense."""
    with path.open("rb") as file:
        position = 0
        while True:
            head = file.read(HEADER_BYTES)
            if not head:
                return
            if len(head) < HEADER_BYTES:
                raise InvalidBatch(f"{len(head)} bytes at {position} are no batch")
            if head[MAGIC_POSITION] != 2:
                raise InvalidBatch(f"magic {head[MAGIC_POSITION]} at {position}")
            header = BatchHeader.parse(head)
            rest = file.read(header.size - HEADER_BYTES)
            if len(rest) < header.size - HEADER_BYTES:
                raise InvalidBatch(f"the batch at {position} is cut")
            yield header._replace(position=position), head + rest
            position += header.size


def dump_segment(path: Path, *, records: bool = False) -> Iterator[Row]:
    """One row per batch; a last row with a `problem` where the file is broken."""
    try:
        for header, data in walk_segment(path):
            yield _batch_row(header, data, records)
    except InvalidBatch as error:
        yield {"problem": str(error)}


def _batch_row(header: BatchHeader, data: bytes, with_records: bool) -> Row:
    at_zero = header._replace(position=0)
    codec = header.attributes & 7
    row: Row = {
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.record_count,
        "position": header.position,
        "size": header.size,
        "leader_epoch": header.leader_epoch,
        "timestamp_type": "LogAppendTime" if header.is_log_append_time else "CreateTime",
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "codec": Codec(codec).kafka_name if codec <= Codec.ZSTD else f"unknown ({codec})",
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "delete_horizon_ms": header.delete_horizon_ms,
        "magic": header.magic,
        "crc": header.crc,
        "valid": crc_matches(data, at_zero),
    }
    try:
        if header.is_control:
            marker = read_marker(data, at_zero)
            if marker is not None:
                row["marker"] = _MARKER_NAMES[marker.control_type]
                row["coordinator_epoch"] = marker.coordinator_epoch
        elif with_records:
            row["records"] = [_record_row(record) for record in read_records(data, at_zero)]
    except (InvalidRecords, CodecError, InvalidBatch) as error:
        row["problem"] = str(error)
    return row


def _record_row(record: Record) -> Row:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name, _text(content)] for name, content in record.headers],
    }


def _text(content: bytes | None) -> str | Row | None:
    """Text where it is text, else base64 that says so."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


# -- the other files


def dump_offset_index(path: Path, base_offset: int) -> Iterator[Row]:
    content = path.read_bytes()
    entries = content[: len(content) - len(content) % offset_index.ENTRY.size]
    for number, (relative, position) in enumerate(offset_index.ENTRY.iter_unpack(entries)):
        if number and relative == 0:  # the zero tail of a file that Kafka preallocated
            return
        yield {"offset": base_offset + relative, "position": position}
    if len(entries) != len(content):
        yield {"problem": f"{len(content) - len(entries)} bytes at the end are no entry"}


def dump_time_index(path: Path, base_offset: int) -> Iterator[Row]:
    content = path.read_bytes()
    entries = content[: len(content) - len(content) % time_index.ENTRY.size]
    for number, (timestamp, relative) in enumerate(time_index.ENTRY.iter_unpack(entries)):
        if number and timestamp == 0:
            return
        yield {"timestamp": timestamp, "offset": base_offset + relative}
    if len(entries) != len(content):
        yield {"problem": f"{len(content) - len(entries)} bytes at the end are no entry"}


def dump_snapshot(path: Path) -> Iterator[Row]:
    for entry in decode_snapshot(path.read_bytes()):
        yield {
            "producer_id": entry.producer_id,
            "producer_epoch": entry.epoch,
            "last_sequence": entry.last_sequence,
            "last_offset": entry.last_data_offset,
            "offset_delta": entry.batches[-1][3] if entry.batches else 0,
            "last_timestamp": entry.last_timestamp,
            "coordinator_epoch": entry.coordinator_epoch,
            "current_transaction_first_offset": entry.txn_first_offset,
        }


def _offsets(path: Path) -> Iterator[Row]:
    for (topic, partition), offset in sorted(read_offsets(path).items()):
        yield {"topic": topic, "partition": partition, "offset": offset}


def _properties(path: Path) -> Iterator[Row]:
    fields = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith(("#", "!")):
            key, _, value = line.partition("=")
            fields[key.strip()] = value.strip()
    yield {"properties": fields}
