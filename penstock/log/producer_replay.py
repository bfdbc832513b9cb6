"""Rebuilding the producer state of a log: newest snapshot, then a replay of the batches behind it."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from penstock.log import producer_snapshot

if TYPE_CHECKING:
    from penstock.log.log import Log


def rebuild(log: Log, upper_offset: int) -> None:
    """State of everything below `upper_offset`. Reads headers only, except of control batches."""
    state = log.producers_state
    state.clear()
    start = log.log_start_offset
    loaded = producer_snapshot.load_newest(log.directory, start, upper_offset)
    if loaded is not None:
        start, entries = loaded
        state.load(entries)
    replay_range(log, start, upper_offset)


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
