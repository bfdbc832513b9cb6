"""Who may lead when the ISR is gone: eligible leader replicas (KIP-966), and what a broker must prove to stay one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.cluster import znodes
from penstock.cluster.controller import ControllerPolicy
from penstock.cluster.eligible import kept_its_logs
from penstock.cluster.events import (
    AlterReassignments,
    ControlledShutdown,
    ElectionKind,
    ElectLeaders,
    ReplicasFailed,
)
from penstock.cluster.image import NO_LEADER, BrokerRegistration
from penstock.protocol.errors import ErrorCode
from penstock.store.interface import SetData
from tests.cluster.test_controller_stories import ask_isr
from tests.cluster.world import SESSION, World

MIN_ISR_2 = {"min.insync.replicas": "2"}


def cluster_of(*broker_ids: int, replicas: tuple[int, ...] = (1, 2), configs: dict[str, str] | None = None) -> World:
    world = World(*broker_ids)
    world.create_topic("t", replicas, configs=MIN_ISR_2 if configs is None else configs)
    return world


def stop_in_peace(world: World, broker_id: int) -> None:
    world.happen(ControlledShutdown(broker_id, world.epochs[broker_id]))
    world.brokers_down(broker_id)


def leadership(world: World) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    p = world.partition("t")
    return p.leader, p.isr, p.eligible


def test_after_a_power_loss_the_one_that_stopped_in_peace_leads() -> None:
    """Both have everything; 1 stops in peace, 2 loses power and its unsynced tail: only 1 can still have it."""
    world = cluster_of(1, 2)
    stop_in_peace(world, 1)
    assert leadership(world) == (2, (2,), (1,))
    world.brokers_down(2)
    assert leadership(world) == (NO_LEADER, (), (1, 2))
    world.brokers_up(2, after="kill")
    assert leadership(world) == (NO_LEADER, (), (1,)), "2 came back empty: it waits for 1"
    world.brokers_up(1, after="clean stop")
    assert leadership(world) == (1, (1,), ())


def test_it_leads_at_once_if_it_is_back_first() -> None:
    world = cluster_of(1, 2)
    stop_in_peace(world, 1)
    world.brokers_down(2)
    world.brokers_up(1, after="clean stop")
    assert leadership(world) == (1, (1,), (2,))
    world.brokers_up(2, after="kill")
    assert leadership(world) == (1, (1,), ()), "without proof it is not eligible any more"
    assert ask_isr(world, "t", 1, (1, 2)) == ErrorCode.NONE
    assert leadership(world) == (1, (1, 2), ())


def test_enough_in_sync_replicas_need_no_eligible_ones() -> None:
    world = cluster_of(1, 2, 3, replicas=(1, 2, 3))
    world.brokers_down(3)
    assert leadership(world) == (1, (1, 2), ())
    world.brokers_down(2)
    assert leadership(world) == (1, (1,), (2,)), "3 left while others could still commit"


def test_once_nobody_can_prove_anything_the_last_leader_leads() -> None:
    world = cluster_of(1, 2, 3, replicas=(1, 2, 3))
    world.brokers_down(1)
    world.brokers_down(3)
    world.brokers_down(2)
    p = world.partition("t")
    assert (p.leader, p.isr, p.eligible, p.last_known) == (NO_LEADER, (), (2, 3), (2,))
    world.brokers_up(1, 3)
    assert leadership(world) == (NO_LEADER, (), (2,))
    world.brokers_up(2)
    p = world.partition("t")
    assert (p.leader, p.isr, p.eligible) == (2, (2,), ())


def test_a_new_session_of_a_living_process_keeps_its_place() -> None:
    world = cluster_of(1, 2)
    world.brokers_down(1)
    world.brokers_down(2)
    assert leadership(world) == (NO_LEADER, (), (1, 2))
    world.brokers_up(1, after="session")
    assert leadership(world) == (1, (1,), (2,)), "it never stopped: it has all that it had"


def test_a_bounce_that_nobody_saw_costs_isr_and_elr_in_one_decision() -> None:
    world = cluster_of(1, 2)
    world.brokers_up(1, after="kill")
    assert leadership(world) == (2, (2,), ()), "1 is back already, and without proof"
    world = cluster_of(1, 2)
    world.brokers_up(1, after="clean stop")
    assert leadership(world) == (2, (2,), (1,))


def test_an_isr_that_vanished_without_a_controller_is_eligible() -> None:
    world = cluster_of(1, 2, 3, replicas=(1, 2, 3))
    world.reload(lost=(1, 2, 3))
    assert leadership(world) == (NO_LEADER, (), (1, 2, 3))
    world.brokers_up(2, after="clean stop")
    assert leadership(world) == (2, (2,), (1, 3))


def test_who_came_back_before_the_next_controller_must_prove_itself_to_it() -> None:
    world = cluster_of(1, 2, 3, replicas=(1, 2, 3))
    world.register(1, after="kill")
    world.register(2, after="session")
    world.reload(lost=(3,))
    assert leadership(world) == (2, (2,), (3,)), "1 restarted without proof, 2 never stopped, 3 is away"


def test_an_eligible_replica_survives_a_failover_of_the_controller() -> None:
    world = cluster_of(1, 2)
    stop_in_peace(world, 1)
    world.reload()
    assert leadership(world) == (2, (2,), (1,))
    world.reload(lost=(2,))
    world.brokers_up(1, after="clean stop")
    assert leadership(world) == (1, (1,), (2,))


def test_a_second_clean_restart_still_proves_the_first_life() -> None:
    world = cluster_of(1, 2)
    stop_in_peace(world, 1)
    world.brokers_up(1, after="clean stop")
    world.brokers_down(1)
    world.brokers_up(1, after="clean stop")
    assert leadership(world) == (2, (2,), (1,))


def test_a_restart_without_proof_in_between_breaks_the_chain() -> None:
    world = cluster_of(1, 2)
    stop_in_peace(world, 1)
    world.register(1, after="kill")  # unseen by any controller
    world.register(1, after="clean stop")
    world.brokers_up()
    assert leadership(world) == (2, (2,), ())


def test_a_lone_replica_leads_again_after_a_kill() -> None:
    world = World(1)
    world.create_topic("t", (1,))
    world.brokers_down(1)
    assert leadership(world) == (NO_LEADER, (), (1,))
    world.brokers_up(1, after="kill")
    assert leadership(world) == (1, (1,), ())
    assert world.partition("t").leader_epoch > 0, "its clients must look whether its tail is still there"


def test_min_isr_never_exceeds_the_replicas() -> None:
    world = World(1, 2)
    world.create_topic("t", (1, 2), configs={"min.insync.replicas": "5"})
    assert world.partition("t").min_isr == 2
    world.brokers_down(1)
    assert leadership(world) == (2, (2,), (1,))


def test_another_min_isr_clears_the_eligible_ones_in_the_same_decision() -> None:
    world = cluster_of(1, 2)
    world.brokers_down(1)
    assert leadership(world) == (2, (2,), (1,))
    before = world.partition("t")
    world.configure("topic", "t", min_insync_replicas="1")
    after = world.partition("t")
    assert (after.eligible, after.min_isr) == ((), 1), "from now on 2 commits alone"
    assert after.partition_epoch == before.partition_epoch + 1, "an ISR change that knew the old one is refused"
    assert ask_isr(world, "t", 2, (2,), partition_epoch=before.partition_epoch) in (
        ErrorCode.NONE,
        ErrorCode.INVALID_UPDATE_VERSION,
    )
    world.brokers_down(2)
    assert leadership(world) == (NO_LEADER, (), (2,))


def test_a_partition_without_leader_keeps_whom_it_waits_for_when_min_isr_changes() -> None:
    world = cluster_of(1, 2)
    world.brokers_down(1)
    world.brokers_down(2)
    world.configure("topic", "t", min_insync_replicas="1")
    assert leadership(world) == (NO_LEADER, (), (1, 2))


def test_the_cluster_wide_min_isr_and_the_controllers_own_count_too() -> None:
    world = World(1, 2, 3, policy=ControllerPolicy(min_insync_replicas=2))
    world.create_topic("t", (1, 2, 3))
    assert world.partition("t").min_isr == 2
    world.configure("broker", "", min_insync_replicas="3")
    assert world.partition("t").min_isr == 3
    world.brokers_down(3)
    assert leadership(world) == (1, (1, 2), (3,))


def test_isr_changes_of_the_leader_move_members_in_and_out() -> None:
    world = cluster_of(1, 2, 3, replicas=(1, 2, 3))
    assert ask_isr(world, "t", 1, (1,)) == ErrorCode.NONE
    assert leadership(world) == (1, (1,), (2, 3))
    assert ask_isr(world, "t", 1, (1, 3)) == ErrorCode.NONE
    assert leadership(world) == (1, (1, 3), ())


def test_a_reassignment_takes_the_eligible_ones_along() -> None:
    world = cluster_of(1, 2, 3)
    world.brokers_down(1)
    assert leadership(world) == (2, (2,), (1,))
    world.happen(AlterReassignments({("t", 0): (2, 3)}))
    assert world.partition("t").eligible == (1,), "it is still a replica"
    assert ask_isr(world, "t", 2, (2, 3)) == ErrorCode.NONE
    p = world.partition("t")
    assert (p.replicas, p.eligible) == ((2, 3), ())


def test_a_failed_log_directory_ends_eligibility() -> None:
    world = cluster_of(1, 2)
    assert ask_isr(world, "t", 1, (1,)) == ErrorCode.NONE
    assert leadership(world) == (1, (1,), (2,))
    world.happen(ReplicasFailed(2, (("t", 0),)))
    assert leadership(world) == (1, (1,), ())
    world.happen(ReplicasFailed(1, (("t", 0),)))
    p = world.partition("t")
    assert (p.leader, p.isr, p.eligible) == (NO_LEADER, (), ())


def test_an_unclean_election_forgets_who_was_eligible() -> None:
    world = cluster_of(1, 2, 3, replicas=(1, 2, 3))
    assert ask_isr(world, "t", 1, (1, 2)) == ErrorCode.NONE
    world.brokers_down(1, 2)
    assert leadership(world) == (NO_LEADER, (), (1, 2))
    world.happen(ElectLeaders(ElectionKind.UNCLEAN, (("t", 0),)))
    p = world.partition("t")
    assert (p.leader, p.isr, p.eligible, p.last_known) == (3, (3,), (), ())


def test_a_state_of_an_older_release_reads_as_without_eligible_ones() -> None:
    """Its last ISR stayed listed, and its members have no recorded registration: the first to come leads."""
    world = cluster_of(1, 2)
    path = znodes.state_path("t", 0)
    old = b'{"controller_epoch":1,"leader":-1,"version":1,"leader_epoch":3,"isr":[2,1]}'
    world.tree.apply([SetData(path, old)], SESSION, 0)
    state = znodes.decode_state(path, old, 1)
    assert (state.eligible, state.last_known, state.min_isr) == ((), (), 0)
    world.reload(lost=(1, 2))
    p = world.partition("t")
    assert (p.leader, p.isr, p.last_known) == (NO_LEADER, (), (2, 1))
    world.brokers_up(1, 2)
    assert world.partition("t").leader in (1, 2)


@pytest.mark.parametrize(
    ("epoch", "kept"),
    [(30, True), (25, True), (24, False), (20, True), (10, True), (9, False), (22, False), (31, False), (-1, False)],
)
def test_what_proves_that_a_log_is_the_old_one(epoch: int, kept: bool) -> None:
    """Registered as 30, in a process that was first registered as 25, after one that stopped in peace: 10 to 20."""
    broker = BrokerRegistration(1, 30, {}, incarnation=25, clean_since=10, clean_stop=20)
    assert kept_its_logs(broker, epoch) is kept
    assert kept_its_logs(replace(broker, incarnation=-1), 25) is False, "this is its first registration"


def test_a_registration_carries_its_proof_through_the_store() -> None:
    broker = BrokerRegistration(1, 30, {}, incarnation=25, clean_since=10, clean_stop=20)
    read = znodes.decode_broker(1, znodes.encode_broker(broker, 0), 30)
    assert (read.incarnation, read.clean_since, read.clean_stop) == (25, 10, 20)
    plain = znodes.decode_broker(1, znodes.encode_broker(BrokerRegistration(1, 30, {}), 0), 30)
    assert (plain.incarnation, plain.clean_since, plain.clean_stop) == (-1, -1, -1)
