"""Stories of readers: the checks of a fetch in their order, and long polls."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.log import cold
from penstock.protocol.errors import ErrorCode
from penstock.replication import reads
from penstock.replication.partition import Bound
from tests.replication.stage import Stage, assignment


def test_epochs_are_checked_before_leadership() -> None:
    stage = Stage(leader=2, leader_epoch=4)
    assert stage.fetch_from(3, 0, current_leader_epoch=3).error == ErrorCode.FENCED_LEADER_EPOCH
    assert stage.fetch_from(3, 0, current_leader_epoch=5).error == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert stage.fetch_from(3, 0, current_leader_epoch=4).error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert stage.fetch_from(3, 0, current_leader_epoch=-1).error == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_replica_that_is_not_assigned_is_told_to_wait_for_metadata() -> None:
    stage = Stage(replicas=(1, 2), isr=(1, 2))
    assert stage.fetch_from(3, 0).error == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert stage.fetch_from(3, 0, current_leader_epoch=-1).error == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_an_earlier_life_of_a_follower_is_refused() -> None:
    stage = Stage()
    assert stage.fetch_from(2, 0, broker_epoch=50).error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert stage.fetch_from(2, 0, broker_epoch=150).error == 0, "our own metadata may be the older"
    assert stage.fetch_from(2, 0, broker_epoch=102).error == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_diverged_follower_is_told_where_and_does_not_count() -> None:
    stage = Stage()
    stage.append(4)
    stage.partition.become_leader(assignment(leader_epoch=3, partition_epoch=1))
    stage.append(2)
    answer = stage.fetch_from(2, 6, last_fetched_epoch=2)
    assert (answer.error, answer.diverging_epoch, answer.region) == (0, (0, 4), None)
    assert stage.partition.followers[2].log_end_offset == -1
    assert stage.fetch_from(2, 5, last_fetched_epoch=0).diverging_epoch == (0, 4)
    assert stage.fetch_from(2, 4, last_fetched_epoch=0).diverging_epoch is None


def test_an_epoch_that_the_leader_cannot_know_is_out_of_range() -> None:
    stage = Stage()
    stage.append()
    assert stage.fetch_from(2, 1, last_fetched_epoch=9).error == ErrorCode.OFFSET_OUT_OF_RANGE


def test_the_ends_of_the_log() -> None:
    stage = Stage(replicas=(1,), isr=(1,))
    stage.append(3)
    stage.append(3)
    stage.partition.delete_records(3)
    assert reads.fetch(stage.partition, 2, 1000).error == ErrorCode.OFFSET_OUT_OF_RANGE
    assert reads.fetch(stage.partition, 7, 1000).error == ErrorCode.OFFSET_OUT_OF_RANGE
    at_end = reads.fetch(stage.partition, 6, 1000)
    assert (at_end.error, at_end.size, at_end.high_watermark) == (0, 0, 6)


def test_consumers_see_up_to_the_high_watermark_and_followers_everything() -> None:
    stage = Stage(replicas=(1, 2), isr=(1, 2))
    stage.append()
    assert reads.fetch(stage.partition, 0, 1000).size == 0
    assert stage.fetch_from(2, 0).size > 0
    above = reads.fetch(stage.partition, 1, 1000)
    assert (above.error, above.size) == (0, 0), "between the bound and the end nothing is wrong"


def test_a_read_writes_what_is_staged_first() -> None:
    stage = Stage(replicas=(1,), isr=(1,))
    stage.append(2, write=False)
    fetched = reads.fetch(stage.partition, 0, 1000)
    assert fetched.size > 0
    assert fetched.high_watermark == 2


def test_a_new_consumer_may_read_from_a_follower() -> None:
    stage = Stage(leader=2)
    assert reads.fetch(stage.partition, 0, 1000).error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert reads.fetch(stage.partition, 0, 1000, leader_only=False).error == 0


def test_latest_is_unknown_until_the_new_leader_has_committed_its_own_start() -> None:
    stage = Stage()
    stage.append()
    stage.partition.become_leader(assignment(leader_epoch=1, partition_epoch=1))
    assert reads.latest_offset_error(stage.partition) == ErrorCode.OFFSET_NOT_AVAILABLE
    stage.fetch_from(2, 1)
    stage.fetch_from(3, 1)
    assert reads.latest_offset_error(stage.partition) == 0


def test_offset_for_leader_epoch_is_the_leaders_to_answer() -> None:
    stage = Stage()
    stage.append(4)
    assert reads.offset_for_leader_epoch(stage.partition, 0, 0) == (0, 0, 4)
    assert reads.offset_for_leader_epoch(stage.partition, -1, 7) == (0, -1, -1)
    stage.partition.become_follower(assignment(leader=2, leader_epoch=1, partition_epoch=1))
    assert reads.offset_for_leader_epoch(stage.partition, 1, 0)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER


class LongPoll:
    def __init__(self, stage: Stage, offset: int, bound: Bound, min_bytes: int = 1) -> None:
        self.woken = 0
        self.wait = stage.parking.until_readable([(stage.partition, offset, int(bound))], min_bytes, 500, self.wake)

    def wake(self) -> None:
        self.woken += 1


def test_a_follower_is_woken_by_an_append_and_a_consumer_by_the_high_watermark() -> None:
    stage = Stage(replicas=(1, 2), isr=(1, 2))
    follower = LongPoll(stage, 0, Bound.LOG_END)
    consumer = LongPoll(stage, 0, Bound.HIGH_WATERMARK)
    stage.append()
    assert (follower.woken, consumer.woken) == (1, 0)
    stage.fetch_from(2, 1)
    assert (follower.woken, consumer.woken) == (1, 1)
    stage.timers.fire_all()
    assert (follower.woken, consumer.woken) == (1, 1)
    assert stage.parking.parked == 0
    assert stage.partition.fetch_waits == {}


def test_a_poll_waits_for_its_min_bytes_or_its_time() -> None:
    stage = Stage(replicas=(1,), isr=(1,))
    poll = LongPoll(stage, 0, Bound.HIGH_WATERMARK, min_bytes=100)
    stage.append()
    assert poll.woken == 0
    stage.append()
    stage.append()
    assert poll.woken == 1
    slow = LongPoll(stage, 3, Bound.HIGH_WATERMARK)
    stage.timers.fire_all()
    assert slow.woken == 1


def test_pages_that_are_missing_for_one_poll_keep_nobody_else_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower's fetch, which must not wait for the disk, moves the high watermark: all it concerns are woken."""
    stage = Stage(replicas=(1, 2), isr=(1, 2))
    cold_one = LongPoll(stage, 0, Bound.HIGH_WATERMARK, min_bytes=10)
    other = LongPoll(stage, 0, Bound.HIGH_WATERMARK)
    stage.append()
    read = stage.log.read

    def on_the_disk_only(offset: int, *args: Any, **fields: Any) -> Any:
        if offset == 0:
            raise cold.ColdPages
        return read(offset, *args, **fields)

    monkeypatch.setattr(stage.log, "read", on_the_disk_only)
    assert stage.fetch_from(2, 1).error == 0
    assert (cold_one.woken, other.woken) == (1, 1)


def test_a_poll_ends_when_the_role_changes_or_its_offset_is_deleted() -> None:
    stage = Stage(replicas=(1,), isr=(1,))
    stage.append(5)
    stage.append(5)
    deleted = LongPoll(stage, 5, Bound.LOG_END, min_bytes=10**6)
    stage.partition.delete_records(10)
    assert deleted.woken == 1
    moved = LongPoll(stage, 10, Bound.HIGH_WATERMARK)
    stage.partition.become_follower(assignment(leader=2, leader_epoch=1, partition_epoch=1))
    assert moved.woken == 1


def test_a_closed_connection_leaves_nothing_behind() -> None:
    stage = Stage(replicas=(1,), isr=(1,))
    poll = LongPoll(stage, 0, Bound.HIGH_WATERMARK)
    stage.parking.cancel(poll.wait)
    stage.append()
    assert poll.woken == 0
    assert stage.parking.parked == 0


def test_beyond_the_bound_polls_are_answered_at_once() -> None:
    stage = Stage(replicas=(1,), isr=(1,))
    stage.parking.max_parked = 1
    first = LongPoll(stage, 0, Bound.HIGH_WATERMARK)
    second = LongPoll(stage, 0, Bound.HIGH_WATERMARK)
    assert (first.woken, second.woken) == (0, 1)


def test_a_throttled_leader_gives_nothing_to_replicas_out_of_sync() -> None:
    from penstock.replication.throttle import ReplicationQuota, throttled_partitions

    stage = Stage(isr=(1, 2))
    quota = stage.partition.leader_quota = ReplicationQuota()
    quota.bytes_per_second = 1
    quota.set_topic("t", throttled_partitions("0:1,0:2", 1))
    stage.append()
    stage.append()
    assert stage.fetch_from(3, 0).size > 0
    assert stage.fetch_from(3, 1).size == 0, "over the rate"
    assert stage.fetch_from(2, 1).size > 0, "members of the ISR are not slowed"
    stage.clock.advance(60_000)
    assert stage.fetch_from(3, 1).size > 0


def test_a_consumer_is_sent_to_the_replica_of_its_rack() -> None:
    stage = Stage()
    stage.append(4)
    stage.fetch_from(2, 4)
    stage.fetch_from(3, 4)
    racks = {1: "a", 2: "b", 3: "b"}
    assert reads.fetch(stage.partition, 0, 1000, client_rack="b").preferred_replica == -1, "off unless asked for"
    stage.partition.rack_of = racks.get
    sent = reads.fetch(stage.partition, 0, 1000, client_rack="b")
    assert (sent.preferred_replica, sent.size, sent.answers_at_once) == (2, 0, True)
    assert reads.fetch(stage.partition, 0, 1000, client_rack="a").size > 0
    assert reads.fetch(stage.partition, 0, 1000, client_rack="c").size > 0
    stage.partition.become_leader(assignment(isr=(1, 3), partition_epoch=1))
    assert reads.fetch(stage.partition, 0, 1000, client_rack="b").preferred_replica == 3
    stage.append()
    assert reads.fetch(stage.partition, 5, 1000, client_rack="b").preferred_replica == -1, "it does not have that yet"
