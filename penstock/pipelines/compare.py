"""Two topics side by side: what a pipeline wrote before, and what a replay of it writes now.

Records are compared by key: as many of each value, in whatever order, or only the newest value (a tombstone is none).
Of a key two numbers are kept, not its values; those of the first differences are read again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from penstock.client.records import EARLIEST
from penstock.client.sync import SyncClient
from penstock.pipelines.connectors.topic_sample import records_of
from penstock.protocol.records import Record

_MANY: Final = 1 << 62
_SHOWN_VALUES: Final = 3
_SHOWN_CHARACTERS: Final = 200


@dataclass(frozen=True)
class Difference:
    key: str | None
    kind: str  # only in the first, only in the second, other values
    before: str
    after: str


@dataclass
class Comparison:
    topics: tuple[str, str]
    records: tuple[int, int]
    keys: tuple[int, int]
    only_before: int = 0
    only_after: int = 0
    differing: int = 0
    first: list[Difference] = field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        return not (self.only_before or self.only_after or self.differing)


def compare(client: SyncClient, before: str, after: str, *, newest_only: bool = False, most: int = 10) -> Comparison:
    """`most`: so many differences are told in full."""
    old, new = _Side(client, before, newest_only), _Side(client, after, newest_only)
    made = Comparison((before, after), (old.records, new.records), (len(old.keys), len(new.keys)))
    wanted: dict[bytes | None, str] = {}
    for key in [*old.keys, *(key for key in new.keys if key not in old.keys)]:
        if key not in new.keys:
            made.only_before, kind = made.only_before + 1, f"only in {before}"
        elif key not in old.keys:
            made.only_after, kind = made.only_after + 1, f"only in {after}"
        elif old.keys[key] != new.keys[key]:
            made.differing, kind = made.differing + 1, "other values"
        else:
            continue
        if len(wanted) < most:
            wanted[key] = kind
    if wanted:
        left, right = old.values(wanted), new.values(wanted)
        made.first = [Difference(_text(key), kind, left[key], right[key]) for key, kind in wanted.items()]
    return made


class _Side:
    """One topic, read to the end that it has at first."""

    def __init__(self, client: SyncClient, topic: str, newest_only: bool) -> None:
        self._client, self._topic, self._newest_only = client, topic, newest_only
        self.records = 0
        self.keys: dict[bytes | None, tuple[int, int]] = {}  # key → how many values, and what they come to
        for record in self._read():
            self.records += 1
            digest = _digest(record.value)
            if newest_only and record.key is not None:
                if record.value is None:
                    self.keys.pop(record.key, None)
                else:
                    self.keys[record.key] = (1, digest)
            else:
                count, total = self.keys.get(record.key, (0, 0))
                self.keys[record.key] = (count + 1, (total + digest) % (1 << 64))

    def _read(self) -> Iterator[Record]:
        return (record for _, record in records_of(self._client, self._topic, start=EARLIEST, limit=_MANY))

    def values(self, wanted: dict[bytes | None, str]) -> dict[bytes | None, str]:
        """The newest values of some keys, as text."""
        found: dict[bytes | None, list[bytes | None]] = {key: [] for key in wanted}
        for record in self._read():
            if record.key in found:
                found[record.key].append(record.value)
        return {key: self._told(values) for key, values in found.items()}

    def _told(self, values: list[bytes | None]) -> str:
        shown = [_text(value) or "tombstone" for value in values[-1 if self._newest_only else -_SHOWN_VALUES :]]
        more = 0 if self._newest_only else len(values) - len(shown)
        return (f"{more} more, " if more else "") + ", ".join(shown)


def _digest(value: bytes | None) -> int:
    if value is None:
        return 1
    return int.from_bytes(hashlib.blake2b(value, digest_size=8).digest())


def _text(value: bytes | None) -> str | None:
    if value is None:
        return None
    text = value.decode("utf-8", "replace")
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
