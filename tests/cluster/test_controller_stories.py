"""What the controller decides, event by event."""

from __future__ import annotations

import pytest

from penstock.cluster import znodes
from penstock.cluster.controller import ControllerPolicy
from penstock.cluster.events import (
    AlterPartitions,
    AlterPartitionsAnswer,
    ControlledShutdown,
    ControlledShutdownAnswer,
    DeletionsRequested,
    ElectionKind,
    ElectLeaders,
    ImageAcknowledged,
    ImbalanceCheck,
    IsrChange,
    IsrMember,
    PartitionAnswer,
    ReplicasFailed,
)
from penstock.cluster.image import NO_LEADER
from penstock.cluster.state_machines import (
    IllegalMove,
    PartitionStatus,
    ReplicaStatus,
    check_partition_move,
    check_replica_move,
)
from penstock.protocol.errors import ErrorCode
from tests.cluster.world import World


def ask_isr(world: World, topic: str, sender: int, isr: tuple[int, ...], **changes: int) -> int:
    """AlterPartition of partition 0 with everything right but `changes`; returns the error code."""
    p = world.partition(topic)
    members = tuple(IsrMember(b, changes.get("member_epoch", world.epochs.get(b, 0))) for b in isr)
    change = IsrChange(
        0,
        changes.get("leader_epoch", p.leader_epoch),
        changes.get("partition_epoch", p.partition_epoch),
        members,
        topic_id=world.image.topics[topic].topic_id,
    )
    answer = world.happen(AlterPartitions(sender, changes.get("broker_epoch", world.epochs.get(sender, 0)), (change,)))
    assert isinstance(answer, AlterPartitionsAnswer)
    return answer.error_code or answer.changes[0].error_code


# --- creation ---


def test_a_new_topic_is_led_by_its_first_live_replica() -> None:
    world = World(1, 2)
    world.create_topic("t", (3, 1, 2), (2, 3, 1))
    assert (world.partition("t", 0).leader, world.partition("t", 0).isr) == (1, (1, 2))
    assert (world.partition("t", 1).leader, world.partition("t", 1).isr) == (2, (2, 1))
    assert world.partition("t").leader_epoch == 0


def test_a_topic_whose_replicas_are_all_down_waits_for_the_first_to_come() -> None:
    world = World(1)
    world.create_topic("t", (2, 3))
    assert world.partition("t").leader == NO_LEADER and world.partition("t").partition_epoch == -1
    world.brokers_up(3)
    assert (world.partition("t").leader, world.partition("t").isr) == (3, (3,))


def test_partitions_are_added_to_a_topic() -> None:
    world = World(1, 2)
    world.create_topic("t", (1, 2))
    world.grow_topic("t", (2, 1), (1, 2))
    assert [world.partition("t", i).leader for i in range(3)] == [1, 2, 1]


# --- brokers come and go ---


def test_leaders_of_a_dead_broker_move_to_the_next_in_sync_replica() -> None:
    world = World(1, 2, 3)
    world.create_topic("t", (1, 2, 3))
    world.brokers_down(1)
    p = world.partition("t")
    assert (p.leader, p.isr, p.leader_epoch, p.partition_epoch) == (2, (2, 3), 1, 1)


def test_a_dead_follower_leaves_the_isr_without_a_new_leader_epoch() -> None:
    world = World(1, 2, 3)
    world.create_topic("t", (1, 2, 3))
    world.brokers_down(3)
    p = world.partition("t")
    assert (p.leader, p.isr, p.leader_epoch, p.partition_epoch) == (1, (1, 2), 0, 1)


def test_the_last_in_sync_replica_leads_again_when_it_returns() -> None:
    world = World(1, 2)
    world.create_topic("t", (1, 2))
    world.brokers_down(2)
    world.brokers_down(1)
    p = world.partition("t")
    assert (p.leader, p.isr, p.eligible) == (NO_LEADER, (), (1,))
    world.brokers_up(2)
    assert world.partition("t").leader == NO_LEADER, "it was not in sync: electing it would lose data"
    world.brokers_up(1)
    p = world.partition("t")
    assert (p.leader, p.isr, p.leader_epoch) == (1, (1,), 2)


def test_a_broker_that_bounced_unseen_has_to_prove_itself_again() -> None:
    world = World(1, 2, 3)
    world.create_topic("t", (1, 2, 3))
    world.brokers_up(1)
    p = world.partition("t")
    assert (p.leader, p.isr, p.leader_epoch) == (2, (2, 3), 1)


def test_unclean_election_only_where_it_is_allowed() -> None:
    world = World(1, 2)
    world.create_topic("safe", (1, 2))
    world.create_topic("fast", (1, 2), configs={"unclean.leader.election.enable": "true"})
    for topic in ("safe", "fast"):
        assert ask_isr(world, topic, 1, (1,)) == ErrorCode.NONE
    world.brokers_down(1)
    assert world.partition("safe").leader == NO_LEADER
    assert (world.partition("fast").leader, world.partition("fast").isr) == (2, (2,))


def test_switching_unclean_election_on_elects_at_once() -> None:
    world = World(1, 2)
    world.create_topic("t", (1, 2))
    ask_isr(world, "t", 1, (1,))
    world.brokers_down(1)
    assert world.partition("t").leader == NO_LEADER
    world.configure("topic", "t", unclean_leader_election_enable="true")
    assert world.partition("t").leader == 2


def test_the_cluster_default_allows_unclean_election_too() -> None:
    world = World(1, 2, policy=ControllerPolicy(unclean_leader_election=True))
    world.create_topic("t", (1, 2))
    ask_isr(world, "t", 1, (1,))
    world.brokers_down(1)
    assert world.partition("t").leader == 2


# --- controlled shutdown ---


def test_a_leaving_broker_hands_over_before_it_goes() -> None:
    world = World(1, 2, 3)
    world.create_topic("t", (1, 2, 3), (2, 1, 3))
    world.create_topic("single", (1,))
    answer = world.happen(ControlledShutdown(1, world.epochs[1]))
    assert answer == ControlledShutdownAnswer(ErrorCode.NONE, ())
    assert (world.partition("t", 0).leader, world.partition("t", 0).isr) == (2, (2, 3))
    assert (world.partition("t", 1).leader, world.partition("t", 1).isr) == (2, (2, 3))
    assert world.partition("single").leader == 1, "nobody else has it"
    assert ask_isr(world, "t", 2, (2, 3, 1)) == ErrorCode.INELIGIBLE_REPLICA
    world.brokers_down(1)
    world.brokers_up(1)
    assert ask_isr(world, "t", 2, (2, 3, 1)) == ErrorCode.NONE


def test_a_leaving_broker_keeps_what_nobody_else_can_lead() -> None:
    world = World(1, 2)
    world.create_topic("t", (1, 2))
    world.brokers_down(2)
    answer = world.happen(ControlledShutdown(1, world.epochs[1]))
    assert answer == ControlledShutdownAnswer(ErrorCode.NONE, (("t", 0),))
    assert world.partition("t").leader == 1


def test_only_the_living_may_ask_to_leave() -> None:
    world = World(1, 2)
    answer = world.happen(ControlledShutdown(1, world.epochs[1] - 1))
    assert answer == ControlledShutdownAnswer(ErrorCode.STALE_BROKER_EPOCH)


# --- ISR changes ---


def test_isr_shrinks_and_grows_as_the_leader_asks() -> None:
    world = World(1, 2, 3)
    world.create_topic("t", (1, 2, 3))
    assert ask_isr(world, "t", 1, (1, 3)) == ErrorCode.NONE
    assert (world.partition("t").isr, world.partition("t").partition_epoch) == ((1, 3), 1)
    assert ask_isr(world, "t", 1, (1, 3, 2)) == ErrorCode.NONE
    assert (world.partition("t").isr, world.partition("t").leader_epoch) == ((1, 3, 2), 0)


def test_an_isr_change_that_is_on_record_already_succeeds_again() -> None:
    world = World(1, 2)
    world.create_topic("t", (1, 2))
    assert ask_isr(world, "t", 1, (1,)) == ErrorCode.NONE
    assert ask_isr(world, "t", 1, (1,), partition_epoch=0) == ErrorCode.NONE
    assert world.partition("t").partition_epoch == 1


@pytest.mark.parametrize(
    ("sender", "isr", "wrong", "code"),
    [
        (1, (1,), {"broker_epoch": 5}, ErrorCode.STALE_BROKER_EPOCH),
        (9, (1,), {}, ErrorCode.STALE_BROKER_EPOCH),
        (1, (1,), {"leader_epoch": 7}, ErrorCode.NOT_CONTROLLER),
        (1, (1,), {"partition_epoch": 7}, ErrorCode.NOT_CONTROLLER),
        (2, (2,), {}, ErrorCode.INVALID_REQUEST),
        (1, (2, 3), {}, ErrorCode.INVALID_REQUEST),
        (1, (1, 4), {}, ErrorCode.INVALID_REQUEST),
        (1, (1, 2, 2), {}, ErrorCode.INVALID_REQUEST),
        (1, (1, 2), {"member_epoch": 3}, ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_wrong_isr_changes_are_refused(sender: int, isr: tuple[int, ...], wrong: dict[str, int], code: int) -> None:
    world = World(1, 2, 3, 4)
    world.create_topic("t", (1, 2, 3))
    before = world.partition("t")
    assert ask_isr(world, "t", sender, isr, **wrong) == code
    assert world.partition("t") == before


def test_a_deposed_leader_cannot_change_the_isr() -> None:
    world = World(1, 2, 3)
    world.create_topic("t", (1, 2, 3))
    world.happen(ControlledShutdown(1, world.epochs[1]))
    assert ask_isr(world, "t", 1, (1,), leader_epoch=0, partition_epoch=0) == ErrorCode.FENCED_LEADER_EPOCH
    assert ask_isr(world, "t", 2, (2,), partition_epoch=0) == ErrorCode.INVALID_UPDATE_VERSION


def test_a_dead_replica_cannot_join_the_isr() -> None:
    world = World(1, 2)
    world.create_topic("t", (1, 2))
    world.brokers_down(2)
    assert ask_isr(world, "t", 1, (1, 2)) == ErrorCode.INELIGIBLE_REPLICA


# --- elections on request ---


def elect(world: World, kind: ElectionKind, *where: tuple[str, int]) -> dict[tuple[str, int], int]:
    answers = world.happen(ElectLeaders(kind, where or None))
    assert isinstance(answers, dict)
    return {w: a.error_code for w, a in answers.items() if isinstance(a, PartitionAnswer)}


def test_preferred_leaders_are_elected_where_they_are_in_sync() -> None:
    world = World(1, 2)
    world.create_topic("t", (1, 2))
    world.brokers_up(1)
    assert world.partition("t").leader == 2
    assert elect(world, ElectionKind.PREFERRED, ("t", 0)) == {("t", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    ask_isr(world, "t", 2, (2, 1))
    assert elect(world, ElectionKind.PREFERRED, ("t", 0), ("t", 9), ("no", 0)) == {
        ("t", 0): ErrorCode.NONE,
        ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("no", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert world.partition("t").leader == 1
    assert elect(world, ElectionKind.PREFERRED, ("t", 0)) == {("t", 0): ErrorCode.ELECTION_NOT_NEEDED}
    assert elect(world, ElectionKind.PREFERRED) == {}


def test_unclean_elections_on_request() -> None:
    world = World(1, 2)
    world.create_topic("t", (1, 2))
    ask_isr(world, "t", 1, (1,))
    assert elect(world, ElectionKind.UNCLEAN, ("t", 0)) == {("t", 0): ErrorCode.ELECTION_NOT_NEEDED}
    world.brokers_down(1)
    assert elect(world, ElectionKind.UNCLEAN) == {("t", 0): ErrorCode.NONE}
    assert world.partition("t").leader == 2
    world.brokers_down(2)
    assert elect(world, ElectionKind.UNCLEAN, ("t", 0)) == {("t", 0): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}


def test_the_imbalance_check_brings_preferred_leaders_back() -> None:
    world = World(1, 2)
    world.create_topic("t", *[(1, 2)] * 10, *[(2, 1)] * 10)
    world.brokers_up(1)
    for index in range(20):
        p = world.partition("t", index)
        change = IsrChange(index, p.leader_epoch, p.partition_epoch, (IsrMember(2), IsrMember(1)), topic="t")
        world.happen(AlterPartitions(2, world.epochs[2], (change,)))
    assert all(world.partition("t", i).leader == 2 for i in range(20))
    world.happen(ImbalanceCheck())
    assert [world.partition("t", i).leader for i in range(20)] == [1] * 10 + [2] * 10


def test_a_small_imbalance_is_left_alone() -> None:
    world = World(1, 2, policy=ControllerPolicy(leader_imbalance_percent=50))
    world.create_topic("t", (1, 2), (1, 2), (1, 2))
    world.brokers_up(1)
    for index in (0, 1):
        p = world.partition("t", index)
        change = IsrChange(index, p.leader_epoch, p.partition_epoch, (IsrMember(2), IsrMember(1)), topic="t")
        world.happen(AlterPartitions(2, world.epochs[2], (change,)))
        elect(world, ElectionKind.PREFERRED, ("t", index))
    assert [world.partition("t", i).leader for i in range(3)] == [1, 1, 2]
    world.happen(ImbalanceCheck())
    assert [world.partition("t", i).leader for i in range(3)] == [1, 1, 2]


# --- deletion ---


def test_a_deleted_topic_leaves_a_tombstone_until_every_holder_has_dropped_it() -> None:
    world = World(1, 2)
    topic_id = world.create_topic("t", (1, 2), configs={"retention.ms": "5"})
    world.happen(DeletionsRequested(("t",)))
    assert "t" not in world.image.topics and ("topic", "t") not in world.image.configs
    assert not [path for path in world.tree.nodes if path.startswith(znodes.topic_path("t"))]
    world.acknowledge(1)
    assert znodes.tombstone_path(topic_id) in world.tree.nodes
    world.acknowledge(2)
    assert znodes.tombstone_path(topic_id) not in world.tree.nodes
    assert world.state.deletions == {}


def test_a_replica_that_is_down_owes_its_deletion_but_does_not_block_the_name() -> None:
    world = World(1, 2)
    first = world.create_topic("t", (1, 2))
    world.acknowledge(1, 2)
    world.brokers_down(2)
    world.happen(DeletionsRequested(("t",)))
    world.acknowledge(1)
    second = world.create_topic("t", (1, 2))
    assert first != second and world.image.topic_names == {second: "t"}
    world.happen(ImageAcknowledged(2, 1, 10**6))
    assert znodes.tombstone_path(first) in world.tree.nodes, "an acknowledgement of an earlier life does not count"
    world.reload()
    assert world.state.deletions[first].waiting_for >= {2}, "the next controller knows it, too"
    world.brokers_up(2)
    world.acknowledge(1, 2)
    assert znodes.tombstone_path(first) not in world.tree.nodes
    assert world.partition("t").replicas == (1, 2)


def test_a_topic_can_be_made_again_after_its_deletion() -> None:
    world = World(1)
    first = world.create_topic("t", (1,))
    world.happen(DeletionsRequested(("t",)))
    world.acknowledge(1)
    second = world.create_topic("t", (1,))
    assert first != second and world.image.topic_names == {second: "t"}


def test_deletion_of_an_unknown_topic_only_clears_the_mark() -> None:
    world = World(1)
    world._ensure(znodes.deletion_path("ghost"))
    world.happen(DeletionsRequested(("ghost",)))
    assert znodes.deletion_path("ghost") not in world.tree.nodes


# --- failed log directories ---


def test_replicas_on_a_failed_directory_lose_leadership_until_their_broker_has_them_back() -> None:
    world = World(1, 2)
    world.create_topic("t", (1, 2), (1, 2))
    world.acknowledge(1, 2)
    world.happen(ReplicasFailed(1, (("t", 0),)))
    p = world.partition("t", 0)
    assert (p.leader, p.isr, p.offline) == (2, (2,), (1,))
    assert world.partition("t", 1).leader == 1
    assert ask_isr(world, "t", 2, (2, 1)) == ErrorCode.INELIGIBLE_REPLICA
    world.brokers_up(1)
    assert world.partition("t", 0).offline == (1,), "a new registration proves nothing about the disk"
    world.reload()
    assert world.partition("t", 0).offline == (1,), "nor does a new controller"
    world.acknowledge(1)
    assert world.partition("t", 0).offline == ()
    assert ask_isr(world, "t", 2, (2, 1)) == ErrorCode.NONE


def test_a_lone_broken_replica_is_not_elected_before_its_broker_says_that_it_works() -> None:
    world = World(1, 2)
    world.create_topic("t", (1,))
    world.acknowledge(1)
    world.happen(ReplicasFailed(1, (("t", 0),)))
    assert world.partition("t").leader == -1
    world.brokers_up(1)
    world.reload()
    assert world.partition("t").leader == -1
    world.happen(ImageAcknowledged(1, world.epochs[1], world.image.version, offline=(("t", 0),)))
    assert world.partition("t").leader == -1
    world.acknowledge(1)
    assert world.partition("t").leader == 1


def test_an_acknowledgement_sent_before_the_failure_was_known_heals_nothing() -> None:
    world = World(1, 2)
    world.create_topic("t", (1, 2))
    before = world.image.version
    world.happen(ReplicasFailed(1, (("t", 0),)))
    world.happen(ImageAcknowledged(1, world.epochs[1], before))
    assert world.partition("t").offline == (1,)


# --- fail-over ---


def test_a_new_controller_knows_what_the_old_one_knew() -> None:
    world = World(1, 2, 3)
    world.create_topic("t", (1, 2, 3), (2, 3, 1))
    ask_isr(world, "t", 1, (1, 2))
    world.create_topic("u", (3,))
    topics = world.image.topics
    world.reload()
    assert world.image.topics == topics
    assert world.image.controller_epoch == 2


def test_a_new_controller_settles_what_the_old_one_left_undone() -> None:
    world = World(1, 2, 3)
    world.create_topic("t", (1, 2, 3), (2, 3, 1))
    world.reload(lost=(1,))
    assert (world.partition("t", 0).leader, world.partition("t", 0).isr) == (2, (2, 3))
    assert (world.partition("t", 1).leader, world.partition("t", 1).isr) == (2, (2, 3))


def test_a_new_controller_sees_who_died_and_came_back_in_between() -> None:
    world = World(1, 2)
    world.create_topic("t", (1, 2))
    world.create_topic("alone", (1,))
    world.register(1)
    world.reload()
    assert (world.partition("t").leader, world.partition("t").isr, world.partition("t").leader_epoch) == (2, (2,), 1)
    assert (world.partition("alone").leader, world.partition("alone").leader_epoch) == (1, 1), "it may lack its tail"


def test_a_new_controller_goes_on_with_deletions() -> None:
    world = World(1, 2)
    world.create_topic("t", (1, 2))
    world._ensure(znodes.deletion_path("t"))
    world.reload()
    assert "t" not in world.image.topics
    assert not [path for path in world.tree.nodes if path in (znodes.topic_path("t"), znodes.deletion_path("t"))]
    assert {deletion.topic for deletion in world.state.deletions.values()} == {"t"}
    world.acknowledge(1, 2)
    assert not world.tree.children(znodes.TOMBSTONES)


# --- tables ---


def test_moves_that_the_tables_forbid_fail_loudly() -> None:
    check_partition_move("t-0", PartitionStatus.OFFLINE, PartitionStatus.ONLINE)
    with pytest.raises(IllegalMove):
        check_partition_move("t-0", PartitionStatus.ONLINE, PartitionStatus.NEW)
    with pytest.raises(IllegalMove):
        check_replica_move("t-0", ReplicaStatus.ONLINE, ReplicaStatus.DELETION_SUCCESSFUL)
