"""Stories of classic groups: joining, leading, leaving, timing out, coming back."""

from __future__ import annotations

from typing import Any

from penstock.coordinator.group import admin
from penstock.coordinator.group.classic_group import ClassicState
from penstock.coordinator.group.classic_members import SyncRequest
from penstock.protocol.errors import ErrorCode
from penstock.testing.group_world import World, subscription

NONE = ErrorCode.NONE


def stable_group(world: World, members: int = 2, **changes: Any) -> list[str]:
    """A group of this size with a stored assignment; member ids, the leader first."""
    joins = [world.join_with_id(**changes) for _ in range(members)]
    world.pass_time(world.config.initial_rebalance_delay_ms * (members + 1))
    ids = [member_id for member_id, _ in joins]
    assert all(answers[0].error is NONE for _, answers in joins)
    generation = joins[0][1][0].generation
    leader = joins[0][1][0].leader
    ids.sort(key=lambda member_id: member_id != leader)
    syncs = [world.sync(member_id, generation) for member_id in ids[1:]]
    shares = {member_id: f"share of {member_id}".encode() for member_id in ids}
    syncs.append(world.sync_with(SyncRequest("g", leader, generation, assignments=shares)))
    assert all(answers[0].error is NONE for answers in syncs)
    assert world.group().state is ClassicState.STABLE
    return ids


def test_a_first_join_is_sent_back_with_an_id_and_then_waits_for_others() -> None:
    world = World()
    first_id, first = world.join_with_id()
    assert first == []
    world.pass_time(2_000)
    _, second = world.join_with_id()
    world.pass_time(1_000)
    assert first == [], "somebody came meanwhile: the group waits once more"
    world.pass_time(3_000)
    assert first[0].generation == second[0].generation == 1
    assert first[0].leader == second[0].leader == first_id
    assert len(first[0].members) == 2
    assert second[0].members == [], "only the leader learns who is there"


def test_old_clients_are_added_without_a_second_join() -> None:
    world = World(initial_rebalance_delay_ms=0)
    answers = world.join(requires_known_member_id=False)
    world.pass_time(1)
    assert answers[0].error is NONE
    assert answers[0].member_id.startswith("client-")


def test_everybody_gets_their_share_once_the_leaders_is_stored() -> None:
    world = World()
    leader, follower = stable_group(world)
    world.log.commits = False
    again = world.join(leader)
    world.join(follower)
    generation = again[0].generation
    assert generation == 2
    follower_share = world.sync(follower, generation)
    leader_share = world.sync_with(SyncRequest("g", leader, generation, assignments={follower: b"new"}))
    assert follower_share == leader_share == [], "not before the record is committed"
    world.log.commit_all()
    assert follower_share[0].assignment == b"new"
    assert leader_share[0].assignment == b"", "what the leader left out is an empty share"


def test_a_group_survives_a_failover_with_generation_leader_and_shares() -> None:
    world = World()
    leader, follower = stable_group(world)
    world.fail_over()
    assert world.group().generation == 1
    assert world.group().leader_id == leader
    assert world.heartbeat(follower, 1) is NONE
    assert world.sync(follower, 1)[0].assignment == f"share of {follower}".encode()


def test_a_member_that_stops_to_heartbeat_is_dropped_and_the_rest_rebalances() -> None:
    world = World()
    leader, follower = stable_group(world)
    for _ in range(4):
        world.pass_time(4_000)
        last = world.heartbeat(leader, 1)
    assert last is ErrorCode.REBALANCE_IN_PROGRESS
    again = world.join(leader)
    assert again[0].generation == 2
    assert [member for member, _, _ in again[0].members] == [leader]
    assert world.heartbeat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.journal[-1].causes[0].kind != "timed_out", "the rebalance is not finished yet"
    world.sync_with(SyncRequest("g", leader, 2))
    assert {cause.kind for cause in world.journal[-1].causes} == {"timed_out"}


def test_a_leader_that_does_not_rejoin_is_replaced() -> None:
    world = World()
    leader, follower = stable_group(world)
    new_id, _ = world.join_with_id()
    again = world.join(follower)
    assert again == []
    world.pass_time(5_000)
    world.heartbeat(leader, 1)
    world.pass_time(60_000)
    assert again[0].leader in (follower, new_id)
    assert world.heartbeat(leader, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_members_that_joined_but_never_sync_are_removed() -> None:
    world = World()
    leader, follower = stable_group(world)
    joins = [world.join(leader), world.join(follower)]
    assert joins[0][0].generation == 2
    parked = world.sync(follower, 2)
    for _ in range(8):
        world.pass_time(8_000)
        world.heartbeat(leader, 2)
        world.heartbeat(follower, 2)
    assert parked[0].error is ErrorCode.REBALANCE_IN_PROGRESS
    assert leader not in world.group().members


def test_stale_generations_and_strangers_are_refused() -> None:
    world = World()
    leader, _ = stable_group(world)
    assert world.heartbeat(leader, 0) is ErrorCode.ILLEGAL_GENERATION
    assert world.heartbeat("stranger", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.heartbeat(leader, 1, group_id="other") is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.sync(leader, 7)[0].error is ErrorCode.ILLEGAL_GENERATION
    assert world.join("stranger")[0].error is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.leave("stranger") == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert world.commit(leader, 0) == [ErrorCode.ILLEGAL_GENERATION]
    assert world.commit("stranger", 1) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert world.commit() == [ErrorCode.UNKNOWN_MEMBER_ID], "a simple committer may not disturb a group at work"


def test_protocols_must_be_shared_and_votes_choose() -> None:
    world = World(initial_rebalance_delay_ms=0)
    both = [("sticky", subscription("t")), ("range", subscription("t"))]
    only_range = [("range", subscription("t")), ("own", b"")]
    _, first = world.join_with_id(protocols=both)
    _, second = world.join_with_id(protocols=only_range)
    world.pass_time(1)
    assert first[0].protocol == second[0].protocol == "range"
    other_type = world.join(protocol_type="connect", protocols=[("range", b"")])
    assert other_type[0].error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    nothing_shared = world.join(protocols=[("mine", b"")])
    assert nothing_shared[0].error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_session_timeouts_and_group_size_have_limits() -> None:
    world = World(max_size=1, initial_rebalance_delay_ms=0)
    assert world.join(session_timeout_ms=5_999)[0].error is ErrorCode.INVALID_SESSION_TIMEOUT
    assert world.join(session_timeout_ms=1_800_001)[0].error is ErrorCode.INVALID_SESSION_TIMEOUT
    _, first = world.join_with_id()
    world.pass_time(1)
    assert first[0].error is NONE
    assert world.join()[0].error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_group_that_rebalances_still_shows_what_its_members_have() -> None:
    """As Kafka describes it: shares stand until others are given out; subscriptions are shown of stable groups only."""
    world = World()
    leader, follower = stable_group(world)
    share = f"share of {follower}".encode()
    world.leave(leader)
    preparing = admin.describe_classic(world.shard, "g")
    assert preparing.state == "PreparingRebalance"
    assert [(member.assignment, member.metadata) for member in preparing.members] == [(share, b"")]
    world.join(follower)
    completing = admin.describe_classic(world.shard, "g")
    assert completing.state == "CompletingRebalance"
    assert [member.assignment for member in completing.members] == [share]


def test_leaving_rebalances_and_the_last_one_out_leaves_an_empty_group() -> None:
    world = World()
    leader, follower = stable_group(world)
    assert world.delete_group() is ErrorCode.NON_EMPTY_GROUP
    assert world.leave(follower) == [NONE]
    assert world.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.leave(leader) == [NONE]
    assert world.group().state is ClassicState.EMPTY
    world.fail_over()
    assert world.group().state is ClassicState.EMPTY
    assert world.group().generation == 2
    assert world.delete_group() is NONE
    assert "g" not in world.shard.groups
    assert world.delete_group() is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_static_member_that_restarts_keeps_its_share_without_a_rebalance() -> None:
    world = World(initial_rebalance_delay_ms=0)
    first = world.join(instance_id="a")
    world.pass_time(1)
    old_id = first[0].member_id
    assert old_id.startswith("a-")
    world.sync_with(SyncRequest("g", old_id, 1, "a", assignments={old_id: b"mine"}))
    (back,) = world.join(instance_id="a")
    assert (back.error, back.generation, back.skip_assignment) == (NONE, 1, True)
    assert back.member_id != old_id
    assert world.heartbeat(old_id, 1, instance_id="a") is ErrorCode.FENCED_INSTANCE_ID
    assert world.sync(back.member_id, 1, instance_id="a")[0].assignment == b"mine"
    world.fail_over()
    assert world.heartbeat(back.member_id, 1, instance_id="a") is NONE


def test_a_static_member_of_an_old_client_is_not_told_that_it_leads() -> None:
    world = World(initial_rebalance_delay_ms=0)
    (first,) = [world.join(instance_id="a")]
    world.pass_time(1)
    old_id = first[0].member_id
    world.sync_with(SyncRequest("g", old_id, 1, "a"))
    (back,) = world.join(instance_id="a", may_skip_assignment=False)
    assert back.leader == old_id
    assert back.members == []


def test_an_administrator_removes_a_static_member_by_its_instance() -> None:
    world = World(initial_rebalance_delay_ms=0)
    world.join(instance_id="a")
    world.pass_time(1)
    assert world.leave("", instance_id="b") == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert world.leave("", instance_id="a") == [NONE]
    assert world.group().members == {}


def test_an_assignment_that_cannot_be_stored_sends_everybody_back_to_join() -> None:
    world = World()
    leader, follower = stable_group(world)
    world.join(leader)
    world.join(follower)
    parked = world.sync(follower, 2)
    world.log.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    failed = world.sync_with(SyncRequest("g", leader, 2))
    assert parked[0].error is failed[0].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.group().state is ClassicState.PREPARING_REBALANCE
    world.log.refuses = NONE
    world.fail_over()
    assert world.group().generation == 1, "nothing half-written"


def test_who_waits_is_told_when_the_coordinator_moves() -> None:
    world = World()
    _, waiting = world.join_with_id()
    world.runtime.resigned(0)
    assert waiting[0].error is ErrorCode.NOT_COORDINATOR
    assert world.coordinator.heartbeat("g", "m", 1, None) is ErrorCode.NOT_COORDINATOR


def test_members_that_never_come_back_for_their_id_do_not_block_the_group() -> None:
    world = World()
    leader, _ = stable_group(world, 2)
    world.join()  # takes an id, and is never seen again
    again = world.join(leader)
    other = next(member for member in world.group().members if member != leader)
    world.join(other)
    assert again == [], "the one that has an id is waited for"
    world.pass_time(10_001)
    assert again[0].error is NONE


def test_a_member_that_leaves_before_it_joined_may_name_an_instance() -> None:
    world = World()
    (first,) = world.join("")
    assert first.error is ErrorCode.MEMBER_ID_REQUIRED
    assert world.leave(first.member_id, instance_id="i") == [NONE]
    assert world.leave(first.member_id) == [ErrorCode.UNKNOWN_MEMBER_ID]
