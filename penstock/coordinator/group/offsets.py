"""Committed offsets of the groups of one shard: commit, fetch, delete, expire, and those of open transactions.

Kept encoded (see offset_records.py). Offsets of a transaction stay pending under its producer id until the marker: a
commit publishes them unless a newer plain commit came in between, an abort drops them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, NamedTuple

from penstock.coordinator.group.offset_records import (
    OffsetAndMetadata,
    decode_offset,
    decode_slot,
    encode_offset,
    group_prefix,
    offset_slot,
    offset_tombstone,
)
from penstock.coordinator.shard_log import NO_PRODUCER, Producer, Record
from penstock.protocol.errors import ErrorCode

__all__ = ["CommittedOffset", "Committer", "GroupOffsets", "OffsetToCommit", "Offsets", "offset_codes"]

VERSION_WITH_TOPIC_ID = 4


class OffsetToCommit(NamedTuple):
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    topic_id: bytes = b""
    """Of the topic that bears the name now; empty where nobody knows."""


class Committer(NamedTuple):
    """Who commits. A simple committer, outside any membership, has no member id and generation -1."""

    group_id: str
    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1
    """Of a consumer group: the member's epoch."""


class CommittedOffset(NamedTuple):
    """An answer of OffsetFetch for one partition."""

    topic: str
    partition: int
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    error: ErrorCode = ErrorCode.NONE


class GroupOffsets:
    """What one group has committed."""

    __slots__ = ("committed", "pending")

    def __init__(self) -> None:
        self.committed: dict[bytes, bytes] = {}
        self.pending: dict[int, dict[bytes, bytes | None]] = {}
        """By producer id; None where a plain commit has overtaken the transaction's."""

    def slots(self) -> set[bytes]:
        return {*self.committed, *(slot for pending in self.pending.values() for slot in pending)}

    def is_pending(self, slot: bytes) -> bool:
        return any(slot in slots for slots in self.pending.values())


class Offsets:
    """Offsets by group. `topic_id(name)` gives the id of the topic that bears the name now, empty if none does."""

    def __init__(self, topic_id: Callable[[str], bytes] = lambda _name: b"") -> None:
        self._topic_id = topic_id
        self.groups: dict[str, GroupOffsets] = {}
        self._open_transactions: dict[int, set[str]] = {}
        """Groups in which a producer has offsets pending."""

    # Replay --------------------------------------------------------------------------------------------------

    def replay(self, group_id: str, slot: bytes, value: bytes | None, producer: Producer) -> None:
        offsets = self.groups.get(group_id)
        if value is None:
            if offsets is not None:
                offsets.committed.pop(slot, None)
                self._forget_pending(group_id, offsets, slot)
                self._drop_if_empty(group_id, offsets)
            return
        if offsets is None:
            offsets = self.groups[group_id] = GroupOffsets()
        if producer is not NO_PRODUCER and producer[0] >= 0:
            offsets.pending.setdefault(producer[0], {})[slot] = value
            self._open_transactions.setdefault(producer[0], set()).add(group_id)
            return
        offsets.committed[slot] = value
        if offsets.pending:
            for slots in offsets.pending.values():
                if slot in slots:
                    slots[slot] = None

    def plain_table(self, group_id: str) -> dict[bytes, bytes] | None:
        """Where plain commits of the group go, if no transaction has to hear of them."""
        offsets = self.groups.get(group_id)
        return None if offsets is None or offsets.pending else offsets.committed

    def replay_marker(self, producer_id: int, commit: bool) -> None:
        for group_id in self._open_transactions.pop(producer_id, ()):
            offsets = self.groups[group_id]
            slots = offsets.pending.pop(producer_id)
            if commit:
                offsets.committed.update((slot, value) for slot, value in slots.items() if value is not None)
            self._drop_if_empty(group_id, offsets)

    def _forget_pending(self, group_id: str, offsets: GroupOffsets, slot: bytes) -> None:
        """What a tombstone takes away does not come back when a transaction commits."""
        for producer_id in [key for key, slots in offsets.pending.items() if slot in slots]:
            slots = offsets.pending[producer_id]
            del slots[slot]
            if not slots:
                del offsets.pending[producer_id]
                groups = self._open_transactions[producer_id]
                groups.discard(group_id)
                if not groups:
                    del self._open_transactions[producer_id]

    def _drop_if_empty(self, group_id: str, offsets: GroupOffsets) -> None:
        if not offsets.committed and not offsets.pending:
            del self.groups[group_id]

    # Commands ------------------------------------------------------------------------------------------------

    @staticmethod
    def commit_records(
        group_id: str,
        entries: Iterable[OffsetToCommit],
        now_ms: int,
        max_metadata_bytes: int,
        retention_ms: int = -1,
    ) -> tuple[list[Record], list[ErrorCode]]:
        """Records for what may be stored, and an error code per entry."""
        expire_ms = -1 if retention_ms < 0 else now_ms + retention_ms
        prefix = group_prefix(group_id)
        written: list[Record] = []
        errors: list[ErrorCode] = []
        for topic, partition, offset, leader_epoch, metadata, topic_id in entries:
            if len(metadata) > max_metadata_bytes:
                errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
                continue
            errors.append(ErrorCode.NONE)
            value = encode_offset(offset, leader_epoch, metadata, now_ms, expire_ms, topic_id)
            written.append(Record(prefix + offset_slot(topic, partition), value))
        return written, errors

    def fetch(
        self, group_id: str, topics: list[tuple[str, list[int]]] | None, require_stable: bool
    ) -> list[CommittedOffset]:
        """Of these partitions, or of all that the group has committed (topics None)."""
        offsets = self.groups.get(group_id)
        if topics is None:
            if offsets is None:
                return []
            slots = offsets.slots() if require_stable else set(offsets.committed)
            found = sorted((*decode_slot(slot), slot) for slot in slots)
            wanted = [
                (topic, partition)
                for topic, partition, slot in found
                if offsets.is_pending(slot) or not self.is_of_another_topic(topic, offsets.committed[slot])
            ]
        else:
            wanted = [(topic, partition) for topic, partitions in topics for partition in partitions]
        if offsets is None:
            return [CommittedOffset(topic, partition) for topic, partition in wanted]
        return [self._fetch_one(offsets, topic, partition, require_stable) for topic, partition in wanted]

    def _has_current(self, offsets: GroupOffsets, slot: bytes) -> bool:
        """Whether something was committed here for the topic that bears the name now."""
        current = self._topic_id(decode_slot(slot)[0])
        values = [offsets.committed.get(slot), *(slots.get(slot) for slots in offsets.pending.values())]
        return bool(current) and any(value is not None and decode_offset(value).topic_id == current for value in values)

    def is_of_another_topic(self, name: str, value: bytes) -> bool:
        """Whether it was committed for a topic that is gone, and another one bears its name now."""
        if value[1] != VERSION_WITH_TOPIC_ID:
            return False
        committed_for, current = decode_offset(value).topic_id, self._topic_id(name)
        return bool(committed_for) and bool(current) and committed_for != current

    def _fetch_one(self, offsets: GroupOffsets, topic: str, partition: int, require_stable: bool) -> CommittedOffset:
        slot = offset_slot(topic, partition)
        if require_stable and offsets.pending and offsets.is_pending(slot):
            return CommittedOffset(topic, partition, error=ErrorCode.UNSTABLE_OFFSET_COMMIT)
        value = offsets.committed.get(slot)
        if value is None or self.is_of_another_topic(topic, value):
            return CommittedOffset(topic, partition)
        found = decode_offset(value)
        return CommittedOffset(topic, partition, found.offset, found.leader_epoch, found.metadata)

    def get(self, group_id: str, topic: str, partition: int) -> OffsetAndMetadata | None:
        offsets = self.groups.get(group_id)
        value = None if offsets is None else offsets.committed.get(offset_slot(topic, partition))
        return None if value is None else decode_offset(value)

    def tombstones(self, group_id: str) -> list[Record]:
        """Forget everything that the group committed."""
        offsets = self.groups.get(group_id)
        return [] if offsets is None else [offset_tombstone(group_id, slot) for slot in sorted(offsets.slots())]

    def delete_topics(self, topics: set[str], at_most: int) -> list[Record]:
        """Topics are gone from the cluster: so are offsets in them, some of which these records take away."""
        names = {offset_slot(topic, 0)[:-4] for topic in topics}
        found = (
            offset_tombstone(group_id, slot)
            for group_id, offsets in self.groups.items()
            for slot in sorted(offsets.slots())
            if slot[:-4] in names and not self._has_current(offsets, slot)
        )
        return list(islice(found, at_most))


def offset_codes(error: ErrorCode, response: Any, count: int) -> list[int]:
    """Codes per entry, whatever the coordinator said about all of them."""
    if error is not ErrorCode.NONE:
        return [int(error)] * count
    if isinstance(response, ErrorCode):
        return [int(response)] * count
    return [int(code) for code in response]
