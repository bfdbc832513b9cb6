"""Rebuilding the producer state of a log: newest snapshot, then a replay of the batches behind it."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from penstock.log import producer_snapshot
from penstock.log.producer_state import KEPT_BATCHES, MAX_SEQUENCE

if TYPE_CHECKING:
    from penstock.log.log import Log
    from penstock.log.producer_state import KeptBatch

RECENT_MS: Final = 10 * 60 * 1000
REFILL_OFFSETS: Final = 5000


def rebuild(log: Log, upper_offset: int) -> None:
    """State of everything below `upper_offset`. Reads headers only, except of control batches."""
    state = log.producers_state
    state.clear()
    start = log.log_start_offset
    loaded = producer_snapshot.load_newest(log.directory, start, upper_offset)
    if loaded is not None:
        start, entries = loaded
        state.load(entries)
        _refill_windows(log, start)
    replay_range(log, start, upper_offset)


def _refill_windows(log: Log, snapshot_offset: int) -> None:
    """A snapshot keeps one batch per producer, but a producer may have five in flight: without the others, one that
    repeats them after a restart would be told that it is out of order. They are read back from the end of the log, for
    producers that were active lately.
    """
    state = log.producers_state
    recent_ms = log.events.clock.now_ms() - RECENT_MS
    thin: dict[int, list[KeptBatch]] = {
        pid: [] for pid, entry in state.entries.items() if len(entry.batches) == 1 and entry.last_timestamp >= recent_ms
    }
    if not thin:
        return
    first = max(bisect_right(log.segment_bases, max(snapshot_offset - 1, 0)) - 1, 0)
    segment = log.segments[first]
    from_offset = max(snapshot_offset - REFILL_OFFSETS, segment.base_offset, log.log_start_offset)
    place = segment.place(from_offset)
    if place is None:
        return
    for header in segment.headers(place[0]):
        if header.base_offset >= snapshot_offset:
            break
        found = thin.get(header.producer_id)
        if found is None or header.is_control or header.base_sequence < 0:
            continue
        if header.producer_epoch != state.entries[header.producer_id].epoch:
            continue
        last_sequence = (header.base_sequence + header.last_offset_delta) & MAX_SEQUENCE
        found.append(
            (header.base_sequence, last_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp)
        )
    for pid, batches in thin.items():
        entry = state.entries[pid]
        if batches and batches[-1][:3] == entry.batches[-1][:3]:  # else compaction or truncation has been here
            entry.batches = tuple(batches[-KEPT_BATCHES:])


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
