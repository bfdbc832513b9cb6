"""The kernel that looks for records finds what a plain look at every record finds, and nothing is beyond its reach."""

from __future__ import annotations

import random

import pytest

from penstock.protocol.batch import build_batch
from penstock.protocol.codecs import Codec
from penstock.protocol.columnar import CorruptRecords
from penstock.protocol.columnar_match import (
    HOLDS,
    HOLDS_OR_ESCAPES,
    IS,
    STARTS,
    Condition,
    Conditions,
    Matcher,
)
from penstock.protocol.records import Record

PLAIN = {
    HOLDS: lambda data, text: text in data,
    IS: lambda data, text: data == text,
    STARTS: lambda data, text: data.startswith(text),
    HOLDS_OR_ESCAPES: lambda data, text: text in data or b"\\" in data,
}


def _bytes(dice: random.Random) -> bytes | None:
    """Few letters, so that texts repeat themselves and are found often."""
    return None if dice.random() < 0.1 else bytes(dice.choices(b"aab\\", k=dice.randrange(9)))


def _records(dice: random.Random, count: int) -> list[Record]:
    return [
        Record(
            i, 1_000 + i, _bytes(dice), _bytes(dice), tuple((dice.choice("xyz"), _bytes(dice)) for _ in range(i % 3))
        )
        for i in range(count)
    ]


def _wanted(record: Record, conditions: Conditions) -> bool:
    def fulfils(data: bytes | None, condition: Condition) -> bool:
        return not condition.how or (data is not None and PLAIN[condition.how](data, condition.text))

    name = conditions.header_name
    return (
        fulfils(record.key, conditions.key)
        and fulfils(record.value, conditions.value)
        and (
            not conditions.header.how
            or any((name is None or name == n.encode()) and fulfils(v, conditions.header) for n, v in record.headers)
        )
    )


def _condition(dice: random.Random) -> Condition:
    if dice.random() < 0.4:
        return Condition()
    return Condition(dice.choice(list(PLAIN)), bytes(dice.choices(b"aab", k=dice.randrange(5))))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4, Codec.ZSTD])
def test_it_finds_what_a_plain_look_finds(codec: Codec) -> None:
    dice = random.Random(int(codec))
    records = _records(dice, 600)
    data = b"".join(build_batch(records[at : at + 60], base_offset=at, codec=codec) for at in range(0, 600, 60))
    for _ in range(150):
        name = dice.choice([None, b"x", b"nobody"])
        conditions = Conditions(_condition(dice), _condition(dice), _condition(dice), name)
        start, end = sorted(dice.choices(range(620), k=2))
        expected = [r for r in records if start <= r.offset < end and _wanted(r, conditions)]
        pieces = list(Matcher(conditions).find(data, from_offset=start, end_offset=end))
        found = [hits.record(index) for hits in pieces for index in range(len(hits))]
        assert [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in found] == [
            tuple(r) for r in expected
        ]
        assert [o for hits in pieces for o in hits.offsets.tolist()] == [r.offset for r in expected]
        assert [t for hits in pieces for t in hits.timestamps.tolist()] == [r.timestamp for r in expected]


def test_aborted_records_are_not_found() -> None:
    record = Record(0, 0, b"k", b"needle")
    aborted = build_batch([record], base_offset=0, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    open_to_all = build_batch([record], base_offset=1)
    matcher = Matcher(Conditions(value=Condition(HOLDS, b"needle")))
    found = matcher.find(aborted + open_to_all, from_offset=0, end_offset=9, aborted=[(7, 0)])
    assert [offset for hits in found for offset in hits.offsets.tolist()] == [1]


def test_the_time_of_the_log_counts_where_the_topic_says_so() -> None:
    data = build_batch([Record(0, 5, None, b"v"), Record(1, 6, None, b"v")], append_time_ms=77)
    (hits,) = Matcher(Conditions()).find(data, from_offset=0, end_offset=9)
    assert hits.timestamps.tolist() == [77, 77] and hits.record(1).timestamp == 77


def test_the_newest_of_many() -> None:
    times = [5, 9, 9, 1, 7]
    data = build_batch([Record(i, at, None, b"v") for i, at in enumerate(times)])
    (hits,) = Matcher(Conditions()).find(data, from_offset=0, end_offset=9)
    assert sorted(hits.newest(3).offsets.tolist()) == [1, 2, 4]


def test_bytes_that_are_no_records_are_told() -> None:
    data = bytearray(build_batch([Record(0, 5, b"k", b"value")]))
    data[-3] ^= 1
    with pytest.raises(CorruptRecords, match="checksum"):
        list(Matcher(Conditions()).find(bytes(data), from_offset=0, end_offset=9))
