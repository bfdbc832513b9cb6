"""Where replicas go."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.placement import PlacementError, place_replicas
from penstock.cluster.topic_names import collision, name_problem


@given(st.integers(1, 9), st.integers(1, 60), st.integers(1, 9), st.integers(0, 10**6), st.integers(0, 50))
def test_replicas_are_distinct_and_leaders_even(
    broker_count: int, partition_count: int, factor: int, seed: int, first: int
) -> None:
    brokers: dict[int, str | None] = dict.fromkeys(range(10, 10 + broker_count))
    if factor > broker_count:
        with pytest.raises(PlacementError, match="larger than the number of live brokers"):
            place_replicas(brokers, partition_count, factor, random.Random(seed), first)
        return
    placed = place_replicas(brokers, partition_count, factor, random.Random(seed), first)
    assert list(placed) == list(range(first, first + partition_count))
    assert all(len(set(replicas)) == factor and set(replicas) <= brokers.keys() for replicas in placed.values())
    leaders = Counter(replicas[0] for replicas in placed.values())
    assert max(leaders.values()) - min(leaders.get(b, 0) for b in brokers) <= 1


@given(st.lists(st.integers(1, 3), min_size=1, max_size=4), st.integers(1, 6), st.integers(0, 10**6))
def test_racks_are_used_before_any_is_used_twice(rack_sizes: list[int], factor: int, seed: int) -> None:
    racks: dict[int, str | None] = {}
    for number, size in enumerate(rack_sizes):
        for _ in range(size):
            racks[len(racks)] = f"rack{number}"
    if factor > len(racks):
        return
    for replicas in place_replicas(racks, 20, factor, random.Random(seed)).values():
        used = {racks[r] for r in replicas}
        assert len(used) == min(factor, len(rack_sizes))


def test_followers_of_one_leader_are_spread() -> None:
    placed = place_replicas(dict.fromkeys(range(5)), 100, 2, random.Random(7))
    followers_of_zero = Counter(replicas[1] for replicas in placed.values() if replicas[0] == 0)
    assert set(followers_of_zero) == {1, 2, 3, 4}


def test_brokers_without_rack_among_others_are_placed_as_if_there_were_no_racks() -> None:
    placed = place_replicas({1: "a", 2: None, 3: "a"}, 6, 3, random.Random(1))
    assert all(sorted(replicas) == [1, 2, 3] for replicas in placed.values())


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(1, 6), st.integers(0, 10**6))
def test_machines_are_used_before_any_is_used_twice(sizes: list[int], factor: int, seed: int) -> None:
    machines = {b: f"machine{m}" for b, m in enumerate(m for m, size in enumerate(sizes) for _ in range(size))}
    if factor > len(machines):
        return
    placed = place_replicas(dict.fromkeys(machines), 24, factor, random.Random(seed), machines=machines)
    for replicas in placed.values():
        assert len({machines[r] for r in replicas}) == min(factor, len(sizes))
    leaders = Counter(replicas[0] for replicas in placed.values())
    assert max(leaders.values()) - min(leaders.get(b, 0) for b in machines) <= 1


def test_racks_come_before_machines_and_machines_before_brokers() -> None:
    racks: dict[int, str | None] = {b: f"rack{b // 4}" for b in range(8)}  # two racks of two machines of two brokers
    machines = {b: f"machine{b // 2}" for b in range(8)}
    for replicas in place_replicas(racks, 40, 4, random.Random(3), machines=machines).values():
        assert len({racks[r] for r in replicas}) == 2
        assert len({machines[r] for r in replicas}) == 4
    for replicas in place_replicas(racks, 40, 2, random.Random(3), machines=machines).values():
        assert len({racks[r] for r in replicas}) == 2


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ü", "x" * 250, "a/b", "a\n"])
def test_bad_topic_names(name: str) -> None:
    assert name_problem(name) is not None


@pytest.mark.parametrize("name", ["a", "...", "A-z_0.9", "x" * 249, "__consumer_offsets"])
def test_good_topic_names(name: str) -> None:
    assert name_problem(name) is None


def test_names_that_differ_in_dots_and_underscores_collide() -> None:
    assert collision("a.b", ["a_b"]) == "a_b"
    assert collision("a.b", ["a-b", "ab", "a.b"]) is None
    assert collision("plain", ["other"]) is None
