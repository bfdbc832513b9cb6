"""What a follower does with an answer of its leader: append, truncate, move its high watermark, or try later.

Pure but for the replica's log. The rules are Kafka's: an answer counts only if it was asked for under
the present leader epoch and from the present log end; a divergence found by epochs is cut off before anything is
appended; only then may the follower's log be said to agree with the leader's.
"""

from __future__ import annotations

import enum
import logging
import struct
from typing import NamedTuple

from penstock.log.results import LogWriteError
from penstock.protocol.batch import InvalidBatch
from penstock.protocol.errors import ErrorCode
from penstock.replication.partition import NO_EPOCH, Partition

logger = logging.getLogger(__name__)

_LENGTH_AND_EPOCH = struct.Struct(">ii")
_BATCH_PREFIX_BYTES = 12


class FetchAnswer(NamedTuple):
    """One partition of a leader's fetch answer."""

    error: int
    high_watermark: int = -1
    log_start_offset: int = -1
    diverging_epoch: tuple[int, int] | None = None
    records: bytes | memoryview = b""


class Position(NamedTuple):
    """Where a follower asks from: what its fetch request says of itself."""

    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int


class Outcome(enum.Enum):
    FETCH = "fetch on"
    IGNORE = "the answer is out of date"
    BACK_OFF = "try again after a while"
    WAIT = "fenced: wait for metadata"
    ASK_OFFSETS = "out of range: ask the leader where its log starts and ends"
    FAILED = "the own disk failed"


def position(partition: Partition) -> Position:
    log = partition.log
    epoch = log.latest_epoch()
    return Position(
        partition.leader_epoch, log.log_end_offset, NO_EPOCH if epoch is None else epoch, log.log_start_offset
    )


def take_answer(partition: Partition, asked: Position, answer: FetchAnswer) -> Outcome:
    """Apply the leader's answer to the fetch that was sent from `asked`."""
    if partition.is_leader or partition.leader_epoch != asked.leader_epoch:
        return Outcome.IGNORE
    if answer.error:
        return _take_error(answer.error)
    if partition.log.log_end_offset != asked.fetch_offset:
        return Outcome.IGNORE
    try:
        if answer.diverging_epoch is not None:
            truncate_diverged(partition, *answer.diverging_epoch)
            return Outcome.FETCH
        return _append(partition, asked.leader_epoch, answer)
    except LogWriteError as error:
        return _write_failed(partition, error)


def _write_failed(partition: Partition, error: LogWriteError) -> Outcome:
    """A full disk may have space again later; a broken one is off line until a restart."""
    partition.write_failed(error)
    if error.directory_failed:
        return Outcome.FAILED
    partition.write_error = None  # nobody else waits for these bytes: they are fetched again
    return Outcome.BACK_OFF


def _append(partition: Partition, leader_epoch: int, answer: FetchAnswer) -> Outcome:
    log = partition.log
    if len(answer.records):
        records = up_to_epoch(answer.records, leader_epoch)
        try:
            log.append_as_follower(records)
        except InvalidBatch as error:
            # Damaged on its way or on the leader's disk. What came before it is good; the rest is asked for again.
            logger.warning("%r: what the leader sent is refused: %s", partition, error)
            log.write_staged()
            return Outcome.BACK_OFF
        log.write_staged()
    high_watermark = min(answer.high_watermark, log.log_end_offset)
    if high_watermark > log.high_watermark:
        log.set_high_watermark(high_watermark)
    if answer.log_start_offset > log.log_start_offset:
        log.raise_log_start_offset(min(answer.log_start_offset, log.high_watermark))
    partition.follower_advanced()
    return Outcome.FETCH


def up_to_epoch(records: bytes | memoryview, leader_epoch: int) -> bytes | memoryview:
    """The batches up to the first one of a later epoch than the fetch was made under.

    The leader sends a region of its file. Had it lost its leadership and truncated that file before the bytes went out,
    they could be those of its successor (KAFKA-18723).
    """
    at, end = 0, len(records)
    while at + _BATCH_PREFIX_BYTES + 4 <= end:
        length, epoch = _LENGTH_AND_EPOCH.unpack_from(records, at + 8)
        if epoch > leader_epoch:
            return records[:at]
        if length < 0:
            break  # the log will say what is wrong with it
        at += _BATCH_PREFIX_BYTES + length
    return records


def truncate_diverged(partition: Partition, leader_found_epoch: int, leader_end_offset: int) -> None:
    """The leader's answer to our last epoch: the largest epoch it has up to ours, and where that ended there.

    If we know that very epoch, both logs agree up to the smaller end. If not, cut back to the end of our largest older
    epoch and ask again: each round drops at least one epoch, so it ends.
    """
    log = partition.log
    own_epoch, own_end_offset = log.end_offset_for_epoch(leader_found_epoch)
    if own_epoch == NO_EPOCH:
        offset = leader_end_offset
    elif own_epoch == leader_found_epoch:
        offset = min(own_end_offset, leader_end_offset)
    else:
        offset = own_end_offset
    log.truncate_to(max(min(offset, log.log_end_offset), log.log_start_offset))
    partition.follower_advanced()


def take_leader_offsets(partition: Partition, asked: Position, leader_start: int, leader_end: int) -> Outcome:
    """Our position is outside of the leader's log: it lost its end (unclean election) or dropped its beginning."""
    log = partition.log
    if partition.is_leader or partition.leader_epoch != asked.leader_epoch:
        return Outcome.IGNORE
    if log.log_end_offset != asked.fetch_offset:
        return Outcome.IGNORE
    try:
        if leader_end < log.log_end_offset:
            if leader_end < log.log_start_offset:
                log.truncate_fully_and_start_at(leader_start)
            else:
                log.truncate_to(leader_end)
        elif leader_start > log.log_end_offset:
            log.truncate_fully_and_start_at(leader_start)
    except LogWriteError as error:
        return _write_failed(partition, error)
    partition.follower_advanced()
    return Outcome.FETCH


def _take_error(error: int) -> Outcome:
    if error == ErrorCode.OFFSET_OUT_OF_RANGE:
        return Outcome.ASK_OFFSETS
    if error == ErrorCode.FENCED_LEADER_EPOCH:
        return Outcome.WAIT  # asked under the present epoch: only newer metadata can help
    return Outcome.BACK_OFF
