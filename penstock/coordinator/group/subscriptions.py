"""What the subscriptions of a consumer group mean today: topics behind patterns, and a hash that changes with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any
from uuid import UUID

import re2
import xxhash

from penstock.coordinator.group.context import Topics
from penstock.coordinator.wire import Writer

__all__ = ["is_valid_regex", "matching_topics", "metadata_hash", "topic_ids"]

_HASH_MAGIC = 0


@lru_cache(maxsize=1024)
def _compile(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = 8 << 20
    return re2.compile(pattern, options)


def is_valid_regex(pattern: str) -> bool:
    try:
        _compile(pattern)
    except re2.error:
        return False
    return True


def matching_topics(pattern: str, topics: Topics, may_describe: Callable[[str], bool]) -> list[str]:
    """Names that the whole pattern matches and the subscriber may see, sorted."""
    compiled = _compile(pattern)
    return sorted(name for name in topics.names() if compiled.fullmatch(name) is not None and may_describe(name))


def metadata_hash(names: Iterable[str], topics: Topics) -> int:
    """Changes whenever a subscribed topic appears, disappears, grows or moves between racks; 0 for nothing."""
    writer = Writer()
    found = False
    for name in sorted(names):
        topic = topics.by_name(name)
        if topic is None:
            continue
        found = True
        writer.i8(_HASH_MAGIC).uuid(topic.topic_id).string(topic.name).i32(topic.partition_count)
        for index, racks in enumerate(topic.racks):
            writer.i32(index)
            for rack in sorted(racks):
                writer.string(rack)
    if not found:
        return 0
    value = int(xxhash.xxh3_64_intdigest(writer.done()))
    return value - (1 << 64) if value >= 1 << 63 else value


def topic_ids(names: Iterable[str], topics: Topics) -> dict[UUID, int]:
    """Partition counts by id, of the topics that exist."""
    found = (topics.by_name(name) for name in names)
    return {topic.topic_id: topic.partition_count for topic in found if topic is not None}
