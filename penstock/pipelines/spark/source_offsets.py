"""What a stream remembers between batches, and how a range of offsets is cut into tasks. Pure: no I/O here.

Spark keeps an offset as JSON in its checkpoint. Ours looks like that of Spark's Kafka source, `{"orders": {"0": 17}}`,
with three entries more, under names that no topic can have:

- `#ids`: the id of each topic, so that a deleted and re-created topic is noticed although its name is the same;
- `#group`: the consumer group where progress is shown, chosen once per checkpoint;
- `#from`: where partitions began that this batch is the first to read, in the first offset of a query all of them.
  Spark does not store the result of `initialOffset`; after a crash in the very first batch it would ask again and, with
  `startingOffsets=latest`, skip what that batch had read. The same holds for the beginning of a new partition.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

TopicPartition = tuple[str, int]

_IDS: Final = "#ids"
_GROUP: Final = "#group"
_FROM: Final = "#from"
_INITIAL: Final = "#initial"

DEFAULT_MAX_RECORDS_PER_TASK: Final = 4_000_000


@dataclass(frozen=True)
class StreamOffset:
    offsets: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    group_id: str | None = None
    is_initial: bool = False
    began_at: Mapping[TopicPartition, int] | None = None

    def to_json(self) -> dict[str, Any]:
        """Sorted, because Spark compares offsets as text."""
        made: dict[str, Any] = _nested(self.offsets)
        made[_IDS] = dict(sorted(self.topic_ids.items()))
        if self.group_id is not None:
            made[_GROUP] = self.group_id
        if self.is_initial:
            made[_INITIAL] = True
        if self.began_at is not None:
            made[_FROM] = _nested(self.began_at)
        return made

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> StreamOffset:
        return cls(
            offsets=_flat({topic: value for topic, value in data.items() if not topic.startswith("#")}),
            topic_ids=dict(data.get(_IDS, {})),
            group_id=data.get(_GROUP),
            is_initial=bool(data.get(_INITIAL, False)),
            began_at=_flat(data[_FROM]) if _FROM in data else None,
        )

    def start_for(self, end: StreamOffset) -> StreamOffset:
        """The real start of the batch that ends at `end`: what the first batch had seen wins over a new answer."""
        if end.began_at is None:
            return self
        if self.is_initial:
            return replace(self, offsets=end.began_at, topic_ids=end.topic_ids, group_id=end.group_id)
        began = {topic: end.topic_ids[topic] for topic, _ in end.began_at if topic in end.topic_ids}
        return replace(self, offsets={**self.offsets, **end.began_at}, topic_ids={**self.topic_ids, **began})


def _nested(offsets: Mapping[TopicPartition, int]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        made.setdefault(topic, {})[str(partition)] = offset
    return made


def _flat(data: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {
        (topic, int(partition)): offset
        for topic, partitions in data.items()
        for partition, offset in partitions.items()
    }


@dataclass(frozen=True)
class OffsetRange:
    """Records of one partition from `start` up to, not including, `end`."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def limit_rows(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], max_rows: int
) -> dict[TopicPartition, int]:
    """Ends that take about `max_rows` in all, from each partition in proportion to what waits there, at least one."""
    waiting = {key: end[key] - start.get(key, 0) for key in end if end[key] > start.get(key, 0)}
    total = sum(waiting.values())
    if total <= max_rows:
        return dict(end)
    # One each, then the rest in proportion; shares are cut from a running total, so that rounding loses nothing.
    rest = total - len(waiting)
    budget = max(0, max_rows - len(waiting))
    limited = dict(end)
    passed = 0
    for key in sorted(waiting):
        before = passed * budget // rest if rest else 0
        passed += waiting[key] - 1
        after = passed * budget // rest if rest else 0
        limited[key] = start.get(key, 0) + 1 + after - before
    return limited


def split_ranges(
    ranges: Sequence[OffsetRange], min_partitions: int | None, max_records: int | None
) -> list[OffsetRange]:
    """Cut large ranges so that there are about `min_partitions` tasks and none has more than `max_records`."""
    wanted = [piece for piece in ranges if piece.size > 0]
    total = sum(piece.size for piece in wanted)
    limit = max_records if max_records is not None else DEFAULT_MAX_RECORDS_PER_TASK
    pieces: list[OffsetRange] = []
    for piece in wanted:
        parts = math.ceil(piece.size / limit)
        if min_partitions is not None and min_partitions > len(wanted):
            parts = max(parts, round(piece.size / total * min_partitions))
        pieces += _cut(piece, max(1, min(parts, piece.size)))
    return pieces


def _cut(piece: OffsetRange, parts: int) -> list[OffsetRange]:
    bounds = [piece.start + piece.size * index // parts for index in range(parts + 1)]
    return [OffsetRange(piece.topic, piece.partition, first, last) for first, last in itertools.pairwise(bounds)]
