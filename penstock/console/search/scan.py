"""Reading what a search goes through: raw fetches one ahead, a kernel over each, and only what it finds as records.

This runs in a process of its own (process.py); nothing here knows who asks.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from penstock.client.sync import SyncClient
from penstock.console.policy import Fields, masked
from penstock.console.search.wanted import Accepts, Wanted, conditions, predicate
from penstock.operate.errors import UserError
from penstock.protocol.columnar import CorruptRecords, next_offset
from penstock.protocol.columnar_match import NO_HITS, Hits, Matcher
from penstock.protocol.errors import ErrorCode, error_name
from penstock.protocol.records import InvalidRecords, Record

FIRST_FETCH_BYTES, LARGEST_FETCH_BYTES = 256 << 10, 8 << 20
FIRST_WINDOW, LARGEST_WINDOW = 1_000, 200_000
EMPTY_FETCHES = 20  # in a row, before a partition counts as read: its end may have been deleted under us
Span = tuple[int, int]
Found = list[tuple[int, Record]]


@dataclass(frozen=True)
class Portion:
    """What some fetches brought: records that are wanted, and how many offsets were read for them."""

    found: Found
    read: int


@dataclass
class Scan:
    """One search over spans of offsets, {partition: (from, to)}."""

    client: SyncClient
    topic: str
    spans: Mapping[int, Span]
    wanted: Wanted
    masks: Fields
    stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._accepts: Accepts = predicate(self.wanted)
        self._matcher = Matcher(conditions(self.wanted, self.masks))

    def forwards(self) -> Iterator[Portion]:
        """Partition by partition, oldest first."""
        for partition, hits, read in self._fetched(list(self.spans.items())):
            yield Portion([(partition, record) for record in self._records(partition, hits)], read)

    def backwards(self, most: int) -> Iterator[Portion]:
        """From the ends to the starts in windows that grow, over all partitions; the newest of each first.

        Never more than the `most` newest of a window: who wants no more than these need not see the others.
        """
        tops, width = {partition: span[1] for partition, span in self.spans.items()}, FIRST_WINDOW
        while not self.stop.is_set():
            window = [
                (partition, (max(start, tops[partition] - width), tops[partition]))
                for partition, (start, _) in self.spans.items()
                if tops[partition] > start
            ]
            if not window:
                return
            newest: Found = []
            for partition, hits, read in self._fetched(window):
                newest += [(partition, record) for record in self._records(partition, self._trimmed(hits, most))]
                newest = heapq.nlargest(most, newest, key=lambda one: (one[1].timestamp, one[1].offset))
                yield Portion([], read)
            yield Portion(newest, 0)
            tops |= {partition: span[0] for partition, span in window}
            width = min(width * 4, LARGEST_WINDOW)

    def _trimmed(self, hits: Hits, most: int) -> Hits:
        """Where the kernel's word is the last one, only the newest need become records."""
        is_last_word = not self.wanted.expression and not self.masks
        return hits.newest(most) if is_last_word and len(hits) > most else hits

    def _records(self, partition: int, hits: Hits) -> Iterator[Record]:
        for index in range(len(hits)):
            for _, record in self._wanted(partition, hits, index):
                yield record
            if self.stop.is_set():
                return

    def _wanted(self, partition: int, hits: Hits, index: int) -> Found:
        """The record with what is hidden masked, if that is still wanted: nothing else ever leaves here."""
        try:
            record = masked(hits.record(index), self.masks)
        except InvalidRecords as error:
            raise self._unreadable(partition, int(hits.offsets[index]), error) from error
        return [(partition, record)] if self._accepts(self.topic, partition, record) else []

    # --- fetching

    def _fetched(self, segments: list[tuple[int, Span]]) -> Iterator[tuple[int, Hits, int]]:
        """(partition, hits, offsets read) of every fetch of the segments; the next one is under way meanwhile."""
        with ThreadPoolExecutor(1, thread_name_prefix="fetch") as ahead:
            steps = self._steps(segments)
            following = ahead.submit(next, steps, None)
            while (step := following.result()) is not None and not self.stop.is_set():
                following = ahead.submit(next, steps, None)
                partition, span, answer, position, after = step
                pieces = self._matcher.find(
                    answer.records, from_offset=position, end_offset=span[1], aborted=answer.aborted_transactions
                )
                read = min(after, span[1]) - position
                try:
                    for hits in pieces:
                        yield partition, hits, read
                        read = 0
                except CorruptRecords as error:
                    raise self._unreadable(partition, position, error) from error
                if read:
                    yield partition, NO_HITS, read

    def _steps(self, segments: list[tuple[int, Span]]) -> Iterator[tuple[int, Span, Any, int, int]]:
        size = FIRST_FETCH_BYTES
        for partition, span in segments:
            position, empty = span[0], 0
            while position < span[1] and empty < EMPTY_FETCHES and not self.stop.is_set():
                answer = self._fetch(partition, position, size)
                if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and answer.log_start_offset > position:
                    position = answer.log_start_offset  # retention went past us
                    continue
                if answer.error_code:
                    raise UserError(f"{self.topic}-{partition} cannot be read: {error_name(answer.error_code)}")
                try:
                    after = next_offset(answer.records, position)
                except CorruptRecords as error:
                    raise self._unreadable(partition, position, error) from error
                if after == position:
                    empty += 1
                    continue
                empty = 0
                yield partition, span, answer, position, after
                position, size = after, min(size * 4, LARGEST_FETCH_BYTES)

    def _fetch(self, partition: int, position: int, size: int) -> Any:
        key = (self.topic, partition)
        return self.client.fetch(
            {key: position}, read_committed=True, max_wait_ms=100, max_bytes=size, partition_max_bytes=size
        )[key]

    def _unreadable(self, partition: int, offset: int, error: Exception) -> UserError:
        return UserError(f"{self.topic}-{partition} at {offset} holds bytes that are no records: {error}")
