"""What happens when the coordinator's log refuses: timers try again, callbacks harm nobody, large writes are cut."""

from __future__ import annotations

from uuid import UUID

import pytest

from penstock.coordinator.group import admin, commands
from penstock.coordinator.group.offset_records import decode_offset
from penstock.coordinator.group.offsets import Committer, OffsetToCommit
from penstock.coordinator.group.records import RecordType
from penstock.coordinator.runtime import EXCLUSIVE, Write
from penstock.coordinator.shard_log import Producer
from penstock.protocol.errors import ErrorCode
from penstock.testing.group_world import World

NONE = ErrorCode.NONE
PRODUCER = Producer(7, 0)
DAY_MS = 86_400_000


def commit_many(world: World, count: int, group_id: str = "g", topic: str = "t", topic_id: bytes = b"") -> None:
    for start in range(0, count, 100):
        entries = [OffsetToCommit(topic, start + number, 5, -1, "", topic_id) for number in range(100)]
        world.runtime.write(
            0,
            None,
            lambda shard, now, entries=entries: commands.commit_offsets(shard, Committer(group_id), 8, entries, now),
            lambda *_: None,
        )
    world.settle()


# Timers ------------------------------------------------------------------------------------------------------------


def test_a_silent_consumer_is_fenced_although_the_log_refused_when_its_session_ended() -> None:
    world = World()
    world.topics.create("t", 2)
    world.consumer_join("a", "t")
    world.log.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    world.pass_time(50_000)
    assert "a" in world.consumer_group().members, "nothing could be stored"
    world.log.refuses = NONE
    world.pass_time(20_000)
    assert "a" not in world.consumer_group().members
    world.fail_over()
    assert "a" not in world.consumer_group().members


def test_a_consumer_that_comes_back_before_the_next_try_stays() -> None:
    world = World()
    world.topics.create("t", 2)
    joined = world.consumer_join("a", "t")
    world.log.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    world.pass_time(45_100)
    world.log.refuses = NONE
    assert world.consumer_heartbeat("a", joined.member_epoch).error is NONE
    world.pass_time(30_000)
    assert "a" in world.consumer_group().members


def test_a_classic_member_of_a_consumer_group_that_never_syncs_is_removed_once_the_log_takes_it() -> None:
    world = World()
    world.topics.create("t", 2)
    world.consumer_join("a", "t")
    member, _ = world.join_with_id(rebalance_timeout_ms=20_000, session_timeout_ms=300_000)
    for _ in range(4):
        world.pass_time(4_000)
        world.consumer_heartbeat("a", world.consumer_group().members["a"].member_epoch)
    world.log.refuses = ErrorCode.KAFKA_STORAGE_ERROR
    world.pass_time(5_000)
    world.log.refuses = NONE
    assert member in world.consumer_group().members
    world.pass_time(16_000)
    assert member not in world.consumer_group().members


def test_a_member_whose_join_is_answered_is_not_expelled_in_the_same_wake_up() -> None:
    """The loop was busy: initial delay and first session are both over when the timers are looked at."""
    world = World(initial_rebalance_delay_ms=9_999, new_member_join_timeout_ms=10_000)
    member, joined = world.join_with_id(session_timeout_ms=10_000)
    world.clock.advance(10_000)
    world.runtime.run_timers()
    world.settle()
    assert [answer.error for answer in joined] == [NONE]
    assert member in world.group().members
    assert world.sync(member, joined[0].generation)[0].error is NONE


# Callbacks ---------------------------------------------------------------------------------------------------------


def test_a_callback_that_fails_leaves_nobody_else_without_an_answer() -> None:
    world = World()
    world.log.commits = False
    answers: list[str] = []

    def broken(*_: object) -> None:
        raise KeyError("gone")

    for name, write in {
        "committed": Write([], on_committed=broken),
        "failed": Write([], on_failed=broken),
        "healthy": Write([]),
    }.items():
        world.commit(offset=1)
        write.records = [*admin.delete_group(world.shard, "g").records]
        world.runtime.write(0, None, lambda *_a, w=write: w, lambda e, _r, n=name: answers.append(f"{n} {e.name}"))
        world.settle()
    world.runtime.resigned(0)
    assert answers == [f"{name} NOT_COORDINATOR" for name in ("committed", "failed", "healthy")]


def test_a_static_member_that_restarts_twice_while_nothing_is_committed_is_answered_twice() -> None:
    world = World(initial_rebalance_delay_ms=0)
    first = world.join("", instance_id="i", session_timeout_ms=60_000)
    world.pass_time(1)
    assert world.sync(first[0].member_id, first[0].generation, instance_id="i")[0].error is NONE
    world.log.commits = False
    second = world.join("", instance_id="i", session_timeout_ms=60_000)
    third = world.join("", instance_id="i", session_timeout_ms=60_000)
    world.pass_time(6_000)
    assert [answer.error for answer in second + third] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    world.log.commit_all()
    again = world.join("", instance_id="i", session_timeout_ms=60_000)
    assert [answer.error for answer in again] == [NONE]


# Deleted topics and groups -------------------------------------------------------------------------------------------


def test_offsets_of_a_deleted_topic_go_although_the_log_refused_at_first() -> None:
    world = World()
    commit_many(world, 300, topic="gone")
    commit_many(world, 100, topic="stays")
    world.log.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    world.coordinator.topics_deleted({"gone"})
    world.pass_time(5_000)
    assert world.committed(topic="gone", partition=7) == 5
    world.log.refuses = NONE
    world.pass_time(20_000)
    assert world.committed(topic="gone", partition=7) == -1
    assert world.committed(topic="stays", partition=7) == 5
    world.fail_over()
    assert world.committed(topic="gone", partition=299) == -1


def test_tombstones_of_a_deleted_topic_fit_into_small_batches() -> None:
    world = World()
    commit_many(world, 3_000, topic="gone")
    world.log.max_bytes = 1_000
    world.coordinator.topics_deleted({"gone"})
    world.pass_time(1_000)
    assert "g" not in world.shard.offsets.groups


def test_commits_of_one_wake_up_never_make_a_batch_that_the_log_refuses() -> None:
    world = World()
    world.log.max_bytes = 4_000
    answers: list[ErrorCode] = []
    for number in range(100):
        entry = OffsetToCommit("t", number, 5, -1, "x" * 50)
        world.runtime.write(
            0,
            None,
            lambda shard, now, entry=entry: commands.commit_offsets(shard, Committer("g"), 8, [entry], now),
            lambda error, _response: answers.append(error),
        )
    world.settle()
    assert answers == [NONE] * 100


def test_a_topic_that_comes_again_does_not_inherit_offsets() -> None:
    """Also where the tombstones of the old one were never written: its coordinator died in between."""
    world = World()
    old = world.topics.create("t", 1)
    commit_many(world, 100, topic_id=old.bytes)
    assert world.committed() == 5
    world.topics.topics["t"] = world.topics.topics["t"]._replace(topic_id=UUID(int=99))
    world.fail_over()
    assert world.committed() == -1
    assert commands.fetch_offsets(world.shard, "g", None, -1, None, False) == []
    entry = OffsetToCommit("t", 0, 8, -1, "", UUID(int=99).bytes)
    world._write(None, lambda shard, now: commands.commit_offsets(shard, Committer("g"), 8, [entry], now))
    world.coordinator.topics_deleted({"t"})  # late: what was committed for the new one stays
    world.pass_time(1_000)
    assert world.committed() == 8
    assert len(world.shard.offsets.groups["g"].committed) == 1


@pytest.mark.parametrize("way", ["group", "offset", "topic"])
def test_what_was_deleted_does_not_come_back_when_a_transaction_commits(way: str) -> None:
    world = World()
    world.commit(offset=1)
    world.commit_in_transaction(PRODUCER, 9)
    if way == "group":
        assert world.delete_group() is NONE
    elif way == "offset":
        world._write(EXCLUSIVE, lambda shard, _now: admin.delete_offsets(shard, "g", [("t", 0)]))
    else:
        world.coordinator.topics_deleted({"t"})
        world.pass_time(1)
    world.end_transaction(PRODUCER, commit=True)
    assert world.committed() == -1
    assert admin.list_groups(world.shard) == ([] if way == "group" else admin.list_groups(world.shard))
    world.fail_over()
    assert world.committed() == -1


def test_a_commit_may_ask_for_a_retention_of_its_own() -> None:
    """OffsetCommit v2–4: longer or shorter than what the broker is set to."""
    world = World()
    entry = OffsetToCommit("t", 0, 5, -1, "", UUID(int=1).bytes)
    world._write(None, lambda shard, now: commands.commit_offsets(shard, Committer("g"), 4, [entry], now, 3_600_000))
    assert decode_offset(world.shard.offsets.groups["g"].committed.popitem()[1]).expire_timestamp_ms > 0
    world._write(None, lambda shard, now: commands.commit_offsets(shard, Committer("g"), 4, [entry], now, 3_600_000))
    world.pass_time(DAY_MS)
    assert world.committed() == -1


def test_the_tombstone_of_a_group_is_the_last_of_its_deletion() -> None:
    """It may be written in several batches: a crash in between leaves a group with fewer offsets, not the reverse."""
    world = World()
    commit_many(world, 200)
    records = admin.delete_group(world.shard, "g").records
    assert records[-1].key[1] == RecordType.GROUP_METADATA
    assert len(records) == 201
