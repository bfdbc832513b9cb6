"""What goes in: seeded changes of keys, deletes among them, and what every output must hold, computed without Spark.

A key always goes to the same partition, so its order is the order in which it was written.
"""

from __future__ import annotations

import json
import random
import zlib
from dataclasses import dataclass, field

Position = tuple[int, int]  # partition, offset
DELETES = 0.2  # so many of the changes


@dataclass(frozen=True)
class Change:
    partition: int
    key: str
    number: int | None  # None deletes the key

    @property
    def value(self) -> bytes | None:
        return None if self.number is None else json.dumps({"i": self.number}).encode()


@dataclass
class Inputs:
    seed: int
    keys: int
    partitions: int
    written: dict[Position, Change] = field(default_factory=dict)
    latest: dict[str, int] = field(default_factory=dict)  # key → the number of its last change; deleted keys are out

    def __post_init__(self) -> None:
        self._random = random.Random(f"{self.seed} inputs")
        self._ends = [0] * self.partitions

    def more(self, count: int) -> list[Change]:
        return [self._next() for _ in range(count)]

    def _next(self) -> Change:
        key = f"k{self._random.randrange(self.keys)}"
        partition = zlib.crc32(key.encode()) % self.partitions
        number = None if self._random.random() < DELETES else len(self.written)
        change = Change(partition, key, number)
        self.written[partition, self._ends[partition]] = change
        self._ends[partition] += 1
        if number is None:
            self.latest.pop(key, None)
        else:
            self.latest[key] = number
        return change
