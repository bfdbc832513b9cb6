"""The verdict, in the manner of Jepsen's Kafka workload: what was promised to producers against what can be read.

lost        acknowledged, but not in the final log
duplicate   one value at two offsets
reordered   values of one producer out of their order
phantom     read, but never sent; or another value at an offset than was read there before
aborted     a value of an aborted transaction, seen by a read_committed reader
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field

Place = tuple[int, int]  # partition, offset


@dataclass
class Verdict:
    acknowledged: int
    read: int
    lost: list[str] = field(default_factory=list)
    duplicate: list[str] = field(default_factory=list)
    reordered: list[str] = field(default_factory=list)
    phantom: list[str] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not (self.lost or self.duplicate or self.reordered or self.phantom or self.aborted)

    def lines(self) -> list[str]:
        rows = [f"{self.acknowledged} records acknowledged, {self.read} in the final logs"]
        for name in ("lost", "duplicate", "reordered", "phantom", "aborted"):
            found: list[str] = getattr(self, name)
            rows.append(f"{name}: {len(found)}" + (f", e.g. {found[:5]}" if found else ""))
        return rows


class History:
    """What clients did and saw; several threads write to it. A value is `producer/sequence`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.sent: set[str] = set()
        self.acknowledged: dict[str, Place] = {}
        self.ended: dict[str, bool] = {}  # transactional values: True if committed, False if aborted
        self.seen: dict[Place, str] = {}
        self.contradictions: list[str] = []
        self.failed = 0
        self.acknowledged_at: dict[int, list[float]] = {}  # by partition

    def send(self, value: str) -> None:
        with self._lock:
            self.sent.add(value)

    def acknowledge(self, value: str, partition: int, offset: int | None, now: float) -> None:
        """Without an offset: the broker told of a duplicate of a batch that it has stored longer ago."""
        with self._lock:
            self.acknowledged[value] = (partition, -1 if offset is None else offset)
            if partition >= 0:  # what a transaction wrote is not told its place
                self.acknowledged_at.setdefault(partition, []).append(now)

    def fail(self) -> None:
        with self._lock:
            self.failed += 1

    def end(self, values: list[str], committed: bool) -> None:
        with self._lock:
            self.ended.update(dict.fromkeys(values, committed))

    def see(self, partition: int, offset: int, value: str) -> None:
        with self._lock:
            known = self.seen.setdefault((partition, offset), value)
            if known != value:
                self.contradictions.append(f"{partition}@{offset}: first {known}, then {value}")

    def judge(self, final: dict[int, list[tuple[int, str]]]) -> Verdict:
        """`final`: per partition (offset, value) in order, as a read_committed reader gets them after all is healed."""
        with self._lock:
            return self._judge(final)

    def _judge(self, final: dict[int, list[tuple[int, str]]]) -> Verdict:
        place_of: dict[str, Place] = {}
        counts: Counter[str] = Counter()
        verdict = Verdict(len(self.acknowledged), sum(len(rows) for rows in final.values()))
        verdict.phantom += self.contradictions
        for partition, rows in sorted(final.items()):
            last: dict[str, int] = {}
            for offset, value in rows:
                counts[value] += 1
                place_of[value] = (partition, offset)
                producer, _, sequence = value.rpartition("/")
                if last.get(producer, -1) >= int(sequence) and counts[value] == 1:
                    verdict.reordered.append(f"{value} behind {producer}/{last[producer]} in partition {partition}")
                last[producer] = max(last.get(producer, -1), int(sequence))
                if value not in self.sent:
                    verdict.phantom.append(f"{value} at {partition}@{offset} was never sent")
                if self.ended.get(value) is False:
                    verdict.aborted.append(f"{value} at {partition}@{offset}")
        verdict.duplicate += [value for value, count in sorted(counts.items()) if count > 1]
        self._look_for_lost(verdict, place_of)
        return verdict

    def _look_for_lost(self, verdict: Verdict, place_of: dict[str, Place]) -> None:
        for value, place in sorted(self.acknowledged.items()):
            if value in self.ended and not self.ended[value]:
                continue
            if self.ended.get(value, None) is None and value.startswith("txn"):
                continue  # acknowledged inside a transaction whose end is unknown
            if value not in place_of:
                verdict.lost.append(f"{value}, acknowledged at {place}")
            elif place_of[value] != place and place[1] >= 0:
                verdict.phantom.append(f"{value} acknowledged at {place} but read at {place_of[value]}")
        for place, value in sorted(self.seen.items()):
            if place_of.get(value) != place:
                if self.ended.get(value) is False:
                    verdict.aborted.append(f"{value} was read at {place}")
                else:
                    verdict.lost.append(f"{value}, read before at {place}")
