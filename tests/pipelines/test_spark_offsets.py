"""Offsets, limits and splits are plain arithmetic: told here without Spark and without a broker."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from penstock.pipelines.spark.source_offsets import OffsetRange, StreamOffset, limit_rows, split_ranges

keys = st.tuples(st.sampled_from(["orders", "payments"]), st.integers(0, 5))
positions = st.dictionaries(keys, st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1)


def test_an_offset_survives_the_checkpoint_as_the_same_text() -> None:
    offset = StreamOffset({("b", 1): 5, ("a", 0): 3}, {"b": "id-b", "a": "id-a"}, "group", began_at={("a", 0): 1})
    text = json.dumps(offset.to_json())
    again = StreamOffset.from_json(json.loads(text))
    assert again == StreamOffset({("a", 0): 3, ("b", 1): 5}, {"a": "id-a", "b": "id-b"}, "group", False, {("a", 0): 1})
    assert json.dumps(again.to_json()) == text


def test_the_first_batch_begins_where_it_began_although_latest_has_moved() -> None:
    # Given a stream that began at "latest" = 10 and whose first batch went to 20, then the driver died;
    first = StreamOffset({("t", 0): 10}, {"t": "id"}, "g1", is_initial=True)
    batch_end = StreamOffset({("t", 0): 20}, {"t": "id"}, "g1", began_at=first.offsets)
    # when it starts again, "latest" is 35 and the group is another:
    asked_again = StreamOffset({("t", 0): 35}, {"t": "id"}, "g2", is_initial=True)
    # then the batch still covers 10 to 20.
    assert asked_again.start_for(batch_end).offsets == {("t", 0): 10}
    assert first.start_for(StreamOffset({("t", 0): 20})) is first


@given(positions, st.integers(1, 10**6))
def test_a_limit_takes_what_it_says_and_something_from_everybody(
    spans: dict[tuple[str, int], tuple[int, int]], max_rows: int
) -> None:
    start = {key: first for key, (first, _) in spans.items()}
    end = {key: first + size for key, (first, size) in spans.items()}
    limited = limit_rows(start, end, max_rows)
    waiting = [key for key in spans if end[key] > start[key]]
    taken = sum(limited[key] - start[key] for key in spans)
    assert all(start[key] <= limited[key] <= end[key] for key in spans)
    assert all(limited[key] > start[key] for key in waiting)
    assert taken <= max(max_rows, len(waiting))
    total = sum(end[key] - start[key] for key in spans)
    assert taken >= min(total, max_rows)


@given(positions, st.none() | st.integers(1, 40), st.none() | st.integers(1000, 10**6))
def test_splitting_loses_and_repeats_nothing(
    spans: dict[tuple[str, int], tuple[int, int]], min_partitions: int | None, max_records: int | None
) -> None:
    ranges = [OffsetRange(*key, first, first + size) for key, (first, size) in spans.items()]
    pieces = split_ranges(ranges, min_partitions, max_records)
    for whole in ranges:
        mine = [piece for piece in pieces if (piece.topic, piece.partition) == (whole.topic, whole.partition)]
        assert sum(piece.size for piece in mine) == whole.size
        position = whole.start
        for piece in mine:
            assert piece.start == position and piece.size > 0
            position = piece.end
    if max_records is not None:
        assert all(piece.size <= max_records for piece in pieces)


def test_one_large_partition_feeds_many_tasks() -> None:
    pieces = split_ranges([OffsetRange("t", 0, 0, 900), OffsetRange("t", 1, 0, 100)], 10, None)
    assert len([piece for piece in pieces if piece.partition == 0]) == 9


def test_a_replayed_batch_begins_in_a_new_partition_where_it_began_the_first_time() -> None:
    start = StreamOffset({("t", 0): 10}, {"t": "id"})
    end = StreamOffset({("t", 0): 20, ("t", 1): 5}, {"t": "id"}, began_at={("t", 1): 3})
    again = StreamOffset.from_json(end.to_json())
    assert start.start_for(again).offsets == {("t", 0): 10, ("t", 1): 3}
    # A topic that was deleted and created anew begins anew, too.
    other = StreamOffset({("t", 0): 4}, {"t": "other"}, began_at={("t", 0): 1})
    assert start.start_for(other).offsets == {("t", 0): 1} and start.start_for(other).topic_ids == {"t": "other"}
