"""The follower's fetch session: what each request names, and that its bytes are Kafka's."""

from __future__ import annotations

from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode
from penstock.replication import fetch_wire
from penstock.replication.fetch_plan import FetchPlan, Plan
from penstock.replication.fetch_wire import FetchLimits
from penstock.replication.following import FetchAnswer, Outcome, Position, position, take_answer
from penstock.replication.throttle import ALL_PARTITIONS, ReplicationQuota, throttled_partitions
from penstock.testing.simulation.disk import Entry
from tests.replication.stage import TOPIC_ID, Stage

KEY = ("t", 0)


def followed() -> tuple[Stage, FetchPlan]:
    stage = Stage(leader=2)
    plan = FetchPlan(back_off_ms=1000)
    plan.add(stage.partition)
    return stage, plan


def names(plan: Plan) -> list[int]:
    return [at.fetch_offset for _, at in plan.named]


def test_a_session_names_a_partition_again_only_when_its_position_changed() -> None:
    stage, plan = followed()
    first = plan.next(0)
    assert (first.session_id, first.session_epoch, names(first)) == (0, 0, [0])
    assert plan.answered(0, session_id=77)
    second = plan.next(0)
    assert (second.session_id, second.session_epoch, names(second)) == (77, 1, [])
    plan.answered(0, 77)
    records = Entry(0, 0, 1, 0, 2, 0).encode()
    outcome = take_answer(stage.partition, position(stage.partition), FetchAnswer(0, 0, 0, records=records))
    plan.settled(KEY, outcome, 0)
    third = plan.next(0)
    assert (third.session_epoch, names(third)) == (2, [2])


def test_a_lost_session_begins_anew_with_everything() -> None:
    _, plan = followed()
    plan.next(0)
    plan.answered(0, 77)
    plan.next(0)
    assert not plan.answered(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
    again = plan.next(0)
    assert (again.session_id, again.session_epoch, names(again)) == (0, 0, [0])


def test_a_leader_without_room_for_sessions_is_asked_in_full_each_time() -> None:
    _, plan = followed()
    for _ in range(3):
        assert names(plan.next(0)) == [0]
        plan.answered(0, session_id=0)


def test_a_partition_in_trouble_is_left_out_until_its_time_has_come() -> None:
    _, plan = followed()
    plan.next(0)
    plan.answered(0, 77)
    plan.settled(KEY, Outcome.BACK_OFF, now_ms=100)
    assert not plan.active
    assert plan.next_wake_ms() == 1100
    left_out = plan.next(200)
    assert [p.topic for p in left_out.forgotten] == ["t"]
    plan.answered(0, 77)
    assert names(plan.next(1100)) == [0]


def test_a_fenced_partition_waits_for_metadata() -> None:
    stage, plan = followed()
    plan.next(0)
    plan.settled(KEY, Outcome.WAIT, 0)
    assert plan.next_wake_ms() == float("inf")
    plan.add(stage.partition)
    assert plan.active


def test_a_partition_that_moved_away_is_forgotten() -> None:
    stage, plan = followed()
    plan.next(0)
    plan.answered(0, 77)
    plan.remove(stage.partition)
    assert plan.next(0).forgotten == [stage.partition]
    assert len(plan) == 0


def test_the_request_is_kafkas() -> None:
    stage, _ = followed()
    at = Position(4, 123456789012, 3, 17)
    plan = Plan(5, 6, [(stage.partition, at)], [stage.partition])
    body = fetch_wire.encode_request(plan, FetchLimits(500, 1, 10_000_000, 1_000_000), 2, 99)
    request = messages.decode_request(1, fetch_wire.FETCH_VERSION, body)
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 1, 10_000_000)
    assert (request.session_id, request.session_epoch) == (5, 6)
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (2, 99)
    (topic,) = request.topics
    (asked,) = topic.partitions
    assert topic.topic_id == TOPIC_ID
    assert (asked.partition, asked.current_leader_epoch, asked.fetch_offset) == (0, 4, 123456789012)
    assert (asked.last_fetched_epoch, asked.log_start_offset, asked.partition_max_bytes) == (3, 17, 1_000_000)
    assert request.forgotten_topics_data[0].partitions == [0]


def test_the_answer_is_kafkas_and_its_records_are_not_copied() -> None:
    api = messages.api("fetch")
    records = bytes(300)
    diverged = api.PartitionData(
        partition_index=1, high_watermark=2, diverging_epoch=api.EpochEndOffset(epoch=3, end_offset=40)
    )
    full = api.PartitionData(
        partition_index=0,
        high_watermark=9,
        log_start_offset=4,
        records=records,
        aborted_transactions=[api.AbortedTransaction(producer_id=1, first_offset=2)],
    )
    refused = api.PartitionData(partition_index=2, error_code=6, high_watermark=-1, log_start_offset=-1)
    response = api.Response(
        session_id=11,
        responses=[api.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[full, diverged, refused])],
    )
    frame = bytes(messages.encode_response(1, fetch_wire.FETCH_VERSION, response))
    body = memoryview(frame)
    assert fetch_wire.decode_head(body) == (0, 0, 11)
    first, second, third = [(index, answer) for _, index, answer in fetch_wire.decode_partitions(body)]
    assert first[0] == 0
    assert first[1][:4] == (0, 9, 4, None)
    assert bytes(first[1].records) == records
    assert first[1].records.obj is frame  # type: ignore[union-attr]
    assert second[1].diverging_epoch == (3, 40)
    assert third[1].error == 6


def test_throttle_lists() -> None:
    assert throttled_partitions("0:1, 3:1,3:2", 1) == {0, 3}
    assert throttled_partitions("*", 1) is ALL_PARTITIONS
    assert throttled_partitions("", 1) == frozenset()


def test_a_quota_is_exceeded_by_bytes_over_the_window_and_recovers() -> None:
    quota = ReplicationQuota(samples=11, sample_seconds=1.0)
    quota.set_topic("t", ALL_PARTITIONS)
    assert quota.throttles("t", 5)
    assert not quota.throttles("u", 5)
    quota.bytes_per_second = 1000
    quota.record(9_000, now=0.0)
    assert not quota.exceeded(0.0)
    quota.record(2_000, now=1.5)
    assert quota.exceeded(1.5)
    assert not quota.exceeded(12.0)
