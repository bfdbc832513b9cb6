"""Compaction itself: keep the newest record of each key. Reads segments, writes `.cleaned` ones; knows no broker.

The rules are Kafka's Cleaner, MemoryRecords.filterTo and CleanedTransactionMetadata. It runs in a process of its own
(`cleaner_process`), so a loop over records is fine here.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from penstock.log import disk
from penstock.log.cleaned_transactions import CleanedTransactions
from penstock.log.cleaned_writer import CleanedWriter
from penstock.log.files import LOG_SUFFIX, LogFile, file_name
from penstock.log.txn_index import AbortedEntry
from penstock.protocol import codecs
from penstock.protocol.batch import (
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    BatchHeader,
    InvalidBatch,
    crc_matches,
    read_payload,
    seal_batch,
)
from penstock.protocol.codecs import Codec
from penstock.protocol.records import ScannedRecord, encode_varint, scan_records

_READ_BYTES: Final = 1024 * 1024
_MAP_ENTRY_BYTES: Final = 200  # what one key costs in a Python dict, measured
_MAX_SPAN: Final = 2**31 - 1
_RAW_KEY_MAX: Final = 16


class CorruptSource(Exception):
    """A segment to be compacted is broken: the log is left alone."""


@dataclass(frozen=True)
class CompactionSpec:
    """What one run has to do; travels to the process as JSON."""

    directory: str
    bases: list[int]
    """Base offsets of all segments below the first uncleanable offset, from the first of the log on."""
    sizes: list[int]
    first_dirty_offset: int
    first_uncleanable_offset: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    map_bytes: int
    io_max_bytes_per_second: float = 1.7976931348623157e308
    aborted: list[list[int]] = field(default_factory=list)
    """All entries of the log's transaction indexes, also of newer segments: a marker may lie behind the run's end."""
    producers: dict[str, list[int]] = field(default_factory=dict)
    """Producer id → [last data offset (-1: none), epoch] of all that are still known."""


class Output(NamedTuple):
    """One new segment and the old ones that it stands for."""

    base_offset: int
    sources: list[int]
    size: int
    max_timestamp: int


class CompactionResult(NamedTuple):
    """`next_dirty_offset` is where the next run begins."""

    outputs: list[Output]
    next_dirty_offset: int
    records_read: int
    records_kept: int


class _Throttle:
    """Sleeps so that no more than so many bytes a second are read and written."""

    def __init__(self, bytes_per_second: float) -> None:
        self._rate = bytes_per_second
        self._began = time.monotonic()
        self._bytes = 0

    def count(self, size: int) -> None:
        self._bytes += size
        ahead = self._bytes / self._rate - (time.monotonic() - self._began)
        if ahead > 0.01:
            time.sleep(min(ahead, 1.0))


def compact(spec: CompactionSpec) -> CompactionResult:
    """Read, decide, write. CorruptSource leaves nothing but `.cleaned` leftovers, which the caller drops."""
    run = _Run(spec)
    offsets = run.build_map()
    end_offset = run.latest_offset + 1
    # One for all groups: data and marker of a transaction may lie in different ones.
    transactions = CleanedTransactions(run.aborted(0))
    outputs = [run.clean_group(group, offsets, end_offset, transactions) for group in _groups(spec, end_offset)]
    return CompactionResult(outputs, end_offset, run.records_read, run.records_kept)


def _groups(spec: CompactionSpec, end_offset: int) -> list[list[int]]:
    """Neighbouring segments that together still fit into one."""
    groups: list[list[int]] = []
    size = index_size = 0
    directory = Path(spec.directory)
    for base, segment_size in zip(spec.bases, spec.sizes, strict=True):
        if base >= end_offset:
            break
        index = _size(directory / file_name(base, ".index")), _size(directory / file_name(base, ".timeindex"))
        fits = (
            groups
            and size + segment_size <= spec.segment_bytes
            and index_size + max(index) <= spec.segment_index_bytes
            and _end_of(spec, base) - groups[-1][0] <= _MAX_SPAN
        )
        if fits:
            groups[-1].append(base)
            size += segment_size
            index_size += max(index)
        else:
            groups.append([base])
            size, index_size = segment_size, max(index)
    return groups


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _end_of(spec: CompactionSpec, base: int) -> int:
    position = spec.bases.index(base)
    return spec.bases[position + 1] if position + 1 < len(spec.bases) else spec.first_uncleanable_offset


class _Run:
    """State of one compaction."""

    def __init__(self, spec: CompactionSpec) -> None:
        self.spec = spec
        self.latest_offset = spec.first_dirty_offset - 1
        self.records_read = 0
        self.records_kept = 0
        self._directory = Path(spec.directory)
        self._throttle = _Throttle(spec.io_max_bytes_per_second)
        self._producers = {int(producer_id): value for producer_id, value in spec.producers.items()}

    # -- pass one

    def build_map(self) -> dict[bytes, int]:
        """Key → offset of its newest record in the dirty part. When full, the run ends where it became so."""
        spec = self.spec
        offsets: dict[bytes, int] = {}
        capacity = max(spec.map_bytes // _MAP_ENTRY_BYTES, 1)
        dirty = [base for base in spec.bases if _end_of(spec, base) > spec.first_dirty_offset]
        transactions = CleanedTransactions(self.aborted(spec.first_dirty_offset))
        for base in dirty:
            for header, data in self._batches(base):
                if header.is_control:
                    transactions.on_control_batch(header, data)
                elif not transactions.on_batch(header) and not self._put_keys(header, data, offsets, capacity):
                    return offsets
                if header.last_offset >= spec.first_dirty_offset:
                    self.latest_offset = max(self.latest_offset, header.last_offset)
            self.latest_offset = max(self.latest_offset, _end_of(spec, base) - 1)
        return offsets

    def _put_keys(self, header: BatchHeader, data: memoryview, offsets: dict[bytes, int], capacity: int) -> bool:
        """False when the map is full."""
        start = self.spec.first_dirty_offset
        base_offset = header.base_offset
        for record in _scan(header, data):
            offset = base_offset + record.offset_delta
            if record.key is None or offset < start:
                continue
            key = _map_key(record.key)
            if key not in offsets and len(offsets) >= capacity:
                return False
            offsets[key] = offset
            self.latest_offset = max(self.latest_offset, offset)
        return True

    # -- pass two

    def clean_group(
        self, bases: list[int], offsets: dict[bytes, int], end_offset: int, transactions: CleanedTransactions
    ) -> Output:
        spec = self.spec
        writer = CleanedWriter(self._directory, bases[0], spec.index_interval_bytes)
        transactions.keep_aborted = writer.add_aborted
        for base in bases:
            for header, data in self._batches(base):
                kept = self._clean_batch(header, data, offsets, end_offset, transactions)
                if kept is not None:
                    writer.append(kept)
                    self._throttle.count(len(kept))
        last = self._directory / file_name(bases[-1], LOG_SUFFIX)
        writer.finish(last.stat().st_mtime_ns)
        return Output(bases[0], bases, writer.size, writer.max_timestamp)

    def _clean_batch(
        self,
        header: BatchHeader,
        data: memoryview,
        offsets: dict[bytes, int],
        end_offset: int,
        transactions: CleanedTransactions,
    ) -> bytes | memoryview | None:
        """What stays of a batch: all of it, a rewritten one, just its header, or nothing."""
        spec = self.spec
        horizon = header.delete_horizon_ms
        if header.is_control:
            marker_for_empty = transactions.on_control_batch(header, data)
            discard = marker_for_empty and horizon is not None and horizon <= spec.now_ms
        else:
            marker_for_empty = False
            discard = transactions.on_batch(header)
        # A bare header stays where it tells the end of the cleaned part, or the last sequence of a known producer.
        retain_empty = header.next_offset == end_offset or self._is_last_of_producer(header)
        self.records_read += header.record_count
        if discard or header.record_count == 0:
            return _emptied(header) if retain_empty else None
        if header.is_control:
            self.records_kept += 1
            if marker_for_empty and horizon is None:
                return _rewritten(header, data, list(_scan(header, data)), spec.now_ms + spec.delete_retention_ms)
            return data
        records = _scan(header, data)
        keep_deletes = horizon is None or spec.now_ms < horizon
        base_offset = header.base_offset
        kept: list[ScannedRecord] = []
        tombstones = False
        for record in records:
            offset = base_offset + record.offset_delta
            if offset <= self.latest_offset:
                if record.key is None or offset < offsets.get(_map_key(record.key), -1):
                    continue
                if not record.has_value and not keep_deletes:
                    continue
            kept.append(record)
            tombstones = tombstones or not record.has_value
        self.records_kept += len(kept)
        if not kept:
            return _emptied(header) if retain_empty else None
        set_horizon = tombstones and horizon is None
        if len(kept) == len(records) and not set_horizon:
            return data
        return _rewritten(header, data, kept, spec.now_ms + spec.delete_retention_ms if set_horizon else None)

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        known = self._producers.get(header.producer_id) if header.has_producer_id else None
        if known is None:
            return False
        last_data_offset, epoch = known
        if last_data_offset >= 0:
            return header.last_offset == last_data_offset
        return header.is_control and header.producer_epoch == epoch

    # -- reading

    def aborted(self, start_offset: int) -> list[AbortedEntry]:
        """Aborted transactions that ended at or behind `start_offset`, by first offset."""
        entries = [AbortedEntry(*fields) for fields in self.spec.aborted]
        return sorted(
            (entry for entry in entries if entry.last_offset >= start_offset), key=lambda entry: entry.first_offset
        )

    def _batches(self, base: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        for header, data in read_batches(self._directory / file_name(base, LOG_SUFFIX)):
            self._throttle.count(len(data))
            yield header, data


def read_batches(path: Path) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Every batch of a segment, checked; headers are at position 0 of their data. CorruptSource if one is broken."""
    file = LogFile(path)
    size = os.fstat(file.fd).st_size
    position = 0
    while position < size:
        chunk = memoryview(disk.pread(file.fd, _READ_BYTES, position))
        relative = 0
        while relative + HEADER_BYTES <= len(chunk):
            try:
                header = BatchHeader.parse(chunk, relative)
            except InvalidBatch as error:
                raise CorruptSource(f"{path}: {error} at {position + relative}") from error
            if relative + header.size > len(chunk):
                break
            data = chunk[relative : relative + header.size]
            header = header._replace(position=0)
            if not crc_matches(data, header):
                raise CorruptSource(f"{path}: the checksum of the batch at {position + relative} differs")
            yield header, data
            relative += header.size
        if relative:
            position += relative
            continue
        if len(chunk) < HEADER_BYTES:
            raise CorruptSource(f"{path}: {size - position} bytes at the end are no batch")
        header = BatchHeader.parse(chunk)
        if position + header.size > size:
            raise CorruptSource(f"{path}: the last batch is cut")
        data = memoryview(disk.pread(file.fd, header.size, position))
        if len(data) < header.size or not crc_matches(data, header):
            raise CorruptSource(f"{path}: the checksum of the batch at {position} differs")
        yield header, data
        position += header.size


def _scan(header: BatchHeader, data: memoryview) -> list[ScannedRecord]:
    return scan_records(read_payload(data, header), header.record_count)


def _map_key(key: bytes) -> bytes:
    """Long keys by their digest; one byte longer than any short key, so that the two never meet."""
    if len(key) <= _RAW_KEY_MAX:
        return key
    return b"\x00" + hashlib.md5(key, usedforsecurity=False).digest()


def _emptied(header: BatchHeader) -> bytes:
    return seal_batch(
        b"",
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT),
        last_offset_delta=header.last_offset_delta,
        base_timestamp=-1,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        record_count=0,
    )


def _rewritten(header: BatchHeader, data: memoryview, kept: list[ScannedRecord], new_horizon_ms: int | None) -> bytes:
    """The batch with these records only; a new horizon takes the place of the base timestamp."""
    attributes = header.attributes
    base_timestamp = header.base_timestamp
    if new_horizon_ms is None:
        parts = [record.raw for record in kept]
    else:
        attributes |= DELETE_HORIZON_BIT
        shift = base_timestamp - new_horizon_ms
        base_timestamp = new_horizon_ms
        parts = [_shifted(record, shift) for record in kept]
    max_timestamp = header.max_timestamp
    if not header.is_log_append_time:
        max_timestamp = header.base_timestamp + max(record.timestamp_delta for record in kept)
    payload = b"".join(parts)
    codec = Codec(attributes & CODEC_MASK)
    return seal_batch(
        payload if codec is Codec.NONE else codecs.compress(codec, payload),
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        attributes=attributes,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        record_count=len(kept),
    )


def _shifted(record: ScannedRecord, shift: int) -> bytes:
    """The same record, its time relative to another base."""
    body = record.raw[record.body : record.body + 1] + encode_varint(record.timestamp_delta + shift)
    body += record.raw[record.after_timestamp :]
    return encode_varint(len(body)) + body
