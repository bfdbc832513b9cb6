"""Loading a log from its folder: finishing or undoing what a crash interrupted, and after an unclean stop reading
everything behind the recovery point, cutting at the first bad byte, and rebuilding indexes, producers and epochs.

A clean start lists the folder and reads a snapshot: it touches no batch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.log import disk, maintenance, producer_replay, producer_snapshot
from penstock.log.checkpoints import read_topic_id
from penstock.log.files import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    file_name,
    fsync_directory,
    fsync_path,
    offset_of,
)
from penstock.log.segment import Segment
from penstock.log.txn_index import InvalidTxnIndex
from penstock.protocol.batch import (
    CONTROL_ABORT,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    InvalidBatch,
    crc_matches,
    read_marker,
)
from penstock.protocol.codecs import CodecError
from penstock.protocol.records import InvalidRecords

if TYPE_CHECKING:
    from penstock.log.log import Log

_READ_BYTES: Final = 1024 * 1024
_UNFINISHED: Final = (DELETED_SUFFIX, ".tmp", CLEANED_SUFFIX, SWAP_SUFFIX)
_INDEXES: Final = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)


def load(
    log: Log, *, clean: bool, recovery_point: int, log_start_offset: int, high_watermark: int, cleaned_to: int = 0
) -> None:
    """Fill an empty shell from its folder. The offsets come from the checkpoints (0 if they have none); `cleaned_to`
    is the cleaner's.

    `clean` says that the last stop left everything in order. Blocking; runs in a loader thread.
    """
    names = finish_swap(log.directory)
    log.topic_id = log.topic_id or read_topic_id(log.directory)
    segments = _open_segments(log, names)
    if not segments:
        maintenance.begin(log, log_start_offset)
        log.epochs.load()
        log.epochs.truncate_from_end(log_start_offset)
        return
    log.set_segments(segments)
    log.epochs.load()
    damaged = _first_damaged(segments, names)
    recovered = not clean or damaged is not None
    if recovered:
        start = segments[-1].base_offset if clean else recovery_point
        end_offset = _recover(log, start if damaged is None else min(start, damaged), cleaned_to)
    else:
        snapshots = producer_snapshot.snapshot_offsets(log.directory, names)
        end_offset = _clean_end(segments[-1], snapshots)
    if end_offset < log_start_offset:
        # The data that the checkpoint speaks of is gone: what is left lies before the start and must not come back.
        maintenance.truncate_fully_and_start_at(log, log_start_offset)
        return
    log.log_start_offset = max(log_start_offset, log.segments[0].base_offset)
    log.rest_at(end_offset)
    log.epochs.truncate_from_end(end_offset)
    log.epochs.truncate_from_start(log.log_start_offset)
    if recovered:
        log.epochs.store_now()  # the next recovery begins where this one ends, and rebuilds no epoch from before
    log.recovery_point = end_offset
    # No snapshot at all after a clean stop: a broker that kept no producer state, so there is none to read.
    if not recovered and snapshots:
        producer_replay.rebuild(log, end_offset, _drop_stray_snapshots(log, end_offset, snapshots))
    log.active.activate()
    log.set_high_watermark(min(high_watermark, end_offset))


def finish_swap(directory: Path) -> set[str]:
    """Undo or finish what a crash interrupted in a compaction swap or a deletion; the names that remain."""
    names = set(disk.listdir(directory))  # text, not paths: a start lists thousands of folders
    if _is_in_order(names):
        return names
    changed = False

    def drop(name: str) -> None:
        nonlocal changed
        disk.discard(directory / name)
        names.discard(name)
        changed = True

    for name in sorted(names):
        if name.endswith((DELETED_SUFFIX, ".tmp")):
            drop(name)
    cleaned = [name for name in sorted(names) if name.endswith(CLEANED_SUFFIX)]
    if cleaned:
        # Renames to .swap go from the highest base down, so a .cleaned left over means that the swap had not begun
        # for it: everything from it on is void, and the old segments are still there.
        lowest = min(_offset(name) for name in cleaned)
        for name in sorted(names):
            if name.endswith(SWAP_SUFFIX) and _offset(name) >= lowest:
                drop(name)
        for name in cleaned:
            drop(name)
    swaps = sorted(name for name in names if name.endswith(LOG_SUFFIX + SWAP_SUFFIX))
    if swaps:
        low = _offset(swaps[0])
        high = max(_next_offset_of(directory / name, _offset(name)) for name in swaps)
        for name in sorted(names):
            offset = offset_of(name)
            if offset is None or name.endswith((SWAP_SUFFIX, SNAPSHOT_SUFFIX)):
                continue
            if low <= offset < high:
                drop(name)
    for name in sorted(names):
        if name.endswith(SWAP_SUFFIX):
            final = name.removesuffix(SWAP_SUFFIX)
            disk.replace(directory / name, directory / final)
            names.discard(name)
            names.add(final)
            changed = True
    for name in sorted(names):
        if name.endswith(_INDEXES) and name.partition(".")[0] + LOG_SUFFIX not in names:
            drop(name)
    if changed:
        fsync_directory(directory)
    return names


def _is_in_order(names: set[str]) -> bool:
    """Nothing unfinished, and every index has its log."""
    for name in names:
        if name.endswith(_INDEXES):
            if name.partition(".")[0] + LOG_SUFFIX not in names:
                return False
        elif name.endswith(_UNFINISHED):
            return False
    return True


def _offset(name: str) -> int:
    offset = offset_of(name)
    return -1 if offset is None else offset


def _next_offset_of(path: Path, base_offset: int) -> int:
    """Offset behind the last batch of a swap file (written and synced before its rename)."""
    size = path.stat().st_size
    segment = Segment(path.parent, base_offset, size, False, 0)
    segment.path = str(path)
    end = base_offset
    try:
        for header in segment.headers():
            end = header.next_offset
    finally:
        segment.close()
    return end


def _open_segments(log: Log, names: set[str]) -> list[Segment]:
    created_ms = log.events.clock.now_ms()
    segments = []
    for name in sorted(names):
        if name.endswith(LOG_SUFFIX) and offset_of(name) is not None:
            base_offset = _offset(name)
            size = os.stat(f"{log.directory}/{name}").st_size  # noqa: PTH116
            has_txn_index = name.removesuffix(LOG_SUFFIX) + TXN_INDEX_SUFFIX in names
            segments.append(Segment(log.directory, base_offset, size, has_txn_index, created_ms))
    return segments


def _first_damaged(segments: list[Segment], names: set[str]) -> int | None:
    """Base offset of the first segment whose indexes are missing or cannot be right."""
    for segment in segments:
        stem = file_name(segment.base_offset, "")
        if stem + INDEX_SUFFIX not in names or stem + TIME_INDEX_SUFFIX not in names:
            return segment.base_offset
        if segment.txn_index.exists:
            try:
                segment.txn_index.entries()
            except InvalidTxnIndex:
                return segment.base_offset
    last = segments[-1]
    if not (last.offset_index.is_sane() and last.time_index.is_sane()):
        return last.base_offset
    return None


def _clean_end(last: Segment, snapshots: list[int]) -> int:
    """The log end after a clean stop: the newest snapshot names it, else a short scan from the last index entry."""
    if snapshots and snapshots[-1] > last.base_offset:
        return snapshots[-1]
    return last.next_offset()


def _drop_stray_snapshots(log: Log, end_offset: int, snapshots: list[int]) -> list[int]:
    """Those that are left."""
    bases = set(log.segment_bases)
    kept = []
    for offset in snapshots:
        stray = offset not in bases and not (offset == snapshots[-1] and offset > log.active.base_offset)
        if offset > end_offset or offset <= log.log_start_offset or stray:
            disk.discard(producer_snapshot.snapshot_path(log.directory, offset))
        else:
            kept.append(offset)
    return kept


# -- after an unclean stop


def _recover(log: Log, recovery_point: int, cleaned_to: int) -> int:
    """Rebuild every segment from the one that holds the recovery point on; the log end.

    After the first bad byte the rest of that segment and all later ones go. So do those behind a gap that compaction
    has not made: a power loss may take the unsynced end of one segment and leave the next one.
    """
    segments = log.segments
    first = 0
    for index, segment in enumerate(segments):
        if segment.base_offset <= recovery_point:
            first = index
    for offset in producer_snapshot.snapshot_offsets(log.directory):
        # A snapshot inside what is rebuilt may know batches that turn out to be torn.
        if offset > segments[first].base_offset:
            disk.discard(producer_snapshot.snapshot_path(log.directory, offset))
    _prepare_state(log, segments[first])
    end_offset = segments[first].base_offset
    for index in range(first, len(segments)):
        segment = segments[index]
        if segment.base_offset > end_offset >= cleaned_to and not log.config.cleanup_compact:
            _drop_from(log, index)
            break
        if index > first:
            producer_snapshot.write_snapshot(
                log.directory, segment.base_offset, log.producers_state.entries.values(), durable=False
            )
        end_offset, whole = recover_segment(log, segment)
        if not whole:
            _drop_from(log, index + 1)
            break
    fsync_directory(log.directory)
    return end_offset


def _drop_from(log: Log, index: int) -> None:
    """The newest first: a crash in between leaves no new gap."""
    for later in reversed(log.segments[index:]):
        for path in later.paths():
            disk.discard(path)
    log.set_segments(log.segments[:index])


def _prepare_state(log: Log, segment: Segment) -> None:
    """Epochs and producers as they were where the rebuild begins."""
    log.epochs.truncate_from_end(segment.base_offset)
    log.log_start_offset = log.segments[0].base_offset
    producer_replay.rebuild(log, segment.base_offset)


def recover_segment(log: Log, segment: Segment) -> tuple[int, bool]:
    """Check every batch, write new indexes, cut at the first bad byte: (offset behind the last batch, nothing cut?)."""
    segment.offset_index.file.create()
    segment.time_index.file.create()
    segment.txn_index.reset()
    segment.max_timestamp, segment.max_timestamp_offset = -1, segment.base_offset
    segment.bytes_since_index = 0
    end_offset = segment.base_offset
    good = 0
    for header, data in _sound_batches(segment):
        if header.base_offset < end_offset:
            break
        segment.note_batch(header.last_offset, header.position, header.max_timestamp)
        if segment.bytes_since_index > log.config.index_interval_bytes:
            segment.index_batch(header.last_offset, header.position)
            segment.offset_index.file.write_if_due()
            segment.time_index.file.write_if_due()
        segment.bytes_since_index += header.size
        log.epochs.assign(header.leader_epoch, header.base_offset)
        if header.has_producer_id:
            _replay(log, segment, header, data)
        end_offset = header.next_offset
        good = header.position + header.size
    whole = good == segment.size
    if not whole:
        disk.truncate(segment.path, good)
        segment.size = segment.end_position = good
    segment.forget_recent()
    segment.finish_indexes()
    for path in segment.paths():
        fsync_path(path)
    return end_offset, whole


def _replay(log: Log, segment: Segment, header: BatchHeader, data: memoryview) -> None:
    at_zero = header._replace(position=0)
    if not header.is_control:
        log.replay(at_zero, None)
        return
    marker = read_marker(data, at_zero)
    if marker is None:
        return
    if marker.control_type == CONTROL_ABORT:
        aborted = log.producers_state.entry_if_aborted(header.producer_id, header.last_offset)
        if aborted is not None:
            segment.txn_index.append(aborted)
    log.replay(at_zero, data)


def _sound_batches(segment: Segment) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Batches with a right checksum from the start of the file, up to the first bad byte."""
    fd = disk.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        position = 0
        chunk = memoryview(b"")
        chunk_start = 0
        while position + HEADER_BYTES <= segment.size:
            relative = position - chunk_start
            if relative + HEADER_BYTES > len(chunk):
                chunk, chunk_start, relative = _read_chunk(fd, position, _READ_BYTES), position, 0
            try:
                header = BatchHeader.parse(chunk, relative)
            except InvalidBatch:
                return
            size = header.batch_length + LOG_OVERHEAD_BYTES
            if position + size > segment.size or header.last_offset_delta < 0:
                return
            if relative + size > len(chunk):
                chunk, chunk_start, relative = _read_chunk(fd, position, max(size, _READ_BYTES)), position, 0
            data = chunk[relative : relative + size]
            at_zero = header._replace(position=0)
            if len(data) < size or not crc_matches(data, at_zero):
                return
            if header.is_control and not _is_readable_marker(data, at_zero):
                return
            yield header._replace(position=position), data
            position += size
    finally:
        os.close(fd)


def _is_readable_marker(data: memoryview, header: BatchHeader) -> bool:
    try:
        read_marker(data, header)
    except (InvalidRecords, InvalidBatch, CodecError):
        return False
    return True


def _read_chunk(fd: int, position: int, size: int) -> memoryview:
    return memoryview(disk.pread(fd, size, position))
