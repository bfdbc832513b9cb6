"""Loading a shard reads records the way everybody else does, and many at once give the same state as one by one."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.coordinator.group.offset_records import encode_offset, group_prefix, offset_slot
from penstock.coordinator.group.offsets import Offsets
from penstock.coordinator.group.shard import GroupShard
from penstock.coordinator.loader import Row, read_rows
from penstock.coordinator.shard_log import NO_PRODUCER, Producer, Record
from penstock.protocol.batch import BatchHeader, build_batch, read_payload, read_records
from penstock.protocol.records import InvalidRecords, new_record

unhurried = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
lengths = st.sampled_from([0, 1, 30, 63, 64, 100, 8191, 8192, 20_000])
records = st.tuples(
    st.none() | lengths.map(lambda n: b"k" * n), st.none() | lengths.map(lambda n: b"v" * n), st.integers(0, 10**6)
)


@unhurried
@given(st.lists(records, min_size=1, max_size=90), st.integers(1, 50))
def test_rows_are_what_the_batch_holds(given_records: list[tuple[bytes | None, bytes | None, int]], step: int) -> None:
    batch = build_batch([new_record(key, value, 1_700_000_000_000 + late) for key, value, late in given_records])
    header = BatchHeader.parse(batch)
    payload = read_payload(batch, header)
    rows: list[Row] = []
    position, left = 0, header.record_count
    while left:
        count = min(step, left)
        more, position = read_rows(payload, position, count)
        rows += more
        left -= count
    assert rows == [(r.offset, r.key, r.value) for r in read_records(batch) if r.key is not None]


@pytest.mark.parametrize("kept", [1, 5, 20, 40])
def test_a_cut_batch_is_never_half_loaded_in_silence(kept: int) -> None:
    batch = build_batch([new_record(b"key", b"v" * 40, 0)])
    payload = read_payload(batch, BatchHeader.parse(batch))
    with pytest.raises(InvalidRecords):
        read_rows(payload[:kept], 0, 1)


def shard() -> GroupShard:
    """Only what replay of offsets touches."""
    bare = GroupShard.__new__(GroupShard)
    bare.groups, bare.offsets = {}, Offsets()
    return bare


groups = st.sampled_from(["a", "ab", "billing"])
slots = st.tuples(st.sampled_from(["orders", "o"]), st.integers(0, 2)).map(lambda slot: offset_slot(*slot))
values = st.none() | st.integers(0, 5).map(lambda offset: encode_offset(offset, -1, "", 0))
one_row = st.builds(lambda group, slot, value: (0, group_prefix(group) + slot, value), groups, slots, values)
steps = st.lists(
    st.tuples(
        st.sampled_from([NO_PRODUCER, NO_PRODUCER, Producer(7, 0)]), st.lists(one_row, max_size=12), st.booleans()
    ),
    max_size=8,
)


@unhurried
@given(steps)
def test_many_offsets_at_once_are_the_same_as_one_by_one(
    loaded: list[tuple[Producer, list[Row], bool]],
) -> None:
    at_once, one_by_one = shard(), shard()
    for producer, rows, ends in loaded:
        at_once.replay_rows(rows, 0, producer)
        for _, key, value in rows:
            one_by_one.replay(Record(key, value), 0, producer)
        if ends:
            at_once.replay_marker(Producer(7, 0), True, 0)
            one_by_one.replay_marker(Producer(7, 0), True, 0)
        seen, wanted = at_once.offsets.groups, one_by_one.offsets.groups
        assert {name: (g.committed, g.pending) for name, g in seen.items()} == {
            name: (g.committed, g.pending) for name, g in wanted.items()
        }
