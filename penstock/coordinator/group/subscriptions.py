"""What the subscriptions of a consumer group mean today: topics behind patterns, and a hash that changes with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from time import sleep, thread_time
from typing import Any
from uuid import UUID

import re2
import xxhash

from penstock.coordinator.group.context import Topics
from penstock.coordinator.wire import Writer

__all__ = ["Patterns", "is_valid_regex", "matching_topics", "metadata_hash", "resolve", "topic_ids"]

_HASH_MAGIC = 0
_PROGRAM_BYTES = 1 << 20  # of a compiled pattern; usual ones need some hundred
_COMPILED_MAX = 128
_NAMES_BETWEEN_LOOKS = 64  # then whoever waits for the interpreter gets it, and the time is looked at
LONGEST_SECONDS = 2.0


@lru_cache(maxsize=_COMPILED_MAX)
def _compile(pattern: str) -> Any:
    """None if it is none, or too large."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _PROGRAM_BYTES
    try:
        return re2.compile(pattern, options)
    except re2.error:
        return None


def is_valid_regex(pattern: str) -> bool:
    return _compile(pattern) is not None


def matching_topics(pattern: str, topics: Topics, may_describe: Callable[[str], bool]) -> list[str]:
    """Names that the whole pattern matches and the subscriber may see, sorted."""
    compiled = _compile(pattern)
    return sorted(name for name in topics.names() if compiled.fullmatch(name) is not None and may_describe(name))


@dataclass(slots=True, frozen=True)
class Patterns:
    """What patterns matched when the topics were at `version`, found before the command that needs it: matching takes
    longer than a command may. None: it is no pattern, or one that takes too long."""

    version: int
    names: dict[str, list[str] | None]


def resolve(patterns: Iterable[str], version: int, names: list[str]) -> Patterns:
    """For a thread. `names` are those that the subscriber may see, sorted."""
    return Patterns(version, {pattern: _matching(pattern, names) for pattern in patterns})


def _matching(pattern: str, names: list[str]) -> list[str] | None:
    compiled = _compile(pattern)
    if compiled is None:
        return None
    ends = thread_time() + LONGEST_SECONDS
    found: list[str] = []
    for start in range(0, len(names), _NAMES_BETWEEN_LOOKS):
        found += [name for name in names[start : start + _NAMES_BETWEEN_LOOKS] if compiled.fullmatch(name) is not None]
        sleep(0)
        if thread_time() > ends:
            return None
    return found


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
