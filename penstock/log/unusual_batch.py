"""Batches that do not pass the leader's quick test: what is wrong with them, or what they have to become first.

Topics that stamp, compress or open batches send all of theirs through here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.log.results import AppendResult, Origin
from penstock.log.validation import (
    Fault,
    Inspection,
    check_client_batch,
    inspect,
    is_quickly_inspected,
    judged_by_header,
    must_open,
    only_batch,
)
from penstock.protocol.batch import CONTROL_BIT, LOG_APPEND_TIME_BIT, BatchHeader, patch_timestamp
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.log.log import Log

Buffer = bytes | bytearray | memoryview

_ANSWERED_WITHOUT_LOG_START: Final = (
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.CORRUPT_MESSAGE,
)


class Prepared(NamedTuple):
    """A batch that may be appended. `copied`: it is the log's own already."""

    batch: Buffer
    copied: bool
    append_time_ms: int


def refuse(log: Log, error: ErrorCode, detail: str) -> AppendResult:
    plain = error in _ANSWERED_WITHOUT_LOG_START
    return AppendResult(error, log_start_offset=-1 if plain else log.log_start_offset, detail=detail)


def prepare(
    log: Log, batch: Buffer, now_ms: int, origin: Origin, inspection: Inspection | None
) -> Prepared | AppendResult:
    """Kafka's checks in Kafka's order, then the changes that the topic's settings ask for."""
    if origin is Origin.CLIENT:
        alone = only_batch(batch)
        if isinstance(alone, Fault):
            return _refuse_fault(log, alone)
        fault = check_client_batch(alone, log.max_message_bytes)
        if fault is not None:
            return _refuse_fault(log, fault)
        batch = alone
    elif len(batch) > log.max_message_bytes:
        return refuse(log, ErrorCode.MESSAGE_TOO_LARGE, f"{len(batch)} bytes")
    copied = False
    header = BatchHeader.parse(batch)
    if not header.attributes & CONTROL_BIT:
        found = _inspected(log, batch, header, now_ms, inspection)
        if found is not None:
            if found.error is not ErrorCode.NONE:
                return AppendResult(
                    found.error,
                    log_start_offset=log.log_start_offset,
                    record_errors=found.record_errors,
                    message=found.message,
                    detail=found.detail,
                )
            batch = bytearray(found.batch)
            copied = True
            if len(batch) > log.max_message_bytes:
                return refuse(log, ErrorCode.MESSAGE_TOO_LARGE, f"{len(batch)} bytes after recompression")
            header = BatchHeader.parse(batch)
        stamped = _stamped(log, header, now_ms)
        if stamped is not None:
            batch = batch if isinstance(batch, bytearray) and copied else bytearray(batch)
            copied = True
            patch_timestamp(batch, *stamped)
    if len(batch) > log.config.segment_bytes:
        return refuse(log, ErrorCode.RECORD_LIST_TOO_LARGE, f"{len(batch)} bytes exceed a segment")
    return Prepared(batch, copied, now_ms if log.log_append_time else -1)


def _inspected(
    log: Log, batch: Buffer, header: BatchHeader, now_ms: int, inspection: Inspection | None
) -> Inspection | None:
    """What was found in the batch, if it has to be opened."""
    if inspection is not None:
        return inspection
    opened = log.may_open and must_open(header.attributes, log.config)
    in_the_future = header.max_timestamp - now_ms > log.after_max_ms
    if not opened and not in_the_future and not header.attributes & LOG_APPEND_TIME_BIT:
        return None
    if opened or is_quickly_inspected(batch, header.attributes, header.record_count):
        return inspect(batch, log.config, now_ms, log.name)
    return judged_by_header(batch, header.attributes, in_the_future, log.config)


def _stamped(log: Log, header: BatchHeader, now_ms: int) -> tuple[int, int] | None:
    """The attributes and the largest time that the topic wants instead of the client's."""
    if log.log_append_time:
        return header.attributes | LOG_APPEND_TIME_BIT, now_ms
    if header.attributes & LOG_APPEND_TIME_BIT:
        return header.attributes & ~LOG_APPEND_TIME_BIT, header.max_timestamp
    return None


def _refuse_fault(log: Log, fault: Fault) -> AppendResult:
    refused = refuse(log, fault.error, fault.detail)
    return refused._replace(message=fault.message, log_start_offset=-1 if fault.early else refused.log_start_offset)
