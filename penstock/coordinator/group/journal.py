"""The rebalance journal: why a group rebalanced, how long it took and what moved.

Written to the compacted topic `__penstock_rebalances` (one partition, created with the first rebalance).
Key: the group id (UTF-8). Value: a JSON array of the group's last 100 rebalances, oldest first, so that compaction
keeps the history with its newest record and any client can read it. Each entry:

    {"at_ms": 1731700000000,          when the rebalance was finished (wall clock)
     "duration_ms": 412,              since its first cause
     "protocol": "classic",           or "consumer"
     "generation": 7,                 generation (classic) or group epoch (consumer) that it led to
     "causes": [{"kind": "joined", "member": "…", "detail": "…"}],
                                      kinds: joined, left, timed_out, subscription, metadata, static_replaced, other
     "members": 3,                    members afterwards
     "partitions": 12,                partitions assigned afterwards (null where the broker cannot read them)
     "moved": 4}                      of which had another owner before (null likewise)

At most 20 causes are kept of one rebalance; `causes_left_out` counts the rest.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["JOURNAL_TOPIC", "Cause", "Journal", "RebalanceEntry", "RebalanceTrace", "count_moved"]

JOURNAL_TOPIC = "__penstock_rebalances"
ENTRIES_PER_GROUP = 100
CAUSES_PER_ENTRY = 20


@dataclass(frozen=True, slots=True)
class Cause:
    kind: str
    member: str = ""
    detail: str = ""

    def as_json(self) -> dict[str, str]:
        return {"kind": self.kind, "member": self.member, "detail": self.detail}


@dataclass(slots=True)
class RebalanceTrace:
    """A rebalance under way."""

    started_ms: int
    owned: dict[str, Any] = field(default_factory=dict)
    """What each member owned before"""
    causes: list[Cause] = field(default_factory=list)
    causes_left_out: int = 0

    def add(self, cause: Cause) -> None:
        if cause in self.causes:
            return
        if len(self.causes) < CAUSES_PER_ENTRY:
            self.causes.append(cause)
        else:
            self.causes_left_out += 1


@dataclass(frozen=True, slots=True)
class RebalanceEntry:
    group_id: str
    at_ms: int
    duration_ms: int
    protocol: str
    generation: int
    causes: tuple[Cause, ...]
    causes_left_out: int
    members: int
    partitions: int | None
    moved: int | None

    def as_json(self) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "at_ms": self.at_ms,
            "duration_ms": self.duration_ms,
            "protocol": self.protocol,
            "generation": self.generation,
            "causes": [cause.as_json() for cause in self.causes],
            "members": self.members,
            "partitions": self.partitions,
            "moved": self.moved,
        }
        if self.causes_left_out:
            entry["causes_left_out"] = self.causes_left_out
        return entry


def count_moved(
    before: Mapping[str, Iterable[tuple[Any, int]]], after: Mapping[str, Iterable[tuple[Any, int]]]
) -> tuple[int, int]:
    """(partitions assigned, of which belonged to somebody else before), from partitions by member."""
    owner_before = {partition: member for member, partitions in before.items() for partition in partitions}
    owner_after = {partition: member for member, partitions in after.items() for partition in partitions}
    moved = sum(1 for partition, member in owner_after.items() if owner_before.get(partition, member) != member)
    return len(owner_after), moved


class Journal:
    """The last entries of each group that this broker coordinates."""

    def __init__(self) -> None:
        self._entries: dict[str, deque[dict[str, Any]]] = {}

    def preview(self, entry: RebalanceEntry) -> tuple[bytes, bytes]:
        """The record (key, value) that belongs into the topic for this entry; `load` it once it is written."""
        entries = [*self._entries.get(entry.group_id, ()), entry.as_json()][-ENTRIES_PER_GROUP:]
        return entry.group_id.encode(), json.dumps(entries, separators=(",", ":")).encode()

    def load(self, key: bytes, value: bytes | None) -> None:
        """Take up what an earlier coordinator wrote; what is no journal entry is left out."""
        group_id = key.decode("utf-8", "replace")
        if value is None:
            self._entries.pop(group_id, None)
            return
        try:
            entries = json.loads(value)
        except ValueError:
            return
        if isinstance(entries, list):
            self._entries[group_id] = deque(
                (entry for entry in entries if isinstance(entry, dict)), maxlen=ENTRIES_PER_GROUP
            )

    def entries(self, group_id: str) -> list[dict[str, Any]]:
        return list(self._entries.get(group_id, ()))
