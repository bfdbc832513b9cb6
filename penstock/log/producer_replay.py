"""Rebuilding the producer state of a log: newest snapshot, then a replay of the batches behind it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from penstock.log import producer_snapshot
from penstock.log.damage import UNREADABLE
from penstock.log.producer_state import KEPT_BATCHES, MAX_SEQUENCE, ProducerState

if TYPE_CHECKING:
    from penstock.log.log import Log
    from penstock.log.producer_state import KeptBatch, ProducerEntry

RECALLED_OFFSETS: Final = 5000


def rebuild(log: Log, upper_offset: int, snapshots: Sequence[int] | None = None) -> None:
    """State of everything below `upper_offset`. Reads headers only, except of control batches.

    `snapshots` are the offsets of those that there are, rising, if the caller knows.
    """
    state = log.producers_state
    state.clear()
    start = log.log_start_offset
    if snapshots is None:
        snapshots = producer_snapshot.snapshot_offsets(log.directory)
    loaded = producer_snapshot.load_newest(log.directory, start, upper_offset, snapshots)
    if loaded is not None:
        start, entries = loaded
        state.load(entries)
    replay_range(log, start, upper_offset)


def state_at(log: Log, offset: int) -> ProducerState:
    """The state of everything below `offset`, for later: the log keeps what it has."""
    present, log.producers_state = log.producers_state, ProducerState()
    try:
        rebuild(log, offset)
        return log.producers_state
    finally:
        log.producers_state = present


def recall_batches(log: Log, entry: ProducerEntry) -> None:
    """Read back what a snapshot does not keep. Once per producer, when it repeats a batch that is not known.

    A snapshot has one batch per producer, but a producer may have five in flight, and one that repeats them after a
    restart must not be told that it is out of order.
    """
    if not entry.batches or entry.producer_id in log.producers_state.recalled:
        return
    log.producers_state.recalled.add(entry.producer_id)
    oldest = entry.batches[0]
    first_offset = oldest[2] - oldest[3]
    try:
        entry.batches = (*_batches_before(log, entry, first_offset), *entry.batches)[-KEPT_BATCHES:]
    except UNREADABLE as error:
        log.damage.tell(first_offset, error)  # then it is told that it is out of order


def _batches_before(log: Log, entry: ProducerEntry, first_offset: int) -> list[KeptBatch]:
    segment = log.segments[max(bisect_right(log.segment_bases, max(first_offset - 1, 0)) - 1, 0)]
    place = segment.place(max(first_offset - RECALLED_OFFSETS, segment.base_offset, log.log_start_offset))
    if place is None:
        return []
    found: list[KeptBatch] = []
    for header in segment.headers(place[0]):
        if header.base_offset >= first_offset:
            break
        if header.producer_id != entry.producer_id or header.is_control or header.base_sequence < 0:
            continue
        if header.producer_epoch == entry.epoch:
            last_sequence = (header.base_sequence + header.last_offset_delta) & MAX_SEQUENCE
            delta = header.last_offset_delta
            found.append((header.base_sequence, last_sequence, header.last_offset, delta, header.max_timestamp))
    return found


def replay_range(log: Log, start: int, upper_offset: int) -> None:
    """Apply the batches of [start, upper offset)."""
    if start >= upper_offset:
        return
    first = max(bisect_right(log.segment_bases, start) - 1, 0)
    for segment in log.segments[first:]:
        if segment.base_offset >= upper_offset:
            return
        position = 0
        if start > segment.base_offset:
            place = segment.place(start)
            if place is None:
                continue
            position = place[0]
        for header in segment.headers(position):
            if header.base_offset >= upper_offset:
                return
            if not header.has_producer_id:
                continue
            data = segment.read_at(header.position, header.size) if header.is_control else None
            log.replay(header._replace(position=0), data)
