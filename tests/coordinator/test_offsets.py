"""Committed offsets: who may commit, what is fetched, transactions, expiry, deletion, and what a failover keeps."""

from __future__ import annotations

from penstock.coordinator.group import admin, commands
from penstock.coordinator.group.offset_records import decode_offset, encode_offset
from penstock.coordinator.runtime import EXCLUSIVE
from penstock.coordinator.shard_log import Producer, Record
from penstock.coordinator.wire import Writer
from penstock.protocol.errors import ErrorCode
from penstock.testing.group_world import World

NONE = ErrorCode.NONE
DAY_MS = 86_400_000
PRODUCER = Producer(7, 0)


def test_a_simple_committer_needs_no_group() -> None:
    world = World()
    assert world.commit(offset=42, metadata="note") == [NONE]
    assert world.committed() == 42
    found = commands.fetch_offsets(world.shard, "g", None, -1, None, False)
    assert isinstance(found, list)
    assert [(offset.topic, offset.partition, offset.metadata) for offset in found] == [("t", 0, "note")]
    assert [group.state for group in admin.list_groups(world.shard)] == ["Empty"]


def test_what_was_never_committed_is_minus_one_without_an_error() -> None:
    world = World()
    assert world.committed() == -1
    assert world.committed("unknown group") == -1
    assert commands.fetch_offsets(world.shard, "g", None, -1, None, False) == []


def test_a_commit_of_a_generation_that_no_group_had_is_refused() -> None:
    world = World()
    assert world.commit("m", 3, version=8) == [ErrorCode.ILLEGAL_GENERATION]
    assert world.commit("m", 3, version=9) == [ErrorCode.GROUP_ID_NOT_FOUND]


def test_long_metadata_is_refused_for_that_partition_only() -> None:
    world = World(offset_metadata_max_bytes=4)
    assert world.commit(metadata="12345") == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert world.commit(metadata="1234") == [NONE]


def test_an_answer_waits_until_the_offset_is_committed_and_so_does_a_read() -> None:
    world = World()
    world.log.commits = False
    assert world.commit(offset=5) == [], "parked"
    answers: list[object] = []
    world.runtime.read(0, lambda shard: shard.offsets.get("g", "t", 0).offset, lambda *answer: answers.append(answer))
    assert answers == [], "a reader must not see what a failover could take back"
    world.log.commit_all()
    assert answers == [(NONE, 5)]


def test_commits_of_one_wake_up_share_one_append() -> None:
    world = World()
    done: list[ErrorCode] = []
    for number in range(50):
        entries = [commands.OffsetToCommit("t", number, number, -1, "")]
        world.runtime.write(
            0,
            None,
            lambda shard, now, entries=entries: commands.commit_offsets(
                shard, commands.Committer("g"), 8, entries, now
            ),
            lambda error, _response: done.append(error),
        )
    world.settle()
    assert done == [NONE] * 50
    assert world.log.appends == 1


def test_a_refused_append_changes_nothing() -> None:
    world = World()
    world.commit(offset=1)
    world.log.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.commit(offset=2) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    world.log.refuses = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert world.commit(offset=3) == [ErrorCode.NOT_COORDINATOR]
    assert world.committed() == 1


def test_a_commit_that_no_follower_takes_times_out() -> None:
    world = World()
    world.log.commits = False
    done: list[ErrorCode] = []
    entries = [commands.OffsetToCommit("t", 0, 1, -1, "")]
    world.runtime.write(
        0,
        None,
        lambda shard, now: commands.commit_offsets(shard, commands.Committer("g"), 8, entries, now),
        lambda error, _response: done.append(error),
    )
    world.pass_time(5_001)
    assert done == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


def test_offsets_survive_a_failover() -> None:
    world = World()
    for partition in range(100):
        world.commit(offset=partition * 10, partition=partition)
    world.commit(offset=77, partition=5)
    world.fail_over()
    assert world.committed(partition=5) == 77
    assert world.committed(partition=99) == 990


def test_offsets_of_a_transaction_show_with_its_commit() -> None:
    world = World()
    world.commit(offset=1)
    assert world.commit_in_transaction(PRODUCER, 10) == [NONE]
    assert world.committed() == 1
    assert world.committed(stable=True) is ErrorCode.UNSTABLE_OFFSET_COMMIT
    world.fail_over()
    assert world.committed(stable=True) is ErrorCode.UNSTABLE_OFFSET_COMMIT
    world.end_transaction(PRODUCER, commit=True)
    assert world.committed(stable=True) == 10
    world.fail_over()
    assert world.committed() == 10


def test_offsets_of_an_aborted_transaction_vanish() -> None:
    world = World()
    world.commit_in_transaction(PRODUCER, 10)
    world.end_transaction(PRODUCER, commit=False)
    assert world.committed() == -1
    world.fail_over()
    assert world.committed() == -1


def test_a_plain_commit_overtakes_an_older_one_of_a_transaction() -> None:
    world = World()
    world.commit_in_transaction(PRODUCER, 10)
    world.commit(offset=20)
    world.end_transaction(PRODUCER, commit=True)
    assert world.committed() == 20
    world.fail_over()
    assert world.committed() == 20


def test_offsets_expire_a_week_after_the_group_was_left() -> None:
    world = World(initial_rebalance_delay_ms=0)
    member, joined = world.join_with_id()
    world.pass_time(1)
    world.sync(member, joined[0].generation)
    world.commit(member, 1, offset=3)
    world.commit(member, 1, offset=4, topic="not subscribed")
    world.pass_time(1_000)
    world.leave(member)
    world.pass_time(6 * DAY_MS)
    assert world.committed() == 3
    world.pass_time(2 * DAY_MS)
    assert world.committed() == -1
    assert "g" not in world.shard.groups, "nothing is left of the group"
    world.fail_over()
    assert admin.list_groups(world.shard) == []


def test_a_living_group_keeps_offsets_of_what_it_reads_and_loses_the_others() -> None:
    world = World(initial_rebalance_delay_ms=0)
    member, joined = world.join_with_id(session_timeout_ms=1_800_000)
    world.pass_time(1)
    world.sync(member, joined[0].generation)
    world.commit(member, 1, offset=3)
    world.commit(member, 1, offset=4, topic="not subscribed")
    for _ in range(9 * 24 * 3):
        world.pass_time(DAY_MS / 24 / 3)
        assert world.heartbeat(member, 1) is NONE
    assert world.committed() == 3
    assert world.committed(topic="not subscribed") == -1


def test_simple_groups_expire_by_the_time_of_each_commit() -> None:
    world = World()
    world.commit(offset=1, partition=0)
    world.pass_time(4 * DAY_MS)
    world.commit(offset=2, partition=1)
    world.pass_time(4 * DAY_MS)
    assert (world.committed(partition=0), world.committed(partition=1)) == (-1, 2)


def test_offsets_of_a_transaction_in_flight_do_not_expire() -> None:
    world = World()
    world.commit(offset=1)
    world.commit_in_transaction(PRODUCER, 2)
    world.pass_time(10 * DAY_MS)
    assert world.committed() == 1


def test_offsets_are_deleted_unless_the_group_reads_the_topic() -> None:
    world = World(initial_rebalance_delay_ms=0)
    member, joined = world.join_with_id()
    world.pass_time(1)
    world.sync(member, joined[0].generation)
    world.commit(member, 1, offset=3)
    world.commit(member, 1, offset=4, topic="other")
    answers: list[object] = []
    world.runtime.write(
        0,
        EXCLUSIVE,
        lambda shard, _now: admin.delete_offsets(shard, "g", [("t", 0), ("other", 0), ("other", 1)]),
        lambda _error, codes: answers.extend(codes),
    )
    world.settle()
    assert answers == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, NONE, NONE]
    assert (world.committed(), world.committed(topic="other")) == (3, -1)


def test_deleting_a_group_sees_a_commit_of_the_same_wake_up() -> None:
    world = World()
    world.commit(offset=1)
    entries = [commands.OffsetToCommit("t", 1, 1, -1, "")]
    world.runtime.write(
        0,
        None,
        lambda shard, now: commands.commit_offsets(shard, commands.Committer("g"), 8, entries, now),
        lambda *_: None,
    )
    world.runtime.write(0, EXCLUSIVE, lambda shard, _now: admin.delete_group(shard, "g"), lambda *_: None)
    world.settle()
    assert world.committed(partition=1) == -1
    assert admin.list_groups(world.shard) == []


def test_every_version_of_a_stored_offset_is_read() -> None:
    v0 = Writer().i16(0).i64(5).string("m").i64(9).done()
    v1 = Writer().i16(1).i64(5).string("m").i64(9).i64(10).done()
    v2 = Writer().i16(2).i64(5).string("m").i64(9).done()
    v4 = Writer().i16(4).i64(5).i32(3).compact_string("m").i64(9).tags({0: b"\0" * 16}).done()
    for value in (v0, v1, v2, encode_offset(5, 3, "m", 9), v4):
        found = decode_offset(value)
        assert (found.offset, found.metadata, found.commit_timestamp_ms) == (5, "m", 9)
    assert decode_offset(v1).expire_timestamp_ms == 10


def test_records_of_other_kinds_of_groups_are_skipped_on_load() -> None:
    world = World()
    share_group = Writer().i16(11).string("s").done()
    world.log.append(0, [Record(share_group, b"\0\0")], 0, None, 0)
    world.commit(offset=1)
    world.fail_over()
    assert world.committed() == 1
