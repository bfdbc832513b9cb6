"""Appending what is decided already: batches from the leader, markers, and the replay of batches at load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.log import maintenance
from penstock.log.producer_state import Undo
from penstock.log.results import FollowerAppend
from penstock.log.staging import assign_epoch, begin_stage, index_batch
from penstock.protocol.batch import CONTROL_ABORT, BatchHeader, InvalidBatch, crc_matches, iterate_batches, read_marker
from penstock.protocol.codecs import CodecError
from penstock.protocol.records import InvalidRecords

if TYPE_CHECKING:
    from penstock.log.log import Log
    from penstock.log.txn_index import TxnIndex
    from penstock.protocol.batch import Marker

Buffer = bytes | bytearray | memoryview


def append_as_follower(log: Log, batches: Buffer) -> FollowerAppend:
    """Stage whole batches from the leader as they are; a cut one at the end is ignored.

    InvalidBatch when they are corrupt or do not continue this log: then what came before it in `batches` stays
    staged. Control batches are written at once, as for a leader. The bytes are copied.
    """
    view = memoryview(batches)
    first_offset = -1
    last_offset = -1
    taken = 0
    for header in iterate_batches(view):
        if not crc_matches(view, header):
            raise InvalidBatch(f"{log.name}: the checksum of the batch at {header.base_offset} differs")
        if header.base_offset < log.log_end_offset:
            if log.log_start_offset < log.log_end_offset or header.last_offset < log.log_end_offset:
                raise InvalidBatch(f"{log.name}: offset {header.base_offset} is before the end {log.log_end_offset}")
            # Records were deleted up to the middle of this batch, and it comes whole: the log has to begin with it.
            maintenance.truncate_fully_and_start_at(log, header.base_offset)
        if maintenance.should_roll(log, header.size, header.max_timestamp, header.last_offset):
            maintenance.roll_for_follower(log, header)
        data = bytes(view[header.position : header.position + header.size])
        if header.is_control:
            try:
                write_marker(log, data, header._replace(position=0))
            except (InvalidRecords, CodecError) as error:
                raise InvalidBatch(f"{log.name}: the control batch at {header.base_offset} is unreadable") from error
        else:
            stage_whole(log, data, header)
            if header.has_producer_id:
                log.undo.append(put_producer(log, header))
        if first_offset < 0:
            first_offset = header.base_offset
        last_offset = header.last_offset
        taken += 1
    return FollowerAppend(first_offset, last_offset, taken)


def put_producer(log: Log, header: BatchHeader) -> Undo:
    return log.producers_state.put_batch(
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.last_offset_delta,
        header.last_offset,
        header.max_timestamp,
        header.is_transactional,
    )


def replay(log: Log, header: BatchHeader, data: Buffer | None) -> None:
    """Bring the producer state behind a batch that is in the log already (loading); `data` for control batches."""
    if not header.has_producer_id:
        return
    if header.is_control:
        marker = read_marker(data, header) if data is not None else None
        if marker is not None:
            end_transaction(log, header, marker)
    else:
        put_producer(log, header)


def end_transaction(log: Log, header: BatchHeader, marker: Marker) -> None:
    log.producers_state.end_transaction(
        header.producer_id,
        header.producer_epoch,
        marker.coordinator_epoch,
        marker.control_type == CONTROL_ABORT,
        header.last_offset,
        header.max_timestamp,
    )


def write_marker(log: Log, data: bytearray | bytes, header: BatchHeader) -> None:
    """A control batch that carries its offset already, written at once. LogWriteError leaves no trace of it.

    The index hears of an abort before the log has its marker. Were it the other way round, a disk that becomes full in
    between would leave data that nobody knows to be aborted: the state that could tell ends with the marker.
    """
    log.write_staged()
    marker = read_marker(data, header) if header.has_producer_id else None
    aborted = (
        log.producers_state.entry_if_aborted(header.producer_id, header.last_offset)
        if marker is not None and marker.control_type == CONTROL_ABORT
        else None
    )
    index = log.active.txn_index
    if aborted is not None:
        try:
            index.append(aborted)
        except OSError as error:
            raise maintenance.write_error(log, error) from error
    stage_whole(log, data, header)
    try:
        log.write_staged()
    finally:
        if log.written_end_offset > header.base_offset:  # it is in the log, even if a sync behind the write failed
            if marker is not None:
                end_transaction(log, header, marker)
                log.update_stable()
        elif aborted is not None:
            _take_back(log, index, header.base_offset)


def _take_back(log: Log, index: TxnIndex, offset: int) -> None:
    try:
        index.truncate_to(offset)
    except OSError as error:
        # Nobody may read here what the index says of a marker that is not there.
        raise maintenance.half_way(log, error, "written") from error


def stage_whole(log: Log, data: bytearray | bytes, header: BatchHeader) -> None:
    """Stage bytes that carry their offsets already."""
    segment = log.active
    position = segment.end_position
    if not log.staged:
        begin_stage(log)
    log.staged.append(data)
    if header.leader_epoch != log.epochs.latest:
        assign_epoch(log, header.leader_epoch, header.base_offset)
    segment.note_batch(header.last_offset, position, header.max_timestamp)
    if segment.bytes_since_index > log.index_interval_bytes:
        index_batch(log, segment, header.last_offset, position)
    segment.bytes_since_index += header.size
    segment.end_position = position + header.size
    log.log_end_offset = header.next_offset
