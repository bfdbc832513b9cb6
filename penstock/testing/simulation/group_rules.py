"""What groups promise, judged while they live: who may hold a partition, and which offset a group has.

A member holds its share until it gives it back, or its lease is over: the session time-out after it last sent what the
coordinator of record answered. (A coordinator that was replaced and does not know it yet answers heartbeats, too; what
it says is nobody's lease, here as in Kafka.)

An offset is the last one acknowledged, or one whose commit has no answer yet and was sent under the same tenure or a
later one: what a former owner sent must not come after what its successor was acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.coordinator.java_hash import partition_of
from penstock.testing.simulation.coordinating import INTERNAL_PARTITIONS, SESSION_TIMEOUT_MS
from penstock.testing.simulation.invariants import Checker

Key = tuple[str, int]
"""A group and a partition of the topic that it reads."""
NOTHING = -1


@dataclass
class Holder:
    """One life of a member."""

    name: str
    group: str
    leased_until: float = 0.0
    holds: dict[int, int] = field(default_factory=dict)
    """Partition → its tenure. Tenures are numbered as they begin; generations begin anew where an empty group changes
    its protocol."""

    def renew(self, sent_at: float) -> None:
        self.leased_until = max(self.leased_until, sent_at + SESSION_TIMEOUT_MS / 1000)


@dataclass
class _Commits:
    acknowledged: int = NOTHING
    tenure: int = -1
    unanswered: list[tuple[int, int]] = field(default_factory=list)

    def possible(self) -> set[int]:
        return {self.acknowledged, *(value for tenure, value in self.unanswered if tenure >= self.tenure)}


class GroupRules:
    def __init__(self, checker: Checker, now: Callable[[], float]) -> None:
        self._checker = checker
        self._now = now
        self._holders: dict[str, list[Holder]] = {}
        self._commits: dict[Key, _Commits] = {}
        self._unknown: set[Key] = set()
        self._tenures = 0
        self.rebalances = 0
        self.commits = 0

    # -- who holds what ------------------------------------------------------------------------------------------

    def enter(self, name: str, group: str) -> Holder:
        holder = Holder(name, group)
        self._holders.setdefault(group, []).append(holder)
        return holder

    def is_out(self, holder: Holder) -> bool:
        return self._now() >= holder.leased_until

    def given(self, holder: Holder, partitions: list[int]) -> None:
        """It was told its share; whoever else still believes to have one of these under a valid lease is a second
        owner."""
        self.rebalances += 1
        for other in self._holders[holder.group]:
            both = set(other.holds) & set(partitions) if other is not holder and not self.is_out(other) else set()
            self._checker.demand(
                not both, f"group {holder.group}: {sorted(both)} belong to {other.name} and to {holder.name}"
            )
        self._tenures += 1
        holder.holds = {index: holder.holds.get(index, self._tenures) for index in partitions}

    def gone(self, holder: Holder) -> None:
        holder.holds = {}
        self._holders[holder.group].remove(holder)

    # -- offsets -------------------------------------------------------------------------------------------------

    def sent(self, key: Key, tenure: int, value: int) -> None:
        self._commits.setdefault(key, _Commits()).unanswered.append((tenure, value))

    def refused(self, key: Key, tenure: int, value: int) -> None:
        """For good: the member was fenced."""
        commits = self._commits[key]
        if (tenure, value) in commits.unanswered:
            commits.unanswered.remove((tenure, value))

    def acknowledged(self, key: Key, tenure: int, value: int) -> None:
        self.refused(key, tenure, value)
        self.commits += 1
        commits = self._commits[key]
        if tenure < commits.tenure:
            return  # this answer was slow: a successor has been acknowledged since
        self._unknown.discard(key)
        commits.acknowledged, commits.tenure = value, tenure

    def possible(self, key: Key) -> set[int] | None:
        """None: the log has lost records with an excuse, anything may be there."""
        return None if key in self._unknown else self._commits.get(key, _Commits()).possible()

    def fetched(self, key: Key, before: set[int] | None, value: int) -> None:
        after = self.possible(key)
        if before is not None and after is not None:
            self._checker.demand(
                value in before | after, f"{key}: the offset is {value}, it can only be one of {before | after}"
            )

    def log_lost(self, partition: int) -> None:
        """Records of this partition of the offsets' topic were lost with an excuse."""
        for key in list(self._commits):
            if partition_of(key[0], INTERNAL_PARTITIONS) == partition:
                self._unknown.add(key)
                self._commits[key].tenure = -1

    # -- in peace ------------------------------------------------------------------------------------------------

    def unsettled(self, group: str, partitions: int, living: int) -> str:
        """Why the group is not settled: everything has an owner, every member has entered."""
        inside = [holder for holder in self._holders.get(group, []) if not self.is_out(holder)]
        held = sorted(index for holder in inside for index in holder.holds)
        if len(inside) == living and held == list(range(partitions)):
            return ""
        return f"group {group}: {held} of {partitions} partitions are owned by {len(inside)} of {living} members"
