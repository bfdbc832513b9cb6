"""Stories of KIP-848 groups: assignment on the broker, reconciliation without a stop, fencing, patterns, migration."""

from __future__ import annotations

from uuid import UUID

import pytest

from penstock.coordinator.group import commands
from penstock.coordinator.group.assignors import AssignorMember, range_assignor, uniform_assignor
from penstock.coordinator.group.classic_group import ClassicGroup, ClassicState
from penstock.coordinator.group.consumer_group import ConsumerGroup
from penstock.coordinator.group.consumer_heartbeat import HeartbeatRequest
from penstock.coordinator.group.consumer_protocol import (
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from penstock.coordinator.group.records import Assignment
from penstock.protocol.errors import ErrorCode
from penstock.testing.group_world import World, subscription

NONE = ErrorCode.NONE


@pytest.fixture
def world() -> World:
    made = World(initial_rebalance_delay_ms=0)
    made.topics.create("t", 6)
    return made


def beat(world: World, member: str, epoch: int, owned: Assignment) -> tuple[int, Assignment]:
    """A heartbeat of a client that does as it is told: (epoch, what it owns afterwards)."""
    result = world.consumer_heartbeat(member, epoch, owned=owned)
    assert result.error is NONE, (member, result)
    return result.member_epoch, owned if result.assignment is None else result.assignment


def run_until_stable(world: World, clients: dict[str, tuple[int, Assignment]]) -> int:
    """Let every client heartbeat until nothing changes; the number of rounds."""
    for rounds in range(20):
        before = dict(clients)
        for member, (epoch, owned) in list(clients.items()):
            clients[member] = beat(world, member, epoch, owned)
        owners: dict[tuple[UUID, int], str] = {}
        for member, (_, owned) in clients.items():
            for topic, partitions in owned.items():
                for partition in partitions:
                    assert (topic, partition) not in owners, "two members own one partition"
                    owners[topic, partition] = member
        if clients == before:
            return rounds
    raise AssertionError("the group never comes to rest")


def sizes(clients: dict[str, tuple[int, Assignment]]) -> list[int]:
    return sorted(sum(len(partitions) for partitions in owned.values()) for _, owned in clients.values())


def joined(world: World, member: str, *topics: str, **fields: object) -> tuple[int, Assignment]:
    result = world.consumer_join(member, *(topics or (() if "topic_regex" in fields else ("t",))), **fields)
    assert result.error is NONE, result
    return result.member_epoch, result.assignment or {}


def test_the_first_member_gets_everything_at_once(world: World) -> None:
    epoch, owned = joined(world, "a")
    assert epoch == 2, "1 is that of a group which nobody has joined"
    assert owned == {UUID(int=1): {0, 1, 2, 3, 4, 5}}
    assert world.consumer_group().state_name == "Stable"


def test_partitions_move_one_hand_to_the_other_and_nobody_else_is_stopped(world: World) -> None:
    clients = {"a": joined(world, "a"), "b": joined(world, "b")}
    run_until_stable(world, clients)
    assert sizes(clients) == [3, 3]
    kept_by_b = clients["b"]
    clients["c"] = joined(world, "c")
    assert clients["c"][1] == {}, "nothing is free yet"
    clients["b"] = beat(world, "b", *kept_by_b)
    still = clients["b"][1]
    assert all(partitions <= kept_by_b[1][topic] for topic, partitions in still.items()), "b only gives, never stops"
    run_until_stable(world, clients)
    assert sizes(clients) == [2, 2, 2]
    assert {cause.kind for entry in world.journal for cause in entry.causes} == {"joined"}
    assert world.journal[-1].moved == 2


def test_a_member_that_leaves_frees_its_partitions(world: World) -> None:
    clients = {"a": joined(world, "a"), "b": joined(world, "b")}
    run_until_stable(world, clients)
    result = world.consumer_heartbeat("b", -1)
    assert (result.error, result.member_epoch) == (NONE, -1)
    del clients["b"]
    run_until_stable(world, clients)
    assert sizes(clients) == [6]
    assert world.consumer_heartbeat("b", 3).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_silent_member_is_fenced_after_its_session(world: World) -> None:
    clients = {"a": joined(world, "a"), "b": joined(world, "b")}
    run_until_stable(world, clients)
    for _ in range(10):
        world.pass_time(5_000)
        clients["a"] = beat(world, "a", *clients["a"])
    del clients["b"]
    run_until_stable(world, clients)
    assert sizes(clients) == [6]
    assert world.consumer_heartbeat("b", 2).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_one_that_does_not_give_back_is_fenced_after_its_rebalance_timeout(world: World) -> None:
    epoch_a, owned_a = joined(world, "a", rebalance_timeout_ms=10_000)
    joined(world, "b")
    for _ in range(3):
        world.pass_time(5_000)
        world.consumer_heartbeat("a", epoch_a, owned=owned_a)
        world.consumer_heartbeat("b", 2, owned={})
    assert world.consumer_heartbeat("a", epoch_a, owned=owned_a).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_epochs_fence(world: World) -> None:
    epoch, owned = joined(world, "a")
    assert world.consumer_heartbeat("a", epoch + 1).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert world.consumer_heartbeat("a", epoch - 1 or -5).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert world.consumer_heartbeat("x", 1).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.consumer_heartbeat("x", 1, group_id="other").error is ErrorCode.GROUP_ID_NOT_FOUND
    joined(world, "b")
    new_epoch, kept = beat(world, "a", epoch, owned)
    new_epoch, kept = beat(world, "a", new_epoch, kept)
    assert new_epoch > epoch
    lost_answer = world.consumer_heartbeat("a", epoch, owned=kept)
    assert lost_answer.error is NONE, "the previous epoch is fine while it claims only its own"
    assert world.consumer_heartbeat("a", epoch, owned=owned).error is ErrorCode.FENCED_MEMBER_EPOCH


def test_bad_requests_of_members(world: World) -> None:
    assert world.consumer_join("a", "t", server_assignor="mine").error is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert world.consumer_join("a", topic_regex="(").error is ErrorCode.INVALID_REGULAR_EXPRESSION
    small = World(consumer_max_size=1)
    small.consumer_join("a", "t")
    assert small.consumer_join("b", "t").error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_static_member_comes_back_to_its_partitions(world: World) -> None:
    clients = {"a": joined(world, "a", instance_id="one"), "b": joined(world, "b")}
    run_until_stable(world, clients)
    epoch_before = world.consumer_group().epoch
    assert world.consumer_join("a2", "t", instance_id="one").error is ErrorCode.UNRELEASED_INSTANCE_ID
    assert world.consumer_heartbeat("a", -2, instance_id="one").member_epoch == -2
    back = world.consumer_join("a2", "t", instance_id="one")
    assert back.assignment == clients["a"][1]
    assert world.consumer_group().epoch == epoch_before, "nobody else notices"
    assert world.consumer_heartbeat("a", 2, instance_id="one").error is ErrorCode.FENCED_INSTANCE_ID


def test_patterns_follow_topics_that_come_later(world: World) -> None:
    clients = {"a": joined(world, "a", topic_regex="t.*")}
    assert sizes(clients) == [6]
    world.topics.create("t2", 2)
    world.topics.create("other", 2)
    world.pass_time(10_001)
    run_until_stable(world, clients)
    assert sizes(clients) == [8]
    assert world.journal[-1].causes[0].kind == "metadata"


def test_new_partitions_are_assigned(world: World) -> None:
    clients = {"a": joined(world, "a"), "b": joined(world, "b")}
    run_until_stable(world, clients)
    world.topics.grow("t", 10)
    run_until_stable(world, clients)
    assert sizes(clients) == [5, 5]


def test_a_changed_subscription_takes_partitions_away_at_once(world: World) -> None:
    world.topics.create("u", 2)
    clients = {"a": joined(world, "a", "t", "u")}
    assert sizes(clients) == [8]
    epoch, owned = clients["a"]
    result = world.consumer_heartbeat("a", epoch, topic_names=["u"], owned=owned)
    assert result.assignment == {UUID(int=2): {0, 1}}


def test_a_group_survives_a_failover(world: World) -> None:
    clients = {"a": joined(world, "a"), "b": joined(world, "b", topic_regex="t")}
    run_until_stable(world, clients)
    group = world.consumer_group()
    world.fail_over()
    loaded = world.consumer_group()
    assert (loaded.epoch, loaded.target_epoch, loaded.target) == (group.epoch, group.target_epoch, group.target)
    assert loaded.members == group.members
    assert loaded.owners == group.owners
    assert run_until_stable(world, clients) == 0, "nothing moves because a broker failed"


def test_a_commit_that_met_a_rebalance_counts_for_partitions_that_stayed(world: World) -> None:
    clients = {"a": joined(world, "a")}
    run_until_stable(world, clients)
    before = clients["a"][0]
    clients["b"] = joined(world, "b")
    run_until_stable(world, clients)
    kept = {p for partitions in clients["a"][1].values() for p in partitions}
    assert clients["a"][0] > before
    for partition in range(6):
        code = world.commit("a", before, offset=7, partition=partition, version=9)
        assert code == [NONE if partition in kept else ErrorCode.STALE_MEMBER_EPOCH]
    assert world.commit("a", before, topic="elsewhere", version=9) == [ErrorCode.STALE_MEMBER_EPOCH]
    between = clients["a"][0]
    world.consumer_heartbeat("b", -1)
    del clients["b"]
    run_until_stable(world, clients)
    back = next(p for p in range(6) if p not in kept)
    assert world.commit("a", between, partition=back, version=9) == [ErrorCode.STALE_MEMBER_EPOCH], "it is new again"
    assert world.commit("a", clients["a"][0], partition=back, version=9) == [NONE]


def test_commits_carry_the_member_epoch(world: World) -> None:
    epoch, _ = joined(world, "a")
    assert world.commit("a", epoch, version=9) == [NONE]
    assert world.commit("a", epoch + 1, version=9) == [ErrorCode.STALE_MEMBER_EPOCH]
    assert world.commit("b", epoch, version=9) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert world.commit("a", epoch, version=8) == [ErrorCode.UNSUPPORTED_VERSION]
    assert commands.fetch_offsets(world.shard, "g", "a", epoch + 1, None, False) is ErrorCode.STALE_MEMBER_EPOCH
    assert world.delete_group() is ErrorCode.NON_EMPTY_GROUP
    world.consumer_heartbeat("a", -1)
    assert world.delete_group() is NONE
    assert world.committed() == -1


# Migration -------------------------------------------------------------------------------------------------------


def classic_member(world: World, share: list[int]) -> tuple[str, int]:
    member, answers = world.join_with_id()
    world.pass_time(1)
    generation = answers[0].generation
    world.sync(member, generation, **{member: encode_assignment({"t": share})})
    return member, generation


def rejoin(world: World, member: str, owned: list[int]) -> tuple[int, list[int]]:
    metadata = encode_subscription(Subscription(["t"], owned={"t": owned}, version=1))
    (answer,) = world.join(member, protocols=[("range", metadata)])
    assert answer.error is NONE, answer
    (share,) = world.sync(member, answer.generation)
    assert share.error is NONE, share
    return answer.generation, decode_assignment(share.assignment).get("t", [])


def test_a_classic_group_becomes_a_consumer_group_while_it_works(world: World) -> None:
    member, generation = classic_member(world, list(range(6)))
    result = world.consumer_join("new", "t")
    assert result.error is NONE
    assert result.assignment == {}, "the classic member still has everything"
    assert isinstance(world.shard.groups["g"], ConsumerGroup)
    assert world.heartbeat(member, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    generation, share = rejoin(world, member, list(range(6)))
    assert len(share) == 3
    assert world.heartbeat(member, generation) is ErrorCode.REBALANCE_IN_PROGRESS, "it must say that it let go"
    generation, share = rejoin(world, member, share)
    assert world.heartbeat(member, generation) is NONE
    epoch, owned = beat(world, "new", result.member_epoch, {})
    assert sorted(owned[UUID(int=1)] | set(share)) == list(range(6))
    world.fail_over()
    assert world.heartbeat(member, generation) is NONE
    assert beat(world, "new", epoch, owned) == (epoch, owned)


def test_the_last_consumer_leaves_a_classic_group_behind(world: World) -> None:
    member, generation = classic_member(world, list(range(6)))
    world.consumer_join("new", "t")
    generation, share = rejoin(world, member, list(range(6)))
    generation, share = rejoin(world, member, share)
    world.consumer_heartbeat("new", -1)
    group = world.shard.groups["g"]
    assert isinstance(group, ClassicGroup)
    assert group.state is ClassicState.PREPARING_REBALANCE
    assert world.heartbeat(member, generation) in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION)
    (answer,) = world.join(member)
    assert answer.error is NONE
    assert answer.generation > generation


def test_a_static_consumer_that_comes_back_classic_takes_the_group_with_it(world: World) -> None:
    joined(world, "a", instance_id="one")
    world.consumer_heartbeat("a", -2, instance_id="one")
    (answer,) = world.join(instance_id="one", protocols=[("range", subscription("t"))])
    assert answer.error is NONE
    world.pass_time(1)
    assert isinstance(world.shard.groups["g"], ClassicGroup)
    (again,) = world.join(answer.member_id, instance_id="one")
    assert again.error is NONE
    assert again.generation > answer.generation


def test_migration_can_be_forbidden() -> None:
    world = World(initial_rebalance_delay_ms=0, consumer_migration_policy="disabled")
    world.topics.create("t", 6)
    classic_member(world, [0])
    assert world.consumer_join("new", "t").error is ErrorCode.GROUP_ID_NOT_FOUND
    assert isinstance(world.shard.groups["g"], ClassicGroup)


def test_a_classic_group_of_another_kind_stays_what_it_is(world: World) -> None:
    _, answers = world.join_with_id(protocol_type="connect", protocols=[("own", b"not a subscription")])
    world.pass_time(1)
    assert answers[0].error is NONE
    assert world.consumer_join("new", "t").error is ErrorCode.GROUP_ID_NOT_FOUND


def test_an_empty_group_changes_its_kind_both_ways_and_keeps_its_offsets(world: World) -> None:
    world.commit(offset=5)
    epoch, _ = joined(world, "a")
    assert epoch >= 1
    assert world.committed() == 5
    world.consumer_heartbeat("a", -1)
    member, generation = classic_member(world, [0])
    assert world.heartbeat(member, generation) is NONE
    assert world.committed() == 5
    world.fail_over()
    assert isinstance(world.shard.groups["g"], ClassicGroup)
    assert world.committed() == 5


def test_a_classic_member_must_offer_what_the_others_speak(world: World) -> None:
    joined(world, "a")
    odd = world.join(protocol_type="connect", protocols=[("own", b"")])
    assert odd[0].error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    broken = world.join(protocols=[("range", b"\xff")])
    assert broken[0].error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    fine = world.join(protocols=[("range", subscription("t"))])
    assert fine[0].error is ErrorCode.MEMBER_ID_REQUIRED


# Assignors -------------------------------------------------------------------------------------------------------

T, U = UUID(int=1), UUID(int=2)


def members(*names: str, topics: frozenset[UUID] = frozenset((T,)), **held: Assignment) -> dict[str, AssignorMember]:
    return {name: AssignorMember(name, None, topics, held.get(name, {})) for name in names}


def test_range_gives_contiguous_ranges_and_the_rest_to_the_first() -> None:
    given = range_assignor(members("a", "b", topics=frozenset((T, U))), {T: 5, U: 2})
    assert given == {"a": {T: {0, 1, 2}, U: {0}}, "b": {T: {3, 4}, U: {1}}}


def test_uniform_moves_as_little_as_an_even_share_allows() -> None:
    before = {"a": {T: {0, 1, 2}}, "b": {T: {3, 4, 5}}}
    given = uniform_assignor(members("a", "b", "c", **before), {T: 6})
    assert given["a"][T] < before["a"][T]
    assert given["b"][T] < before["b"][T]
    assert sorted(len(share[T]) for share in given.values()) == [2, 2, 2]
    assert uniform_assignor(members("a", "b", "c", **given), {T: 6}) == given


def test_uniform_with_different_subscriptions_is_even_where_it_can_be() -> None:
    who = {
        "a": AssignorMember("a", None, frozenset((T, U)), {}),
        "b": AssignorMember("b", None, frozenset((T,)), {}),
    }
    given = uniform_assignor(who, {T: 4, U: 4})
    assert given["a"].get(U) == {0, 1, 2, 3}
    assert given["b"].get(T) == {0, 1, 2, 3}


def test_a_group_left_behind_rebalances_although_the_commit_of_its_change_is_slow(world: World) -> None:
    """Else what the last consumer had stays unread for as long as its followers are slow."""
    member, generation = classic_member(world, list(range(6)))
    world.consumer_join("new", "t")
    generation, share = rejoin(world, member, list(range(6)))
    generation, share = rejoin(world, member, share)
    world.log.commits = False
    world._write("g", lambda shard, now: commands.consumer_heartbeat(shard, HeartbeatRequest("g", "new", -1), now))
    world.pass_time(6_000)
    assert world.heartbeat(member, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    world.log.commit_all()
    (answer,) = world.join(member)
    assert answer.error is NONE
    assert answer.generation > generation


def test_a_group_left_behind_rebalances_after_a_fail_over_too(world: World) -> None:
    member, generation = classic_member(world, list(range(6)))
    world.consumer_join("new", "t")
    generation, share = rejoin(world, member, list(range(6)))
    generation, share = rejoin(world, member, share)
    assert len(share) == 3
    world.consumer_heartbeat("new", -1)
    world.fail_over()
    assert world.heartbeat(member, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    (answer,) = world.join(member)
    assert answer.generation > generation
    everything = encode_assignment({"t": list(range(6))})
    assert world.sync(member, answer.generation, **{member: everything})[0].error is NONE
    world.fail_over()
    assert world.heartbeat(member, answer.generation) is NONE, "once is enough"


def test_a_change_of_kind_that_the_log_refuses_has_not_happened(world: World) -> None:
    member, generation = classic_member(world, list(range(6)))
    world.consumer_join("new", "t")
    generation, share = rejoin(world, member, list(range(6)))
    generation, share = rejoin(world, member, share)
    world.log.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    ((error, _),) = world._write(
        "g", lambda shard, now: commands.consumer_heartbeat(shard, HeartbeatRequest("g", "new", -1), now)
    )
    assert error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.log.refuses = NONE
    assert isinstance(world.shard.groups["g"], ConsumerGroup)
    assert world.heartbeat(member, generation) is NONE
    world.pass_time(60_000)
    assert "new" not in world.shard.groups["g"].members, "its session is watched again"


def test_a_static_classic_member_that_comes_back_as_a_consumer_takes_its_place(world: World) -> None:
    answers = world.join(instance_id="one")
    world.pass_time(1)
    (first,) = answers
    assert world.sync(first.member_id, first.generation, instance_id="one")[0].error is NONE
    result = world.consumer_join("new", "t", instance_id="one")
    assert result.error is NONE
    assert list(world.consumer_group().members) == ["new"]


def test_a_static_consumer_that_has_not_left_may_not_join_again_even_under_its_own_id(world: World) -> None:
    joined(world, "a", instance_id="one")
    assert world.consumer_join("a", "t", instance_id="one").error is ErrorCode.UNRELEASED_INSTANCE_ID
    world.consumer_heartbeat("a", -2, instance_id="one")
    assert world.consumer_join("a", "t", instance_id="one").error is NONE


def test_a_description_shows_what_a_member_still_has_to_give_back(world: World) -> None:
    first = world.consumer_join("a", "t")
    world.consumer_join("b", "t")
    world.consumer_heartbeat("a", first.member_epoch, owned={UUID(int=1): set(range(6))})
    member = world.consumer_group().members["a"]
    assert len(member.assigned[UUID(int=1)]) == 3
    assert member.owned[UUID(int=1)] == set(range(6))


def test_uniform_with_different_subscriptions_grows_with_the_number_of_partitions_not_with_its_square() -> None:
    """Nearly ten thousand partitions change hands; whoever looked at all of them for each move would take minutes."""
    topics = [UUID(int=number + 1) for number in range(20)]
    counts = dict.fromkeys(topics, 500)
    crowded = AssignorMember("crowded", None, frozenset(topics), {topic: set(range(500)) for topic in topics})
    newcomers = {
        f"m{number:03}": AssignorMember(f"m{number:03}", None, frozenset(topics[number % 10 :]), {})
        for number in range(100)
    }
    target = uniform_assignor({"crowded": crowded, **newcomers}, counts)
    shares = sorted(sum(map(len, share.values())) for share in target.values())
    assert sum(shares) == 10_000
    assert shares[-1] - shares[0] <= 1
    assert all(set(share) <= newcomers[who].topics for who, share in target.items() if who in newcomers)


def test_a_consumer_may_come_before_a_classic_member_that_has_only_got_its_id(world: World) -> None:
    (first,) = world.join("")
    assert first.error is ErrorCode.MEMBER_ID_REQUIRED
    assert world.consumer_join("a", "t").error is NONE
    assert isinstance(world.shard.groups["g"], ConsumerGroup)
