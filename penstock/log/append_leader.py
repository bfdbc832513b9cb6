"""Appending as leader: the checks in Kafka's order, offsets, producer state, staging. The broker's hot path.

A usual batch is decided by its header: one unpack, one checksum, a few comparisons. Whatever is not usual branches off
to a function of its own.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from penstock.log import maintenance, producer_replay
from penstock.log.append_follower import write_marker
from penstock.log.producer_state import KEPT_BATCHES, MAX_SEQUENCE, KeptBatch, ProducerEntry
from penstock.log.results import AppendResult, LogWriteError, Origin
from penstock.log.segment import RECENT_MAX
from penstock.log.staging import assign_epoch, begin_stage, index_batch
from penstock.log.unusual_batch import prepare, refuse
from penstock.log.validation import CHECKED_RECORDS_MAX, MIN_RECORD_BYTES, Inspection, is_framed
from penstock.log.verifications import VerificationGuard
from penstock.protocol.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_START,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD_BYTES,
    TRANSACTIONAL_BIT,
    BatchHeader,
    read_marker,
)
from penstock.protocol.crc import native_crc32c
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.log.log import Log

Buffer = bytes | bytearray | memoryview

_HEADER: Final = Struct(">qi4xbIhi8xqqhii")  # protocol.batch.HEADER without leader epoch and first timestamp
_FRONT: Final = Struct(">qii")  # base offset, batch length, leader epoch
_LAST_CODEC: Final = 4
# Attributes are signed: picked out one by one, nothing of these can hide behind bit 15.
_JUDGED_BITS: Final = CONTROL_BIT | LOG_APPEND_TIME_BIT | CODEC_MASK
_MAX_SPAN: Final = 2**31 - 1
_COPIED_FASTER_BYTES: Final = 2048  # below, slicing a bytearray costs less than making a view of it
_CLIENT: Final = Origin.CLIENT
_NONE: Final = ErrorCode.NONE

_unpack_header = _HEADER.unpack_from
_pack_front = _FRONT.pack_into
_new_tuple = tuple.__new__


def append_as_leader(
    log: Log,
    batch: Buffer,
    leader_epoch: int,
    now_ms: int,
    origin: Origin = Origin.CLIENT,
    *,
    inspection: Inspection | None = None,
    guard: VerificationGuard | None = None,
    transaction_version: int = 1,
    lent: bool = False,
) -> AppendResult:
    """Check one batch, give it offsets and stage it. May raise LogWriteError when it has to write first (a roll, a
    marker): then everything staged before is void, too.

    Markers come with Origin.COORDINATOR and the `transaction_version` of their coordinator. The `guard` of a
    verification is needed by the first batch of a transaction. `inspection` is the result of
    `validation.inspect` when the caller had that done in a worker; without it the log inspects by itself. A `lent`
    batch is the log's to change, and stays as it is until the next write: it needs no copy.
    """
    size = len(batch)
    if size < HEADER_BYTES:
        # Not even a header: what is wrong with it does not depend on who sent it.
        refused = prepare(log, batch, now_ms, _CLIENT, None)
        assert isinstance(refused, AppendResult)
        return refused
    (
        sent_offset,
        length,
        magic,
        crc,
        attributes,
        last_delta,
        max_timestamp,
        producer_id,
        producer_epoch,
        sequence,
        count,
    ) = _unpack_header(batch)
    append_time_ms = -1
    if (
        size > log.usual_max_bytes
        or magic != 2
        or length + LOG_OVERHEAD_BYTES != size
        or sent_offset
        or count <= 0
        or last_delta + 1 != count
        or attributes & _JUDGED_BITS > _LAST_CODEC  # a control batch, stamped by its sender, or an unknown codec
        or (sequence < 0 <= producer_id)
        or max_timestamp - now_ms > log.after_max_ms
        or inspection is not None
        or native_crc32c(
            batch[CRC_START:]
            if size < _COPIED_FASTER_BYTES or type(batch) is memoryview
            else memoryview(batch)[CRC_START:]
        )
        != crc
        or (
            not is_framed(batch, count)
            if count <= CHECKED_RECORDS_MAX and not attributes & CODEC_MASK
            else count * MIN_RECORD_BYTES > size
        )
    ):
        prepared = prepare(log, batch, now_ms, origin, inspection)
        if isinstance(prepared, AppendResult):
            return prepared
        if attributes & CONTROL_BIT and producer_id >= 0:
            return _append_marker(log, batch, leader_epoch, transaction_version)
        batch, copied, append_time_ms = prepared
        lent = lent or copied
        size = len(batch)
        _, length, _, _, attributes, _, max_timestamp, _, _, _, _ = _unpack_header(batch)

    if producer_id >= 0:
        entry = log.producers_state.entries.get(producer_id)
        # The next batch of a known producer outside transactions: nothing else to check.
        in_sequence = (
            entry is not None
            and entry.epoch == producer_epoch
            and entry.batches
            and entry.batches[-1][1] + 1 == sequence
            and not attributes & TRANSACTIONAL_BIT
            and entry.txn_first_offset < 0
            and origin is _CLIENT
            and sequence + last_delta <= MAX_SEQUENCE
        )
        if not in_sequence:
            answer = _check_producer(
                log, entry, attributes, producer_id, producer_epoch, sequence, last_delta, origin, guard
            )
            if answer is not None:
                return answer

    segment = log.active
    base_offset = log.log_end_offset
    last_offset = base_offset + last_delta
    position = segment.end_position
    if (
        position + size > log.roll_limit_bytes
        or max_timestamp > segment.roll_after_timestamp
        or last_offset - segment.base_offset > _MAX_SPAN
    ) and maintenance.should_roll(log, size, max_timestamp, last_offset):
        try:
            maintenance.roll(log, base_offset)
        except LogWriteError:
            if producer_id >= 0:
                log.producers_state.note_refused(producer_id, producer_epoch, sequence, ErrorCode.KAFKA_STORAGE_ERROR)
            raise
        segment = log.active
        position = 0
        maintenance.should_roll(log, size, max_timestamp, last_offset)  # sets the new segment's roll time

    placed: Buffer = batch if lent else bytearray(batch)
    _pack_front(placed, 0, base_offset, length, leader_epoch)
    if not log.staged:
        begin_stage(log)
    log.staged.append(placed)
    if leader_epoch != log.epochs.latest:
        assign_epoch(log, leader_epoch, base_offset)
    if producer_id >= 0:
        if entry is not None and in_sequence:
            # producers_state.put_batch for the usual case, spelled out
            if log.producers_state.frozen is not None:
                entry = log.producers_state.own(entry)
            kept = entry.batches
            log.undo.append(
                (
                    producer_id,
                    entry,
                    producer_epoch,
                    entry.coordinator_epoch,
                    entry.last_timestamp,
                    -1,
                    kept,
                )
            )
            added = (sequence, sequence + last_delta, last_offset, last_delta, max_timestamp)
            entry.batches = (*kept[1:], added) if len(kept) >= KEPT_BATCHES else (*kept, added)
            entry.last_timestamp = max_timestamp
        else:
            log.undo.append(
                log.producers_state.put_batch(
                    producer_id,
                    producer_epoch,
                    sequence,
                    last_delta,
                    last_offset,
                    max_timestamp,
                    attributes & TRANSACTIONAL_BIT != 0,
                )
            )

    # segment.note_batch, spelled out: a call less for every append
    if max_timestamp > segment.max_timestamp:
        segment.max_timestamp = max_timestamp
        segment.max_timestamp_offset = last_offset
    recent = segment.recent_lasts
    if len(recent) >= RECENT_MAX:
        segment.forget_older_half()
    recent.append(last_offset)
    segment.recent_positions.append(position)
    if segment.bytes_since_index > log.index_interval_bytes:
        index_batch(log, segment, last_offset, position)
    segment.bytes_since_index += size
    segment.end_position = position + size
    log.log_end_offset = last_offset + 1
    # AppendResult(…) without the call that fills in defaults
    return _new_tuple(
        AppendResult,
        (_NONE, base_offset, last_offset, append_time_ms, log.log_start_offset, (), None, False, None),
    )


def note_refused(log: Log, batch: Buffer, error: ErrorCode) -> None:
    """The leader may not take this batch now. What its producer has in the pipe behind it gets the same answer."""
    if len(batch) >= HEADER_BYTES:
        header = BatchHeader.parse(batch)
        if header.producer_id >= 0 and header.base_sequence >= 0:
            log.producers_state.note_refused(header.producer_id, header.producer_epoch, header.base_sequence, error)


def _check_producer(
    log: Log,
    entry: ProducerEntry | None,
    attributes: int,
    producer_id: int,
    producer_epoch: int,
    sequence: int,
    last_delta: int,
    origin: Origin,
    guard: VerificationGuard | None,
) -> AppendResult | None:
    """The rules for producers in Kafka's order; None if the batch may go on."""
    state = log.producers_state
    if origin is _CLIENT and entry is not None:
        last_sequence = (sequence + last_delta) % (1 << 31)
        kept = state.find_duplicate(entry, producer_epoch, sequence, last_sequence)
        if kept is None and 0 < len(entry.batches) < KEPT_BATCHES and sequence < entry.batches[0][0]:
            producer_replay.recall_batches(log, entry)
            kept = state.find_duplicate(entry, producer_epoch, sequence, last_sequence)
        if kept is not None:
            return _duplicate(log, kept)
    transactional = bool(attributes & TRANSACTIONAL_BIT)
    verifications = state.verifications
    if verifications.is_fenced(producer_id, producer_epoch):
        return refuse(
            log,
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"the transaction of producer {producer_id} epoch {producer_epoch} was taken over as it is",
        )
    if transactional and not verifications.is_running(producer_id, guard):
        is_open = state.is_open(producer_id, producer_epoch)
        # An open transaction that only an earlier leader verified is asked about again, whatever the setting.
        if not verifications.is_proven(producer_id) if is_open else log.verify_transactions:
            return refuse(log, ErrorCode.INVALID_TXN_STATE, "the batch is not part of a verified transaction")
    if entry is not None and producer_epoch < entry.epoch:
        return refuse(
            log, ErrorCode.INVALID_PRODUCER_EPOCH, f"epoch {producer_epoch} of producer {producer_id} < {entry.epoch}"
        )
    if origin is _CLIENT:
        fault = state.refused_before(entry, producer_id, producer_epoch, sequence) or state.check_sequence(
            entry, producer_id, producer_epoch, sequence
        )
        if fault is not None:
            return refuse(log, *fault)
    if entry is not None and entry.txn_first_offset >= 0 and not transactional:
        return refuse(log, ErrorCode.INVALID_TXN_STATE, f"producer {producer_id} has an open transaction")
    if transactional:
        verifications.succeeded(producer_id)
    return None


def _duplicate(log: Log, kept: KeptBatch) -> AppendResult:
    _, _, last_offset, delta, timestamp = kept
    append_time_ms = timestamp if log.log_append_time else -1
    start = log.log_start_offset
    return AppendResult(_NONE, last_offset - delta, last_offset, append_time_ms, start, duplicate=True)


def _append_marker(log: Log, batch: Buffer, leader_epoch: int, transaction_version: int) -> AppendResult:
    """Markers are rare and change much: each is written at once, so that a failed write leaves nothing to undo."""
    header = BatchHeader.parse(batch)
    marker = read_marker(batch, header)
    if marker is None:
        return refuse(log, ErrorCode.INVALID_RECORD, "the control batch is no transaction marker")
    error = log.producers_state.check_marker(
        header.producer_id, header.producer_epoch, marker.coordinator_epoch, transaction_version
    )
    if error is not None:
        return refuse(log, error, f"marker of producer {header.producer_id} epoch {header.producer_epoch}")
    log.write_staged()
    base_offset = log.log_end_offset
    if maintenance.should_roll(log, header.size, header.max_timestamp, base_offset):
        maintenance.roll(log, base_offset)
    copy = bytearray(batch)
    _pack_front(copy, 0, base_offset, header.batch_length, leader_epoch)
    write_marker(log, copy, BatchHeader.parse(copy))
    if transaction_version < 2:
        # The next transaction has the same epoch: what was asked for the old one must not open it.
        log.producers_state.verifications.forget(header.producer_id)
    return AppendResult(_NONE, base_offset, base_offset, -1, log.log_start_offset)
